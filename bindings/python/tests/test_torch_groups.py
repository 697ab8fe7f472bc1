"""Groups of PyTorch that are made of a group."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run


def test_split_groups():
    run(3, """
        group = dist.split_group(split_ranks=[[0, 2], [1]], timeout=timedelta(seconds=7))
        data = torch.tensor([float(rank)])
        dist.all_reduce(data, group=group)
        assert data.item() == (1.0 if rank == 1 else 2.0), data
        assert dist.get_process_group_ranks(group) == ([1] if rank == 1 else [0, 2])
        if rank != 1:
            got = torch.empty(1)
            send = dist.isend(data, 2 - rank, group=group)
            assert dist.recv(got, 2 - rank, group=group) == 2 - rank and got.item() == 2.0
            send.wait()
        rows = dist.split_group(split_ranks=[[0, 1], [2]])
        dist.barrier(group=rows)
        dist.all_reduce(data)
        assert data.item() == 5.0, data
        if rank != 1:
            # A group of a group, and a rank that is in none.
            alone = dist.split_group(group, split_ranks=[[1]])
            assert (alone is dist.GroupMember.NON_GROUP_MEMBER) == (rank == 0), alone
            if rank == 2:
                dist.all_reduce(data, group=alone)
                assert data.item() == 5.0
    """)

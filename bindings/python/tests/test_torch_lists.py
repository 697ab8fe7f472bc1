"""What the backend of PyTorch can do beside gloo: lists of unequal lengths, and more types."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run


def test_lists_of_unequal_lengths():
    run(3, """
        lengths = [2, 0, 5]
        for later in (False, True):
            rows = [torch.empty(length, 2) for length in lengths]
            work = dist.all_gather(rows, torch.full((lengths[rank], 2), float(rank)), async_op=later)
            assert work is None or work.wait()
            assert all((row == other).all() for other, row in enumerate(rows)), rows
            parts = [torch.full((length,), float(rank + to)) for to, length in enumerate(lengths)]
            mine = torch.empty(lengths[rank])
            work = dist.reduce_scatter(mine, parts, async_op=later)
            assert work is None or work.wait()
            assert (mine == 3.0 + 3 * rank).all(), mine
        # Every rank is told before anything is sent, so the group goes on.
        wrong = torch.empty(lengths[rank] + 1)
        for call in (lambda: dist.all_gather(list(rows), wrong), lambda: dist.reduce_scatter(wrong, parts)):
            try:
                call()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert f"{wrong.numel()}" in str(error) and f"rank {rank}" in str(error), error
        dist.barrier()
    """)


def test_errors_count_elements_of_the_tensors_type():
    said = run(2, """
        def told(call):
            try:
                call()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                print(error, flush=True)

        told(lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(2)))
        # This one is sent, and its other end is longer.
        told(lambda: dist.broadcast(torch.ones(2 + rank), 0) or dist.barrier())
        os._exit(0)
    """)
    for own, between in (text.splitlines() for text in said):
        assert "the output has 3 elements and needs 4" in own, own
        assert "broadcast(2 x f32, root 0)" in between and "broadcast(3 x f32, root 0)" in between, between


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_reductions_of_unsigned_numbers(name):
    run(2, f"""
        # Above the signed numbers of the same size.
        most = torch.iinfo(torch.{name}).max
        data = torch.tensor([most // 2 + 1 + rank, 3 + rank, 0], dtype=torch.{name})
        largest = data.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        assert largest.tolist() == [most // 2 + 2, 4, 0], largest
        dist.all_reduce(data)
        assert data.tolist() == [1, 7, 0], data
    """)

"""Tensors of one call that share memory, have two types, or whose memory has not the values themselves."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run


@pytest.mark.parametrize("registered", [False, True])
def test_overlapping_tensors_give_what_tensors_apart_give(registered):
    run(3, """
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        def memory(count):
            return backend.allocate_tensor(count, dtype=torch.float64) if REGISTERED else torch.empty(count, dtype=torch.float64)
        def numbers(count):
            return torch.arange(count, dtype=torch.float64) * 3 + 1e7 * (rank + 1)
        splits = ([rank + 1] * 3, [1, 2, 3])
        calls = {
            "all_gather": (1, 3, lambda out, data, n: dist.all_gather_into_tensor(out, data)),
            "reduce_scatter": (3, 1, lambda out, data, n: dist.reduce_scatter_tensor(out, data)),
            "all_to_all": (6, 6, lambda out, data, n: dist.all_to_all_single(out.view(6, n), data.view(6, n))),
            "with equal splits": (6, 6, lambda out, data, n: dist.all_to_all_single(out.view(6, n), data.view(6, n), [2] * 3, [2] * 3)),
            "with splits": (6, 3 * (rank + 1), lambda out, data, n: dist.all_to_all_single(out.view(-1, n), data.view(6, n), *splits)),
            "later": (3, 1, lambda out, data, n: dist.reduce_scatter_tensor(out, data, async_op=True).wait()),
        }
        for n in (1, 170, 1 << 15):
            whole = memory(20 * n)
            for name, (read, written, call) in calls.items():
                expected = torch.empty(written * n, dtype=torch.float64)
                call(expected, numbers(read * n), n)
                for at in (0, rank * n, n, 2 * n, n // 2):
                    for data, out in ((whole[: read * n], whole[at:][: written * n]), (whole[at:][: read * n], whole[: written * n])):
                        data.copy_(numbers(read * n))
                        call(out, data, n)
                        assert torch.equal(out, expected), (name, n, at)
    """.replace("REGISTERED", str(registered)))


def test_results_that_share_memory_are_refused_before_anything_is_sent():
    run(2, """
        from torch.distributed.distributed_c10d import _coalescing_manager as manager
        def refused(call):
            try:
                call()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert "share" in str(error), error
        x, m = torch.zeros(8), torch.zeros(4, 6)
        one = torch.ones(4)
        refused(lambda: dist.all_gather([x[:4], x[3:7]], one))
        refused(lambda: dist.all_gather([m[:, 1], m[:, 1]], one))
        refused(lambda: dist.all_gather([m[1:].flatten()[:4].as_strided((2, 2), (2, 1)), torch.zeros(2).expand(2, 2)], one.view(2, 2)))
        refused(lambda: dist.all_to_all([x[:4], x[2:6]], [one, one]))
        refused(lambda: dist.all_reduce_coalesced([x[:4], x[2:6]]))
        refused(lambda: dist.all_reduce(torch.zeros(1).expand(4)))
        refused(lambda: dist.recv(torch.zeros(1).expand(4), 1 - rank))
        def coalesced(call, *pairs):
            with manager():
                for out, data in pairs:
                    call(out, data)
        y = torch.zeros(16)
        # The first call would write what the second reads.
        refused(lambda: coalesced(dist.all_gather_into_tensor, (y[:8], y[12:]), (torch.zeros(8), y[:4])))
        refused(lambda: coalesced(dist.reduce_scatter_tensor, (y[:4], torch.zeros(8)), (torch.zeros(4), y[:8])))
        if rank == 0:
            refused(lambda: dist.gather(one, [x[:4], x[1:5]], 0))
        dist.barrier()
        # Between one another, or side by side, they share nothing.
        dist.all_gather([m[:, 1], m[:, 3]], torch.full((4,), rank + 1.0))
        assert m.sum(0).tolist() == [0, 4, 0, 8, 0, 0], m
        dist.all_gather(list(m.unbind(1)[:2]), torch.full((4,), rank + 5.0))
        assert m.sum(0).tolist() == [20, 24, 0, 8, 0, 0], m
        coalesced(dist.all_gather_into_tensor, (x, x[4 * rank :][:4].fill_(rank + 1.0)), (y[:8], one))
        assert x.tolist() == [1] * 4 + [2] * 4 and (y[:8] == 1).all()
        # The root of a broadcast only reads.
        some = torch.full((1,), 5.0).expand(4) if rank == 0 else torch.zeros(4)
        dist.broadcast(some, 0)
        assert (some == 5).all()
    """)


def test_memory_of_a_message_in_flight_is_not_used():
    run(2, """
        def refused(call):
            try:
                call()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert "wait for the message first" in str(error), error
        x = torch.zeros(1 << 18)
        if rank == 0:
            send = dist.isend(x[: 1 << 17], 1)
            # Reading is allowed.
            again = dist.isend(x[: 1 << 17], 1, tag=1)
            refused(lambda: dist.irecv(x[5:6], 1))
            refused(lambda: dist.all_reduce(x))
            receive = dist.irecv(x[1 << 17 :], 1, tag=2)
            refused(lambda: dist.isend(x[-1:], 1))
            refused(lambda: dist.all_gather_into_tensor(torch.empty(2), x[-1:]))
            dist.monitored_barrier()
            [work.wait() for work in (send, again, receive)]
        else:
            dist.monitored_barrier()
            for tag in (0, 1):
                dist.recv(x[: 1 << 17], 0, tag=tag)
            dist.send(torch.ones(1 << 17), 0, tag=2)
        dist.all_reduce(x)
        assert (x[1 << 17 :] == 1).all()
    """)


def test_tensors_of_one_call_have_one_type():
    run(2, """
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        ones = lambda dtype, n=4: torch.ones(n).to(dtype)
        root = lambda kind, at=0: [setattr(options := kind(), "rootRank", at), options][1]
        kinds = [(torch.float32, torch.int32), (torch.float32, torch.float64), (torch.int16, torch.bfloat16),
                 (torch.complex64, torch.float64), (torch.float8_e4m3fn, torch.float8_e5m2), (torch.bool, torch.uint8)]
        for given, wanted in kinds:
            reduces = given not in (torch.float8_e4m3fn,)
            calls = [
                lambda: backend.all_gather_single(ones(wanted, 8), ones(given)),
                lambda: backend.all_to_all_single(ones(wanted), ones(given), [], []),
                lambda: backend.all_to_all_single(ones(wanted), ones(given), [2, 2], [2, 2]),
                lambda: backend.allgather([[ones(given), ones(wanted)]], [ones(given)]),
                lambda: backend.allgather([[ones(wanted), ones(wanted)]], [ones(given)]),
                lambda: backend.all_gather_single_coalesced([ones(given, 8), ones(wanted, 8)], [ones(given)] * 2),
                lambda: backend.alltoall([ones(wanted)] * 2, [ones(given)] * 2),
                lambda: backend.alltoall([ones(given)] * 2, [ones(given), ones(wanted)]),
            ]
            if reduces:
                calls += [
                    lambda: backend.reduce_scatter_single(ones(wanted), ones(given, 8)),
                    lambda: backend.reduce_scatter([ones(wanted)], [[ones(given)] * 2], dist.ReduceScatterOptions()),
                    lambda: backend.reduce_scatter([ones(given)], [[ones(given), ones(wanted)]], dist.ReduceScatterOptions()),
                    lambda: backend.reduce_scatter_single_coalesced([ones(wanted)], [ones(given, 8)]),
                ]
            if rank == 0:
                calls += [
                    lambda: backend.gather([[ones(given), ones(wanted)]], [ones(given)], root(dist.GatherOptions)),
                    lambda: backend.gather_single(ones(wanted, 8), ones(given), root(dist.GatherOptions)),
                    lambda: backend.scatter([ones(wanted)], [[ones(given)] * 2], root(dist.ScatterOptions)),
                    lambda: backend.scatter([ones(given)], [[ones(given), ones(wanted)]], root(dist.ScatterOptions)),
                ]
            for at, call in enumerate(calls):
                try:
                    call().wait()
                    raise SystemExit(f"nothing was said of call {at} from {given} to {wanted}")
                except RuntimeError as error:
                    assert str(given) in str(error) and str(wanted) in str(error), (at, error)
        for tensor in (torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8), torch.ones(2, 2).to_sparse_csr()):
            for call in (lambda: backend.broadcast([tensor], root(dist.BroadcastOptions)), lambda: backend.send([tensor], 1 - rank, 0)):
                try:
                    call()
                    raise SystemExit("nothing was said")
                except RuntimeError as error:
                    assert "maypole moves" in str(error), error
        x = torch.tensor([1 + 2j, 3], dtype=torch.complex32)
        backend.broadcast([x], root(dist.BroadcastOptions)).wait()
        dist.barrier()
    """)


def test_lazy_conjugates_and_negatives_move_values():
    run(2, """
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        def root(kind):
            options = kind()
            options.rootRank = 0
            return options
        def views():
            return {
                "conj": (lambda values: torch.tensor(values).conj().resolve_conj().conj(), [1 + 2j, 3 - 1j]),
                "neg": (lambda values: torch._neg_view(-torch.tensor(values)), [1.0, 5.0]),
            }
        for name, (view, values) in views().items():
            plain = torch.tensor(values)
            assert view(values).is_conj() or view(values).is_neg()
            empty = lambda n: view([0 * values[0]] * n)
            def same(got, want, what):
                assert torch.equal(got.resolve_conj().resolve_neg(), want), (name, what, got, want)
            v = view(values)
            backend.allreduce([v]).wait()
            same(v, 2 * plain, "allreduce")
            # One rank has a view, and the other a plain tensor.
            v = (view(values) if rank == 0 else torch.zeros_like(plain))
            backend.broadcast([v], root(dist.BroadcastOptions)).wait()
            same(v, plain, "broadcast")
            v = (plain.clone() if rank == 0 else empty(2))
            backend.broadcast([v], root(dist.BroadcastOptions)).wait()
            same(v, plain, "broadcast into a view")
            v = view(values)
            backend.reduce([v], root(dist.ReduceOptions)).wait()
            same(v, 2 * plain if rank == 0 else plain, "reduce")
            out = empty(4)
            backend.all_gather_single(out, view(values)).wait()
            same(out, torch.cat([plain, plain]), "all_gather_single")
            outs = [empty(2), empty(2)]
            backend.allgather([outs], [view(values)]).wait()
            same(outs[1], plain, "allgather")
            out = empty(1)
            backend.reduce_scatter_single(out, view(values)).wait()
            same(out, 2 * plain[rank : rank + 1], "reduce_scatter_single")
            out = empty(2)
            backend.all_to_all_single(out, view(values), [], []).wait()
            same(out, plain[rank : rank + 1].repeat(2), "all_to_all_single")
            outs = [empty(2), empty(2)]
            backend.alltoall(outs, [view(values)] * 2).wait()
            same(outs[0], plain, "alltoall")
            out = empty(2)
            backend.scatter([out], [[view(values)] * 2] if rank == 0 else [], root(dist.ScatterOptions)).wait()
            same(out, plain, "scatter")
            if rank == 0:
                backend.send([view(values)], 1, 0).wait()
            else:
                out = empty(2)
                backend.recv([out], 0, 0).wait()
                same(out, plain, "recv")
    """)

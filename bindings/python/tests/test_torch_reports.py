"""What programs of other libraries stumble on, and this backend does right."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run


def test_schedules_of_pipelines():
    run(2, """
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
        loss = nn.functional.mse_loss
        for kind, micros, virtual in ((Schedule1F1B, 2, 1), (ScheduleGPipe, 1, 1), (ScheduleInterleaved1F1B, 2, 2)):
            torch.manual_seed(0)
            whole = nn.Sequential(*[nn.Linear(8, 8) for _ in range(world * virtual)])
            torch.manual_seed(0)
            layers = [nn.Linear(8, 8) for _ in range(world * virtual)]
            x, y = torch.randn(4, 8), torch.randn(4, 8)
            loss(whole(x), y).backward()
            mine = [rank + world * at for at in range(virtual)]
            stages = [PipelineStage(layers[at], at, len(layers), torch.device("cpu")) for at in mine]
            schedule = kind(stages if virtual > 1 else stages[0], micros, loss_fn=loss)
            last = {"target": y, "losses": []} if rank == world - 1 else {}
            schedule.step(*([x] if rank == 0 else []), **last)
            for at in mine:
                assert torch.allclose(layers[at].weight.grad, whole[at].weight.grad, atol=1e-6), (kind, at)
    """)


def test_views_that_are_not_contiguous():
    run(2, """
        base = torch.arange(1.0, 1 + 5 * 6 * 4 * 4).view(5, 6, 4, 4) + 1000 * rank
        views = {
            "column": base[:, 1, :, 2].t()[:, ::2],
            "permuted": base.permute(2, 0, 3, 1),
            "channels last": base.contiguous(memory_format=torch.channels_last),
            "expanded": (torch.arange(3.0) + rank).view(3, 1).expand(3, 4),
            "stepped": base.view(-1)[::3],
        }
        for name, x in views.items():
            def same(got, want):
                assert torch.equal(torch.stack(list(got)), torch.stack(list(want))), name
            fresh = lambda: x.clone() if name == "expanded" else torch.empty_strided(x.shape, x.stride()).copy_(x)
            plain = lambda: x.clone(memory_format=torch.contiguous_format)
            turned = lambda: torch.zeros(x.shape).transpose(0, -1).contiguous().transpose(0, -1)
            for call in (dist.all_reduce, lambda t: dist.broadcast(t, 1), lambda t: dist.reduce(t, 1)):
                a, b = fresh(), plain()
                call(a), call(b)
                same([a], [b])
            want = [torch.zeros(x.shape) for _ in range(world)]
            dist.all_gather(want, plain())
            outs = [torch.zeros_like(plain()).transpose(0, -1).contiguous().transpose(0, -1) for _ in range(world)]
            dist.all_gather(outs, x)
            same(outs, want)
            into = torch.zeros(world, *x.shape)
            dist.all_gather_into_tensor(into, x)
            same(into, want)
            outs = [torch.zeros(x.shape) for _ in range(world)] if rank == 0 else None
            dist.gather(x, outs, 0)
            same(outs or want, want)
            out, plain_out = turned(), torch.zeros(x.shape)
            dist.scatter(out, [x, x * 2] if rank == 0 else None, 0)
            dist.scatter(plain_out, [plain(), plain() * 2] if rank == 0 else None, 0)
            same([out], [plain_out])
            out, total = turned(), plain()
            dist.reduce_scatter(out, [x, x])
            dist.all_reduce(total)
            same([out], [total])
            outs = [turned() for _ in range(world)]
            dist.all_to_all(outs, [x, x])
            same(outs, want)
            if rank == 0:
                dist.send(x, 1)
            else:
                out = turned()
                dist.recv(out, 0)
                same([out], want[:1])
    """)


def test_a_reduce_leaves_the_tensors_of_other_ranks_alone():
    run(3, """
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        for n in (1, 7, 1 << 14, 1 << 18):
            for root in range(world):
                for x in (torch.empty(n), backend.allocate_tensor(n, dtype=torch.float32)):
                    x.fill_(rank + 1)
                    dist.reduce(x, root)
                    assert (x == (6 if rank == root else rank + 1)).all(), (n, root)
    """)


def test_messages_to_itself_and_of_other_lengths():
    run(2, """
        for n in (1, 1 << 20):
            out = torch.zeros(n)
            sends = dist.P2POp(dist.isend, torch.full((n,), 5.0 + rank), rank)
            for work in dist.batch_isend_irecv([sends, dist.P2POp(dist.irecv, out, rank)]):
                work.wait()
            assert (out == 5 + rank).all()
        empty = torch.zeros(0)
        dist.send(empty, 1) if rank == 0 else dist.recv(empty, 0)
        for sent, taken in ((3, 5), (5, 3)):
            if rank == 0:
                dist.send(torch.ones(sent), 1)
                continue
            try:
                dist.recv(torch.zeros(taken), 0)
                raise SystemExit("a message of another length was taken")
            except RuntimeError as error:
                assert f"sent {sent} x f32" in str(error), error
        x = torch.ones(2)
        dist.all_reduce(x)
        assert (x == 2).all()
    """)


def test_experts_without_tokens():
    run(2, """
        import torch.distributed.nn.functional as functional
        n = 5
        x = (torch.arange(n * 8.0).view(n, 8) + 100 * rank).requires_grad_()
        outs = [0, 0] if rank == 0 else [n, n]
        out = functional.all_to_all_single(torch.empty(sum(outs), 8), x, outs, [0, n])
        assert rank == 0 or out[n:].sum() == (torch.arange(n * 8.0) + 100).sum()
        (out * 3).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 3)), x.grad
        nothing = lambda: torch.empty(0, 8)
        dist.all_to_all_single(nothing(), nothing(), [0, 0], [0, 0])
        dist.all_to_all_single(nothing(), nothing())
        dist.all_to_all([nothing(), nothing()], [nothing(), nothing()])
        dist.all_gather_into_tensor(nothing(), nothing())
        dist.reduce_scatter_tensor(nothing(), nothing())
        dist.all_reduce(nothing())
        dist.broadcast(nothing(), 0)
        dist.barrier()
    """)


def test_nan_and_signed_zeros():
    run(2, """
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                for n in (1, 7, 16, 33, 1 << 12):
                    for source in range(world):
                        x = torch.full((n,), rank + 1.0, dtype=dtype)
                        if rank == source:
                            x[n // 2] = float("nan")
                        dist.all_reduce(x, op)
                        want = 1.0 if op == dist.ReduceOp.MIN else float(world)
                        assert x[n // 2].isnan() and int((x == want).sum()) == n - 1, (dtype, op, n, source)
                x = torch.full((67,), -0.0 if rank % 2 else 0.0, dtype=dtype)
                dist.all_reduce(x, op)
                assert bool(torch.signbit(x).all()) == bool(torch.signbit(x).any()) == (op == dist.ReduceOp.MIN)
    """)

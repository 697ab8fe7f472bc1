"""Messages of PyTorch between two ranks: order, tags, sources and lengths."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import run


def test_messages_in_both_directions_and_in_batches():
    run(3, """
        right, left = (rank + 1) % world, (rank - 1) % world
        for count in (3, 500_000):
            got = torch.empty(count)
            receive = dist.irecv(got, left)
            send = dist.isend(torch.full((count,), float(rank)), right)
            receive.wait()
            send.wait()
            assert torch.equal(got, torch.full((count,), float(left)))
            mine, theirs = torch.full((count,), float(rank)), torch.empty(count)
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]):
                work.wait()
            assert torch.equal(theirs, torch.full((count,), float(left)))
    """)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_rank_receives_from_any_source(ranks):
    run(ranks, """
        for receiver in range(world):
            # Some lengths leave at once, others wait for their receive.
            for count in (3, 500_000):
                if rank != receiver:
                    dist.send(torch.full((count,), float(rank)), receiver, tag=count)
                    continue
                sources = set()
                for _ in range(world - 1):
                    got = torch.empty(count)
                    dist.irecv(got, tag=count).wait()
                    assert (got == got[0]).all()
                    sources.add(int(got[0]))
                assert sources == set(range(world)) - {rank}, sources
        dist.barrier()
    """)


def test_a_send_does_not_wait_behind_a_receive_from_any_source():
    run(4, """
        # Every rank posts its receive first. One then sends, and the others pass on what they get.
        for tag in range(20):
            got = torch.empty(1)
            work = dist.irecv(got, tag=tag)
            if rank == tag % world:
                dist.send(torch.tensor([float(tag)]), (rank + 1) % world, tag=tag)
                work.wait()
            else:
                work.wait()
                dist.send(got, (rank + 1) % world, tag=tag)
            assert got.item() == tag
        dist.barrier()
    """)


def test_a_send_does_not_wait_behind_a_receive_from_another_rank():
    run(3, """
        for middle in range(3):
            last, first = (middle + 1) % 3, (middle + 2) % 3
            data = torch.full((500_000,), float(rank))
            got = torch.empty(500_000)
            if rank == middle:
                # The message of this receive is sent once the message of this send has gone round.
                receive = dist.irecv(got, first)
                send = dist.isend(data, last)
                receive.wait()
                send.wait()
            else:
                dist.recv(got, middle if rank == last else last)
                dist.send(data, first if rank == last else middle)
            assert (got == float((rank - 1) % 3)).all()
    """)


def test_receives_from_two_neighbours_do_not_wait_for_one_another():
    run(4, """
        # A halo: every rank posts both receives, then both sends, of messages that wait for their receives.
        right, left = (rank + 1) % world, (rank - 1) % world
        halo = [torch.empty(100_000), torch.empty(100_000)]
        works = [dist.irecv(halo[0], left), dist.irecv(halo[1], right)]
        works += [dist.isend(torch.full((100_000,), float(rank)), to) for to in (left, right)]
        for work in works:
            work.wait()
        assert (halo[0] == left).all() and (halo[1] == right).all()
    """)
    run(3, """
        # A stage of a pipeline waits for one neighbour only after it has received from the other.
        token = torch.tensor([float(rank)])
        if rank == 1:
            first, second = torch.empty(1), torch.empty(1)
            work = dist.irecv(first, 0)
            dist.recv(second, 2)
            dist.send(token, 0)
            work.wait()
            assert (first.item(), second.item()) == (0.0, 2.0)
        elif rank == 0:
            dist.recv(torch.empty(1), 1)
            dist.send(token, 1)
        else:
            dist.send(token, 1)
    """)


def test_no_message_from_any_source_is_an_error_after_the_timeout():
    said = run(3, """
        if rank == 1:
            since = time.monotonic()
            group = dist.group.WORLD._get_backend(torch.device("cpu"))
            group.set_timeout(timedelta(seconds=1))
            try:
                dist.recv(torch.empty(3))
            except RuntimeError as error:
                print(error.kind, error.culprit, 0.9 < time.monotonic() - since < 10, error, flush=True)
        else:
            time.sleep(3)
        os._exit(0)
    """)
    assert "timed out None True" in said[1] and "recv_any" in said[1], said


def test_a_posted_receive_holds_up_no_receive_of_another_tag():
    run(2, """
        if rank == 1:
            first, second = torch.empty(1), torch.empty(1)
            posted = dist.irecv(first, 0, tag=1)
            dist.recv(second, 0, tag=2)
            dist.send(torch.ones(1), 0, tag=3)
            posted.wait()
            assert (first.item(), second.item()) == (1.0, 2.0)
        else:
            dist.send(torch.full((1,), 2.0), 1, tag=2)
            dist.recv(torch.empty(1), 1, tag=3)
            dist.send(torch.full((1,), 1.0), 1, tag=1)
    """)


@pytest.mark.parametrize(("messages", "count"), [(2, 1 << 14), (2, 1 << 18), (20, 1000)])
def test_receives_in_the_reverse_order_of_tags(messages, count):
    run(2, f"""
        tags = range({messages})
        for blocks in (False, True):
            if rank == 0:
                works = [dist.isend(torch.full(({count},), float(tag)), 1, tag=tag) for tag in tags]
            else:
                got = [torch.empty({count}) for _ in tags]
                for tag in reversed(tags) if blocks else ():
                    dist.recv(got[tag], 0, tag=tag)
                works = [dist.irecv(got[tag], 0, tag=tag) for tag in reversed(tags) if not blocks]
            for work in works:
                work.wait()
            if rank == 1:
                assert all((it == tag).all() for tag, it in enumerate(got))
    """)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_receive_tells_its_source(ranks):
    run(ranks, """
        if rank == 0:
            sources = [dist.recv(torch.empty(2)) for _ in range(world - 1)]
            assert sorted(sources) == list(range(1, world)), sources
            work = dist.irecv(torch.empty(2), tag=1)
            work.wait()
            assert work.source_rank() == work._source_rank() == world - 1
        else:
            dist.send(torch.ones(2), 0)
            if rank == world - 1:
                dist.send(torch.ones(2), 0, tag=1)
        # Ranks of a group are told as ranks of the world.
        group = dist.new_group([0, world - 1])
        if rank == world - 1:
            dist.send(torch.ones(2), 0, group=group)
        elif rank == 0:
            assert dist.recv(torch.empty(2), group=group) == world - 1
        dist.barrier()
    """)


def test_a_message_that_does_not_fit_is_an_error_of_its_receive_alone():
    said = run(2, """
        def refused(receive):
            try:
                receive()
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert (error.kind, error.culprit) == ("invalid", 0), (error.kind, error.culprit)
                print(error, flush=True)

        for got in (torch.empty(3), torch.empty(5), torch.empty(2, dtype=torch.float64)):
            if rank == 0:
                dist.send(torch.ones(4), 1)
            else:
                refused(lambda: dist.recv(got, 0))
        for got in (torch.empty(3), torch.empty(5)):
            if rank == 0:
                dist.send(torch.ones(4), 1)
            else:
                refused(lambda: dist.recv(got))
        # All go on.
        data = torch.ones(4)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
        dist.all_reduce(data)
        assert (data == 2).all()
    """)
    texts = said[1].splitlines()
    shorter, longer, other, any_shorter, any_longer = texts
    assert "4 x f32" in shorter and "3 x f32" in shorter and "4 x f32" in longer and "5 x f32" in longer, texts
    assert "4 x f32" in other and "2 x f64" in other, texts
    assert "4 x f32" in any_shorter and "up to 3" in any_shorter, texts
    assert "4 elements" in any_longer and "has 5" in any_longer, texts


def test_works_tell_whether_they_are_over():
    run(2, """
        def poll(work):
            end = time.monotonic() + 60
            while not work.is_completed():
                assert time.monotonic() < end, "never over"
            assert work.is_success() and work.exception() is None
            work.wait()
            assert work.is_completed()

        other = 1 - rank
        data, got = torch.full((100_000,), float(rank)), torch.empty(100_000)
        receive = dist.irecv(got, other)
        assert not receive.is_completed()
        dist.barrier()
        send = dist.isend(data, other)
        poll(receive)
        poll(send)
        assert (got == other).all()
        poll(dist.all_reduce(data, async_op=True))
        assert (data == 1).all()
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, got, other), dist.P2POp(dist.irecv, data, other)])
        for work in works:
            poll(work)
        assert (data == rank).all()
        # A column is copied to its place before the work is over.
        column = torch.zeros(4, 3)[:, 1]
        work = dist.irecv(column, other)
        dist.send(torch.ones(4), other)
        poll(work)
        assert (column == 1).all()
        futures = [dist.irecv(column, other).get_future(), dist.isend(torch.full((4,), 2.0), other).get_future()]
        assert futures[0].wait()[0] is not None and (column == 2).all()
        futures[1].wait()
    """)


def test_the_profiler_sees_the_names_of_calls():
    run(2, """
        from torch.profiler import profile
        data = torch.ones(4)
        with profile() as seen:
            dist.all_reduce(data)
            dist.all_gather_into_tensor(torch.empty(8), data, async_op=True).wait()
            works = [dist.isend(data, 1 - rank), dist.irecv(data, 1 - rank)]
            for work in works:
                work.get_future().wait()
        names = {event.name for event in seen.events()}
        assert {f"maypole:{it}" for it in ("all_reduce", "all_gather", "send", "recv")} <= names, names
    """)


def test_a_thread_sends_while_another_one_waits_in_a_collective():
    run(2, """
        import threading

        def pass_on():
            data = torch.full((200_000,), 7.0)
            if rank == 0:
                dist.send(data, 1)
                dist.recv(data, 1)
            else:
                dist.recv(data, 0)
                dist.send(data, 0)
            assert (data == 7).all()

        data = torch.ones(3)
        if rank == 0:
            # The sum waits for rank 1, which waits for the message of the other thread.
            thread = threading.Timer(0.5, pass_on)
            thread.start()
            dist.all_reduce(data)
            thread.join()
        else:
            pass_on()
            dist.all_reduce(data)
        assert (data == 2).all()
    """)

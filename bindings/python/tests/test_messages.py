"""Messages that do not wait for their receivers, objects, and elements of any type."""

import asyncio
import threading

import maypole
import ml_dtypes
import numpy as np
import pytest

LONG = 1 << 18


def on_threads(rank, world=2):
    def bounded(comm):
        comm.set_timeout(30)
        return rank(comm)

    return maypole.run_threads(world, bounded)


def test_ranks_that_both_send_first_do_not_block_each_other():
    def rank(comm):
        other, mine, got = 1 - comm.rank, np.full(LONG, comm.rank + 1.0), np.zeros(LONG)
        sent = comm.isend(mine, other, tag=7)
        assert comm.recv(got, other, tag=7) == (other, LONG)
        assert sent.wait() == sent.wait() == (other, LONG) and sent.test()
        assert (got == other + 1).all()
        received = comm.irecv(got, tag=8)
        assert not received.test()
        comm.barrier()
        comm.send(-mine, other, tag=8)
        assert received.wait() == received.wait() == (other, LONG) and (got == -other - 1).all()
        got[:] = 0
        assert comm.sendrecv(mine, other, got, other) == (other, LONG) and (got == other + 1).all()

    on_threads(rank)


def test_a_ring_exchanges_arrays_of_different_lengths():
    def rank(comm):
        right, left = (comm.rank + 1) % comm.world, (comm.rank - 1) % comm.world
        out = np.zeros(LONG + left)
        assert comm.sendrecv(np.full(LONG + comm.rank, float(comm.rank)), right, out, left) == (left, LONG + left)
        assert (out == left).all()

    on_threads(rank, 3)


def test_an_exchange_that_is_refused_posts_nothing():
    def rank(comm):
        other, mine, got = 1 - comm.rank, np.arange(4.0) + comm.rank, np.zeros(4)
        for call, why in (
            (lambda: comm.sendrecv(mine, 2, got), "to is 2"),
            (lambda: comm.sendrecv(mine, other, mine), "share memory"),
            (lambda: comm.sendrecv({}, other, got), "send_object"),
        ):
            with pytest.raises(maypole.InvalidArgument, match=why):
                call()
        comm.barrier()
        comm.sendrecv(mine, other, got)
        assert (got == np.arange(4.0) + other).all()

    on_threads(rank)


def test_a_shorter_message_is_received_from_any_rank_or_as_an_object():
    def rank(comm):
        if comm.rank == 0:
            comm.send(np.arange(3), 1)
            comm.send(np.arange(3), 1)
            return comm.send_object(np.arange(3), 1)
        got = np.full(5, -1)
        with pytest.raises(maypole.InvalidArgument, match="3 x i64.*takes 5.*dropped"):
            comm.recv(got, 0)
        assert comm.recv(got) == (0, 3) and got.tolist() == [0, 1, 2, -1, -1]
        assert comm.recv_object(0).tolist() == [0, 1, 2]

    on_threads(rank)


@pytest.mark.parametrize("length", [0, 900, 1000, 1012, 1100, 70_000])
def test_objects_of_any_length_are_sent(length):
    def rank(comm):
        values = ["x" * length, {"rank": comm.rank}, None]
        if comm.rank == 0:
            for value in values:
                comm.send_object(value, 1, tag=3)
        else:
            got = [comm.recv_object(None if at else 0, tag=3) for at in range(3)]
            assert got == ["x" * length, {"rank": 0}, None]

    on_threads(rank)


def test_objects_of_several_threads_and_arrays_do_not_mix():
    def rank(comm):
        kinds = [bytes([at]) * (20_000 + at) for at in range(4)]
        if comm.rank == 0:
            senders = [threading.Thread(target=comm.send_object, args=(kind, 1, 5)) for kind in kinds]
            for sender in senders:
                sender.start()
            comm.send(np.ones(3), 1, tag=6)
            for sender in senders:
                sender.join()
        else:
            got = np.zeros(3)
            comm.recv(got, 0, tag=6)
            assert sorted(comm.recv_object(0, 5) for _ in kinds) == kinds

    on_threads(rank)


def test_objects_are_scattered():
    def rank(comm):
        values = ["a", {"b": 2}, list(range(5000))] if comm.rank == 1 else None
        assert comm.scatter_object(values, root=1) == ["a", {"b": 2}, list(range(5000))][comm.rank]

    on_threads(rank, 3)

    def alone(comm):
        with pytest.raises(maypole.InvalidArgument, match="values has 2 items"):
            comm.scatter_object([1, 2])

    on_threads(alone, 1)


def test_requests_are_awaited_in_a_coroutine():
    def rank(comm):
        other = 1 - comm.rank
        mine, got, total = np.full(LONG, comm.rank), np.zeros(LONG, int), np.full(LONG, comm.rank + 1.0)

        async def all_at_once():
            requests = [comm.irecv(got, other), comm.isend(mine, other), comm.start("all_reduce", total)]
            ticks = 0

            async def tick():
                nonlocal ticks
                while not all(request.test() for request in requests):
                    ticks += 1
                    await asyncio.sleep(0)

            return (await asyncio.gather(tick(), *requests))[1:]

        assert asyncio.run(all_at_once()) == [(other, LONG), (other, LONG), None]
        assert (got == other).all() and (total == 3).all()

        async def refused():
            await comm.start("broadcast", np.zeros(1), root=9)

        with pytest.raises(maypole.InvalidArgument, match="root 9"):
            asyncio.run(refused())

    on_threads(rank)


def test_a_failed_request_raises_the_same_at_every_wait():
    def rank(comm):
        request = comm.start("broadcast", np.zeros(1), root=9)
        for _ in range(2):
            with pytest.raises(maypole.InvalidArgument, match="root 9"):
                request.wait()
        assert request.test()
        comm.barrier()

    on_threads(rank)


def test_a_barrier_starts_without_data():
    def rank(comm):
        comm.start("barrier").wait()
        with pytest.raises(maypole.InvalidArgument, match="barrier takes neither"):
            comm.start("barrier", np.zeros(1))
        out = np.zeros(2)
        comm.start("scatter", np.arange(4.0) if comm.rank == 0 else None, out=out).wait()
        assert (out == np.arange(2) + 2 * comm.rank).all()
        everything = np.zeros(4) if comm.rank == 1 else None
        comm.start("gather", out, out=everything, root=1).wait()
        assert comm.rank == 0 or (everything == np.arange(4)).all()

    on_threads(rank)


def test_representations_name_call_peer_and_state():
    def rank(comm):
        other = 1 - comm.rank
        received = comm.irecv(np.zeros(1), tag=4)
        assert repr(received) == "<maypole.MessageRequest: receive from any rank, tag 4, in flight>"
        comm.barrier()
        sent = comm.isend(np.zeros(1), other, 4)
        sent.wait(), received.wait()
        assert repr(sent) == f"<maypole.MessageRequest: send to rank {other}, tag 4, completed>"
        request = comm.start("all_reduce", np.zeros(1))
        request.wait()
        assert repr(request) == "<maypole.Request: all_reduce, completed>"
        assert repr(comm.alloc(16)) == "<maypole.Memory: 16 bytes, registered>"

    on_threads(rank)


RECORD = [("name", "S3"), ("value", "f8")]
MOVED = ["complex64", "complex128", "M8[s]", ">f8", "U4", np.longdouble, RECORD, ml_dtypes.float8_e4m3fn]


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_elements_of_any_type_are_moved(dtype):
    def rank(comm):
        other = 1 - comm.rank
        numbers = [(b"abc", 1.5)] * 4 if dtype is RECORD else np.arange(4)
        whole = np.array(numbers).astype(dtype) if dtype is not RECORD else np.array(numbers, dtype)
        got = np.zeros_like(whole)
        mine = whole.copy() if comm.rank == 0 else got
        comm.broadcast(mine)
        assert (mine == whole).all()
        got = np.zeros(3, whole.dtype)
        comm.all_gather(whole[comm.rank:][:comm.rank + 1], out=got, counts=[1, 2])
        assert (got == whole[:3]).all()
        got = np.zeros_like(whole)
        comm.all_to_all(whole, out=got)
        assert (got == np.concatenate([whole[2 * comm.rank:][:2]] * 2)).all()
        got = np.zeros(6, whole.dtype)
        assert comm.sendrecv(whole, other, got) == (other, 4) and (got[:4] == whole).all()
        for refused in (lambda: comm.all_reduce(whole), lambda: comm.start("reduce_scatter", whole)):
            with pytest.raises(maypole.InvalidArgument, match="data has"):
                refused()
        comm.barrier()

    on_threads(rank)


def test_ranks_that_move_other_types_do_not_match():
    def rank(comm):
        with pytest.raises(maypole.Mismatch, match="datetime64.*complex64|complex64.*datetime64"):
            comm.broadcast(np.zeros(2, "M8[s]" if comm.rank else "complex64"))
            comm.barrier()

    on_threads(rank)


def test_objects_of_python_in_an_array_are_not_moved():
    def rank(comm):
        for dtype in (object, [("a", "f4"), ("b", "O")], [("a", "M8[s]"), ("b", "O")]):
            with pytest.raises(maypole.InvalidArgument, match="objects of Python"):
                comm.broadcast(np.zeros(2, dtype))
        # NumPy lends only a copy of these, which would be freed before it is sent.
        for scalar in (ml_dtypes.bfloat16(1), np.array([("2020",)], [("a", "M8[s]")])[0]):
            with pytest.raises(maypole.InvalidArgument, match="data cannot be"):
                comm.isend(scalar, 0)
            with pytest.raises(maypole.InvalidArgument, match="data cannot be"):
                comm.broadcast(scalar)
        fixed = np.zeros(2, "M8[s]")
        fixed.flags.writeable = False
        with pytest.raises(maypole.InvalidArgument, match="data cannot be written"):
            comm.broadcast(fixed)

    on_threads(rank, 1)


@pytest.mark.parametrize("orders", ["CF", "FC", "FF"])
def test_arrays_in_fortran_order_have_their_elements_in_place(orders):
    matrix = np.arange(6.0).reshape(2, 3)

    def rank(comm):
        mine = np.array(matrix, order=orders[comm.rank])
        empty = np.zeros((2, 3), order=orders[comm.rank])
        got = mine.copy("K") if comm.rank == 0 else empty.copy("K")
        comm.broadcast(got)
        assert (got == matrix).all()
        both = np.zeros((2, 2, 3))
        comm.all_gather(mine, out=both)
        assert (both == matrix).all()
        got = empty.copy("K")
        comm.sendrecv(mine, 1 - comm.rank, got)
        assert (got == matrix).all()
        if not got.flags.c_contiguous:
            with pytest.raises(maypole.InvalidArgument, match=r"data\.T"):
                comm.irecv(got)

    on_threads(rank)

"""Several threads of one rank, and ranks that are threads."""

import threading
import traceback

import maypole
import numpy as np
import pytest
from ranks import run


@pytest.mark.parametrize("words", [1, 1 << 17])
@pytest.mark.parametrize("call", ["send", "all_reduce", "start", "barrier", "duplicate"])
def test_a_receive_of_one_thread_holds_up_no_call_of_another(call, words):
    """Each rank receives in a thread, and the message that it waits for is sent after the call of the main thread."""

    def rank(comm):
        comm.set_timeout(20)
        other = 1 - comm.rank
        got, failures = np.zeros(words), []

        def receive():
            try:
                comm.recv(got, other, tag=3)
            except maypole.MaypoleError as error:
                failures.append(error)

        receiver = threading.Thread(target=receive)
        receiver.start()
        mine = np.full(words, comm.rank + 1.0)
        if call == "all_reduce":
            comm.all_reduce(mine.copy())
        elif call == "start":
            comm.start("all_reduce", mine.copy()).wait()
        elif call != "send":
            getattr(comm, call)()
        comm.send(mine, other, tag=3)
        receiver.join()
        assert not failures and (got == other + 1).all(), failures

    maypole.run_threads(2, rank)


def test_memory_of_a_message_in_flight_is_not_used():
    def rank(comm):
        comm.set_timeout(20)
        if comm.rank == 1:
            comm.barrier()
            return comm.send(np.ones(1000), 0)
        memory = np.zeros(1500)
        receiver = threading.Thread(target=lambda: comm.recv(memory[:1000], 1))
        receiver.start()
        while True:
            try:
                comm.send(memory[500:501], 0, tag=9)
                # The receive has not begun.
                comm.recv(memory[1400:1401], 0, tag=9)
            except maypole.MaypoleError as error:
                assert "message in flight" in str(error) and error.kind == "invalid"
                break
        for call in (
            lambda: comm.all_reduce(memory),
            lambda: comm.recv(memory[999:], 1),
            lambda: comm.start("all_reduce", memory[:10]),
            lambda: comm.broadcast(memory[:1]),
        ):
            with pytest.raises(maypole.MaypoleError, match="wait for the message first"):
                call()
        # Beside it, and afterwards.
        comm.send(memory[1000:1001], 0, tag=9)
        comm.recv(memory[1000:1001], 0, tag=9)
        comm.barrier()
        receiver.join()
        assert (memory[:1000] == 1).all()
        comm.send(memory[:1], 0, tag=9)
        comm.recv(memory[:1], 0, tag=9)

    maypole.run_threads(2, rank)


@pytest.mark.parametrize("late", [False, True])
def test_the_culprit_s_exception_is_raised_with_the_others_attached(late):
    def rank(comm):
        if late:
            comm.barrier()
        if comm.rank == 2:
            raise ValueError("the culprit says this")
        comm.barrier()

    with pytest.raises(ValueError, match="the culprit says this") as caught:
        maypole.run_threads(4, rank)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise ValueError("the culprit says this")' in text and "raised by rank 2" in text
    others = caught.value.__context__.exceptions
    assert len(others) == 3 and all(isinstance(it, maypole.MaypoleError) and it.culprit == 2 for it in others)
    assert all(f"then rank {rank}: Aborted" in text for rank in (0, 1, 3))


def test_a_rank_that_fails_alone_is_raised_as_it_is():
    def rank(comm):
        comm.barrier()
        if comm.rank == 1:
            try:
                raise KeyError("first")
            except KeyError:
                raise OSError("then")

    with pytest.raises(OSError, match="then") as caught:
        maypole.run_threads(2, rank)
    assert isinstance(caught.value.__context__, KeyError)


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_joins_its_job_once(closed):
    said = run(3, f"""
        import maypole, time
        comm = maypole.Communicator()
        comm.barrier()
        if {closed}:
            comm.close()
        since = time.monotonic()
        try:
            maypole.Communicator()
        except maypole.MaypoleError as error:
            print(error.kind, time.monotonic() - since < 2, error)
        if not {closed}:
            comm.duplicate().barrier()
    """)
    assert said.count("join True this process has joined job") == 3 and said.count("use duplicate()") == 3, said

"""The classes of exceptions: each kind is also the exception of Python that a program would catch."""

import pickle

import maypole
import numpy as np
import pytest
from ranks import run


def test_every_class_is_a_maypole_error_and_one_of_python():
    for of_kind, others in {
        maypole.InvalidArgument: (ValueError,),
        maypole.InvalidType: (maypole.InvalidArgument, TypeError),
        maypole.Timeout: (TimeoutError,),
        maypole.PeerLost: (ConnectionError,),
        maypole.JoinError: (ConnectionError,),
        maypole.Mismatch: (),
        maypole.Aborted: (),
    }.items():
        assert issubclass(of_kind, (maypole.MaypoleError,)) and issubclass(of_kind, RuntimeError)
        assert all(issubclass(of_kind, other) for other in others)
        assert of_kind.__module__ == "maypole" and of_kind.__doc__


def test_calls_raise_the_class_of_their_failure():
    def rank(comm):
        with pytest.raises(ValueError, match="root 5"):
            comm.broadcast(np.zeros(1), 5)
        with pytest.raises(TypeError, match="no array"):
            comm.broadcast([1.0])
        duplicate = comm.duplicate()
        duplicate.set_timeout(0.05)
        with pytest.raises(TimeoutError) as caught:
            duplicate.recv(np.zeros(1), 1 - comm.rank)
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is maypole.Timeout and str(error) == str(caught.value)
        assert (error.kind, error.culprit, error.retryable) == ("timed out", caught.value.culprit, True)

    maypole.run_threads(2, rank)

    def mismatched(comm):
        with pytest.raises(maypole.Mismatch) as caught:
            comm.barrier() if comm.rank == 0 else comm.all_reduce(np.zeros(4))
        assert caught.value.kind == "mismatch"

    maypole.run_threads(2, mismatched)

    def aborted(comm):
        if comm.rank == 0:
            return comm.abort("on purpose")
        with pytest.raises(maypole.Aborted, match="on purpose"):
            comm.barrier()

    maypole.run_threads(2, aborted)


def test_all_ranks_name_a_lost_rank_and_later_calls_do_again():
    """Also those that are told of the loss by a rank that gives up because of it."""
    said = run(3, """
        import maypole, os
        comm = maypole.Communicator()
        comm.barrier()
        if comm.rank == 1:
            os._exit(7)
        for _ in range(2):
            try:
                comm.barrier()
            except maypole.PeerLost as error:
                print(comm.rank, type(error).__name__, error.kind, error.culprit, error.retryable)
                comm.abort("I cannot go on")
    """, code=7)
    assert all(said.count(f"{rank} PeerLost peer lost 1 True") == 2 for rank in (0, 2)), said


def test_a_rank_that_leaves_is_lost_also_where_an_abort_follows(tmp_path):
    """Rank 2 learns of the loss after the abort of a rank that has given up because of it."""
    said = run(3, f"""
        import maypole, pathlib, time
        comm, told = maypole.Communicator(), pathlib.Path({str(tmp_path / "told")!r})
        comm.barrier()
        if comm.rank == 1:
            raise SystemExit  # leaves in order
        if comm.rank == 2:
            until = time.monotonic() + 60
            while not told.exists() and time.monotonic() < until:
                time.sleep(0.01)
        try:
            comm.barrier()
        except maypole.PeerLost as error:
            print(comm.rank, "lost", error.culprit)
            comm.abort("I cannot go on")
            told.touch()
    """)
    assert "0 lost 1" in said and "2 lost 1" in said, said


def test_joining_fails_as_a_connection_error():
    said = run(1, """
        import maypole
        maypole.Communicator().close()
        try:
            maypole.Communicator.join_at(1, 2, "127.0.0.1:1", job="none", key=bytes(32), timeout=0.2)
        except ConnectionError as error:
            print(type(error).__name__, error.kind)
    """)
    assert "JoinError join" in said, said

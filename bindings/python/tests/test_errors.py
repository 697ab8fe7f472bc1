"""Wrong arguments harm nobody, and every failure names its rank."""

import ast
import pathlib
import signal
import subprocess
import sys
import time

import maypole
import numpy as np
import pytest
from ranks import LIMIT, run


def test_wrong_arguments_are_refused_and_do_no_harm():
    def rank(comm):
        array = np.zeros((4, 4), "float32")
        fixed = np.zeros(4)
        fixed.flags.writeable = False
        wrong = [
            (lambda: comm.all_reduce(array[:, 1]), "contiguous"),
            (lambda: comm.all_reduce(fixed), "read-only"),
            (lambda: comm.all_reduce(array, out=array[:2]), "overlap"),
            (lambda: comm.all_reduce(array, out=np.zeros(16)), "data has elements of float32, and out of float64"),
            (lambda: comm.all_reduce(array, out=np.zeros(3, "float32")), "3"),
            (lambda: comm.all_reduce(array, "median"), "median"),
            (lambda: comm.all_reduce(array, "xor"), "xor"),
            (lambda: comm.all_reduce(np.zeros(2, "complex64")), r"complex numbers: .*data.view\('float32'\)"),
            (lambda: comm.all_reduce(np.zeros(2, ">f4")), "other byte order"),
            (lambda: comm.all_reduce(np.zeros(2, "S3")), "elements of 3s: known are float16, .*bool"),
            (lambda: comm.broadcast(array, root=7), "root 7"),
            (lambda: comm.start("median", array), "median.*pass one of broadcast, .*barrier"),
            (lambda: comm.start("allreduce", array), "did you mean .all_reduce.?"),
            (lambda: comm.all_reduce(array, "mode"), "op is .mode.*pass one of sum, product"),
            (lambda: comm.all_reduce(array, "prodct"), "did you mean .product.?"),
            (lambda: comm.set_timeout(0), "seconds"),
        ]
        for call, why in wrong:
            with pytest.raises(maypole.MaypoleError, match=why) as caught:
                call()
            assert caught.value.kind == "invalid"
        with pytest.raises(TypeError, match="no array"):
            comm.all_reduce([1, 2])
        for op in (np.add, max, None):
            with pytest.raises(TypeError, match="pass the name of an operation .sum, .*xor"):
                comm.all_reduce(array, op)
        for call, why in (
            (lambda: comm.broadcast(array, root=-1), "root is -1"),
            (lambda: comm.all_gather(array, out=array, counts=[-1, 2]), "counts is -1"),
            (lambda: comm.recv(array, -1), "source is -1"),
            (lambda: comm.send(array, 1, 1 << 32), "tag is 4294967296"),
            (lambda: comm.send(array, "1"), "to is '1': pass a whole number"),
            (lambda: comm.alloc(0.5), "nbytes is 0.5"),
            (lambda: comm.all_gather(array, counts=3), "counts is 3: pass a list"),
        ):
            with pytest.raises(maypole.InvalidArgument, match=why) as caught:
                call()
            assert caught.value.kind == "invalid"
        comm.barrier()

    maypole.run_threads(2, rank)


def test_the_stub_lists_the_names_that_there_are():
    stub = ast.parse((pathlib.Path(maypole.__file__).parent / "__init__.pyi").read_text())
    lists = {
        node.targets[0].id: set(ast.literal_eval(node.value.slice))
        for node in stub.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript)
    }

    def rank(comm):
        array = np.zeros(1)
        for call, names in ((lambda: comm.start("?", array), "_Collective"), (lambda: comm.all_reduce(array, "?"), "_Op")):
            with pytest.raises(maypole.MaypoleError) as caught:
                call()
            assert set(str(caught.value).rpartition("pass one of ")[2].split(", ")) == lists[names] - {"prod", "mean"}

    maypole.run_threads(1, rank)
    methods = {node.name: node.args.args for node in ast.walk(stub) if isinstance(node, ast.FunctionDef)}
    takes = {name: {it.arg: ast.unparse(it.annotation) for it in of if it.annotation} for name, of in methods.items()}
    assert takes["start"]["name"] == takes["explain"]["name"] == "_Collective" and takes["start"]["op"] == "_Op"


def test_a_mismatch_is_told_on_every_rank():
    def rank(comm):
        with pytest.raises(maypole.MaypoleError) as caught:
            comm.barrier() if comm.rank == 0 else comm.all_reduce(np.zeros(4))
        assert caught.value.kind == "mismatch" and not caught.value.retryable
        assert "barrier" in str(caught.value)

    maypole.run_threads(2, rank)


def test_an_exception_in_a_with_block_ends_the_others():
    def rank(comm):
        if comm.rank == 0:
            raise KeyError("as planned")
        with pytest.raises(maypole.MaypoleError, match="as planned"):
            comm.barrier()

    with pytest.raises(KeyError):
        maypole.run_threads(2, rank)


def test_a_closed_communicator_refuses_calls():
    def rank(comm):
        comm.close()
        comm.close()
        with pytest.raises(maypole.MaypoleError, match="closed"):
            comm.barrier()

    maypole.run_threads(2, rank)


def test_a_killed_rank_is_named_by_the_others():
    said = run(3, """
        import maypole, os, signal, time
        comm = maypole.Communicator()
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        since = time.monotonic()
        try:
            comm.barrier()
        except maypole.MaypoleError as error:
            print("rank", comm.rank, "blames", error.culprit, time.monotonic() - since < 10)
    """, code=128 + signal.SIGKILL)
    assert "rank 0 blames 1 True" in said and "rank 2 blames 1 True" in said


def test_an_uncaught_exception_with_requests_in_flight_does_not_hang():
    since = time.monotonic()
    said = run(2, """
        import maypole, numpy as np
        comm = maypole.Communicator()
        comm.barrier()
        if comm.rank == 0:
            request = comm.start("all_reduce", np.zeros(1000))
            raise SystemExit(7)
        try:
            comm.barrier()
        except maypole.MaypoleError as error:
            print("told:", error)
    """, code=7)
    assert "told:" in said and time.monotonic() - since < 60


def test_a_forked_child_is_refused():
    said = run(2, """
        import maypole, os
        comm = maypole.Communicator()
        comm.barrier()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except maypole.MaypoleError as error:
                print(error.kind, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        comm.barrier()
    """)
    assert said.count("forked") == 2


def test_ctrl_c_interrupts_a_wait():
    program = """
import signal
import maypole
# Background jobs of a script inherit the signal as ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
comm = maypole.Communicator()
comm.barrier()
if comm.rank == 0:
    try:
        # Within the block, because the signal may arrive before the wait begins.
        print("waiting", flush=True)
        comm.barrier()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(3)
else:
    import time
    time.sleep(100)
"""
    command = [sys.executable, "-m", "maypole", "run", "-n", "2", "--no-tag-output", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as ranks:
        assert ranks.stdout.readline() == "waiting\n"
        import os

        os.killpg(ranks.pid, signal.SIGINT)
        said, _ = ranks.communicate(timeout=LIMIT)
        assert "interrupted" in said and ranks.returncode != 0


def test_the_launcher_says_what_is_wrong_and_which_rank_failed():
    done = subprocess.run([sys.executable, "-m", "maypole", "run", "-n", "0", "x.py"], capture_output=True, text=True)
    assert done.returncode == 2 and "at least one rank" in done.stderr
    said = run(2, "import os; os._exit(5 if os.environ['MAYPOLE_RANK'] == '1' else 0)", code=5)
    assert "rank 1 ended with code 5" in said


def test_a_mismatch_that_no_call_has_raised_is_said_at_the_end():
    said = run(2, """
        import maypole, numpy as np
        comm = maypole.Communicator()
        comm.broadcast(np.zeros(2), comm.rank)
    """)
    assert "maypole: ranks do not match" in said and "root" in said, said


def test_ranks_that_are_processes_train_together():
    said = run(4, """
        import maypole, numpy as np
        with maypole.Communicator() as comm:
            for count in (1, 1000, 1_000_000):
                array = np.full(count, comm.rank, "float32")
                comm.all_reduce(array)
                assert (array == 6).all()
            if comm.rank == 0:
                print("right", comm.world)
    """)
    assert "right 4" in said

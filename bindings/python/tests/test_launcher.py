"""The launcher names the rank that failed first, and ends with its code, though others end before it."""

import signal
import subprocess
import sys

import pytest
from ranks import LIMIT, run

OTHERS = """
    import sys, time
    import maypole
    import numpy as np

    comm = maypole.Communicator()
    comm.barrier()
    if comm.rank == 2:
        {fails}
    comm.all_reduce(np.ones(4))
"""


@pytest.mark.parametrize(
    "fails, code, words",
    [
        ("del comm; time.sleep(0.5); sys.exit(7)", 7, "rank 2 ended with code 7"),
        ("raise RuntimeError('on purpose')", 1, "rank 2 ended with code 1"),
        ("del comm; time.sleep(0.5); sys.exit(0)", 1, "ended with code 1, because rank 2 did not do its part"),
    ],
)
def test_the_rank_that_all_name_is_named(fails, code, words):
    assert words in run(4, OTHERS.format(fails=fails), code)


PROGRAM = "import sys, maypole; comm = maypole.Communicator(); print('world', comm.world, sys.argv[1:])"


@pytest.mark.parametrize("before", [[], ["python"], ["python3"], ["--", sys.executable], ["env", "A=1", sys.executable]])
def test_the_program_is_a_command_or_a_file(before, tmp_path):
    file = tmp_path / "hello.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "maypole", "run", "-n", "2", *before, str(file), "-n", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] world 2 ['-n', 'x']" for rank in range(2)]


def test_output_comes_when_it_is_printed():
    program = "import time; print('now'); time.sleep(600)"
    command = [sys.executable, "-m", "maypole", "run", "-n", "1", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "now\n"
        launcher.terminate()
        assert launcher.wait(LIMIT) == 128 + signal.SIGTERM


def test_variables_of_torchrun_are_set():
    said = run(2, """
        import os, socket
        names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
        print(*(os.environ[name] for name in names))
        if os.environ["RANK"] == "0":
            socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
    """)
    assert sorted(said.splitlines()) == ["0 0 2 2 127.0.0.1", "1 1 2 2 127.0.0.1"]


def test_pytorch_finds_its_variables():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    said = run(2, """
        import torch, torch.distributed as dist
        dist.init_process_group("maypole")
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        print(tensor.tolist())
        dist.destroy_process_group()
    """)
    assert said.count("[2.0, 2.0, 2.0]") == 2, said

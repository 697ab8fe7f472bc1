"""Ctrl-C raises KeyboardInterrupt within a second, also while other ranks have not come."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from ranks import LIMIT

HEAD = """
import os, signal
# Background jobs of a script inherit the signal as ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
NUMPY = """
import maypole
def wait(call):
    try:
        print("waiting", flush=True)
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
# The other rank of these is absent.
JOINS = {
    "Communicator": "wait(maypole.Communicator)",
    "join_at": "wait(lambda: maypole.Communicator.join_at(RANK, 2, '127.0.0.1', job=os.environ['MAYPOLE_JOB'], key=b'k' * 32))",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def interrupted(program, **variables):
    """Starts `program`, and interrupts it half a second after it prints that it waits."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    with subprocess.Popen([sys.executable, "-c", HEAD + program], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        since = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - since < 1
        process.communicate(timeout=LIMIT)
        return process.returncode


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", JOINS)
def test_joining(name, rank):
    variables = {"MAYPOLE_RANK": rank, "MAYPOLE_WORLD": 2, "MAYPOLE_ADDRESS": "127.0.0.1", "MAYPOLE_PORT": free_port()}
    job = {"MAYPOLE_JOB": f"interrupted {os.getpid()} {name} {rank}"}
    program = NUMPY + JOINS[name].replace("RANK", str(rank))
    assert interrupted(program, **variables, **job) == 0


def test_a_process_joins_after_an_interrupted_join():
    port, job = free_port(), f"joined later {os.getpid()}"
    at = {"MAYPOLE_WORLD": 2, "MAYPOLE_ADDRESS": "127.0.0.1", "MAYPOLE_PORT": port, "MAYPOLE_JOB": job}
    other = """
import subprocess, sys
wait(maypole.Communicator)
other = subprocess.Popen([sys.executable, "-c", "import maypole; c = maypole.Communicator(); c.barrier(); c.close()"],
                         env={**os.environ, "MAYPOLE_RANK": "1"})
comm = maypole.Communicator()
comm.barrier()
comm.close()
raise SystemExit(other.wait())
"""
    assert interrupted(NUMPY + other, MAYPOLE_RANK=0, **at) == 0


@pytest.mark.parametrize("call", [
    "maypole.run_threads(2, lambda comm: comm.recv(bytearray(1), 1 - comm.rank))",
    "__import__('threading').Event().wait(60)",
])
def test_waits_of_python_beside_a_communicator(call):
    program = f"comms = maypole.Communicator.threads(1)\nwait(lambda: {call})"
    assert interrupted(NUMPY + program) == 0


TORCH = """
import torch, torch.distributed as dist
from datetime import timedelta
rank, world, meeting = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MEETING"]
made = dist.FileStore(meeting, world)
def init(store=made):
    dist.init_process_group("maypole", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=100))
def wait(call):
    try:
        print("waiting", flush=True)
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_init_process_group(rank, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert interrupted(TORCH + "wait(init)", RANK=rank, WORLD_SIZE=2, MEETING=tmp_path / "meeting") == 0


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("call", ["dist.new_group([0, 1])", "dist.monitored_barrier()", "dist.barrier()"])
def test_calls_of_a_group(call, rank, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    meeting = tmp_path / "meeting"
    other = {**os.environ, "RANK": str(1 - rank), "WORLD_SIZE": "2", "MEETING": str(meeting)}
    # The other rank stays until the end of its input.
    absent = subprocess.Popen(
        [sys.executable, "-c", "import os, sys" + TORCH + "init(); sys.stdin.read(); os._exit(0)"], env=other, stdin=subprocess.PIPE
    )
    try:
        program = TORCH + f"init(); wait(lambda: {call})"
        assert interrupted(program, RANK=rank, WORLD_SIZE=2, MEETING=meeting) == 0
    finally:
        absent.stdin.close()
        absent.wait(LIMIT)

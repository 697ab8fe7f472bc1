"""The benches run, and print a table. Their figures mean nothing here."""

import pathlib
import shutil
import subprocess
import sys

import pytest

from maypole import _maypole

BENCHES = pathlib.Path(__file__).parent.parent / "benches"
LIMIT = 300


def rows(*command):
    """The rows of the table that `command` prints, without its head."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=BENCHES)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert ("not optimised" in done.stdout) != _maypole._IS_OPTIMIZED
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def assert_timed(table):
    """Both times are there. Their ratio may be anything: whoever spins beside a compiler loses by 20."""
    for row in table:
        ours, theirs, ratio = map(float, row[2:])
        assert ours > 0 and theirs > 0 and ratio >= 0, row


def torchrun(*command):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return rows(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *command)


def test_trampoline():
    said = torchrun("trampoline.py", "--rounds", "1")
    assert [backend for backend, _ in said] == ["fake", "python", "maypole", "gloo"]
    assert all(float(microseconds) > 0 for _, microseconds in said)


def test_gloo():
    said = torchrun("gloo.py", "--rounds", "1", "--most", "8", "--busy", "1")
    names = [row[0] for row in said]
    assert names[:2] == ["all_reduce", "all_gather_single"] and names[-2:] == ["step of DDP", "step of FSDP2"]
    assert len(said) == 7 + 4 + 2
    assert_timed(row for row in said if row[-1])


def test_computing():
    said = torchrun("computing.py", "--rounds", "1", "--most", "8")
    assert [row[0] for row in said] == ["all_reduce", "send", "recv"]
    assert_timed(said)


def test_open_mpi():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("there is no mpirun of Open MPI")
    root = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    said = rows(mpirun, "-n", "2", *root, sys.executable, "open_mpi.py", "--rounds", "1", "--most", "8")
    assert [row[0] for row in said] == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
    assert_timed(said)


def test_benches_are_short():
    for file in BENCHES.glob("*.py"):
        assert len(file.read_text().splitlines()) < 150, file.name

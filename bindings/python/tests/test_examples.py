"""The examples, as their first lines say."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
LIMIT = 180


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=EXAMPLES)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_sum():
    said = run(sys.executable, "-m", "maypole", "run", "-n", "3", "sum.py")
    assert sorted(said.splitlines()) == [f"[rank {rank}] rank {rank} of 3: 6, {{'rate': 0.1}}" for rank in range(3)]


def test_ddp():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    said = run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "ddp.py")
    assert float(said.split()[-1]) < 0.01


def test_examples_are_short():
    for file in EXAMPLES.glob("*.py"):
        assert len(file.read_text().splitlines()) < 25, file.name

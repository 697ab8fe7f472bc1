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


def as_ranks(ranks, name, *options, code=0):
    """What the ranks of a program of `programs` print, sorted. Each checks its own results."""
    command = [sys.executable, "-m", "maypole", "run", "-n", str(ranks), *options, "python", f"programs/{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=EXAMPLES)
    assert done.returncode == code, (done.stdout, done.stderr)
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("ranks", [4, 3, 1])
@pytest.mark.parametrize("name", ["bucketed_gradients", "token_exchange", "argmin", "mesh", "overlap"])
def test_programs(name, ranks):
    texts = {
        "bucketed_gradients": ": 400000 gradients in 3 buckets",
        "token_exchange": " tokens to the ranks, and its expert computed ",
        "argmin": ": the nearest points are [",
        "mesh": {4: " of 2 x 2", 3: " of 1 x 3", 1: " of 1 x 1"}[ranks] + ", and y is [",
        "overlap": "% hidden",
    }
    lines = as_ranks(ranks, name)
    assert len(lines) == ranks and all(texts[name] in line for line in lines), lines


def test_the_ranks_that_are_left_name_the_dead_one_and_go_on():
    lines = as_ranks(4, "failure", "--failure-grace", "60", code=7)
    assert len(lines) == 6
    for rank, new in ((0, 0), (1, 1), (3, 2)):
        assert any(f"rank {rank} goes on without rank 2: " in line for line in lines), lines
        assert f"[rank {rank}] rank {rank} is rank {new} of 3 at the end" in lines


def test_ddp():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    said = run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "ddp.py")
    assert float(said.split()[-1]) < 0.01


def test_examples_are_short():
    for file in EXAMPLES.rglob("*.py"):
        most = 60 if file.parent.name == "programs" else 25
        assert len(file.read_text().splitlines()) < most, file.name

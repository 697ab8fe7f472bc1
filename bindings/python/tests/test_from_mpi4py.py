"""The programs of the book's page for those who come from mpi4py, and the hints for its names."""

import pathlib
import re
import subprocess
import sys

import maypole
import pytest
from maypole._mpi4py import HINTS
from ranks import LIMIT

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted((HERE.parent / "examples" / "from_mpi4py").glob("*.py"))
PAGE = (HERE.parents[2] / "examples" / "book" / "src" / "from-mpi4py.md").read_text()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.stem)
def test_program(program):
    command = [sys.executable, "-m", "maypole", "run", "-n", "3", "python", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and re.match(r"\[rank \d\] .*\d", done.stdout), (done.stdout, done.stderr)


def test_the_page_names_every_program_and_only_names_that_there_are():
    assert [f"{it.name}" for it in PROGRAMS] == re.findall(r"^\| `(\d\d_\w+\.py)`", PAGE, re.M) and len(PROGRAMS) == 12
    named = set(re.findall(r"`comm\.(\w+)", PAGE))
    ours = {name for name in named if hasattr(maypole.Communicator, name)}
    assert len(ours) > 25 and named - ours <= set(HINTS), named - ours - set(HINTS)


@pytest.mark.parametrize("name", HINTS)
def test_a_name_of_mpi4py_raises_an_error_with_ours(name):
    def rank(comm):
        with pytest.raises(AttributeError, match="as mpi4py's has: use comm.") as caught:
            getattr(comm, name)
        ours = re.search(r"use comm\.(\w+)", str(caught.value))[1]
        assert hasattr(comm, ours) and not hasattr(comm, name)
        assert name not in dir(comm) and ours in dir(comm)

    maypole.run_threads(1, rank)

"""The package's metadata, its types, and its notebook."""

import ast
import importlib.metadata
import inspect
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import maypole
import pytest
from ranks import LIMIT

HERE = pathlib.Path(__file__).parent
NOTEBOOK = HERE.parent / "examples" / "notebook.ipynb"


def test_the_wheel_has_licences_and_addresses():
    package = importlib.metadata.distribution("maypole")
    assert package.metadata["License-Expression"] == "MIT OR Apache-2.0" and package.metadata["Author"]
    assert any("github.com" in url for url in package.metadata.get_all("Project-URL"))
    licences = [file for file in package.files if file.name in ("LICENSE-MIT", "LICENSE-APACHE")]
    assert len(licences) == 2 and all("maypole" in str(it).lower() or it.size > 500 for it in licences)


def test_without_rust_the_first_line_says_that_it_is_needed(tmp_path):
    pytest.importorskip("maturin", reason="maturin is not installed")
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = [sys.executable, "-c", "import build_backend"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent, timeout=LIMIT)
    assert done.returncode == 1 and done.stderr.startswith("Maypole needs Rust") and done.stderr.count("\n") == 1


RIGHT = """
    import numpy as np
    import maypole
    from typing import assert_type

    async def rank(comm: maypole.Communicator) -> float:
        array = np.zeros(3, dtype=np.float32)
        comm.all_reduce(array, "mean", out=np.zeros(3, dtype=np.float32))
        assert_type(comm.all_reduce(3.0), float)
        assert_type(comm.all_reduce(3, "prod"), int)
        assert_type(comm.reduce(3), int | None)
        assert_type(comm.recv(bytearray(3)), tuple[int, int])
        assert_type(await comm.irecv(array), tuple[int, int])
        assert_type(comm.isend(memoryview(b"abc"), 1).wait(), tuple[int, int])
        comm.start("barrier").wait()
        np.frombuffer(memoryview(comm.alloc(16)), dtype=np.uint8)
        try:
            comm.sendrecv(array, 1, array.copy())
        except maypole.Timeout as error:
            if error.kind == "timed out":
                raise TimeoutError from error
        return comm.all_reduce(1.5)

    maypole.run_threads(2, lambda comm: comm.rank)
"""
WRONG = {
    "comm.all_reduce([1.0])": "call-overload",
    "comm.send({}, 1)": "arg-type",
    "comm.all_reduce(bytearray(2), 'median')": "call-overload",
    "comm.start('allreduce', bytearray(2))": "arg-type",
    "comm.Get_rank()": "attr-defined",
    "maypole.MaypoleError().kind == 'timeout'": "comparison-overlap",
}


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_the_types_are_those_that_mypy_expects(version, tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(textwrap.dedent(RIGHT))
    wrong.write_text("import maypole\ncomm = maypole.Communicator()\n" + "".join(line + "\n" for line in WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", version, "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, str(right)], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True, timeout=LIMIT)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    for at, (line, code) in enumerate(WRONG.items()):
        assert any(f"wrong.py:{at + 3}: " in it and f"[{code}]" in it for it in found), (line, done.stdout)


def test_the_stub_has_every_name_and_every_argument():
    stub = ast.parse((pathlib.Path(maypole.__file__).parent / "__init__.pyi").read_text())
    public = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_"}
    assert public | {"__version__"} == set(maypole.__all__)
    methods = {node.name: node for node in ast.walk(stub) if isinstance(node, ast.FunctionDef)}
    for name, method in inspect.getmembers(maypole.Communicator, callable):
        if name[0] == "_" or isinstance(method, type):
            continue
        listed = [it.arg for it in methods[name].args.args + methods[name].args.kwonlyargs]
        there = [it.replace("comm", "self") for it in inspect.signature(method).parameters]
        assert listed == there, name


def cells(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(notebook):
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert not [it for it in outputs if it["output_type"] == "error"]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_the_notebook_runs_and_prints_what_it_shows():
    """By Jupyter if that is installed, else each cell after the other in one interpreter."""
    notebook = json.loads(NOTEBOOK.read_text())
    shown = sorted(printed(notebook).splitlines())
    try:
        import nbclient
        import nbformat
        import ipykernel  # noqa: F401
    except ImportError:
        program = "\n".join(cells(notebook))
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        said = done.stdout
    else:
        run = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(run, timeout=LIMIT, kernel_name="python3").execute()
        said = printed(run)
    assert sorted(said.splitlines()) == shown and len(shown) >= 4

"""Starts ranks of a program for tests."""

import subprocess
import sys
import textwrap

LIMIT = 120


def run(ranks, program, code=0):
    """Runs `program` as `ranks` ranks, and returns what they print. Fails if the code is another one."""
    command = [sys.executable, "-m", "maypole", "run", "-n", str(ranks), "--no-tag-output", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr

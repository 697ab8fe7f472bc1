"""``python -m maypole run -n 4 program.py ARGUMENTS``: starts ranks on this machine.

PROGRAM is as for the command ``maypole run`` a command such as ``python program.py``, or else what follows
``python`` alone: a file, ``-m MODULE`` or ``-c CODE``. ``python`` is the interpreter that runs this launcher.
"""

import argparse
import collections
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

# How many seconds the other ranks may go on after one has failed, so that they can say what they saw.
GRACE = 5.0
# The most bytes of what a rank tells about itself in one line.
LONGEST = 64 << 20


def parse(arguments):
    """The launcher's options come first, then the program and its arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m maypole",
        usage="%(prog)s run [-n RANKS] [--failure-grace SECONDS] [--no-tag-output] PROGRAM ARGUMENTS...",
        description=__doc__,
    )
    parser.add_argument("command", choices=["run"])
    parser.add_argument("-n", "--ranks", type=int, default=os.cpu_count() or 1, help="how many ranks")
    grace = "how long the others may go on after a rank has failed (default: %(default)s)"
    parser.add_argument("--failure-grace", type=float, default=GRACE, metavar="SECONDS", help=grace)
    parser.add_argument("--no-tag-output", action="store_true", help='print lines without "[rank R] " before them')
    with_value = ("-n", "--ranks", "--failure-grace")
    ours = 1
    while ours < len(arguments) and arguments[ours] in (*with_value, "-h", "--help", "--no-tag-output"):
        ours += 2 if arguments[ours] in with_value else 1
    parsed = parser.parse_args(arguments[:ours])
    parsed.program = arguments[ours:]
    if parsed.program[:1] == ["--"]:
        del parsed.program[0]
    if parsed.ranks < 1:
        parser.error(f"-n {parsed.ranks}: a world has at least one rank")
    if not parsed.program:
        parser.error("run: name the program that each rank runs")
    return parsed


class Verdicts:
    """Receives the reports of ranks that have failed: which rank failed first."""

    def __init__(self):
        self._culprits, self._readers = {}, []
        self.name = None
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # A name that the kernel chooses, which no file has.
            self._listener.bind("")
            self._listener.listen(64)
        except OSError:
            return  # Then the rank whose process ends first is named.
        self.name = self._listener.getsockname()[1:].decode()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            size = struct.calcsize("3i")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            if struct.unpack("3i", credentials)[1] != os.getuid():
                connection.close()
                continue
            reader = threading.Thread(target=self._read, args=(connection,), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, connection):
        with connection, connection.makefile("rb") as lines:
            try:
                while line := lines.readline(LONGEST):
                    status = json.loads(line)["status"]
                    if status.get("failure") is not None and status.get("culprit") is not None:
                        self._culprits[status["rank"]] = status["culprit"]
            except (OSError, ValueError, KeyError, TypeError):
                pass

    def first(self):
        """The rank that most reports name, once all ranks have ended; None without reports."""
        for reader in self._readers:
            reader.join(GRACE)
        counts = collections.Counter(self._culprits.values())
        return min(counts, key=lambda rank: (-counts[rank], rank), default=None)


def command(program):
    """The command of a rank: ``program`` is one, or the arguments of the interpreter."""
    first = program[0]
    if first in ("python", "python3"):
        return [sys.executable, *program[1:]]
    if first.startswith("-") or first.endswith((".py", ".pyz")) or shutil.which(first) is None:
        return [sys.executable, *program]
    return program


def start(rank, ranks, program, shared):
    own = {"MAYPOLE_RANK": rank, "MAYPOLE_WORLD": ranks, "MAYPOLE_LOCAL_RANK": rank, "MAYPOLE_LOCAL_WORLD": ranks}
    # Those of torchrun, which PyTorch reads.
    torch = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    here = {name: str(value) for name, value in {**own, **torch}.items()}
    pipe = subprocess.PIPE
    environment = {**os.environ, **shared, **here, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command(program), env=environment, stdout=pipe, stderr=pipe)


def free_port():
    """A port where PyTorch's rank 0 can listen, below the ports of outgoing connections. Maypole's rank 0 tries
    the ports after it."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return str(port)
        except OSError:
            continue


def forward_lines(source, target, lock, tag):
    """Forwards whole lines with a tag, so that lines of several ranks do not mix."""
    for line in source:
        with lock:
            try:
                target.write(tag + line if line.endswith(b"\n") else tag + line + b"\n")
                target.flush()
            except BrokenPipeError:
                # The reader has ended. The ranks continue, and their output is dropped.
                continue


def code_of(process):
    """The exit code of a process as a shell tells it."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def wait(processes, grace):
    """Waits for all. After the first failure the others have ``grace`` seconds. Returns the exit codes of
    the ranks that were not killed here, by rank, in the order of their ends."""
    failed = {}
    deadline = None
    running = dict(enumerate(processes))
    while running:
        for rank, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[rank]
            if process.returncode != 0 and deadline != float("inf"):
                deadline = deadline or time.monotonic() + grace
                failed[rank] = code_of(process)
        if deadline is not None and time.monotonic() > deadline:
            for process in running.values():
                process.kill()
            deadline = float("inf")
        time.sleep(0.01)
    return failed


def main(arguments=None):
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    shared = {"MAYPOLE_JOB": secrets.token_hex(8), "MAYPOLE_JOB_KEY": secrets.token_hex(32)}
    shared |= {"MAYPOLE_ADDRESS": "127.0.0.1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes, verdicts = [], Verdicts()
    if verdicts.name:
        shared["MAYPOLE_STATUS_SOCKET"] = verdicts.name

    def forward(number, _frame):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    # Ctrl-C reaches the ranks by the terminal; the launcher waits for them.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, forward)
    lock = threading.Lock()
    readers = []
    for rank in range(parsed.ranks):
        process = start(rank, parsed.ranks, parsed.program, shared)
        processes.append(process)
        tag = b"" if parsed.no_tag_output or parsed.ranks == 1 else b"[rank %d] " % rank
        for source, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
            reader = threading.Thread(target=forward_lines, args=(source, target, lock, tag), daemon=True)
            reader.start()
            readers.append(reader)
    failed = wait(processes, parsed.failure_grace)
    for reader in readers:
        # A process that a rank has left behind may hold its pipe open.
        reader.join(GRACE)
    if not failed:
        return 0
    rank, first = next(iter(failed)), verdicts.first()
    because = ""
    if first in failed:
        rank = first
    elif first is not None:
        because = f", because rank {first} did not do its part"
    print(f"maypole: rank {rank} ended with code {failed[rank]}{because}", file=sys.stderr)
    return failed[rank]


if __name__ == "__main__":
    sys.exit(main())

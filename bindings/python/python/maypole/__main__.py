"""``python -m maypole run -n 4 program.py ARGUMENTS``: starts ranks on this machine."""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

# How long the other ranks may go on after one has failed, so that they can say what they saw.
GRACE = 5.0


def parse(arguments):
    """Our options come first. The rest is the program, whose options are none of ours."""
    parser = argparse.ArgumentParser(
        prog="python -m maypole", usage="%(prog)s run [-n RANKS] PROGRAM ARGUMENTS...", description=__doc__
    )
    parser.add_argument("command", choices=["run"])
    parser.add_argument("-n", "--ranks", type=int, default=os.cpu_count() or 1, help="how many ranks")
    ours = 1
    while ours < len(arguments) and arguments[ours] in ("-n", "--ranks", "-h", "--help"):
        ours += 1 if arguments[ours] in ("-h", "--help") else 2
    parsed = parser.parse_args(arguments[:ours])
    parsed.program = arguments[ours:]
    if parsed.ranks < 1:
        parser.error(f"-n {parsed.ranks}: a world has at least one rank")
    if not parsed.program:
        parser.error("run: name the program that each rank runs")
    return parsed


def start(rank, ranks, program, shared):
    here = {"MAYPOLE_RANK": str(rank), "MAYPOLE_WORLD": str(ranks), "MAYPOLE_ADDRESS": "127.0.0.1"}
    pipe = subprocess.PIPE
    environment = {**os.environ, **shared, **here}
    return subprocess.Popen([sys.executable, *program], env=environment, stdout=pipe, stderr=pipe)


def forward_lines(source, target, lock):
    """Passes whole lines on, so that ranks do not write into one another's."""
    for line in source:
        with lock:
            try:
                target.write(line if line.endswith(b"\n") else line + b"\n")
                target.flush()
            except BrokenPipeError:
                # Nobody reads any more. The ranks go on, and their output is dropped.
                continue


def code_of(process):
    """The exit code of a process as a shell tells it."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def wait(processes):
    """Waits for all. After the first failure the others have ``GRACE`` seconds. Returns the exit code of
    the rank that failed first, and that rank."""
    failed = None
    deadline = None
    running = dict(enumerate(processes))
    while running:
        for rank, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[rank]
            if process.returncode != 0 and failed is None:
                failed = (rank, code_of(process))
                deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            for process in running.values():
                process.kill()
            deadline = float("inf")
        time.sleep(0.01)
    return failed


def main(arguments=None):
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    shared = {"MAYPOLE_JOB": secrets.token_hex(8), "MAYPOLE_JOB_KEY": secrets.token_hex(32)}
    processes = []

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
        for source, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
            reader = threading.Thread(target=forward_lines, args=(source, target, lock), daemon=True)
            reader.start()
            readers.append(reader)
    failed = wait(processes)
    for reader in readers:
        # A process that a rank has left behind may hold its pipe open.
        reader.join(GRACE)
    if failed is None:
        return 0
    rank, code = failed
    print(f"maypole: rank {rank} ended with code {code}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

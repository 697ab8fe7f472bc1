"""Notes for the summary of .ci/run which tests were skipped, and why."""

import os


def note(report):
    if report.skipped:
        _, _, reason = report.longrepr
        with open(os.environ.get("SKIPPED_TESTS", os.devnull), "a") as file:
            file.write(f"SKIPPED: {report.nodeid}: {reason.removeprefix('Skipped: ')}\n")


# A module is skipped while it is collected, and a test before it runs.
pytest_collectreport = pytest_runtest_logreport = note

"""PyTorch's own tests of a backend, as they are selected for gloo, on this one: python torch_suite.py [TEST...]

They are those of `distributed_test.py`, which is in PyTorch's wheel. PyTorch starts the ranks of each test by
spawn, which imports PyTorch each time; here they are forks. Exits with 1 if a test fails that is not in
`EXCEPTIONS`, or one passes that is.
"""

import multiprocessing
import os
import sys
import tempfile
import unittest

# By test: why it cannot pass.
EXCEPTIONS = {
    "test_ddp_logging_data_cpu": "PyTorch logs each backend that it does not contain as 'custom'",
    "test_get_backend": "compares the name of the backend with that for which the tests were selected",
}
# Fewer would mean that PyTorch does not select tests as it did.
FEWEST = 80
BACKEND = "maypole"


def prepare(folder):
    """PyTorch's tests are configured by the environment, when they are imported."""
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(f"{folder}/{name}")
    os.environ.update(BACKEND="gloo", TEMP_DIR=folder, INIT_METHOD="", OMP_NUM_THREADS="1")
    # Without a GPU the profiler tells errors that nobody can mend.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    os.environ.setdefault("WORLD_SIZE", "2")


def replace_gloo():
    """Makes groups of this backend where a test asks for gloo."""
    import torch.distributed as dist

    init, new_group = dist.init_process_group, dist.new_group

    def ours(backend):
        return BACKEND if backend == "gloo" else backend

    def init_ours(backend=None, *args, **kwargs):
        return init(ours(backend), *args, **kwargs)

    def new_group_of_ours(ranks=None, timeout=None, backend=None, *args, **kwargs):
        return new_group(ranks, timeout, ours(backend), *args, **kwargs)

    dist.init_process_group, dist.new_group = init_ours, new_group_of_ours


def suite():
    """The class of all tests."""
    from torch.testing._internal.distributed import distributed_test as theirs

    class TestsOnForks(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return TestsOnForks


def name_of(test):
    return test.id().rpartition(".")[2]


def main(names):
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        replace_gloo()
        cases = suite()
        names = names or unittest.defaultTestLoader.getTestCaseNames(cases)
        tests = unittest.TestSuite(map(cases, names))
        done = unittest.TextTestRunner(verbosity=int("-v" in sys.argv)).run(tests)
    failed = {name_of(test) for test, _ in (*done.failures, *done.errors)}
    expected = EXCEPTIONS.keys() & set(names)
    passed = done.testsRun - len(failed) - len(done.skipped)
    print(f"{passed} passed, {len(failed)} failed ({len(expected)} expected), {len(done.skipped)} skipped")
    for name in sorted(failed - expected):
        print(f"failed: {name}")
    for name in sorted(expected - failed):
        print(f"passes, and is expected to fail: {name}")
    is_whole = len(names) < FEWEST or passed >= FEWEST
    return 0 if failed == expected and is_whole else 1


if __name__ == "__main__":
    sys.exit(main([name for name in sys.argv[1:] if name != "-v"]))

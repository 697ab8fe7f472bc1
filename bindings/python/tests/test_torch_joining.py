"""How the ranks of a group of PyTorch meet: on stores that outlive groups, and over several hosts."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from maypole import MaypoleError, _torch_address
from ranks import LIMIT
from test_torch import run


def test_groups_are_made_again_on_one_store():
    run(3, """
        store = dist.FileStore(meeting + "-kept", world)
        # A group of one name has other members, and more or fewer, each time.
        members = [[0, 1, 2], [0, 1], [1, 2], [0, 1, 2], [2, 0]]
        for turn, late in enumerate([0, 1, 2, 0, 1]):
            dist.destroy_process_group()
            if rank == late:
                time.sleep(0.3)
            dist.init_process_group("maypole", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=20))
            x = torch.ones(4)
            dist.all_reduce(x)
            assert (x == 3).all()
            group = dist.new_group(members[turn])
            if rank in members[turn]:
                dist.all_reduce(x, group=group)
                assert (x == 3 * len(members[turn])).all()
            if rank == late:
                time.sleep(0.2)
                store.set(f"late {turn}", "here")
            dist.monitored_barrier(timeout=timedelta(seconds=20))
            assert store.check([f"late {turn}"]), "the barrier has let this rank pass"
    """)


def test_after_a_failed_join_the_ranks_meet_again():
    run(3, """
        from maypole._torch_join import join
        store = dist.FileStore(meeting + "-kept", world)
        if rank != 1:
            since = time.monotonic()
            try:
                join(store, rank, world, timedelta(seconds=1))
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert error.kind == "join" and error.retryable, error
                assert "rank 1 of 3 had not come" in str(error), error
                assert time.monotonic() - since < 8
            store.set(f"failed {rank}", "so")
        else:
            store.wait(["failed 0", "failed 2"], timedelta(seconds=30))
        comm, _ = join(store, rank, world, timedelta(seconds=20))
        comm.barrier()
        assert "key" not in store.get("maypole/answer").decode(), "the key of a group is kept"
    """)


def test_a_rank_that_lacks_descriptors_fails_the_group_at_once_on_all():
    run(3, """
        import resource
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        since = time.monotonic()
        try:
            dist.new_group([0, 1, 2])
            raise SystemExit("nothing was said")
        except RuntimeError as error:
            assert "file descriptors" in str(error) and "hard limit is 100" in str(error), error
            assert rank == 1 or "rank 1 of 3 cannot join" in str(error), error
            assert time.monotonic() - since < 20, "the group has a timeout of half an hour"
        x = torch.ones(4)
        dist.all_reduce(x)
        assert (x == 3).all(), "the world goes on"
    """)


def test_a_rank_that_waits_for_rank_0_says_where():
    run(2, """
        if rank == 1:
            server = dist.TCPStore("127.0.0.1", 0, 1, True)
            store = dist.PrefixStore("deep", dist.PrefixStore("within", server))
            dist.destroy_process_group()
            try:
                dist.init_process_group("maypole", store=store, rank=1, world_size=2, timeout=timedelta(seconds=1))
                raise SystemExit("nothing was said")
            except RuntimeError as error:
                assert f"in the store at 127.0.0.1:{server.port}" in str(error) and "rank 0" in str(error), error
            os._exit(0)
    """)


@pytest.mark.parametrize("wait_all", [False, True])
def test_a_monitored_barrier_takes_one_timeout_and_names_the_absent(wait_all):
    said = run(4, f"""
        since = time.monotonic()
        if rank in (0, 2):
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks={wait_all})
                raise SystemExit("the barrier has let this rank pass")
            except RuntimeError as error:
                print(error)
            assert 0.9 < time.monotonic() - since < 2.5
        dist.barrier()
    """)
    absent = "Ranks 1, 3 failed" if wait_all else "Rank 1 failed"
    assert f"{absent} to pass monitoredBarrier in 1000 ms" in said[0]
    assert "Rank 2 successfully reached monitoredBarrier" in said[2] and absent in said[2]


def rank_on(host, addresses=(), masters=()):
    return {"host": host, "addresses": list(addresses), "masters": list(masters)}


@pytest.fixture
def own(monkeypatch):
    """The addresses at which this host can be reached, in place of those that it has."""
    mine = {"127.0.0.1", "10.0.0.1", "10.9.0.1", "fd00::1"}
    monkeypatch.setattr(_torch_address, "_is_reachable", mine.__contains__)
    monkeypatch.setattr(_torch_address, "_source_of_route", {"10.9.0.2": "10.9.0.1"}.get)
    monkeypatch.delenv("MAYPOLE_INTERFACE", raising=False)


def test_rank_0_listens_where_the_others_find_it(own, monkeypatch):
    at = _torch_address.address_for
    mine = rank_on("a", ["10.0.0.1", "10.9.0.1"], ["127.0.1.1"])
    # One host.
    assert at(mine, [rank_on("a", ["10.0.0.1"], ["10.0.0.1"])]) == "127.0.0.1"
    # The name of rank 0's host is loopback there alone.
    assert at(mine, [rank_on("a"), rank_on("b", ["10.0.0.2"], ["10.9.0.1"])]) == "10.9.0.1"
    # The master is another host, or an address that means every interface.
    assert at(mine, [rank_on("b", ["10.9.0.2"], ["10.0.0.7", "0.0.0.0"])]) == "10.9.0.1"
    # Names with IPv6 alone.
    assert at(rank_on("a", ["fd00::1"], ["::1"]), [rank_on("b", ["fd00::2"], ["fd00::1"])]) == "fd00::1"
    # No one says anything of the master.
    assert at(mine, [rank_on("b")]) == "10.0.0.1"
    assert at(rank_on(None), [rank_on(None)]) == "127.0.0.1"
    for none in (rank_on("a"), rank_on("a", ["10.7.0.1"], ["127.0.1.1"])):
        with pytest.raises(MaypoleError, match="set MAYPOLE_INTERFACE") as caught:
            at(none, [rank_on("b", ["10.0.0.2"], ["127.0.0.1", "169.254.1.1", "10.0.0.9"])])
        assert caught.value.kind == "join"
    monkeypatch.setenv("MAYPOLE_INTERFACE", "eth1")
    assert at(rank_on("a", ["10.9.0.1"]), [rank_on("a")]) == "10.9.0.1"
    assert at(rank_on("a", ["10.9.0.1"]), [rank_on("b", [], ["10.0.0.1"])]) == "10.9.0.1"


PROGRAM = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
method, rank = sys.argv[1:]
dist.init_process_group("maypole", init_method=method, rank=int(rank), world_size=2, timeout=timedelta(seconds=30))
x = torch.ones(4)
dist.all_reduce(x)
print(x[0].item())
"""
# The network, and what the two ranks have in their environment.
HOSTS = {
    "tcp:// alone": ("tcp://10.77.0.1:29511", {}, {}),
    "the master's own name is loopback": ("env://", {"MASTER_ADDR": "node1"}, {"MASTER_ADDR": "node1"}),
    "every interface": ("tcp://10.77.0.1:29511", {"MASTER_ADDR": "0.0.0.0"}, {}),
    "an interface": ("tcp://10.77.0.1:29511", {"MAYPOLE_INTERFACE": "in0"}, {"MAYPOLE_INTERFACE": "10.78.0.0/16"}),
    "IPv6 alone": ("env://", {"MASTER_ADDR": "node6"}, {"MASTER_ADDR": "node6"}),
}


@pytest.fixture(scope="module")
def hosts():
    """Two network namespaces that two networks join, as hosts of which the first is node1 and node6."""
    names = [f"mpj{os.getpid()}{end}" for end in "ab"]
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip")

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def clean():
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    try:
        for name in names:
            ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        clean()
        pytest.skip("no network namespaces can be made")
    try:
        for link, network in (("out0", 77), ("in0", 78)):
            ip("link", "add", link, "netns", names[0], "type", "veth", "peer", "name", link, "netns", names[1])
            for end, name in enumerate(names, 1):
                ip("-n", name, "addr", "add", f"10.{network}.0.{end}/24", "dev", link)
                if link == "out0":
                    ip("-n", name, "addr", "add", f"fd77::{end}/64", "dev", link, "nodad")
                for each in ("lo", link):
                    ip("-n", name, "link", "set", each, "up")
        for name, node1, node6 in ((names[0], "127.0.1.1", "::1"), (names[1], "10.77.0.1", "fd77::1")):
            os.makedirs(f"/etc/netns/{name}")
            with open(f"/etc/netns/{name}/hosts", "w") as file:
                file.write(f"127.0.0.1 localhost\n{node1} node1\n{node6} node6\n")
        yield names
    finally:
        clean()


@pytest.mark.parametrize("name", HOSTS)
def test_two_hosts_meet(name, hosts):
    method, *variables = HOSTS[name]
    usual = {key: value for key, value in os.environ.items() if not key.startswith(("MASTER_", "MAYPOLE_"))}
    ranks = []
    for rank, (host, own) in enumerate(zip(hosts, variables)):
        environment = {**usual, "MASTER_PORT": "29512", "OMP_NUM_THREADS": "1", **own}
        command = ["ip", "netns", "exec", host, sys.executable, "-c", textwrap.dedent(PROGRAM), method, str(rank)]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    said = [rank.communicate(timeout=LIMIT) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and all(out == "2.0\n" for out, _ in said), said

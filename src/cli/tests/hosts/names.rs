//! Rank 0 at a name that each host looks up by itself. On many hosts the host's own name is a loopback
//! address.

use crate::network::{OTHER, address, address6};
use crate::{CALL, Cluster, ended, said, skip};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const NAME: &str = "node";

impl Cluster {
    /// Writes the names that a rank resolves: `node` at each of `addresses`. Each rank has a file, because a rank of
    /// the same host may be reading when another one starts.
    fn names(&self, rank: usize, addresses: &[&str]) -> PathBuf {
        let path = self.folder.path().join(format!("names-{rank}"));
        let lines = addresses.iter().map(|address| format!("{address} {NAME}\n"));
        fs::write(&path, "127.0.0.1 localhost\n".to_owned() + &lines.collect::<String>()).unwrap();
        path
    }
}

/// Ranks 0 and 1 on host 0, rank 2 on host 1, which resolve `node` by the lists.
struct Named<'a> {
    cluster: &'a Cluster,
    lists: [&'a [&'a str]; 2],
    variables: &'a [(&'a str, &'a str)],
    has_key: bool,
}

impl Named<'_> {
    fn start(&self, rank: usize) -> Child {
        let host = rank / 2;
        let names = self.cluster.names(rank, self.lists[host]);
        let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", names.display());
        let mut command = self.cluster.network.command(host, "unshare");
        command.args(["--mount", "sh", "-c", &script, "rank", env!("CARGO_BIN_EXE_maypole")]);
        command.args(CALL.split(' ')).env("MAYPOLE_RANK", rank.to_string());
        command.env("MAYPOLE_WORLD", "3").env("MAYPOLE_ADDRESS", NAME);
        command.env("MAYPOLE_PORT", "24000").env("MAYPOLE_TIMEOUT", "20");
        command.env("MAYPOLE_TUNE", "off").env("MAYPOLE_LOG", "info");
        command.env("MAYPOLE_HOST", format!("host{host}"));
        if self.has_key {
            command.env("MAYPOLE_JOB_KEY_FILE", self.cluster.key());
        }
        command.envs(self.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn run(&self) -> Vec<Output> {
        ended((0..3).map(|rank| self.start(rank)).collect())
    }

    #[track_caller]
    fn joins(&self) -> Vec<String> {
        let outputs = self.run();
        for (rank, output) in outputs.iter().enumerate() {
            assert!(output.status.success(), "{:?}: rank {rank}: {}", self.lists, said(output));
        }
        outputs.iter().map(said).collect()
    }
}

fn named<'a>(
    cluster: &'a Cluster,
    lists: [&'a [&'a str]; 2],
    variables: &'a [(&'a str, &'a str)],
) -> Named<'a> {
    Named { cluster, lists, variables, has_key: true }
}

/// True if this process may give hosts names of their own.
pub(crate) fn can_mount() -> bool {
    let script = "mount --bind /etc/hosts /etc/hosts";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", script]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Two hosts; `None`, and a line with the reason, where this process may not give them names.
fn cluster() -> Option<Cluster> {
    if !can_mount() {
        skip::skipped("no names for hosts here: this process may not mount");
        return None;
    }
    Cluster::new(2)
}

#[test]
fn a_host_whose_own_name_is_a_loopback_address_is_found_by_others() {
    let Some(cluster) = cluster() else { return };
    let (v4, v6) = (&*address(0), &*address6(0));
    for (own, others) in [
        (&["127.0.1.1"][..], &[v4][..]),
        (&["127.0.1.1", "::1"], &[v4]),
        (&["127.0.1.1"], &[v6]),
        (&["127.0.1.1", v6], &[v6]),
    ] {
        let said = named(&cluster, [own, others], &[]).joins();
        assert!(said[0].contains("3 ranks on 2 hosts"), "{own:?}, {others:?}: {}", said[0]);
    }
}

#[test]
fn a_name_of_ipv6_alone_and_names_of_both_kinds_are_found() {
    let Some(cluster) = cluster() else { return };
    let (v4, v6) = (&*address(0), &*address6(0));
    for (own, others) in [(&[v6][..], &[v6][..]), (&[v4, v6], &[v6]), (&[v6, v4], &[v4])] {
        named(&cluster, [own, others], &[]).joins();
    }
}

#[test]
fn the_selected_interface_is_the_one_that_others_reach() {
    let Some(cluster) = cluster() else { return };
    let other = format!("{OTHER}.1");
    let lists = [&["127.0.1.1"][..], &[&*other]];
    let said = named(&cluster, lists, &[("MAYPOLE_INTERFACE", "v1")]).joins();
    let line = format!("rank 0 listens at {other} on v1 (MAYPOLE_INTERFACE=v1)");
    assert!(said[0].contains(&line), "{}", said[0]);
}

#[test]
fn a_rank_0_that_others_cannot_reach_says_where_it_listens() {
    let Some(cluster) = cluster() else { return };
    let (first, second) = (address(0), address(1));
    let (first, second) = ([&*first], [&*second]);
    // Without a key, rank 0 may listen at loopback alone.
    let keyless = Named {
        has_key: false,
        ..named(&cluster, [&["127.0.1.1"], &first], &[("MAYPOLE_TIMEOUT", "2")])
    };
    let outputs = keyless.run();
    let part = "rank 0 listens at 127.0.1.1, port 24000, where no other host reaches it";
    assert!(said(&outputs[0]).contains(part), "{}", said(&outputs[0]));
    assert!(said(&outputs[2]).contains("has no key"), "{}", said(&outputs[2]));
    // On another host than that of its name.
    let variables = [("MAYPOLE_TIMEOUT", "2")];
    let elsewhere = named(&cluster, [&second, &first], &variables);
    let outputs = elsewhere.run();
    let error = said(&outputs[0]);
    let parts = [&*address(1), "no address of this host", &*address(0), "MAYPOLE_ADDRESS"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let waiter = said(&outputs[2]);
    let dialled = format!("found no rank 0 at node ({}), port 24000", address(0));
    assert!(waiter.contains(&dialled), "{waiter}");
}

//! The hosts of a job as users write them, and which ranks each of them gets.

use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::input;

/// A host, and how many ranks may run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostSlots {
    /// As the user typed it, and the argument of ssh: `node7`, `user@node7`, `fd00::7`.
    pub(super) name: String,
    /// `None` where the user gives no number.
    pub(super) slots: Option<usize>,
}

/// The ranks of a job on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostRanks {
    pub(super) name: String,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl HostRanks {
    /// The name without the user, for other hosts.
    pub(super) fn address(&self) -> &str {
        self.name.rsplit_once('@').map_or(&self.name, |(_, host)| host)
    }
}

/// Reads `--hosts`: `a:8,user@b:8`. A host that is named twice has the slots of both places.
pub(super) fn parse(text: &str) -> Result<Vec<HostSlots>> {
    let mut hosts = Vec::new();
    for word in text.split(',').map(str::trim) {
        let (name, slots) = split_slots(word);
        let slots = slots.map(|slots| number(slots).with_context(|| format!("--hosts {word}")));
        add(&mut hosts, name, slots.transpose()?).with_context(|| format!("--hosts {text:?}"))?;
    }
    Ok(hosts)
}

/// Reads a host file of Open MPI: a host a line, with `slots=N`, and comments after `#`.
pub(super) fn read(path: &Path) -> Result<Vec<HostSlots>> {
    let named = || format!("--hostfile {}", path.display());
    let text = input::text("--hostfile", path, input::TEXT)?;
    let mut hosts = Vec::new();
    // Some editors put a mark of the byte order before the first line.
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        read_line(&mut hosts, line).with_context(|| format!("{}, line {}", named(), number + 1))?;
    }
    ensure!(!hosts.is_empty(), "{} names no host", named());
    Ok(hosts)
}

fn read_line(hosts: &mut Vec<HostSlots>, line: &str) -> Result<()> {
    let line = line.split_once('#').map_or(line, |(line, _)| line);
    let mut words = line.split_whitespace();
    let Some(word) = words.next() else { return Ok(()) };
    // As hydra's host files have it.
    let (name, slots) = split_slots(word);
    let mut slots = slots.map(number).transpose()?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", count)) => slots = Some(number(count)?),
            _ => bail!("{word:?} is not understood; write for example {name:?} slots=8"),
        }
    }
    add(hosts, name, slots)
}

/// `a:8` as `a` and `8`. An address of IPv6 needs brackets to have a number: `[fd00::7]:8`.
fn split_slots(word: &str) -> (&str, Option<&str>) {
    let is_address = |name: &str| name.contains(':') && !name.ends_with(']');
    match word.rsplit_once(':') {
        Some((name, slots)) if !is_address(name) => (name, Some(slots)),
        _ => (word, None),
    }
}

fn number(text: &str) -> Result<usize> {
    let slots: Option<usize> = text.parse().ok().filter(|slots| *slots > 0);
    slots.with_context(|| format!("{text:?} is no number of ranks, which is 1 or more"))
}

fn add(hosts: &mut Vec<HostSlots>, name: &str, slots: Option<usize>) -> Result<()> {
    let name = name.replace(['[', ']'], "");
    // A name that begins with a hyphen would be an option of ssh.
    let is_plain = !name.is_empty()
        && !name.starts_with('-')
        && !name.contains(|char: char| char.is_whitespace() || char.is_control());
    ensure!(is_plain, "{name:?} is no name of a host");
    let address = name.rsplit_once('@').map_or(&*name, |(_, host)| host);
    ensure!(
        !address.contains(':') || is_ipv6(address),
        "{name:?} is neither a host, as in a:8, nor an address of IPv6, as in [fd00::7]:8"
    );
    match hosts.iter_mut().find(|host| host.name == name) {
        Some(host) => {
            host.slots = Some(host.slots.unwrap_or(1) + slots.unwrap_or(1));
        }
        None => hosts.push(HostSlots { name, slots }),
    }
    Ok(())
}

/// True for `fd00::7` and `fe80::7%eth0`.
fn is_ipv6(address: &str) -> bool {
    let address = address.split_once('%').map_or(address, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// Gives each host the next ranks, as many as it has slots, until all of `ranks` have a host. Without
/// `ranks`, all slots are filled. Hosts without a number have one slot; if no host has a number, they
/// share `ranks` evenly.
pub(super) fn place(hosts: Vec<HostSlots>, ranks: Option<usize>) -> Result<Vec<HostRanks>> {
    let share =
        |nth: usize, ranks: usize| (nth + 1) * ranks / hosts.len() - nth * ranks / hosts.len();
    let is_even = hosts.iter().all(|host| host.slots.is_none());
    let slots = |nth: usize, host: &HostSlots| match ranks {
        Some(ranks) if is_even => share(nth, ranks),
        _ => host.slots.unwrap_or(1),
    };
    let slots: Vec<usize> = hosts.iter().enumerate().map(|(nth, host)| slots(nth, host)).collect();
    let all: usize = slots.iter().sum();
    let world = ranks.unwrap_or(all);
    ensure!(
        world <= all,
        "-n {world} needs {world} slots, and the hosts have {all}: name more hosts, or more slots \
         as in --hosts a:8,b:8"
    );
    let mut first = 0;
    let mut placed = Vec::new();
    for (host, slots) in hosts.into_iter().zip(slots) {
        let count = slots.min(world - first);
        if count > 0 {
            placed.push(HostRanks { name: host.name, first, count });
        }
        first += count;
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(hosts: &[HostSlots]) -> Vec<(&str, Option<usize>)> {
        hosts.iter().map(|host| (&*host.name, host.slots)).collect()
    }

    #[test]
    fn hosts_are_read_with_their_slots() {
        let hosts = parse("a:8, me@b,[fd00::7]:2,fd00::8,a:1").unwrap();
        let expected = [("a", Some(9)), ("me@b", None), ("fd00::7", Some(2)), ("fd00::8", None)];
        assert_eq!(slots(&hosts), expected);
        for wrong in ["", "a:0", "a:x", "a,,b", "-oProxyCommand=x", ":3", "a:1:2", "a\0b", "a b:2"]
        {
            parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_host_file_has_comments_and_a_host_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let text = "# two racks\n\na slots=4 # the first\n  b\na slots=2\n";
        std::fs::write(&path, text).unwrap();
        assert_eq!(slots(&read(&path).unwrap()), [("a", Some(6)), ("b", None)]);
        std::fs::write(&path, "\u{feff}a:2\n[fd00::7]:3\nfe80::1%eth0\n").unwrap();
        let expected = [("a", Some(2)), ("fd00::7", Some(3)), ("fe80::1%eth0", None)];
        assert_eq!(slots(&read(&path).unwrap()), expected);
        for wrong in ["a\0b\n", "a:1:2\n", "a:0\n", "\u{1b}[31m\n"] {
            std::fs::write(&path, wrong).unwrap();
            read(&path).unwrap_err();
        }
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.starts_with("--hostfile /dev/zero is longer than"), "{error}");
        std::fs::write(&path, "a\nb slots=many\n").unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("line 2") && error.contains("\"many\""), "{error}");
        std::fs::write(&path, "# none\n").unwrap();
        read(&path).unwrap_err();
    }

    #[test]
    fn ranks_fill_the_hosts_in_order() {
        let placed = |text: &str, ranks| {
            let placed = place(parse(text).unwrap(), ranks).unwrap();
            placed.iter().map(|host| (host.first, host.count)).collect::<Vec<_>>()
        };
        assert_eq!(placed("a:2,b:3", None), [(0, 2), (2, 3)]);
        assert_eq!(placed("a:2,b:3", Some(3)), [(0, 2), (2, 1)]);
        assert_eq!(placed("a:2,b:3", Some(2)), [(0, 2)]);
        assert_eq!(placed("a,b,c", None), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(placed("a,b,c", Some(8)), [(0, 2), (2, 3), (5, 3)]);
        let error = place(parse("a:2,b").unwrap(), Some(4)).unwrap_err().to_string();
        assert!(error.contains("the hosts have 3"), "{error}");
    }
}

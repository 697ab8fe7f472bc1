//! All variables of maypole's own in one list, and how one variable is read.

use std::fmt::Write;
use std::time::Duration;

use super::LaunchError;

/// A variable that maypole reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its meaning and its default, as one or two Markdown sentences.
    pub meaning: &'static str,
    /// Whether it must have the same value on all ranks of a job: joining compares these.
    pub equal_on_all_ranks: bool,
}

const fn each(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning, equal_on_all_ranks: false }
}

const fn equal(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning, equal_on_all_ranks: true }
}

/// Every variable of maypole's own that its code reads.
pub const VARIABLES: &[Variable] = &[
    each(
        "MAYPOLE_RANK",
        "The rank of this process, from 0. Overrules every launcher; needs `MAYPOLE_WORLD`.",
    ),
    equal(
        "MAYPOLE_WORLD",
        "How many processes there are. A Kubernetes indexed job needs only this variable.",
    ),
    each("MAYPOLE_LOCAL_RANK", "The rank of this process among those on its host, from 0."),
    each(
        "MAYPOLE_LOCAL_WORLD",
        "How many processes there are on this host. If that is all of them, loopback is used.",
    ),
    equal(
        "MAYPOLE_ADDRESS",
        "Name or address of rank 0's host, also with its port: `node7:21000`, `[fd00::7]:21000`. \
         Default: as the launcher says.",
    ),
    equal(
        "MAYPOLE_PORT",
        "The port where rank 0 listens. Default: a few after `MASTER_PORT`, else derived from the \
         job.",
    ),
    equal(
        "MAYPOLE_ADMISSION_PORT",
        "The port of rank 0's host at which processes wait that want to join ranks that run. Set by \
         `maypole run --replace`. Default: none, and nobody is admitted.",
    ),
    each(
        "MAYPOLE_NEWCOMER",
        "`1`: this process joins ranks that run, as rank `MAYPOLE_RANK`. Set by `maypole run --replace` \
         for a process that replaces a rank.",
    ),
    each(
        "MAYPOLE_INTERFACE",
        "Network interface of this process, by name (`eth0`) or by network (`10.1.0.0/16`). Default: \
         the interface on the route to rank 0.",
    ),
    each(
        "MAYPOLE_DATA_PORTS",
        "Ports where other ranks listen, as `FIRST-LAST`; a firewall must let them in. Default: \
         the kernel's choice.",
    ),
    equal(
        "MAYPOLE_JOB",
        "The name of the job; ranks of different jobs never join. Default: the launcher's job id.",
    ),
    each(
        "MAYPOLE_JOB_KEY_FD",
        "Number of an inherited descriptor that holds the job key. Set by `maypole run`.",
    ),
    each(
        "MAYPOLE_JOB_KEY_FILE",
        "File that holds the job key, of this user and of mode 0600. `maypole key new FILE` makes \
         one.",
    ),
    each(
        "MAYPOLE_JOB_KEY",
        "The job key itself, 64 hexadecimal digits. Only one of these three variables may be set. \
         Without a key only processes of this host may join.",
    ),
    each(
        "MAYPOLE_TIMEOUT",
        "Seconds that joining and every operation may wait for other ranks. Default: 300.",
    ),
    equal(
        "MAYPOLE_TRANSPORT",
        "`auto`, `shm`, `tcp` or `ib`. Default: `auto`, the fastest that all ranks offer.",
    ),
    each(
        "MAYPOLE_IB_DEVICE",
        "The RDMA device that connections by InfiniBand or RoCE use, by name (`mlx5_0`). Default: of \
         all active ports that reach the other hosts, the fastest; ranks of a host take equally good \
         ones in turn, those near their cores first.",
    ),
    each(
        "MAYPOLE_IB_PORT",
        "The number of the device's port, from 1. Default: chosen with the device.",
    ),
    each(
        "MAYPOLE_IB_GID_INDEX",
        "The index of the port's GID. Default: an IPv4 address over RoCE v2, or what comes nearest.",
    ),
    each("MAYPOLE_IB_SERVICE_LEVEL", "The service level of InfiniBand, 0 to 15. Default: 0."),
    each(
        "MAYPOLE_IB_TRAFFIC_CLASS",
        "The traffic class of packets, 0 to 255, by which switches of RoCE choose queues. Default: 0.",
    ),
    each("MAYPOLE_IB_PKEY_INDEX", "The index of the port's partition key. Default: 0."),
    each(
        "MAYPOLE_IB_TIMEOUT",
        "A packet that is not answered is repeated after 4.096 us times 2 to this power, 1 to 31. \
         Default: 18, which is 1.07 s.",
    ),
    each(
        "MAYPOLE_IB_RETRIES",
        "How often a packet is repeated before the connection is lost, 0 to 7. Default: 7.",
    ),
    equal(
        "MAYPOLE_ENCRYPT",
        "`1`: all bytes between ranks that share no memory are encrypted and authenticated. `maypole \
         perf` measures what that costs. Default: `0`.",
    ),
    equal(
        "MAYPOLE_ALGORITHM",
        "The algorithm to use wherever it fits, by name. Default: the tuner's choice.",
    ),
    equal(
        "MAYPOLE_WAY",
        "How ranks of a host move the bytes of long calls, where that is possible: `deep-ring`, \
         `past-caches`, `ordinary` (through slots), `copied` or `registered`. For measurements. Default: \
         what the calls themselves find fastest.",
    ),
    equal(
        "MAYPOLE_DETERMINISTIC",
        "`1`: every call combines floats in the order of the ranks, one by one. Default: `0`.",
    ),
    equal(
        "MAYPOLE_CHECK",
        "`1`: all ranks compare their calls before each one, so that the first call that does not \
         match fails on every rank. Slow. Default: `0`.",
    ),
    equal(
        "MAYPOLE_TRACE",
        "File for a trace of all calls and messages, for ui.perfetto.dev: one of every host, or \
         with `{rank}` in its name one \
         of every rank. Default: none.",
    ),
    each(
        "MAYPOLE_HOST",
        "Name of this host; only processes of equal names try shared memory. Default: the boot id.",
    ),
    each(
        "MAYPOLE_NETWORK",
        "The network between hosts, by which all ranks choose: the round trip, and the bandwidth of a host where \
         it is the limit, like `0.2ms` or `1ms,10Gbit`. That of rank 0 counts. Default: the round trips \
         and bandwidths that the ranks of other hosts measure when they join, in classes a factor of 4 apart, \
         and by them sites.",
    ),
    each(
        "MAYPOLE_MEMORY",
        "Most bytes of shared memory for boards and messages, and of memory registered for verbs, \
         that each communicator of this process may hold. Default: no limit. The board of a host's \
         ranks takes 0.3 MiB for each of 2, 0.7 MiB for each of 8 and 2.2 MiB for each of 64; where \
         large calls are quicker so, and half of the limit holds it, 2.2 MiB for each.",
    ),
    each(
        "MAYPOLE_PROGRAM_MEMORY",
        "Most bytes of the programs that each communicator keeps for calls that are repeated; those \
         that were not used for the longest time are dropped. Default: 8388608 (8 MiB).",
    ),
    each(
        "MAYPOLE_CUDA_MAILBOXES",
        "Where ranks on GPUs of one host publish their bytes: `peer` (in the memory of the GPUs, or calls go \
         by the CPU), `host` (in memory of the host that all GPUs reach), or `auto`: on the GPUs, and in the \
         host where some do not reach one another. `host` on one rank counts for all. Default: `auto`.",
    ),
    each(
        "MAYPOLE_CUDA_COURIERS",
        "How the bytes of ranks on GPUs reach other hosts: `auto` (over InfiniBand and RoCE, adapters write them \
         from slot to slot, by all ports of a rank, unless they are encrypted; the slots are in the memory of \
         the GPUs if all adapters reach it, which was tested on no hardware), `gpudirect` (the same, and an \
         error where they are not), `host` (slots are in memory of the hosts) or `stream` (in the streams that \
         join the ranks). `host` on one rank counts for all, `stream` for all of its connections. Default: `auto`.",
    ),
    each(
        "MAYPOLE_TUNE",
        "The file of costs that `maypole tune` has measured, or `off` for the built-in costs; \
         that of rank 0 counts. \
         Default: the file in the user's cache directory.",
    ),
    each(
        "MAYPOLE_LOG",
        "With `info` or more, rank 0 says on standard error which transport joins the ranks, and \
         why no faster one does, and the first rank of each of several hosts says which network \
         interface it uses, and why no other. \
         Default: `warn`.",
    ),
    each(
        "MAYPOLE_REPORT",
        "Directory for reports: a rank that fails writes what it was doing, and its last 1000 \
         calls, to `rank-R.json` there. Default: none.",
    ),
    each(
        "MAYPOLE_STATUS_SIGNAL",
        "A signal, such as `USR1`, at which a rank prints on standard error what it is doing, and \
         `maypole run` a page about all ranks. Default: none.",
    ),
    each(
        "MAYPOLE_STATUS_SOCKET",
        "Where a rank tells its launcher what it is doing. Set by `maypole run`.",
    ),
    each(
        "MAYPOLE_EXPLAIN",
        "`1`: every call is timed, so that explanations compare predictions with measurements. \
         Default: `0`.",
    ),
];

/// Renders [`VARIABLES`] as a Markdown table, for the documentation.
///
/// # Examples
///
/// ```
/// let table = maypole::world::launch::variables_as_markdown();
/// assert!(table.starts_with("| variable | meaning | equal on all ranks |\n|---|---|---|\n"));
/// assert!(table.contains("| `MAYPOLE_TIMEOUT` | "));
/// ```
pub fn variables_as_markdown() -> String {
    let mut table = String::from("| variable | meaning | equal on all ranks |\n|---|---|---|\n");
    for Variable { name, meaning, equal_on_all_ranks } in VARIABLES {
        let equal = if *equal_on_all_ranks { "yes" } else { "" };
        writeln!(table, "| `{name}` | {} | {equal} |", meaning.replace('|', "\\|"))
            .expect("a String takes all");
    }
    table
}

/// The environment, as a function from name to value. An empty variable counts as not set.
#[derive(Clone, Copy)]
pub(super) struct VariableReader<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl VariableReader<'_> {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<usize>, LaunchError> {
        self.parse(name, "a whole number", |text| text.parse().ok())
    }

    pub(super) fn port(&self, name: &'static str) -> Result<Option<u16>, LaunchError> {
        self.parse(name, "a port from 1 to 65535", |text| {
            text.parse().ok().filter(|port| *port > 0)
        })
    }

    pub(super) fn descriptor(&self, name: &'static str) -> Result<Option<i32>, LaunchError> {
        let expected = "the number of a descriptor that was inherited from the launcher, 3 or more";
        self.parse(name, expected, |text| text.parse().ok().filter(|number| *number > 2))
    }

    fn parse<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, LaunchError> {
        let Some(value) = self.text(variable) else { return Ok(None) };
        parse(&value).map(Some).ok_or(LaunchError::Malformed { variable, value, expected })
    }
}

/// True if this process joins a running world.
pub(super) fn newcomer(vars: VariableReader) -> Result<bool, LaunchError> {
    let parse = |text: &str| ["0", "1"].iter().position(|it| *it == text);
    Ok(vars.parse("MAYPOLE_NEWCOMER", "0 or 1", parse)? == Some(1))
}

pub(super) fn timeout(vars: VariableReader) -> Result<Duration, LaunchError> {
    let parse = |text: &str| {
        let timeout = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
        (timeout >= Duration::from_millis(1)).then_some(timeout)
    };
    let timeout = vars.parse("MAYPOLE_TIMEOUT", "a number of seconds greater than 0", parse)?;
    Ok(timeout.unwrap_or(Duration::from_secs(300)))
}

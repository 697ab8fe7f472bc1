//! `maypole run`: starts N ranks of a program, on this host or on [`hosts`], and waits until all have
//! ended.
//!
//! Four guarantees. Lines of different ranks never mix. The rank that failed *first* is named with
//! its own exit code, and a rank that the launcher stopped is never named. No process of the job
//! outlives the launcher, in whatever group or session it runs; only if the launcher itself is
//! killed by SIGKILL, the kernel kills no more than the ranks. The launcher serves signals and
//! failures at all times, also while it starts ranks.
//!
//! [`launch`] does the same as a function, for subcommands that start ranks of this program.

mod again;
mod capacity;
mod environment;
mod first_failure;
mod forward;
mod hang;
pub(crate) mod hosts;
mod lines;
mod orphans;
mod outcome;
mod ranks;
mod signals;
mod started;
mod stopping;
mod supervise;

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use crate::affinity;
use crate::perf::positive;
pub(crate) use again::{again, again_on};
use crossbeam_channel::{Receiver, Sender};
use environment::JobEnvironment;
use hang::HangReports;
use hosts::part::{self, PartArgs};
use hosts::{HostArgs, HostOptions};
use outcome::JobOutcome;
use ranks::{LaunchEvent, Patience, RankProcesses, StartError, StartOptions, StartedRanks};
use supervise::Supervisor;

/// Start N ranks of a program, on this host or on several.
///
/// Options of `maypole run` come before PROGRAM. Everything after PROGRAM is passed on to it.
///
/// Each rank finds MAYPOLE_RANK, MAYPOLE_WORLD, MAYPOLE_LOCAL_RANK, MAYPOLE_LOCAL_WORLD,
/// MAYPOLE_ADDRESS, MAYPOLE_PORT, MAYPOLE_JOB and MAYPOLE_JOB_KEY_FD in its environment, and the
/// variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT. Rank 0 reads standard input unless that is a terminal; the others read nothing.
///
/// When a rank fails, the others get SIGTERM and after a grace period SIGKILL. The exit code is
/// that of the rank that failed first (128 + N for signal N). If that rank is still running when
/// another one ends because of it, it has two seconds to end by itself.
///
/// SIGINT, SIGTERM, SIGQUIT and SIGHUP are passed on to the ranks and end the job in the same way,
/// with exit code 128 + N; a second signal kills the ranks at once. SIGUSR1 and SIGUSR2 are passed
/// on and do not end the job. When all ranks have ended, processes that they have left running are
/// stopped too, also those in a session of their own (`setsid`). If the launcher itself is killed by
/// SIGKILL, the kernel kills the ranks, but not the processes that they have started.
///
/// With --enable-recovery, the other ranks go on when one has failed, as after
/// `Communicator::shrink`. The job succeeds if all ranks that are left end with code 0; else the
/// exit code is that of the first that does not. Ranks that were lost before do not change it; the
/// last line names them.
///
/// With --failure-grace, the others get SIGTERM only after that time, in which they can save what they
/// have done, and end by themselves.
///
/// With --restarts, a job in which a rank has failed is started again, all ranks of it, under a new
/// name, key and port. The program has to go on by itself from what it has saved. A job that a
/// signal to this command has ended is not started again. What rank 0 has read from standard input
/// is not there a second time.
///
/// With --hosts or --hostfile, ssh starts the ranks on other hosts, each of which needs this version of
/// maypole and the program. They start in the folder of the same name, if it is
/// there, with the variables MAYPOLE_* of this command and those of -x. Rank 0 reads nothing. A host
/// whose connection is lost counts as the failure of its ranks, with exit code 255. Nothing is left
/// running there, also when this command or ssh is killed.
///
/// When no process reads the launcher's output any more, the job is ended without a word, with exit
/// code 141; when the output cannot be written for another reason, with exit code 2.
///
/// When a rank reports that a deadline has passed, standard error gets a page about all ranks that
/// use maypole: what each does, and which ranks to look at first. The
/// signal that MAYPOLE_STATUS_SIGNAL names, sent to this command, makes it at any time; it is not
/// passed on.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// How many ranks to start. With hosts: all that these have room for, if this is left out.
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    #[arg(required_unless_present_any = ["hosts", "hostfile"], value_parser = positive)]
    ranks: Option<usize>,

    #[command(flatten)]
    on: HostArgs,

    #[command(flatten)]
    part: PartArgs,

    /// Begin each line of output with "[rank R] " and never mix lines [default with more than one
    /// rank].
    #[arg(long, overrides_with = "no_tag_output")]
    tag_output: bool,

    /// Let all ranks write directly to the launcher's output [default with one rank].
    #[arg(long, visible_alias = "no-prefix", overrides_with = "tag_output")]
    no_tag_output: bool,

    /// Let rank 0 write directly to the launcher's output, so that its progress bars work, and tag
    /// the lines of the other ranks.
    #[arg(long, conflicts_with_all = ["tag_output", "no_tag_output", "hosts", "hostfile"])]
    plain_root: bool,

    #[command(flatten)]
    launch: LaunchOptions,

    /// The program and its arguments.
    // No `allow_hyphen_values`: an option that this command does not know must be an error, not
    // the name of a program. After the program's name, `trailing_var_arg` takes hyphens as they
    // are.
    #[arg(required_unless_present = "first", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Where ranks write their standard output and standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputMode {
    /// To the launcher, which forwards whole lines and begins each with its rank.
    Tagged,
    /// Directly to the launcher's own output.
    Inherited,
    /// Directly for rank 0, tagged for the others.
    RootInherited,
}

impl OutputMode {
    fn is_tagged(self, rank: usize) -> bool {
        match self {
            OutputMode::Tagged => true,
            OutputMode::Inherited => false,
            OutputMode::RootInherited => rank > 0,
        }
    }
}

/// Which cores ranks may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Bind {
    /// Each rank on its share of the cores, which are neighbours; like `core` where there are more ranks
    /// than cores.
    Auto,
    /// Each rank on one core; ranks take the cores in turn.
    Core,
    /// All ranks on all cores; the kernel decides.
    None,
}

impl Bind {
    /// The cores of `rank` of `world`; `None` for those of this process, also where the kernel does
    /// not list them.
    fn cores(self, rank: usize, world: usize) -> Option<Vec<usize>> {
        match self {
            Self::Auto => affinity::share(rank, world).ok(),
            Self::Core => {
                let cores = affinity::allowed().ok().filter(|cores| !cores.is_empty())?;
                Some(vec![cores[rank % cores.len()]])
            }
            Self::None => None,
        }
    }
}

// How to start ranks. The texts are those of the help.
#[derive(Debug, Clone, clap::Args)]
struct LaunchOptions {
    #[arg(skip = OutputMode::Tagged)]
    output: OutputMode,

    /// Seconds from SIGTERM to SIGKILL for ranks that do not end.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,

    /// Seconds that the other ranks have after a rank has failed, before they get SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    failure_grace: Duration,

    /// When a rank has failed, let the others go on.
    #[arg(long, conflicts_with_all = ["restarts", "failure_grace"])]
    enable_recovery: bool,

    /// Start all ranks again when one has failed, at most N times.
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,

    /// The TCP port on which rank 0 listens [default: a free port].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Which cores ranks may run on. Unbound, the kernel may run two ranks on one core for many
    /// milliseconds while another core idles.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Bind::Auto)]
    bind: Bind,
}

pub(crate) fn main(args: RunArgs) -> anyhow::Result<ExitCode> {
    let (ranks, lost_after) = (args.ranks, args.on.lost_after);
    let hosts = args.on.options(ranks)?;
    let world = hosts.as_ref().map_or(ranks.unwrap_or(1), HostOptions::world);
    let output = match world {
        _ if args.plain_root => OutputMode::RootInherited,
        1 if !args.tag_output && hosts.is_none() => OutputMode::Inherited,
        _ if args.no_tag_output => OutputMode::Inherited,
        _ => OutputMode::Tagged,
    };
    let options = LaunchOptions { output, ..args.launch };
    if args.part.is_given() {
        return with_job(world, &options, None, |job| part::main(job, args.part, lost_after));
    }
    let (program, arguments) = args.program.split_first().expect("clap requires one");
    let command = |_rank| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    let launched = match &hosts {
        None => launch(command, world, &options),
        Some(hosts) => {
            restarting(world, &options, None, |job| hosts::run(job, hosts, &args.program))
        }
    };
    match launched {
        Ok(outcome) => Ok(outcome.code().into()),
        Err(error) => match error.downcast_ref::<StartError>().map(|start| start.source.kind()) {
            Some(kind) => {
                lines::say(&crate::output::sentence(&error));
                // The exit codes of shells: 127 for "not found", 126 for "cannot be executed".
                Ok(if kind == io::ErrorKind::NotFound { 127 } else { 126 }.into())
            }
            None => Err(error),
        },
    }
}

/// Starts `world` ranks, each from the command that `command` makes for its number, and returns
/// when all ranks and the processes that they left running have ended. A job in which a rank has
/// failed is started again as often as `options` allow; the outcome is that of the last start.
///
/// `command` chooses the program and its arguments. This function adds the variables of the
/// launch, the streams and a process group for each rank. While it runs, this process's signals
/// are passed on to the ranks. Afterwards these signals have no effect, so the caller should exit
/// soon. Call it on a thread that does not end before the ranks (the main thread): when the
/// calling thread ends, the kernel kills the ranks. Fails where a rank cannot be started ([`StartError`]), no port is free, or a thread, a pipe or
/// the job key cannot be made. No rank is left running then.
fn launch(
    command: impl Fn(usize) -> Command,
    world: usize,
    options: &LaunchOptions,
) -> anyhow::Result<JobOutcome> {
    let descriptors = capacity::check(world, options.output != OutputMode::Inherited)?;
    let served = hang::status_signal()?;
    restarting(world, options, served, |job| job.run(&command, descriptors))
}

/// Runs a job by `once`, and again as often as `options` allow. The signal `served` is served elsewhere.
fn restarting(
    world: usize,
    options: &LaunchOptions,
    served: Option<i32>,
    once: impl Fn(&Job<'_>) -> anyhow::Result<JobOutcome>,
) -> anyhow::Result<JobOutcome> {
    with_job(world, options, served, |job| {
        for restart in 1..=options.restarts {
            let outcome = once(job)?;
            if !outcome.allows_restart() {
                return Ok(outcome);
            }
            let of = options.restarts;
            lines::say(&format!("starting all ranks again, restart {restart} of {of}"));
        }
        once(job)
    })
}

/// Makes the job, and passes signals to it while `run` is in progress, but for `served`.
fn with_job<T>(
    world: usize,
    options: &LaunchOptions,
    served: Option<i32>,
    run: impl FnOnce(&Job<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (sender, events) = crossbeam_channel::unbounded();
    // One watch for all starts: a signal between two of them is not lost.
    let _signals = signals::watch(sender.clone(), served)?;
    run(&Job { world, options, sender, events })
}

/// What is equal for all starts of a job.
struct Job<'a> {
    world: usize,
    options: &'a LaunchOptions,
    sender: Sender<LaunchEvent>,
    events: Receiver<LaunchEvent>,
}

impl Job<'_> {
    /// Listens to the reports of the ranks `here`, which are those of this host, and gets ready to start them
    /// with the soft limit `descriptors`, or that of the launcher.
    fn ready(
        &self,
        here: Range<usize>,
        descriptors: Option<u64>,
        reads_input: bool,
    ) -> anyhow::Result<(HangReports, RankProcesses)> {
        let (options, sender) = (self.options, &self.sender);
        let (first, count) = (here.start, here.len());
        let reports = HangReports::start(self.world, here)?;
        let start = StartOptions { first, count, reads_input, bind: options.bind, descriptors };
        let ranks = RankProcesses::new(sender.clone(), start, reports.inquiry());
        Ok((reports, ranks))
    }

    /// Starts all ranks once, and waits for the end of all of them.
    fn run(
        &self,
        command: &impl Fn(usize) -> Command,
        descriptors: Option<u64>,
    ) -> anyhow::Result<JobOutcome> {
        let Self { world, options, .. } = *self;
        let environment = JobEnvironment::new(world, options.port)?;
        let (reports, mut ranks) = self.ready(0..world, descriptors, true)?;
        let start = |ranks: &mut RankProcesses, rank| {
            let mut command = command(rank);
            environment.set_variables(&mut command, rank);
            reports.set_variable(&mut command);
            let tag = options.output.is_tagged(rank).then(|| format!("[rank {rank}] "));
            ranks.start(command, rank, tag)
        };
        let mut outcome = self.supervise(&mut ranks, start)?;
        outcome.end(ranks.stop_remaining(&self.events, options.grace));
        Ok(outcome)
    }

    /// Starts all ranks by `start`, and waits for the end of all of them.
    fn supervise<R: StartedRanks>(
        &self,
        ranks: &mut R,
        start: impl FnMut(&mut R, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<JobOutcome> {
        let LaunchOptions { grace, failure_grace, enable_recovery, .. } = *self.options;
        let patience = Patience { grace, failure_grace, enable_recovery };
        let mut supervisor = Supervisor::new(self.world, &self.events, patience);
        supervisor.start_all(ranks, start)?;
        Ok(supervisor.until_all_ended(ranks))
    }
}

/// Starts a thread, of which there may be several for each rank.
fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(128 << 10);
    thread.spawn(work).map(drop)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds; write for example 2.5"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn positive_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|time| match time.is_zero() {
        false => Ok(time),
        true => Err("must be more than 0 seconds; write for example 30".to_owned()),
    })
}

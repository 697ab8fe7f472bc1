//! `maypole run`: starts N ranks of a program on this host, and sees them through to the end.
//!
//! A launcher is judged on its bad days, so these are the promises: lines of different ranks never
//! mix; the rank that failed *first* is named, with its own code, and a rank that the launcher
//! stopped never is; nothing that was started outlives the launcher. [`launch`] is the whole of it
//! as a function, for subcommands that start ranks of themselves.

mod environment;
mod lines;
mod ranks;
mod signals;
mod supervise;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::Duration;

use environment::Job;
use maypole_transports::cores::UsableCores;
use ranks::{Ranks, StartError};
pub(crate) use supervise::Outcome;

/// Start N ranks of a program on this host.
///
/// Each rank finds MAYPOLE_RANK, MAYPOLE_WORLD, MAYPOLE_LOCAL_RANK, MAYPOLE_LOCAL_WORLD,
/// MAYPOLE_ADDRESS, MAYPOLE_PORT, MAYPOLE_JOB and MAYPOLE_JOB_KEY_FD in its environment, and what
/// torchrun sets: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Rank 0
/// reads standard input unless that is a terminal; the others read nothing.
///
/// When a rank fails, the others get SIGTERM and after a grace period SIGKILL, and the exit code is
/// that of the rank that failed first (128 + N for signal N). SIGINT, SIGTERM, SIGQUIT and SIGHUP
/// are passed on to the ranks and end the job in the same way, with exit code 128 + N; a second one
/// kills at once. SIGUSR1 and SIGUSR2 are passed on and mean what the program makes of them. What
/// ranks leave running when they end is stopped too.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many ranks to start.
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: NonZeroUsize,

    /// Begin each line of output with "[rank R] ", and keep lines whole [default with more than one
    /// rank].
    #[arg(long, overrides_with = "no_tag_output")]
    tag_output: bool,

    /// Let all ranks write straight to the terminal [default with one rank].
    #[arg(long, visible_alias = "no-prefix", overrides_with = "tag_output")]
    no_tag_output: bool,

    /// Let rank 0 write straight to the terminal, so that its progress bars work, and tag the
    /// others.
    #[arg(long, conflicts_with_all = ["tag_output", "no_tag_output"])]
    plain_root: bool,

    /// How long ranks may take to end after they were asked to, before they are killed.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,

    /// The port where rank 0 listens [default: one that is free].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Which cores ranks may run on. Ranks that share cores wait for each other less where each
    /// keeps to one of them: left to itself, the kernel puts three on one core and one on another
    /// for many milliseconds.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Bind::Auto)]
    bind: Bind,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// What ranks do with their standard output and standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Whole lines, each with its rank.
    Tagged,
    /// Straight to where the launcher's goes.
    Inherited,
    /// Straight for rank 0, tagged for the others.
    RootInherited,
}

impl Output {
    fn is_tagged(self, rank: usize) -> bool {
        match self {
            Output::Tagged => true,
            Output::Inherited => false,
            Output::RootInherited => rank > 0,
        }
    }
}

/// Where ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Bind {
    /// Each on one core, in turn, if there are more ranks than cores; else wherever the kernel
    /// likes.
    Auto,
    /// Each on one core, in turn.
    Core,
    /// Wherever the kernel likes.
    None,
}

impl Bind {
    fn is_for(self, world: usize) -> bool {
        match self {
            Self::Auto => world > UsableCores::count([&UsableCores::of_this_thread()]),
            Self::Core => true,
            Self::None => false,
        }
    }
}

/// How to start ranks.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) output: Output,
    /// From the request to end to the kill.
    pub(crate) grace: Duration,
    /// Where rank 0 listens; `None` for a free port.
    pub(crate) port: Option<u16>,
    pub(crate) bind: Bind,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let output = match args.ranks.get() {
        _ if args.plain_root => Output::RootInherited,
        1 if !args.tag_output => Output::Inherited,
        _ if args.no_tag_output => Output::Inherited,
        _ => Output::Tagged,
    };
    let options = Options { output, grace: args.grace, port: args.port, bind: args.bind };
    let (program, arguments) = args.program.split_first().expect("clap requires one");
    let command = |_rank| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    match launch(command, args.ranks.get(), &options) {
        Ok(outcome) => Ok(outcome.code().into()),
        Err(error) => match error.downcast_ref::<StartError>().map(|start| start.source.kind()) {
            Some(kind) => {
                lines::say(&format!("{error:#}"));
                // As shells say it.
                Ok(if kind == io::ErrorKind::NotFound { 127 } else { 126 }.into())
            }
            None => Err(error),
        },
    }
}

/// Starts `world` ranks, each from the command that `command` makes for it, and returns when all
/// have ended and nothing of them is left.
///
/// The ranks get their variables, streams and process groups here; `command` decides on program,
/// arguments and whatever else it likes. While this runs, the process's signals are passed on to
/// the ranks; afterwards they stay without effect, so the caller should be about to exit. Call it
/// on a thread that lives on (the main thread): when the calling thread ends, the kernel kills the
/// ranks.
///
/// # Errors
///
/// Where a rank cannot be started ([`StartError`]) or the system lacks something; none is left
/// running then.
pub(crate) fn launch(
    command: impl Fn(usize) -> Command,
    world: usize,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let job = Job::new(world, options.port)?;
    let (sender, events) = mpsc::channel();
    let _watched = signals::watch(sender.clone())?;
    let mut ranks = Ranks::new(sender, options.bind.is_for(world));
    for rank in 0..world {
        let mut command = command(rank);
        job.tell(&mut command, rank);
        ranks.start(command, options.output.is_tagged(rank))?;
    }
    let outcome = supervise::until_all_ended(&ranks, &events, options.grace);
    ranks.clear_away(&events, options.grace);
    if let Some(failure) = &outcome.failure {
        lines::say(&format!("rank {} failed first: it {}", failure.rank, failure.how()));
    }
    Ok(outcome)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

//! `maypole perf`: measures collectives, and messages between ranks, and checks their results.
//!
//! In reading order: [`args`] holds the options and [`choices`] their values, [`benchmark`] lists
//! the points to measure, [`counts`] cuts blocks of unequal lengths and [`off_cache`] keeps buffers
//! out of caches, [`communicators`] joins the ranks and [`mapping`] finds their hosts and cores,
//! [`run`] leads one rank through all points,
//! [`measure`] takes the samples, [`messages`] has the tests between two ranks, [`compare`]
//! compares runs, [`check`] computes the expected results, and [`output`] writes the table, JSON,
//! CSV and the HTML report.

mod args;
pub(crate) mod benchmark;
mod buffer;
pub(crate) mod check;
mod choices;
mod communicators;
mod compare;
mod counts;
pub(crate) mod mapping;
pub(crate) mod measure;
mod memory;
mod messages;
mod off_cache;
mod output;
mod parse;
mod run;
mod settings;

use anyhow::{Context, Result, ensure};
pub(crate) use args::PerfArgs;
use maypole::world::launch::{self, Launcher};
pub(crate) use parse::positive;
use run::PerfOutcome;
use settings::PerfSettings;
use signal_hook::consts::SIGINT;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The exit code after a wrong result or a failed rank.
const FAILED: u8 = 1;
/// The exit code of shells for a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 128 + SIGINT as u8;
/// Time from Ctrl-C to the kill, for ranks that are in a long call.
const GRACE: Duration = Duration::from_secs(20);

pub(crate) fn main(args: PerfArgs) -> Result<ExitCode> {
    if args.schema {
        crate::output::print(output::SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(first), Some(second)) = (&args.compare, &args.to) {
        return compare::files(first, second, args.fail_below);
    }
    let launched = launch::describe_env()?.launch;
    let alone = launched.launcher == Launcher::Alone;
    // Ranks on other hosts have the same options, and run already.
    let on = if alone { args.on.clone().options(args.ranks)? } else { None };
    let asked = match &on {
        Some(hosts) => hosts.world(),
        None if alone || args.threads => args.ranks()?,
        None => launched.world,
    };
    let settings = args.settings(asked)?;
    if let Some(hosts) = on {
        ensure!(
            !args.threads && !args.alternates(),
            "--hosts: ranks on several hosts are no threads, and no rounds of --alternate"
        );
        return crate::run::again_on(&hosts, crate::run::Bind::None, GRACE);
    }
    let local = if alone || args.threads { Some(settings.world) } else { launched.local_world };
    if args.alternates() {
        ensure!(alone, "--alternate starts ranks itself: run it without a launcher");
        return compare::alternate::main(&args);
    }
    memory::check(&settings, local.unwrap_or(1))?;
    if alone || args.threads {
        // Checked before ranks are started; rank 0 opens the files later.
        output::can_write(&settings)?;
    }
    if args.threads {
        return Ok(code(threads(&settings)?));
    }
    if alone {
        return crate::run::again(settings.world, crate::run::Bind::None, GRACE);
    }
    // From here on this process is one rank of several, and an error is no error of the command
    // line: the exit code is 1.
    let stop = stop_on_interrupt()?;
    let measured =
        communicators::join(&settings).and_then(|joined| run::run(joined, &settings, &stop));
    Ok(code(measured))
}

/// Runs all ranks as threads. Returns the outcome of rank 0.
fn threads(settings: &PerfSettings) -> Result<Result<PerfOutcome>> {
    let stop = stop_on_interrupt()?;
    let joined = communicators::threads(settings);
    let verdicts = std::thread::scope(|scope| {
        let run = |joined| scope.spawn(|| run::run(joined, settings, &stop));
        let threads: Vec<_> = joined.into_iter().map(run).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<PerfOutcome>>>()
    });
    Ok(verdicts.map(|verdicts| verdicts[0]))
}

/// A flag that the first Ctrl-C sets; the second Ctrl-C kills.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let killed = Arc::clone(&stop);
    signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), killed)
        .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&stop)))
        .context("cannot install the handler of Ctrl-C")?;
    Ok(stop)
}

/// Prints the error or the number of wrong elements, and returns the exit code.
fn code(measured: Result<PerfOutcome>) -> ExitCode {
    match measured {
        Ok(PerfOutcome { wrong: 0, interrupted: false, slower: 0 }) => ExitCode::SUCCESS,
        Ok(PerfOutcome { wrong: 0, interrupted: false, slower }) => {
            crate::output::complain(format_args!(
                "{slower} rows are slower than --fail-below allows"
            ));
            compare::SLOWER.into()
        }
        Ok(PerfOutcome { wrong: 0, .. }) => INTERRUPTED.into(),
        Ok(PerfOutcome { wrong, .. }) => {
            crate::output::complain(format_args!(
                "{wrong} elements were wrong; the table shows where (#wrong)"
            ));
            FAILED.into()
        }
        Err(error) if crate::output::is_closed_pipe(&error) => crate::output::CLOSED_PIPE.into(),
        Err(error) => {
            crate::output::complain(crate::output::sentence(&error));
            FAILED.into()
        }
    }
}

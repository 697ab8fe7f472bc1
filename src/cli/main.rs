//! The command line. Each subcommand is a module with its arguments and its `main`.

#![forbid(unsafe_code)]

mod affinity;
mod completions;
mod doctor;
mod draw;
mod examples;
mod explain;
mod fit;
#[cfg(feature = "cuda")]
mod gpus;
mod input;
mod key;
mod learn;
mod manual;
mod names;
mod output;
mod perf;
mod process;
mod progress;
mod run;
mod schedules;
mod simulate;
mod sizes;
mod statistics;
mod table;
mod topo;
mod tune;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

/// The exit code after wrong arguments, and if the program cannot serve them.
const USAGE: u8 = 2;

/// Collective communication from first principles: run, measure, draw, predict and explain
/// collectives.
#[derive(Parser)]
#[command(name = "maypole", version = env!("BUILT_VERSION"), about)]
struct Cli {
    #[command(subcommand)]
    command: MaypoleCommand,
}

#[derive(Subcommand)]
enum MaypoleCommand {
    Run(Box<run::RunArgs>),
    Perf(Box<perf::PerfArgs>),
    Learn(learn::LearnArgs),
    Draw(draw::DrawArgs),
    Verify(verify::VerifyArgs),
    Simulate(simulate::SimulateArgs),
    Explain(explain::ExplainArgs),
    Tune(tune::TuneArgs),
    Key(key::KeyArgs),
    Topo(topo::TopoArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let read = examples::with_examples(Cli::command()).try_get_matches();
    let cli = match read.and_then(|read| Cli::from_arg_matches(&read)) {
        Ok(cli) => cli,
        Err(message) => return show(&message),
    };
    dispatch(cli.command).unwrap_or_else(|error| failure(&error))
}

fn dispatch(command: MaypoleCommand) -> anyhow::Result<ExitCode> {
    survive_file_limits()?;
    match command {
        MaypoleCommand::Run(args) => run::main(*args),
        MaypoleCommand::Perf(args) => perf::main(*args),
        MaypoleCommand::Learn(args) => learn::main(args),
        MaypoleCommand::Draw(args) => draw::main(args),
        MaypoleCommand::Verify(args) => verify::main(args),
        MaypoleCommand::Simulate(args) => simulate::main(args),
        MaypoleCommand::Explain(args) => explain::main(args),
        MaypoleCommand::Tune(args) => tune::main(args),
        MaypoleCommand::Key(args) => key::main(args),
        MaypoleCommand::Topo(args) => topo::main(args),
        MaypoleCommand::Doctor(args) => doctor::main(args),
        MaypoleCommand::Completions(args) => completions::main(args),
        MaypoleCommand::Man(args) => manual::main(&args),
    }
}

/// Turns the signal by which the kernel ends a process that writes beyond `ulimit -f` into an error
/// of that write. Ranks do not inherit this.
fn survive_file_limits() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map(drop)
        .context("cannot install a signal handler")
}

/// Prints the help, the version, or the error in the arguments.
fn show(message: &clap::Error) -> ExitCode {
    if message.use_stderr() {
        // A failure is ignored, because no place is left to report it.
        let _ = message.print();
        return ExitCode::from(USAGE);
    }
    let text = message.render();
    let shown = if std::io::stdout().is_terminal() {
        output::print_as_is(text.ansi())
    } else {
        output::print(text)
    };
    shown.map_or_else(|error| failure(&error.into()), |()| ExitCode::SUCCESS)
}

/// Prints an error that ends the program. A reader that closed its pipe gets none.
fn failure(error: &anyhow::Error) -> ExitCode {
    if output::is_closed_pipe(error) {
        return ExitCode::from(output::CLOSED_PIPE);
    }
    output::complain(output::sentence(error));
    ExitCode::from(USAGE)
}

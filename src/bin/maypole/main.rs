//! The command line: one module a subcommand, each with its `Args` and its `main`.

#![forbid(unsafe_code)]

mod doctor;
mod draw;
mod explain;
mod key;
mod names;
mod perf;
mod run;
mod simulate;
mod sizes;
mod topo;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Collective communication from first principles.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Perf(Box<perf::Args>),
    Draw(draw::Args),
    Simulate(simulate::Args),
    Explain(explain::Args),
    Tune(tune::Args),
    Key(key::Args),
    Topo(topo::Args),
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Perf(args) => perf::main(*args),
        Command::Draw(args) => draw::main(args),
        Command::Simulate(args) => simulate::main(args),
        Command::Explain(args) => explain::main(args),
        Command::Tune(args) => tune::main(args),
        Command::Key(args) => key::main(args),
        Command::Topo(args) => topo::main(args),
        Command::Doctor(args) => doctor::main(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("maypole: {error:#}");
        ExitCode::from(2)
    })
}

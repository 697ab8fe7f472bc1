//! The command line. Each subcommand is a module with its arguments and its `main`.

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
mod statistics;
mod topo;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Collective communication from first principles: run, measure, draw, predict and explain
/// collectives.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: MaypoleCommand,
}

#[derive(Subcommand)]
enum MaypoleCommand {
    Run(run::RunArgs),
    Perf(Box<perf::PerfArgs>),
    Draw(draw::DrawArgs),
    Simulate(simulate::SimulateArgs),
    Explain(explain::ExplainArgs),
    Tune(tune::TuneArgs),
    Key(key::KeyArgs),
    Topo(topo::TopoArgs),
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        MaypoleCommand::Run(args) => run::main(args),
        MaypoleCommand::Perf(args) => perf::main(*args),
        MaypoleCommand::Draw(args) => draw::main(args),
        MaypoleCommand::Simulate(args) => simulate::main(args),
        MaypoleCommand::Explain(args) => explain::main(args),
        MaypoleCommand::Tune(args) => tune::main(args),
        MaypoleCommand::Key(args) => key::main(args),
        MaypoleCommand::Topo(args) => topo::main(args),
        MaypoleCommand::Doctor(args) => doctor::main(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("maypole: {error:#}");
        ExitCode::from(2)
    })
}

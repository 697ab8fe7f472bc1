//! `train`: the trainer on the command line.
#![forbid(unsafe_code)]

mod advise;
mod bench;
mod export;
mod options;
mod output;
mod plan;
mod ranks;
mod run;
mod search;
mod tour;

use clap::Parser;
use maypole_lab::mistakes::Mistake;
use maypole_trainer_kernels::counting::CountingAllocator;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Counts the memory of each rank.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Trains a small GPT or Llama over every axis of parallelism, on ranks that it starts itself or that a
/// launcher started.
#[derive(clap::Parser)]
#[command(name = "train", version, max_term_width = 120)]
enum TrainCommand {
    /// Train a model on a text.
    ///
    /// Without a launcher the ranks of the mesh are threads of this process, or processes with
    /// --processes. Under a launcher (maypole run, torchrun, mpirun, srun) this is one rank, and
    /// the mesh must have as many as were started.
    Run(Box<options::TrainArgs>),
    /// Train over every axis, compare each with one process, and show what a rank holds and sends
    /// beside theory.
    Tour(tour::TourArgs),
    /// Measure how fast one rank trains, beside its matrix products alone.
    Bench(bench::BenchArgs),
    /// Write the weights of a checkpoint as one safetensors file, tensors by name, with the sizes and
    /// the tokens of the model in its metadata.
    Export(export::ExportArgs),
    /// Draw pipelines, and print the share of time in which ranks wait.
    Plan(plan::PlanArgs),
    /// Print which axes combine, and why the others do not.
    Combine,
    /// Search for good hyper-parameters: many short trainings side by side, of which few go on.
    Search(search::SearchArgs),
    /// Print the bytes that a rank of a large model holds, by kind; nothing is started.
    Memory(advise::MemoryArgs),
    /// Find the fastest ways to train a large model on a cluster; nothing is started.
    ///
    /// Looks through every mesh, sharding, schedule, micro-batch, recomputation and precision, counts
    /// the memory of a rank and prices a step, by the prices that the library has for schedules on
    /// the cluster's topology.
    Advise(Box<advise::AdviseArgs>),
}

fn main() -> ExitCode {
    let done = match TrainCommand::try_parse() {
        Ok(command) => dispatch(command).map(|()| ExitCode::SUCCESS),
        Err(text) => explain(&text),
    };
    done.unwrap_or_else(|error| output::failure(&error))
}

/// Prints the help or the version, or reports the wrong option on standard error.
fn explain(text: &clap::Error) -> anyhow::Result<ExitCode> {
    if text.use_stderr() {
        text.exit();
    }
    let help = text.render();
    let terminal = std::io::stdout().is_terminal();
    let help = if terminal { help.ansi().to_string() } else { help.to_string() };
    output::print(help.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn dispatch(command: TrainCommand) -> anyhow::Result<()> {
    match command {
        TrainCommand::Run(args) if args.lists_faults() => {
            Ok(output::print(Mistake::list().as_bytes())?)
        }
        TrainCommand::Run(args) => {
            let (job, joined) = args.resolve()?;
            ranks::start(&job, joined)
        }
        TrainCommand::Tour(args) => ranks::alone("tour").and_then(|()| tour::run(&args)),
        TrainCommand::Bench(args) => ranks::alone("bench").and_then(|()| bench::run(&args)),
        TrainCommand::Export(args) => export::run(&args),
        TrainCommand::Plan(args) => plan::draw(&args),
        TrainCommand::Combine => plan::combinations(),
        TrainCommand::Search(args) => search::run(&args),
        TrainCommand::Memory(args) => advise::memory(&args),
        TrainCommand::Advise(args) => advise::run(&args),
    }
}

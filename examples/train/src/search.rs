//! `train search`.

use crate::options::read_text;
use crate::output;
use crate::output::files;
use anyhow::{Context, Error, anyhow, ensure};
use maypole::Communicator;
use maypole_search::picture::{coordinates, curves};
use maypole_search::run::{SearchJob, SearchJournal, search};
use maypole_search::space::SearchSpace;
use maypole_search::table;
use maypole_search::trial::TrialTexts;
use maypole_trainer_gpu::choice::DeviceChoice;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most ranks, which are threads of this process.
const MOST_RANKS: usize = 1024;

#[derive(clap::Args)]
pub(crate) struct SearchArgs {
    /// A TOML file of the space: trials, tokens, first-tokens, keep, seed, layers, heads, context,
    /// and what is drawn: rate, warm-up, width, rows, shape [default: a small space].
    #[arg(long, value_name = "TOML")]
    space: Option<PathBuf>,
    /// Ranks, as threads of this process; under a launcher each process is one.
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// The text to learn from; its last tenth is held out for validation [default: two plays].
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder for the journal and the trials that go on; a search that was stopped resumes there.
    #[arg(long)]
    save: Option<PathBuf>,
    /// A file for the table as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Folder for pictures: curves.svg and settings.svg.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// What computes layers: cpu, cuda or cuda:N, as for `train run`.
    #[arg(long, default_value = "cpu")]
    device: String,
}

pub(crate) fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let (me, started) = crate::ranks::place()?;
    let space = space(args.space.as_deref())?;
    ensure!(
        (1..=MOST_RANKS).contains(&args.ranks),
        "--ranks {}: a search has from 1 to {MOST_RANKS} ranks",
        args.ranks
    );
    let device = DeviceChoice::parse(&args.device).map_err(Error::msg)?;
    // Before the text is read and the ranks are started.
    device.gpu(me).map_err(Error::msg)?;
    if me == 0 {
        args.svg.as_deref().map_or(Ok(()), |folder| files::try_folder("--svg", folder))?;
        args.save.as_deref().map_or(Ok(()), |folder| files::try_folder("--save", folder))?;
        args.csv.as_deref().map_or(Ok(()), |file| files::try_file("--csv", file))?;
    }
    let (text, held_out) = read_text(args.data.as_deref(), space.context, space.seed)?;
    let texts = TrialTexts { text: &text, held_out: &held_out, vocab: 256, before: &|_, _| () };
    // A closed pipe is found when the table is printed.
    let say = |text: &str| drop(output::line(text));
    let folder = args.save.as_deref();
    let job = SearchJob { space: &space, texts, folder, device, say: &say };
    if started > 1 {
        let journal = search(Communicator::from_env()?, job)?;
        return if me == 0 { finish(args, &journal) } else { Ok(()) };
    }
    let mut found = Communicator::run_local(args.ranks, |comm| search(comm, job)).into_iter();
    let journal = found.next().expect("there is a rank")?;
    finish(args, &journal)
}

fn finish(args: &SearchArgs, journal: &SearchJournal) -> anyhow::Result<()> {
    output::print(table::text(journal).as_bytes())?;
    if let Some(file) = &args.csv {
        files::write("--csv", file, table::csv(journal))?;
    }
    if let Some(folder) = &args.svg {
        files::write("--svg", &folder.join("curves.svg"), curves(journal))?;
        files::write("--svg", &folder.join("settings.svg"), coordinates(journal))?;
    }
    let (trial, loss) = journal.winner().context("no trial was trained to the end: see above")?;
    let settings = journal.space.settings(trial);
    let tokens = journal.rungs.last().map_or(0, |rung| rung.tokens);
    Ok(output::line(format_args!(
        "best: trial {trial}, loss {loss:.4} after {tokens} tokens\n\
         train run --width {} --rows {} --rate {} --shape {} --warm-up {} --layers {} --heads {} \
         --context {}",
        settings.width,
        settings.rows,
        settings.rate,
        settings.shape.name(),
        journal.space.schedule(&settings).warm_up,
        journal.space.layers,
        journal.space.heads,
        journal.space.context
    ))?)
}

fn space(path: Option<&Path>) -> anyhow::Result<SearchSpace> {
    let Some(path) = path else { return Ok(SearchSpace::default()) };
    let cannot = || format!("--space: cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut text = String::new();
    let most = SearchSpace::LONGEST as u64 + 1;
    file.take(most).read_to_string(&mut text).with_context(cannot)?;
    SearchSpace::parse(&text).map_err(|why| anyhow!("--space {}: {why}", path.display()))
}

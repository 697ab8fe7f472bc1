//! `maypole topo`: shows a machine, the distances between its devices, and the rings and transports
//! that follow from them.

mod facts;
mod json;
mod text;
mod transports;

use anyhow::{Result, anyhow, ensure};
use facts::MachineFacts;
use maypole::topology::detect;
use maypole_cluster::Description;
use maypole_cluster::build::cluster::{Fabric, named};
use maypole_cluster::picture;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::progress::Progress;
use crate::{input, output};

/// Show a machine as a matrix like that of `nvidia-smi topo -m`, with the rings over it, and
/// the transport of each pair of ranks and the reason. `maypole simulate --cluster` predicts the times of
/// collectives on it.
///
/// Without --file and --cluster, this machine is shown, from its files in /sys and from NVIDIA's
/// driver if there is one. A machine without GPUs has a rank on each core. Bandwidths of links are
/// typical of the devices' generation where it is known.
#[derive(clap::Args)]
pub(crate) struct TopoArgs {
    /// Show the machine that FILE describes (`-`: standard input): the output of
    /// `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology`, or a topology file of
    /// NCCL or RCCL.
    #[arg(short, long, value_name = "FILE", conflicts_with = "cluster")]
    file: Option<PathBuf>,

    /// Show a cluster by name: dgx-a100, dgx-h100, dgx-h200, hgx-b200, mi300x, pcie-phb, cpu:8x2
    /// (8 ranks on each of 2 NUMA nodes), or several hosts as 4xdgx-h100.
    #[arg(short, long, value_name = "NAME")]
    cluster: Option<String>,

    /// Write an SVG picture to FILE instead of text (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with = "svg")]
    json: bool,
}

/// The most ranks of several hosts whose pairs are classified: their number grows with the square.
const MOST_RANKS: usize = 1024;

pub(crate) fn main(args: TopoArgs) -> Result<ExitCode> {
    let progress = Progress::start("classifying the paths between devices");
    let facts = args.facts()?;
    for note in &facts.notes {
        output::complain(format_args!("note: {note}"));
    }
    let devices = facts.topology.devices().len();
    progress.at(format_args!("looking for rings of {devices} devices"));
    if let Some(path) = &args.svg {
        output::save("--svg", path, picture::svg(&facts.topology, &facts.title))?;
    } else if args.json {
        output::print_line(json::object(&facts))?;
    } else {
        output::print(text::text(&facts))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl TopoArgs {
    fn facts(&self) -> Result<MachineFacts> {
        match (&self.file, &self.cluster) {
            (Some(path), _) => {
                let described = describe(path)?;
                let name = path
                    .file_name()
                    .map_or_else(|| path.display().to_string(), |name| name.display().to_string());
                Ok(MachineFacts::described(&described, name))
            }
            (None, Some(name)) => {
                let topology = named(name, Fabric::Flat)?;
                let ranks = topology.devices().len();
                ensure!(
                    ranks <= MOST_RANKS || topology.hosts() <= 2,
                    "--cluster {name} has {ranks} ranks, and at most {MOST_RANKS} are shown: name two of \
                     its equal hosts; 'maypole simulate --cluster {name}' predicts for all"
                );
                Ok(MachineFacts::of(topology, name.clone()))
            }
            (None, None) => Ok(MachineFacts::detected(&detect::machine())),
        }
    }
}

/// Reads the description of a machine from the file `path`; `-` is standard input.
pub(crate) fn describe(path: &Path) -> Result<Description> {
    let text = input::text("", path, Description::LONGEST)?;
    Description::read(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

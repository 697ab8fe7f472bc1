//! A folder of pages to step through: every collective by every algorithm.

use super::page;
use crate::progress::Progress;
use crate::{names, output};
use anyhow::{Context, Result, ensure};
use maypole::schedule::collective::Collective;
use maypole_pictures::page::MOST_RANKS;
use std::path::Path;
use std::process::ExitCode;

/// Writes the pages of `ranks` ranks, and the page that lists them.
pub(super) fn write(folder: &Path, root: usize, ranks: usize) -> Result<ExitCode> {
    ensure!(
        ranks <= MOST_RANKS,
        "-n {ranks}: a page of --gallery shows at most {MOST_RANKS} ranks side by side"
    );
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder of --gallery {}", folder.display()))?;
    let mut sections = String::new();
    for collective in Collective::all(0) {
        let collective = names::rooted(collective, root, ranks, names::MOST_DRAWN)?;
        sections += &section(folder, collective, ranks)?;
    }
    let title = format!("Every collective by every algorithm, {ranks} ranks");
    let index = page::INDEX.replace("TITLE", &title).replace("SECTIONS", &sections);
    output::save("--gallery", &folder.join("index.html"), index)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a collective. Returns the list of them.
fn section(folder: &Path, collective: Collective, ranks: usize) -> Result<String> {
    let name = names::dashed(collective);
    let mut items = String::new();
    for algorithm in names::algorithms_for(collective) {
        let title = format!("{name} by {algorithm}, {ranks} ranks");
        let _progress = Progress::start(format_args!("drawing {title}"));
        let schedules =
            algorithm.schedules(collective, ranks).expect("it implements the collective");
        let file = format!("{name}-{algorithm}.html");
        let page = page::page(collective, &title, &schedules, None);
        output::save("--gallery", &folder.join(&file), page)?;
        items += &format!("<li><a href=\"{file}\">{algorithm}</a></li>\n");
    }
    Ok(format!("<h2>{name}</h2>\n<ul>\n{items}</ul>\n"))
}

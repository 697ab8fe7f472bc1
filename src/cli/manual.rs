//! `maypole man`: the pages that `man` shows, for those who make packages. Hidden from the help.

use crate::examples::with_examples;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a manual page of the command, and one of each subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages, which must exist.
    folder: PathBuf,
}

pub(crate) fn main(args: &ManArgs) -> Result<ExitCode> {
    clap_mangen::generate_to(with_examples(crate::Cli::command()), &args.folder)
        .with_context(|| format!("cannot write pages into {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_that_the_help_shows_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        main(&ManArgs { folder: folder.path().to_owned() }).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name));
        let command = crate::Cli::command();
        for shown in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let page = page(&format!("maypole-{}.1", shown.get_name())).unwrap();
            assert!(page.contains("Examples:"), "{page}");
        }
        assert!(page("maypole.1").unwrap().contains(".TH maypole 1"));
        assert!(page("maypole-man.1").is_err(), "a hidden subcommand has a page");
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = main(&ManArgs { folder: "/nowhere".into() }).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}

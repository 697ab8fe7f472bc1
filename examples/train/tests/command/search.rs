//! `train search`: its table and its pictures.

use maypole_search::picture::{coordinates, curves};
use maypole_search::run::{JOURNAL, SearchJournal};
use maypole_search::table::csv;
use std::fs;
use std::process::Command;

#[test]
fn the_command_writes_a_table_csv_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let space = "trials = 4\ntokens = 512\nfirst-tokens = 256\nlayers = 1\ncontext = 16\n\
                 width = [16]\nrows = [4]\nrate = { from = 0.001, to = 0.1 }\n";
    fs::write(folder.path().join("space.toml"), space).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_train"))
        .args(["search", "--space", "space.toml", "--ranks", "2", "--csv", "found.csv"])
        .args(["--svg", "pictures", "--save", "kept"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.contains("best: trial"), "{said}");
    let table = fs::read_to_string(folder.path().join("found.csv")).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    for name in ["curves.svg", "settings.svg"] {
        let drawn = fs::read_to_string(folder.path().join("pictures").join(name)).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.matches("<polyline").count() == 4, "{drawn}");
    }
    let journal = fs::read_to_string(folder.path().join("kept").join(JOURNAL)).unwrap();
    let journal: SearchJournal = serde_json::from_str(&journal).unwrap();
    assert_eq!(csv(&journal), table);
    assert!(curves(&journal).contains("loss (nats a token)"));
    assert!(coordinates(&journal).contains("rate (log)"));
}

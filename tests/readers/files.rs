//! The readers of files: arbitrary texts give an error or a value, and never a panic, a long wait
//! or much memory. (The fuzz tests of messages are next to the code that reads them.)

use crate::fuzz::Fuzz;
use maypole::execute::record::TraceFile;
use maypole::tuner::CostTable;
use maypole::tuner::saved::TableLocation;
use std::fs;
use std::path::Path;

#[test]
fn fuzz_saved_costs() {
    let corpus = CostTable::BUILT_IN.to_string().into_bytes();
    let words =
        ["tiny", "small", "chunk", "tcp", "copy", "switch", "wake", "100000000000", "{", "\n"];
    let fuzz = Fuzz::new("costs").corpus([corpus]).words(&words).memory(256 << 10, 8);
    fuzz.run(|bytes| match String::from_utf8_lossy(bytes).parse::<CostTable>() {
        Err(error) => error.to_string(),
        Ok(table) => {
            // Prices do not overflow, for any table.
            for crowding in [1, 2, 64] {
                let _ = table.stream(crowding);
                let _ = table.board(64 << 20, crowding);
            }
            "a table".to_owned()
        }
    });
}

#[test]
fn fuzz_files_of_saved_costs_and_traces() {
    let folder = tempfile::tempdir().unwrap();
    let costs = folder.path().join("costs");
    let trace = folder.path().join("trace.json");
    TraceFile::create(&trace).unwrap();
    let corpus = [fs::read(&trace).unwrap(), CostTable::BUILT_IN.to_string().into_bytes()];
    let fuzz = Fuzz::new("files").corpus(corpus).inputs(2000).memory(256 << 10, 16);
    fuzz.run(move |bytes| {
        let _keep = &folder;
        fs::write(&costs, bytes).unwrap();
        fs::write(&trace, bytes).unwrap();
        let loaded = TableLocation::File(costs.clone()).load();
        let file = TraceFile::new(trace.clone(), 0, 0, "a host".to_owned());
        let appended = file.append("{}");
        if appended.is_err() {
            assert!(fs::read(&trace).unwrap() == bytes, "a file that is no trace is left alone");
        }
        format!("{:?} {:?}", loaded.map(drop).map_err(|_| ()), appended.map_err(|it| it.kind()))
    });
}

/// A long file is refused after as many bytes as a table may have, and a device before the first.
#[test]
fn a_file_of_costs_that_never_ends_is_refused() {
    let load = |path: &Path| TableLocation::File(path.into()).load().unwrap_err().to_string();
    let error = load(Path::new("/dev/zero"));
    assert!(error.starts_with("/dev/zero is no regular file"), "{error}");
    let long = tempfile::NamedTempFile::new().unwrap();
    long.as_file().set_len(1 << 40).unwrap();
    let error = load(long.path());
    assert!(error.contains(" is damaged: it is longer than 4096 bytes"), "{error}");
}

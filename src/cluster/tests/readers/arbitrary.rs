//! The readers of descriptions: arbitrary texts give an error or a value, and never a panic, a long
//! wait or much memory.

use crate::fuzz::Fuzz;
use maypole_cluster::Description;
use maypole_cluster::read::matrix::Matrix;
use maypole_cluster::read::rocm::RocmTables;
use maypole_cluster::read::text::ReadError;
use maypole_cluster::read::xml;
use std::fs;
use std::path::Path;

/// The project's own descriptions of machines whose files end in `ending`.
fn descriptions(ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/topologies");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|it| it == ending));
    assert!(!paths.is_empty(), "there are descriptions");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Whether a text is read. If not, the error names a place within it.
fn is_read<T>(text: &str, read: Result<T, ReadError>) -> bool {
    if let Err(error) = &read {
        let line = text.lines().nth(error.line - 1).unwrap_or_default();
        assert!((1..=line.chars().count() + 2).contains(&error.column), "{error}");
    }
    read.is_ok()
}

/// Reads a description, and computes its summary, its topology and its notes.
fn describe(text: &str) -> String {
    match Description::read(text) {
        Err(error) => {
            is_read::<()>(text, Err(error.clone()));
            error.to_string()
        }
        Ok(description) => {
            let summary = description.summary();
            let gpus = summary.gpus;
            if gpus <= 16 {
                let topology = description.topology();
                assert!(topology.nodes().len() >= gpus, "each GPU is a node");
            }
            description.notes().join("; ")
        }
    }
}

#[test]
fn fuzz_tables_of_topologies() {
    let words =
        ["GPU0", "GPU99999", "X", "NV18", "NV99999999999", "PIX", "SYS", "\t", "NIC0", "mlx5_0"];
    let fuzz = Fuzz::new("tables").corpus(descriptions("txt")).words(&words).inputs(6000);
    fuzz.memory(4 << 20, 4000).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let kind = describe(&text);
        // Each reader alone, for any text.
        let matrix = is_read(&text, Matrix::read(&text));
        let rocm = is_read(&text, RocmTables::read(&text));
        format!("{kind} {matrix} {rocm}")
    });
}

#[test]
fn fuzz_xml_of_topologies() {
    let words = [
        "<system version=\"1\">",
        "<cpu numaid=\"0\">",
        "<pci busid=\"0000:01:00.0\" class=\"0x030200\">",
        "<gpu dev=\"0\"/>",
        "<nvlink target=\"0000:01:00.0\" count=\"18446744073709551615\" tclass=\"0x030200\"/>",
        "</pci>",
        "</cpu>",
        "</system>",
        "<!DOCTYPE a [<!ENTITY b \"bbbbbbbbbb\">]>",
        "&b;",
        "<a>",
        "\"",
    ];
    let fuzz = Fuzz::new("xml").corpus(descriptions("xml")).words(&words).inputs(6000);
    fuzz.memory(4 << 20, 4000).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        format!("{} {}", describe(&text), is_read(&text, xml::read(&text)))
    });
}

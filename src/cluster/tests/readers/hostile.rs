//! Texts that are huge or long rows: each is read, or refused in time.

use crate::refused;
use maypole_cluster::Description;
use maypole_cluster::read::matrix::Matrix;
use maypole_cluster::read::rocm::RocmTables;
use maypole_cluster::read::text::ReadError;
use maypole_cluster::read::xml;
use proptest::prelude::*;

/// Texts for which a naive reader would take years, or all memory, or all of the stack.
#[test]
fn huge_texts_are_refused_in_time() {
    let grown = format!("GPU0 {}\nGPU0 X\n", "GPU0".repeat(50_000));
    let ambiguous =
        format!("GPU0 {}b!\nGPU0 X SYS\na SYS\naa SYS\naaa SYS\naaaa SYS\n", "a".repeat(60));
    let labels: Vec<String> = (0..60_000).map(|gpu| format!("GPU{gpu}")).collect();
    let wide = format!("{}\nGPU0 X\n", labels.join(" "));
    for huge in [grown, ambiguous, wide] {
        assert_eq!(refused(&huge).line, 1);
    }
    let deep = format!("<system><cpu>{}", "<pci busid=\"a\">".repeat(200_000));
    assert_eq!(refused(&deep).line, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn rows_of_random_cells_end_in_time(
        cells in prop::collection::vec("NV[0-9]{1,4}|X|SYS|[0-9]-[0-9]|\n", 0..60),
    ) {
        let row = cells.concat();
        let labels: Vec<_> = (0..40).map(|gpu| format!("GPU{gpu}")).collect();
        let _ = Matrix::read(&format!(" {}\nGPU0 X {row}\n{row}\n", labels.join(" "))).is_ok();
    }
}

/// A topology file whose one CPU has these elements.
fn file_of(elements: &str) -> String {
    format!("<system version=\"1\">\n<cpu numaid=\"0\">\n{elements}</cpu>\n</system>\n")
}

/// Reads `text` within seconds, and returns why it was refused.
fn refusal(text: &str) -> ReadError {
    let start = std::time::Instant::now();
    let refused = Description::read(text).expect_err("it is refused");
    assert!(start.elapsed().as_secs() < 10, "refused after {:?}", start.elapsed());
    refused
}

#[test]
fn a_text_that_is_longer_than_any_description_is_refused_at_its_limit() {
    let row = "GPU0     X      NV4     PIX     0-15            0\n";
    let lines = Description::LONGEST / row.len() + 1;
    let report = row.repeat(lines);
    let refused = refusal(&report);
    let line = 1 + Description::LONGEST / row.len();
    let column = 1 + Description::LONGEST % row.len();
    assert_eq!((refused.line, refused.column), (line, column));
    assert!(refused.to_string().ends_with("expected the end: a description has at most 2 MiB"));
    // The limit is in bytes, and may lie within a character.
    assert_eq!(refusal(&"\u{20ac}".repeat(Description::LONGEST)).line, 1);
    for read in [
        |text: &str| Matrix::read(text).map(drop),
        |text: &str| xml::read(text).map(drop),
        |text: &str| RocmTables::read(text).map(drop),
    ] {
        assert_eq!(read(&report).unwrap_err().line, line, "every reader has the limit");
    }
}

#[test]
fn a_file_with_more_elements_than_any_machine_is_refused() {
    let refused = refusal(&file_of(&"<x/>\n".repeat(60_000)));
    assert!(refused.expected.contains("fewer elements"), "{refused}");
}

#[test]
fn a_file_with_more_devices_than_any_machine_is_refused() {
    let gpu = |number| format!("<pci busid=\"0000:{number:04x}:00.0\" class=\"0x030200\"/>\n");
    let devices = |count: u32| file_of(&(0..count).map(gpu).collect::<String>());
    assert!(Description::read(&devices(512)).is_ok());
    let refused = refusal(&devices(513));
    assert_eq!(refused.found, "513 devices");
}

//! The parsers of topologies against samples, and against texts with each kind of damage that
//! pasting does.

#[path = "readers/damage.rs"]
mod damage;
#[path = "common/samples.rs"]
mod samples;

use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole::topology::read::matrix::Matrix;
use maypole::topology::read::printed::PrintedClass;
use maypole::topology::read::rocm::RocmTables;
use maypole::topology::read::summary::{DeviceSummary, NearestNics};
use maypole::topology::read::text::ReadError;
use maypole::topology::read::xml::System;
use maypole::topology::{Description, NodeKind, PathClass};
use proptest::prelude::*;
use samples::{OWN, Sample, samples};
use serde_json::{Value, json};

fn words(links: &[Vec<PrintedClass>]) -> Value {
    links
        .iter()
        .map(|row| row.iter().map(PrintedClass::to_string).collect::<Vec<_>>())
        .collect::<Vec<_>>()
        .into()
}

fn nearest(nearest: &NearestNics) -> Value {
    json!({ "class": nearest.class.to_string(), "nics": nearest.nics })
}

/// The summary as the samples write it.
fn object(summary: &DeviceSummary) -> Value {
    let near = summary.nearest_nics.as_ref();
    json!({
        "gpus": summary.gpus,
        "nics": summary.nics,
        "links": words(&summary.links),
        "nvlinks": summary.nvlinks,
        "nearest_nics": near.map(|all| all.iter().map(nearest).collect::<Vec<_>>()),
    })
}

/// The differences between the reading of a sample and its expected answers, one line each.
fn faults(sample: &Sample) -> Vec<String> {
    let Sample { name, expected, .. } = sample;
    let description = match Description::read(&sample.text()) {
        Err(error) => return unexpected_error(sample, &error).into_iter().collect(),
        Ok(_) if sample.is_refused() => return vec![format!("{name}: was not refused")],
        Ok(description) => description,
    };
    let found = object(&description.summary());
    let keys = ["gpus", "nics", "links", "nvlinks", "nearest_nics"];
    let differ = keys.iter().filter(|key| found[**key] != expected[**key]);
    let mut wrong: Vec<String> = differ
        .map(|key| format!("{name}: {key} is {}, not {}", found[*key], expected[*key]))
        .collect();
    let notes = description.notes();
    let expected_notes: Vec<&str> =
        expected["notes"].as_array().into_iter().flatten().map(|it| it.as_str().unwrap()).collect();
    for missing in expected_notes.iter().filter(|part| !notes.iter().any(|it| it.contains(**part)))
    {
        wrong.push(format!("{name}: no note says {missing:?}: {notes:?}"));
    }
    if expected_notes.is_empty() {
        wrong.extend(notes.iter().map(|note| format!("{name}: a note: {note}")));
    }
    if let (Description::System(system), Some(names)) = (&description, expected.get("nic_names")) {
        assert_eq!(&json!(system.nic_names()), names, "{name}");
    }
    wrong
}

/// An error where the sample expects none, or another one.
fn unexpected_error(sample: &Sample, error: &ReadError) -> Option<String> {
    let refused = &sample.expected["refused"];
    let line = refused["line"].as_u64();
    let part = refused["expected"].as_str();
    let is_expected =
        line == Some(error.line as u64) && part.is_some_and(|part| error.expected.contains(part));
    (!is_expected).then(|| format!("{}: {error}", sample.name))
}

#[test]
fn every_sample_has_the_expected_answers() {
    let samples: Vec<Sample> =
        samples().into_iter().filter(|sample| sample.is_description()).collect();
    let wrong: Vec<String> = samples.iter().flat_map(faults).collect();
    assert!(wrong.is_empty(), "{} samples:\n{}", samples.len(), wrong.join("\n"));
    let larger = samples.iter().any(|sample| !sample.is_own());
    let least = if larger { OWN + 50 } else { OWN };
    assert!(samples.len() >= least, "only {} samples", samples.len());
}

/// Four GPUs in two pairs and three cards, one of them behind a bond, with gaps in the numbers and
/// all columns of affinity.
const REPORT: &str = "\
$ nvidia-smi topo -m
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tSYS\tSYS\tPIX\tSYS\tPHB\t0-15,32-47\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tPXB\tSYS\tPHB\t0-15,32-47\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV12\tSYS\tNODE\tSYS\t16-31,48-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV12\t X \tSYS\tPIX\tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\tPHB\t\t\t\t
NIC1\tSYS\tSYS\tNODE\tPIX\tSYS\t X \tSYS\t\t\t\t
NIC2\tPHB\tPHB\tSYS\tSYS\tPHB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_gdr_1
  NIC2: mlx5_bond_0
";

fn matrix(text: &str) -> Matrix {
    Matrix::read(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

fn refused(text: &str) -> ReadError {
    Description::read(text).map(|read| panic!("was read as {read:?}")).unwrap_err()
}

#[test]
fn damaged_reports_read_the_same() {
    let whole = matrix(REPORT);
    assert_eq!(
        whole.nic_names.iter().flatten().collect::<Vec<_>>(),
        ["mlx5_0", "mlx5_gdr_1", "mlx5_bond_0"]
    );
    assert_eq!(
        whole.numa_affinity,
        [Some("0"), Some("0"), Some("1"), Some("1")].map(|it| it.map(str::to_owned))
    );
    for (name, damaged) in damage::all(REPORT) {
        assert_eq!(Matrix::read(&damaged).as_ref(), Ok(&whole), "{name}:\n{damaged}");
    }
}

#[test]
fn damaged_samples_read_the_same() {
    // A report that lost its end or some columns cannot be damaged further and read the same.
    let is_whole = |sample: &Sample| !sample.name.starts_with("damaged");
    let mut checked = 0;
    for sample in samples().iter().filter(|sample| is_whole(sample)) {
        let text = sample.text();
        let Ok(Description::Matrix(whole)) = Description::read(&text) else { continue };
        for (name, damaged) in damage::all(&text) {
            let read = Description::read(&damaged).map(|read| read.summary());
            assert_eq!(read, Ok(whole.summary()), "{name}: {}\n{damaged}", sample.name);
        }
        checked += 1;
    }
    assert!(checked >= 7, "only {checked} matrices");
}

#[test]
fn two_gpus_over_a_host_bridge_with_the_old_legend_and_tabs() {
    let read = matrix(
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n\n\
         Legend:\n\n  X   = Self\n  \
         SOC  = Connection traversing PCIe as well as the SMP link between CPU sockets(e.g. QPI)\n",
    );
    assert_eq!(words(&read.summary().links), json!([["X", "PHB"], ["PHB", "X"]]));
    assert_eq!((read.summary().nics, read.summary().nearest_nics), (Some(0), None));
    assert_eq!(read.cpu_affinity, [Some("0-7".to_owned()), Some("0-7".to_owned())]);
}

#[test]
fn old_class_names_are_kept_and_mapped_to_new_classes() {
    let read = matrix(
        "        GPU0  GPU1  mlx4_0 mlx4_1\nGPU0  X  SOC  SOC SYS\nGPU1 SOC X PSB PIX\n\
         mlx4_0 SOC PSB X PXB\nmlx4_1 SYS PIX PXB X\n",
    );
    let nearest = read.summary().nearest_nics.unwrap();
    assert_eq!(nearest[0], NearestNics { class: PrintedClass::Soc, nics: vec![0, 1] });
    assert_eq!(nearest[1], NearestNics { class: PrintedClass::Psb, nics: vec![0, 1] });
}

#[test]
fn cards_have_names_of_every_kind_in_any_order() {
    let names = [
        "rocep137s0f1",
        "mlx5_bond_0",
        "mlx5_10",
        "mlx5_1",
        "roceP2p1s0f0",
        "bnxt_re0",
        "cxi0",
        "hfi1_0",
    ];
    let cards = |row: usize| {
        (0..8).map(|card| if card == row { " X" } else { "NODE" }).collect::<Vec<_>>().join("\t")
    };
    let mut text = format!(
        "\tGPU0\t{}\nGPU0\t X \tSYS\tPHB\tNODE\tPIX\tSYS\tPXB\tSYS\tPIX\n",
        names.join("\t")
    );
    for (row, name) in names.iter().enumerate() {
        let to_gpu = ["SYS", "PHB", "NODE", "PIX", "SYS", "PXB", "SYS", "PIX"][row];
        text += &format!("{name}\t{to_gpu}\t{}\n", cards(row));
    }
    let read = matrix(&text);
    assert_eq!(
        (read.nics.as_slice(), read.nic_name(4)),
        (&names.map(str::to_owned)[..], "roceP2p1s0f0")
    );
    assert_eq!(
        read.summary().nearest_nics.unwrap()[0],
        NearestNics { class: PrintedClass::Pix, nics: vec![3, 7] }
    );
    let grown = text
        .replacen("mlx5_bond_0\tmlx5_10\tmlx5_1\t", "mlx5_bond_0mlx5_10mlx5_1", 1)
        .replace("GPU0\troce", "GPU0roce");
    assert_eq!(matrix(&grown), read);
}

#[test]
fn rows_need_not_be_in_the_order_of_the_columns() {
    let mut lines: Vec<&str> = REPORT.lines().collect();
    lines.swap(2, 5);
    lines.swap(6, 8);
    assert_eq!(matrix(&lines.join("\n")), matrix(REPORT));
}

#[test]
fn an_affinity_that_ran_into_a_cell_is_cut_off_by_the_cell_across_the_diagonal() {
    let read = matrix("     GPU0 GPU1 CPU Affinity\nGPU0  X  NV120-23\nGPU1 NV12  X  0-23\n");
    assert_eq!(read.summary().nvlinks, Some(vec![vec![0, 12], vec![12, 0]]));
    assert_eq!(read.cpu_affinity[0].as_deref(), Some("0-23"));
    let read = matrix(
        "     GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0  X  PHB0-31N/A\nGPU1 PHB  X0-31N/A\n",
    );
    assert_eq!(
        (read.cpu_affinity[1].as_deref(), &read.numa_affinity[1], read.notes.len()),
        (Some("0-31"), &None, 0)
    );
    // `40-590` may be CPUs 40 to 590, or CPUs 40 to 59 and NUMA node 0.
    let read = matrix(
        "     GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0  X  PHB  40-590\nGPU1 PHB  X  40-590\n",
    );
    assert_eq!((&read.cpu_affinity[0], read.notes.len()), (&None, 2));
    assert!(read.notes[0].starts_with("line 2"), "{:?}", read.notes);
}

#[test]
fn missing_cells_are_taken_from_across_the_diagonal_with_a_note() {
    let whole = matrix(REPORT);
    let without_cards: String = REPORT
        .lines()
        .filter(|line| !line.starts_with("NIC"))
        .map(|it| it.to_owned() + "\n")
        .collect();
    let read = matrix(&without_cards);
    assert_eq!(
        (read.summary(), read.links[4][0], read.links[4][5]),
        (whole.summary(), whole.links[4][0], None)
    );
    let cut = REPORT
        .replace("SYS\tNV12\t X \tSYS\tPIX\tSYS\t16-31,48-63\t1\t\tN/A\nNIC0", "SYS\tNV12\t\nNIC0");
    let read = matrix(&cut);
    assert_eq!(read.summary(), whole.summary());
    assert_eq!(
        read.notes,
        ["NIC0", "NIC1", "NIC2"].map(|nic| {
            let class = whole.links[3][4 + nic[3..].parse::<usize>().unwrap()].unwrap();
            format!("GPU3 to {nic} is missing: {class} is taken from the other direction")
        })
    );
    let differs = REPORT.replacen("NODE\tPIX", "PHB\tPIX", 1);
    let note = "GPU2 to NIC1 is NODE, but the other direction is PHB";
    assert_eq!(matrix(&differs).notes, [note]);
}

#[test]
fn errors_name_the_line_and_column() {
    let place = |text: &str| {
        let error = refused(text);
        (error.line, error.column, error.found)
    };
    assert_eq!(place(&REPORT.replacen("NV12\tSYS", "NV12\tSYZ", 1)), (3, 15, "SYZ".into()));
    assert_eq!(
        place(&REPORT.replacen(" X \tNV12\tSYS", "NV1\tNV12\tSYS", 1)),
        (3, 6, "NV1".into())
    );
    assert_eq!(
        place(&REPORT.replacen("PIX\tSYS\tPHB\t0-15", "PIX\tSYS\tPHB\tSYS\t0-15", 1)).2,
        "SYS"
    );
    assert_eq!(place(&REPORT.replacen("\tGPU2\t", "\tGPU1\t", 1)), (2, 12, "GPU1".into()));
    assert_eq!(place(&REPORT.replace("GPU1\tNV12", "GPU0\tNV12")).0, 4);
    assert_eq!(place("no report\nat all\n"), (2, 7, "".into()));
    assert_eq!(place(""), (1, 1, "".into()));
    assert_eq!(place("GPU0\t X \tPHB\nGPU1\tPHB\t X \n"), (1, 1, "GPU0".into()));
    let short = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\nGPU1\tPIX\t X \nGPU2\n";
    let error = refused(short);
    assert!(error.expected.contains("GPU0 and GPU2") && error.line == 2, "{error}");
    let ambiguous = refused("     GPU0 GPU1 CPU Affinity\nGPU0  X  NV120-23\nGPU1\n");
    assert!(ambiguous.expected.contains("blank") && ambiguous.found == "NV120-23", "{ambiguous}");
}

#[test]
fn tables_of_both_amd_tools_are_read() {
    let amd = "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0\n\
               0000:0c:00.0 SELF         PCIE\n0000:22:00.0 PCIE         \nSELF\n\
               HOPS TABLE:\n 0000:0c:00.0 0000:22:00.0\n\
               0000:0c:00.0 0 2\n0000:22:00.0 2 0\n\
               Legend:\n SELF = Current GPU\n";
    let tables = RocmTables::read(amd).unwrap();
    assert_eq!((tables.gpus[1].as_str(), tables.links[0][1]), ("0000:22:00.0", PrintedClass::Pcie));
    assert_eq!((tables.hops, tables.weights), (Some(vec![vec![0, 2], vec![2, 0]]), None));
    let answers = Description::read(amd).unwrap().summary();
    assert_eq!((answers.gpus, answers.nics, answers.nvlinks), (2, None, None));
    let error = refused(&amd.replace("PCIE         \n", "WIRE         \n"));
    assert_eq!((error.line, error.column, error.found.as_str()), (4, 14, "WIRE"));
    let error = refused(&amd.replace("0000:22:00.0 PCIE", "0000:23:00.0 PCIE"));
    assert!(error.expected.contains("0000:22:00.0"), "{error}");
}

#[test]
fn errors_of_topology_files_name_the_line() {
    let text = "\n\n<?xml version=\"1.0\"?>\n<system version=\"1\">\n <cpu numaid=\"0\">\n  \
                <pci busid=\"0000:01:00.0\" class=\"0x030200\" \
                link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n   \
                <gpu dev=\"0\"><nvlink target=\"0000:02:00.0\" count=\"4\"/>\
                <nvlink target=\"0000:02:00.0\" count=\"2\"/></gpu>\n  \
                </pci>\n  \
                <pci busid=\"0000:02:00.0\" class=\"0x0302\"><gpu dev=\"1\"/><cxl/></pci>\n \
                </cpu>\n</system>\n";
    let system = System::read(text).unwrap();
    assert_eq!((system.summary().links[0][1], system.notes.len()), (PrintedClass::NvLink(6), 1));
    assert!(
        system.notes[0].contains("line 9") && system.notes[0].contains("<cxl>"),
        "{}",
        system.notes[0]
    );
    let wrong = |from: &str, to: &str| refused(&text.replacen(from, to, 1));
    let place = |error: &ReadError| (error.line, error.column);
    let count = wrong("count=\"4\"", "count=\"four\"");
    assert_eq!((place(&count), count.found.as_str()), ((7, 47), "count=\"four\""));
    assert_eq!(wrong("class=\"0x030200\"", "class=\"GPU\"").line, 6);
    assert_eq!(wrong("16.0 GT/s PCIe", "fast").line, 6);
    assert_eq!(wrong("</pci>", "</pcl>").line, 8);
    assert!(wrong("busid=\"0000:02:00.0\" ", "").expected.contains("busid"));
    assert_eq!(refused(&text.replace("system", "graphs")).line, 4);
    assert_eq!(refused("<system version=\"1\"><cpu>").line, 1);
    let pasted = format!("$ cat topo.xml\n{}\n$ exit\n", text.trim());
    assert_eq!(System::read(&pasted).unwrap().summary(), system.summary());
    assert_eq!(refused(&pasted.replacen("count=\"4\"", "count=\"0\"", 1)).line, 6);
    let deep = format!(
        "<system><cpu>{}{}</cpu></system>",
        "<pci busid=\"a\">".repeat(5000),
        "</pci>".repeat(5000)
    );
    assert!(refused(&deep).expected.contains("64"));
}

#[test]
fn a_pair_on_switches_has_the_smaller_number_of_links() {
    let gpu = |number: usize, links: &[(usize, u32)]| {
        let link = |(switch, count): &(usize, u32)| {
            format!(
                "<nvlink target=\"0000:a{switch}:00.0\" count=\"{count}\" tclass=\"0x068000\"/>"
            )
        };
        let links: String = links.iter().map(link).collect();
        format!(
            "<pci busid=\"0000:0{number}:00.0\" class=\"0x030200\">\
             <gpu dev=\"{number}\">{links}</gpu></pci>"
        )
    };
    let text = format!(
        "<system><cpu>{}{}{}</cpu></system>",
        gpu(2, &[(0, 6)]),
        gpu(0, &[(0, 3), (1, 3)]),
        gpu(1, &[(1, 2), (0, 2)])
    );
    let answers = System::read(&text).unwrap().summary();
    assert_eq!(answers.nvlinks.unwrap(), [[0, 4, 6], [4, 0, 4], [6, 4, 0]]);
}

/// Texts for which a naive reader would take years, or all memory, or all of the stack.
#[test]
fn huge_texts_are_refused_in_time() {
    let grown = format!("GPU0 {}\nGPU0 X\n", "GPU0".repeat(50_000));
    let ambiguous =
        format!("GPU0 {}b!\nGPU0 X SYS\na SYS\naa SYS\naaa SYS\naaaa SYS\n", "a".repeat(60));
    let labels: Vec<String> = (0..60_000).map(|gpu| format!("GPU{gpu}")).collect();
    let wide = format!("{}\nGPU0 X\n", labels.join(" "));
    for monster in [grown, ambiguous, wide] {
        assert_eq!(refused(&monster).line, 1);
    }
    let deep = format!("<system><cpu>{}", "<pci busid=\"a\">".repeat(200_000));
    assert_eq!(refused(&deep).line, 1);
}

/// A fixture with some of its characters replaced, removed or doubled.
fn mutated() -> impl Strategy<Value = String> {
    let xml = include_str!("readers/switched.xml");
    let amd = include_str!("readers/amd.txt");
    let change = (
        any::<prop::sample::Index>(),
        0..4u8,
        prop::sample::select("\t\n XNVGPU019<>/\"=-,[m\u{1b}#".chars().collect::<Vec<_>>()),
    );
    (prop::sample::select(vec![REPORT, xml, amd]), prop::collection::vec(change, 1..12)).prop_map(
        |(text, changes)| {
            let mut text: Vec<char> = text.chars().collect();
            for (index, kind, char) in changes {
                if text.is_empty() {
                    break;
                }
                let at = index.index(text.len());
                match kind {
                    0 => text[at] = char,
                    1 => drop(text.remove(at)),
                    2 => text.insert(at, char),
                    _ => text.truncate(at + 1),
                }
            }
            text.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC*", bytes: Vec<u8>) {
        let _ = Description::read(&text).is_ok();
        let _ = Description::read(&String::from_utf8_lossy(&bytes)).is_ok();
    }

    #[test]
    fn a_damaged_text_is_read_or_refused_at_a_place_within_the_text(text in mutated()) {
        let readings = [
            Description::read(&text).map(drop),
            Matrix::read(&text).map(drop),
            RocmTables::read(&text).map(drop),
        ];
        for read in readings {
            if let Err(error) = read {
                let line = text.lines().nth(error.line - 1).unwrap_or_default();
                let end = line.chars().count() + 2;
                prop_assert!((1..=end).contains(&error.column), "{error}");
            }
        }
    }

    #[test]
    fn rows_of_random_cells_end_in_time(
        cells in prop::collection::vec("NV[0-9]{1,4}|X|SYS|[0-9]-[0-9]|\n", 0..60),
    ) {
        let row = cells.concat();
        let labels: Vec<_> = (0..40).map(|gpu| format!("GPU{gpu}")).collect();
        let _ = Matrix::read(&format!(" {}\nGPU0 X {row}\n{row}\n", labels.join(" "))).is_ok();
    }
}

/// Compares the graph of one sample with its summary.
fn check_graph(name: &str, description: &Description) {
    let summary = description.summary();
    let graph = description.topology();
    let gpus = graph.nodes_of(NodeKind::Gpu);
    let cards = graph.nodes_of(NodeKind::Nic);
    assert_eq!(gpus.len(), summary.gpus, "{name}");
    assert_eq!(cards.len(), summary.nics.unwrap_or(0), "{name}");
    // A matrix does not say what stands between two devices. Where two of its classes contradict
    // each other, the graph has the nearer one.
    let exact = matches!(description, Description::System(_));
    let agree =
        |found: PathClass, read: PathClass| if exact { found == read } else { found >= read };
    for (a, row) in summary.links.iter().enumerate() {
        for (b, printed) in row.iter().enumerate() {
            let class = graph.path(gpus[a], gpus[b]).unwrap().class;
            assert!(agree(class, printed.class()), "{name}: {a} to {b} is {class}, not {printed}");
            assert!(
                printed.direct_links() == 0 || class == printed.class(),
                "{name}: {a} to {b} is {class}, not {printed}"
            );
        }
    }
    for (gpu, near) in summary.nearest_nics.iter().flatten().enumerate() {
        let class = graph.path(gpus[gpu], cards[near.nics[0]]).unwrap().class;
        assert!(agree(class, near.class.class()), "{name}: {gpu} to its card is {class}");
    }
}

#[test]
fn a_graph_has_paths_of_the_classes_that_were_read() {
    // In a damaged sample the two directions of a pair may contradict each other. The graph has one
    // of them.
    let is_whole = |sample: &Sample| !sample.name.starts_with("damaged");
    let mut checked = 0;
    for sample in samples().into_iter().filter(is_whole) {
        let Ok(description) = Description::read(&sample.text()) else { continue };
        check_graph(&sample.name, &description);
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} samples");
}

#[test]
fn a_file_s_speeds_become_bandwidths() {
    let description = Description::read(include_str!("readers/switched.xml")).unwrap();
    assert_eq!(description.assumed(), (GpuGeneration::Hopper, Processor::Amd));
    let graph = description.topology();
    let answers = description.summary();
    assert_eq!(answers.links[0][2], PrintedClass::NvLink(18));
    let bandwidth = |a: usize, b: usize| graph.path(a, b).unwrap().bandwidth;
    assert_eq!((bandwidth(0, 2), bandwidth(0, 3)), (18.0 * 20.6, 48.0));
    // GPU 2 to the first card: over the sockets.
    assert_eq!((bandwidth(2, 3), graph.path(2, 3).unwrap().class), (16.0, PathClass::Sys));
}

#[test]
fn reports_with_two_kinds_of_damage_read_the_same() {
    let whole = matrix(REPORT).summary();
    for (first, damaged) in damage::all(REPORT) {
        for (second, damaged) in damage::all(&damaged) {
            let read = Matrix::read(&damaged).map(|read| read.summary());
            assert_eq!(read.as_ref(), Ok(&whole), "{first}, then {second}:\n{damaged}");
        }
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
        |text: &str| System::read(text).map(drop),
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

//! Topology files in XML, and the tables of AMD's tools.

use crate::refused;
use maypole::topology::PathClass;
use maypole::topology::model::bandwidth::{GpuGeneration, Processor};
use maypole_cluster::Description;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::rocm::RocmTables;
use maypole_cluster::read::text::ReadError;
use maypole_cluster::read::xml;

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
    let system = xml::read(text).unwrap();
    assert_eq!(
        (xml::summary(&system).links[0][1], system.notes.len()),
        (PrintedClass::NvLink(6), 2)
    );
    assert!(system.notes[1].contains("no NVLink or XGMI link at GPU1"), "{}", system.notes[1]);
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
    assert_eq!(xml::summary(&xml::read(&pasted).unwrap()), xml::summary(&system));
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
    let answers = xml::summary(&xml::read(&text).unwrap());
    assert_eq!(answers.nvlinks.unwrap(), [[0, 4, 6], [4, 0, 4], [6, 4, 0]]);
}

#[test]
fn a_file_s_speeds_become_bandwidths() {
    let description = Description::read(include_str!("switched.xml")).unwrap();
    assert_eq!(description.assumed(), (GpuGeneration::Hopper, Processor::Amd));
    let graph = description.topology();
    let answers = description.summary();
    assert_eq!(answers.links[0][2], PrintedClass::NvLink(18));
    let bandwidth = |a: usize, b: usize| graph.path(a, b).unwrap().bandwidth;
    assert_eq!((bandwidth(0, 2), bandwidth(0, 3)), (18.0 * 20.6, 48.0));
    // GPU 2 to the first card: over the sockets.
    assert_eq!((bandwidth(2, 3), graph.path(2, 3).unwrap().class), (16.0, PathClass::Sys));
}

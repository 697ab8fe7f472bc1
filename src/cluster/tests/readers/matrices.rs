//! Matrices as `nvidia-smi topo -m` prints them, with each kind of damage that pasting does.

use crate::answers::words;
use crate::damage;
use crate::{REPORT, matrix, refused};
use maypole_cluster::read::matrix::Matrix;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::NearestNics;
use serde_json::json;

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
fn reports_with_two_kinds_of_damage_read_the_same() {
    let whole = matrix(REPORT).summary();
    for (first, damaged) in damage::all(REPORT) {
        for (second, damaged) in damage::all(&damaged) {
            let read = Matrix::read(&damaged).map(|read| read.summary());
            assert_eq!(read.as_ref(), Ok(&whole), "{first}, then {second}:\n{damaged}");
        }
    }
}

//! Matrices as `nvidia-smi topo -m` prints them, with each kind of damage that pasting does.

use crate::damage;
use crate::{REPORT, matrix};
use maypole_cluster::read::matrix::Matrix;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::NearestNics;

#[test]
fn reports_with_one_or_two_kinds_of_damage_read_the_same() {
    let whole = matrix(REPORT);
    assert_eq!(
        whole.nic_names.iter().flatten().collect::<Vec<_>>(),
        ["mlx5_0", "mlx5_gdr_1", "mlx5_bond_0"]
    );
    assert_eq!(
        whole.numa_affinity,
        [Some("0"), Some("0"), Some("1"), Some("1")].map(|it| it.map(str::to_owned))
    );
    let summary = whole.summary();
    for (name, damaged) in damage::all(REPORT) {
        assert_eq!(Matrix::read(&damaged).as_ref(), Ok(&whole), "{name}:\n{damaged}");
        for (second, damaged) in damage::all(&damaged) {
            let read = Matrix::read(&damaged).map(|read| read.summary());
            assert_eq!(read.as_ref(), Ok(&summary), "{name}, then {second}:\n{damaged}");
        }
    }
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

//! Readers of descriptions of machines, and of machines: samples, each kind of damage by pasting,
//! and arbitrary bytes.

mod answers;
mod arbitrary;
mod damage;
mod detect;
mod foreign;
#[path = "../../../../tests/readers/fuzz.rs"]
mod fuzz;
mod hostile;
mod matrices;
#[path = "../../../../tests/common/samples.rs"]
mod samples;
#[path = "../../../../tests/common/skip.rs"]
mod skip;

use maypole_cluster::Description;
use maypole_cluster::read::matrix::Matrix;
use maypole_cluster::read::text::ReadError;

/// Four GPUs in two pairs and three cards, one of them in a bond, with gaps in the lists of CPUs
/// and all columns of affinity.
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

//! A matrix on a mesh of ranks: `y = A x`, summed along the rows and gathered along the columns.
//!
//! ```text
//! cargo build --release --example mesh
//! maypole run -n 4 target/release/examples/mesh
//! ```

use maypole::{Communicator, ReduceOp, Result};

/// Rows and columns of the block of one rank.
const BLOCK: usize = 3;

fn a(row: usize, column: usize) -> f64 {
    (row + 2 * column) as f64
}

fn x(column: usize) -> f64 {
    (column + 1) as f64
}

/// The product of some rows and columns of `A` with the same part of `x`.
fn product(rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Vec<f64> {
    rows.map(|row| columns.clone().map(|column| a(row, column) * x(column)).sum()).collect()
}

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let (rank, world) = (comm.rank(), comm.world());

    // The mesh is as near to a square as the number of ranks allows.
    let is_height = |height: &usize| world.is_multiple_of(*height) && height * height <= world;
    let height = (1..=world).filter(is_height).max().expect("one row is a mesh");
    let width = world / height;
    let (row, column) = (rank / width, rank % width);

    // Ranks of one colour are a group, in the order of their keys. A rank without a colour has none.
    let mut along_row = comm.split(Some(row as u64), column as i64)?.expect("it has a colour");
    let mut along_column = comm.split(Some(column as u64), row as i64)?.expect("it has a colour");

    // This rank's block gives a part of each sum; a row of ranks has all parts of BLOCK sums.
    let block = |at: usize| at * BLOCK..(at + 1) * BLOCK;
    let mut y = product(block(row), block(column));
    along_row.all_reduce(&mut y, ReduceOp::Sum)?;

    // A column of ranks has all sums.
    let mut whole = vec![0.0; height * BLOCK];
    along_column.all_gather((&y, &mut whole))?;

    assert_eq!(whole, product(0..height * BLOCK, 0..width * BLOCK));
    println!("rank {rank} is at ({row}, {column}) of {height} x {width}, and y is {whole:?}");
    comm.close()
}

//! Names on the command line: collectives, algorithms, element types and reductions, with errors
//! that list the names that exist.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};

/// The help text of an argument that is a collective.
pub(crate) fn collective_help() -> String {
    format!("The collective: one of {}", Collective::option_names())
}

pub(crate) fn algorithms_for(collective: Collective) -> Vec<Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.supports(collective)).collect()
}

/// The error of an algorithm that does not implement `collective`; lists those that do.
pub(crate) fn not_implemented(algorithm: Algorithm, collective: Collective) -> String {
    let others = listed(
        Algorithm::named().filter(|one| one.supports(collective)).map(|one| one.to_string()),
    );
    let collective = collective.option_name();
    format!("{algorithm} does not implement {collective}; these algorithms do: {others}")
}

/// The most ranks of a world that is drawn, or simulated rank by rank.
pub(crate) const MOST_DRAWN: usize = 1024;
/// The most ranks of a world that does not run.
pub(crate) const MOST_RANKS: usize = 4096;

/// `collective` with this root, if a world of `ranks`, of at most `most`, has such a rank.
pub(crate) fn rooted(
    collective: Collective,
    root: usize,
    ranks: usize,
    most: usize,
) -> anyhow::Result<Collective> {
    anyhow::ensure!(
        (1..=most).contains(&ranks),
        "-n {ranks}: the number of ranks must be from 1 to {most}"
    );
    anyhow::ensure!(root < ranks, no_such_root(root, ranks));
    Ok(collective.with_root(root))
}

/// The error of a root outside a world of `ranks`.
pub(crate) fn no_such_root(root: usize, ranks: usize) -> String {
    format!("--root {root}: there is no rank {root} in a world of {ranks}; use 0 to {}", ranks - 1)
}

/// An element type by its name here (`f32`), in C (`float`) or in nccl-tests (`bfloat16`).
pub(crate) fn data_type(text: &str) -> Result<DataType, String> {
    let name = match text {
        "half" | "float16" => "f16",
        "bfloat16" => "bf16",
        "float" | "float32" => "f32",
        "double" | "float64" => "f64",
        "char" | "int8" => "i8",
        "int16" => "i16",
        "int" | "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        "uint16" => "u16",
        "uint" | "uint32" => "u32",
        "uint64" => "u64",
        other => other,
    };
    let names = || listed(DataType::NUMBERS.into_iter().map(|kind| kind.name().to_owned()));
    DataType::NUMBERS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let names = names();
        format!(
            "no type is called {text:?}; there are {names}, and nccl-tests' names (float, half ...)"
        )
    })
}

/// A reduction by its name here (`product`) or in nccl-tests (`prod`).
pub(crate) fn reduce_op(text: &str) -> Result<ReduceOp, String> {
    let name = if text == "prod" { "product" } else { text };
    name.parse().map_err(|error: <ReduceOp as std::str::FromStr>::Err| error.to_string())
}

/// `a, b, c`.
pub(crate) fn listed(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_is_listed_and_every_type_found_by_its_name() {
        for wanted in Collective::all(0) {
            assert!(collective_help().contains(&wanted.option_name()));
            assert!(!algorithms_for(wanted).is_empty());
        }
        for wanted in DataType::NUMBERS {
            assert_eq!(data_type(wanted.name()), Ok(wanted));
        }
    }

    #[test]
    fn names_of_nccl_tests_are_understood() {
        let types = [
            ("half", DataType::F16),
            ("bfloat16", DataType::BF16),
            ("float", DataType::F32),
            ("double", DataType::F64),
            ("int8", DataType::I8),
            ("int32", DataType::I32),
            ("int64", DataType::I64),
            ("uint8", DataType::U8),
            ("uint32", DataType::U32),
            ("uint64", DataType::U64),
        ];
        for (name, wanted) in types {
            assert_eq!(data_type(name), Ok(wanted), "{name}");
        }
        for (name, wanted) in [("sum", ReduceOp::Sum), ("prod", ReduceOp::Product)] {
            assert_eq!(reduce_op(name), Ok(wanted), "{name}");
        }
    }

    #[test]
    fn errors_list_the_names_that_exist() {
        assert!("sum".parse::<Collective>().unwrap_err().to_string().contains("all-reduce"));
        assert!(data_type("quad").unwrap_err().contains("f32"));
        assert!(reduce_op("mean").unwrap_err().contains("avg"));
    }
}

//! The names that Python passes: of collectives, of reductions and of types of elements.

use crate::error::{invalid, invalid_type};
use maypole::schedule::collective::Collective;
use maypole::{DataType, Factor, ReduceOp};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The collective of this name.
pub(crate) fn collective(name: &str, root: usize) -> PyResult<Collective> {
    let all = [
        Collective::Broadcast { root },
        Collective::Reduce { root },
        Collective::AllReduce,
        Collective::Gather { root },
        Collective::AllGather,
        Collective::Scatter { root },
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Scan,
        Collective::ExclusiveScan,
        Collective::Barrier,
    ];
    let found = all.iter().find(|it| it.name() == name).copied();
    found.ok_or_else(|| unknown("name", "collective", name, &all.map(|it| it.name())))
}

/// The names of [`DataType::ALL`], as NumPy and PyTorch call them.
const TYPES: [&str; 13] = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool",
];

/// The type of this name.
pub(crate) fn data_type(name: &str) -> PyResult<DataType> {
    let place = TYPES.iter().position(|known| *known == name);
    place.map(|at| DataType::ALL[at]).ok_or_else(|| unknown("type", "type", name, &TYPES))
}

/// The type that moves elements of this name, and the name itself if it is that of another type, such as
/// "float32 of complex64".
pub(crate) fn element(name: &str) -> PyResult<(DataType, Option<&'static str>)> {
    match name.split_once(" of ") {
        Some((moved, _)) => Ok((data_type(moved)?, Some(kept_name(name)))),
        None => Ok((data_type(name)?, None)),
    }
}

/// The name of a type, kept until the process ends. A program has few types.
pub(crate) fn kept_name(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().find(|known| **known == name).copied();
    known.unwrap_or_else(|| {
        names.push(Box::leak(name.into()));
        names[names.len() - 1]
    })
}

/// The name of a type.
pub(crate) fn name_of(data_type: DataType) -> &'static str {
    let place = DataType::ALL.iter().position(|it| *it == data_type);
    place.map_or("unknown", |at| TYPES[at])
}

/// The names of all types that arrays may have.
pub(crate) fn types() -> String {
    TYPES.join(", ")
}

/// The operation of this name. `factor` is that of a pre-multiplied sum.
pub(crate) fn operation(name: &str, factor: Option<f64>) -> PyResult<ReduceOp> {
    if let Some(factor) = factor {
        return Ok(ReduceOp::PreMulSum(Factor::new(factor)));
    }
    // As NumPy calls them.
    let ours = match name {
        "prod" => "product",
        "mean" => "avg",
        _ => name,
    };
    ours.parse::<ReduceOp>().map_err(|_| unknown("op", "operation", name, &op_names()))
}

fn op_names() -> Vec<&'static str> {
    ReduceOp::ALL.iter().map(|op| op.name()).collect()
}

/// The name in the argument `op`. Programs for mpi4py pass objects there, others functions of NumPy.
pub(crate) fn op_name(op: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    let name = op.extract::<String>().map_err(|_| {
        let known = op_names().join(", ");
        invalid_type(format!("op is {op}: pass the name of an operation ({known})"))
    })?;
    operation(&name, None).map(ReduceOp::name)
}

/// The error for a name that is none of `known`, of which it names the nearest, or all.
fn unknown(argument: &str, kind: &str, name: &str, known: &[&str]) -> PyErr {
    let distance = |it: &&&str| strsim::damerau_levenshtein(it, name);
    let nearest = known.iter().min_by_key(distance).filter(|it| distance(it) * 3 <= name.len());
    let advice = match nearest {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => format!("pass one of {}", known.join(", ")),
    };
    invalid(format!("{argument} is '{name}', which is no {kind}: {advice}"))
}

//! Derivatives, norms, precision, and what theory says of bytes.

#[path = "../support/mod.rs"]
mod support;

mod derivatives;
mod memory;
mod norms;
mod precision;
mod precision_meshes;
mod theory;
mod tour;

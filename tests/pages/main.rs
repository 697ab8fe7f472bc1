//! Pages for readers say what the code does: the README, the pictures and the page of faults.

mod drawings;
mod faults;
mod readme;

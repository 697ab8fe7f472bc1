//! Maypole.

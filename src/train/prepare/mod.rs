//! Everything that a run needs, checked and loaded before its first step.

pub mod data;

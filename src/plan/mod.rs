//! Memory and time of a run, computed before anything starts.

pub mod cost;

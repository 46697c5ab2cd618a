//! Typed configurations, from TOML (our vocabulary) or YAML (the predecessors' vocabulary).

pub mod paths;
pub mod train;

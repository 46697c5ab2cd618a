//! Fine-tuning of vision-language-action policies (π₀.₅) on LeRobot datasets.
//!
//! The rooms, and which may use which, are drawn in `ARCHITECTURE.md`. The binary `vlash` is a thin
//! shell around [`cli`]; everything it does is reachable from here.

// Module docs are the way in for contributors, who see private items too (`cargo doc --document-private-items`).
#![allow(rustdoc::private_intra_doc_links)]

pub mod adapter;
pub mod bench;
pub mod chart;
pub mod cli;
pub mod collect;
pub mod config;
pub mod dataset;
pub mod device;
pub mod error;
pub mod eval;
pub mod files;
pub mod ops;
pub mod plan;
pub mod policy;
pub mod random;
pub mod realtime;
pub mod robot;
pub mod track;
pub mod train;
pub mod tui;

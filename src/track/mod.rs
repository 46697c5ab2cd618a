//! The run directory: what a run writes about itself, and the inbox through which it is steered.
//!
//! ```text
//! <run>/run.json       what was asked: resolved configuration, versions, host
//!       events.jsonl   append-only, one [`event::Event`] a line
//!       status.json    [`status::Status`], replaced atomically, with a heartbeat
//!       control/       one [`control::Request`] a file, written by atomic rename; answered in events
//!       checkpoints/   see `train::checkpoint`
//!       logs/rank-N.log
//! ```

pub mod control;
pub mod event;
pub mod inbox;
pub mod reader;
pub mod status;

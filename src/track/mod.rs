//! The run directory: what a run writes about itself, and the inbox through which it is steered.
//!
//! ```text
//! <run>/run.json       what was asked: resolved configuration, versions, host
//!       lease.json     who owns the run now, with a heartbeat
//!       events.jsonl   append-only, one [`event::Event`] a line
//!       status.json    [`status::Status`], replaced atomically, with a heartbeat
//!       control/       one [`control::Request`] a file, written by atomic rename; answered in events. To a rollout on a
//!                      robot, one [`steering::Order`] a file
//!       checkpoints/   see `train::checkpoint`
//!       logs/rank-N.log
//! ```

pub mod console;
pub mod control;
pub mod event;
pub mod inbox;
pub mod lease;
pub mod reader;
pub mod recorder;
pub mod run_dir;
pub mod status;
pub mod steering;
pub mod telemetry;

/// Seconds since the Unix epoch, now.
pub fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The name of this host, `unknown` when the system does not tell.
pub fn host() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "unknown".into())
}

//! What remains of a rollout for a reader: `report.md`, `report.json` and three charts, from the figures of its episodes
//! and from its telemetry.

mod markdown;
#[cfg(test)]
mod tests;
mod trace;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::trace::Trace;
use super::metrics::Metrics;
use crate::chart::{self, Axis, Frame, Mark, Series};
use crate::error::{Explain, Kind};
use crate::files;

/// The report's files in the run directory.
pub const MARKDOWN: &str = "report.md";
pub const JSON: &str = "report.json";
pub const LATENCY: &str = "latency.svg";
pub const TIMELINE: &str = "timeline.svg";
pub const PERIOD: &str = "period.svg";

/// Chunks that a timeline can show apart.
const MOST_ROWS: usize = 40;

/// One episode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    pub seed: u64,
    /// How it ended, in words.
    pub end: String,
    /// Whether the task was done; none where nobody judges.
    pub success: Option<bool>,
    /// Latency of the last warm-up inference, which is in no figure.
    pub warm_up_ms: f64,
    /// Said before the arm moved.
    pub notices: Vec<String>,
    pub metrics: Metrics,
}

/// A whole rollout: `report.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this file's form.
    pub format: u32,
    pub version: String,
    pub robot: String,
    pub policy: String,
    pub task: String,
    pub mode: String,
    pub fps: f64,
    /// Actions a chunk, H, and those executed of each, n.
    pub horizon: usize,
    pub execute: usize,
    pub trained_delay: usize,
    pub episodes: Vec<Episode>,
}

impl Report {
    /// Episodes that were judged, and those of them that succeeded.
    pub fn successes(&self) -> (usize, usize) {
        let judged = || self.episodes.iter().filter_map(|episode| episode.success);
        (judged().count(), judged().filter(|success| *success).count())
    }

    /// Mean time of the episodes that succeeded, seconds; none without one.
    pub fn completion_s(&self) -> Option<f64> {
        let succeeded = self.episodes.iter().filter(|episode| episode.success == Some(true));
        let times: Vec<f64> = succeeded.map(|episode| episode.metrics.seconds).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }
}

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct ReportError {
    path: PathBuf,
    source: io::Error,
}

impl Explain for ReportError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }
}

/// Writes all files into `directory`; `trace` is of its telemetry. Where the Markdown is.
///
/// # Errors
/// The directory does not take them.
pub fn write(directory: &Path, report: &Report, trace: &Trace) -> Result<PathBuf, ReportError> {
    let json = serde_json::to_string_pretty(report).map_err(io::Error::from);
    let json = json.map_err(|source| ReportError { path: directory.join(JSON), source })?;
    let contents = [
        (LATENCY, latency(report, trace)),
        (TIMELINE, timeline(report, trace)),
        (PERIOD, period(report, trace)),
        (JSON, json),
        (MARKDOWN, markdown::text(report)),
    ];
    for (name, text) in contents {
        let path = directory.join(name);
        files::write_atomic(&path, text.as_bytes()).map_err(|source| ReportError { path, source })?;
    }
    Ok(directory.join(MARKDOWN))
}

/// How long inferences took, against what the last overlap allows.
fn latency(report: &Report, trace: &Trace) -> String {
    let axes = (Axis::new("inference latency (ms)").at_least(0.0, 1.0), Axis::new("inferences"));
    let frame = Frame::new(format!("Inference latency, {}", report.policy), axes.0, axes.1);
    let budget = trace.overlap.filter(|_| report.mode != "sync" && report.fps > 0.0);
    let budget =
        budget.map(|ticks| Mark { name: format!("overlap {ticks} ticks"), at: 1e3 * ticks as f64 / report.fps });
    chart::histogram(&frame, &trace.latencies, budget.as_slice())
}

/// The rollout's first chunks: when each was asked for, came, and was executed.
fn timeline(report: &Report, trace: &Trace) -> String {
    let frame =
        Frame::new(format!("Chunks over time, mode {}", report.mode), Axis::new("time (s)"), Axis::new("chunk"));
    let shown = trace.chunks.get(..MOST_ROWS.min(trace.chunks.len())).unwrap_or_default();
    let end = shown.iter().filter_map(|chunk| chunk.executed).map(|[_, to]| to).fold(f64::NEG_INFINITY, f64::max);
    let whole = shown.len() == trace.chunks.len();
    let misses: Vec<f64> = trace.without_action.iter().copied().filter(|time| whole || *time <= end).collect();
    chart::timeline(&frame, shown, &misses)
}

/// Every control period.
fn period(report: &Report, trace: &Trace) -> String {
    let axes = (Axis::new("time (s)"), Axis::new("control period (ms)"));
    let frame = Frame::new("Control period", axes.0, axes.1);
    let periods = Series { name: "period".into(), points: trace.periods.clone(), band: None };
    let goal = (report.fps > 0.0).then(|| Mark { name: format!("{:.1} ms", 1e3 / report.fps), at: 1e3 / report.fps });
    chart::scatter(&frame, &[periods], goal.as_slice())
}

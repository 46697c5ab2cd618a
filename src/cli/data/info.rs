//! `vlash data info`: what a dataset says about itself. Reads no rows and no videos.

use std::fmt::Write;

use serde::Serialize;

use super::{DatasetArgs, print};
use crate::config::ranges;
use crate::dataset::finding::Finding;
use crate::dataset::meta::{Feature, FeatureKind, Layout};
use crate::dataset::statistics::{read_aggregated, read_file};
use crate::dataset::window::padding_finding;
use crate::dataset::{DatasetError, Metadata};

const EXAMPLES: &str = "\
Examples:
  vlash data info /data/pick
  vlash data info lab/pick --root /data --json";

/// Show what a dataset holds: episodes, cameras, vectors, tasks, statistics
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    /// Action steps a sample, for the share of padding
    #[arg(long, value_name = "STEPS", default_value_t = 50)]
    horizon: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary<'a> {
    path: String,
    format: Layout,
    robot_type: Option<&'a str>,
    fps: u32,
    /// Of the selected episodes.
    episodes: usize,
    frames: usize,
    seconds: f64,
    /// Episodes whose rows are here.
    present: Vec<usize>,
    tasks: Vec<&'a str>,
    cameras: Vec<&'a Feature>,
    vectors: Vec<&'a Feature>,
    /// What the dataset brings along.
    statistics: Option<OwnStatistics>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct OwnStatistics {
    features: usize,
    quantiles: bool,
}

pub fn run(args: Args) -> Result<(), DatasetError> {
    let meta = Metadata::read(&args.dataset.path()?)?;
    let selected = args.dataset.episodes.map(|episodes| episodes.0);
    let summary = summarise(&meta, selected.as_deref(), args.horizon)?;
    if args.json {
        let json = serde_json::to_string_pretty(&summary)
            .map_err(|error| DatasetError::Write { path: "stdout".into(), source: error.into() })?;
        return print(&json);
    }
    print(&text(&summary))
}

fn summarise<'a>(meta: &'a Metadata, selected: Option<&[usize]>, horizon: usize) -> Result<Summary<'a>, DatasetError> {
    let lengths: Vec<usize> = match selected {
        Some(numbers) => numbers.iter().map(|&n| Ok(meta.episode(n)?.length)).collect::<Result<_, DatasetError>>()?,
        None => meta.episodes.iter().map(|episode| episode.length).collect(),
    };
    let frames = lengths.iter().fold(0usize, |sum, &length| sum.saturating_add(length));
    let statistics = match meta.info.layout {
        Layout::V21 => read_aggregated(&meta.root, None)?,
        Layout::V30 => read_file(&meta.root)?,
    };
    let mut findings = meta.findings.clone();
    // The sum over a hostile length would take for ever; the rows, once read, must confirm it anyway.
    if frames <= 100_000_000 {
        findings.push(padding_finding(&lengths, horizon, 0));
    }
    Ok(Summary {
        path: meta.root.display().to_string(),
        format: meta.info.layout,
        robot_type: meta.info.robot_type.as_deref(),
        fps: meta.info.fps,
        episodes: lengths.len(),
        frames,
        seconds: frames as f64 / f64::from(meta.info.fps),
        present: meta.present_episodes(),
        tasks: meta.tasks.iter().map(|(_, text)| text).collect(),
        cameras: meta.cameras().collect(),
        vectors: meta.info.features.iter().filter(|feature| feature.kind == FeatureKind::Numeric).collect(),
        statistics: statistics.map(|statistics| OwnStatistics {
            features: statistics.len(),
            quantiles: statistics.values().all(|stats| stats.q01.is_some() && stats.q99.is_some()),
        }),
        findings,
    })
}

fn text(summary: &Summary<'_>) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(out, "{key:<12} {value}");
    };
    line("dataset", summary.path.clone());
    line("format", format!("LeRobot {}", summary.format));
    line("robot", summary.robot_type.unwrap_or("not said").to_owned());
    line(
        "episodes",
        format!("{} ({} frames, {:.1} s at {} fps)", summary.episodes, summary.frames, summary.seconds, summary.fps),
    );
    if summary.present.len() < summary.episodes {
        line("present", format!("{} of them: {}", summary.present.len(), ranges::list(&summary.present)));
    }
    for camera in &summary.cameras {
        let size = camera.image.map(|shape| format!("{} × {}", shape.width, shape.height)).unwrap_or_default();
        let depth = if camera.is_depth { ", depth map" } else { "" };
        let codec = camera.codec.as_deref().map(|codec| format!(", {codec}")).unwrap_or_default();
        line("camera", format!("{} ({size}, {}{codec}{depth})", camera.name, camera.dtype));
    }
    for vector in &summary.vectors {
        let names = vector.names.as_ref().map(|names| format!(": {}", names.join(", "))).unwrap_or_default();
        line("vector", format!("{} [{}] {}{names}", vector.name, vector.dimensions(), vector.dtype));
    }
    for task in &summary.tasks {
        line("task", format!("{task:?}"));
    }
    let statistics = match &summary.statistics {
        Some(own) if own.quantiles => format!("of {} features, with quantiles", own.features),
        Some(own) => format!("of {} features, without quantiles (computed from the data when needed)", own.features),
        None => "none (computed from the data when needed)".into(),
    };
    line("statistics", statistics);
    for finding in &summary.findings {
        line(
            if finding.severity == crate::dataset::finding::Severity::Note { "note" } else { "warning" },
            finding.message.clone(),
        );
    }
    out.trim_end().to_owned()
}

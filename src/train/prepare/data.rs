//! The dataset of a run: found, opened, split, measured, and refused before anything costs time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::collect::bundled::Bundled;
use crate::config::paths::cache_dir;
use crate::config::train::TrainConfig;
use crate::dataset::check;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::proxy::ProxyReport;
use crate::dataset::stats::Statistics;
use crate::dataset::video::PoolOptions;
use crate::dataset::window::{StateRule, WindowSpec, padding_share};
use crate::dataset::{Dataset, Metadata, STATE, Selection, resolve, statistics};
use crate::error::Explain;
use crate::train::error::TrainError;
use crate::train::prepare::delays;
use crate::train::split::split;

/// Above this share of padded action steps a run is warned about.
const MUCH_PADDING: f64 = 0.4;

/// Everything about the data that training needs.
#[derive(Debug)]
pub struct Data {
    pub root: PathBuf,
    pub train: Arc<Dataset>,
    pub held_out: Option<Arc<Dataset>>,
    /// Of the training episodes, exact.
    pub statistics: Statistics,
    pub window: WindowSpec,
    /// What a person should know, none of it an error.
    pub findings: Vec<Finding>,
}

/// Finds and opens the dataset of `config`.
pub fn open(config: &TrainConfig) -> Result<Data, TrainError> {
    let mut findings = Vec::new();
    let root = root(config, &mut findings)?;
    open_at(&root, config, &mut findings)
        .map_err(|error| with_all_findings(&root, config, error))
        .map(|(train, held_out, statistics, window)| Data { root, train, held_out, statistics, window, findings })
}

fn root(config: &TrainConfig, findings: &mut Vec<Finding>) -> Result<PathBuf, TrainError> {
    if let Some(bundled) = Bundled::named(config.data.repo.as_deref(), config.data.root.is_some()) {
        return Ok(bundled.ensure(&cache_dir())?);
    }
    let resolved = resolve::resolve(config.data.repo.as_deref(), config.data.root.as_deref())?;
    findings.extend(resolved.finding);
    Ok(resolved.path)
}

type Opened = (Arc<Dataset>, Option<Arc<Dataset>>, Statistics, WindowSpec);

fn open_at(root: &Path, config: &TrainConfig, findings: &mut Vec<Finding>) -> Result<Opened, TrainError> {
    let selected = match &config.data.episodes {
        Some(episodes) => episodes.clone(),
        None => Metadata::read(root)?.episodes.iter().map(|episode| episode.index).collect(),
    };
    let split = split(&selected, &config.validation, config.run.seed).map_err(TrainError::Split)?;
    let open = |episodes: &[usize]| Dataset::open_with(root, selection(config, episodes), pool_options(config));
    let train = Arc::new(open(&split.train)?);
    let held_out = if split.validation.is_empty() { None } else { Some(Arc::new(open(&split.validation)?)) };
    findings.extend(train.findings().iter().cloned());
    for dataset in [Some(&train), held_out.as_ref()].into_iter().flatten() {
        let short = dataset.check_videos()?;
        findings.extend(short.iter().map(|short| Finding {
            severity: Severity::Note,
            code: "frame-repeated",
            message: format!(
                "episode {}, {}: the video lacks its last frame; the one before is shown twice",
                short.episode, short.camera
            ),
            fix: None,
        }));
    }
    let computed = statistics::of(&train)?;
    findings.extend(computed.findings);
    let window = window(config, &train, &computed.statistics, findings)?;
    findings.extend(padding(config, &train));
    Ok((train, held_out, computed.statistics, window))
}

fn selection(config: &TrainConfig, episodes: &[usize]) -> Selection {
    Selection {
        episodes: Some(episodes.to_vec()),
        cameras: config.data.cameras.clone(),
        rename: config.data.rename.clone(),
    }
}

fn pool_options(config: &TrainConfig) -> PoolOptions {
    PoolOptions { disk_cache: config.data.frame_cache.then(|| cache_dir().join("frames")), ..PoolOptions::default() }
}

/// The window, once it is known that delayed states can be had in the configured way.
fn window(
    config: &TrainConfig,
    dataset: &Dataset,
    statistics: &Statistics,
    findings: &mut Vec<Finding>,
) -> Result<WindowSpec, TrainError> {
    let delay = &config.train.delay;
    let state = if delay.ground_truth { StateRule::GroundTruth } else { StateRule::ActionProxy };
    let window = WindowSpec { horizon: config.model.chunk_size, state };
    if delay.max > 0 {
        window.check(dataset.state_dim(), dataset.action_dim(), delay.max)?;
        if let (StateRule::ActionProxy, Some(stats)) = (state, statistics.get(STATE)) {
            let report = ProxyReport::measure(dataset, stats)?;
            report.check(dataset.action_feature())?;
            findings.push(Finding {
                severity: Severity::Note,
                code: "delay-proxy",
                message: format!(
                    "delayed states are taken from actions: they differ by {:.1} % of the joints' range on average; \
                     {:.1} % of action values lie outside the state's q01…q99",
                    report.mean_ratio * 100.0,
                    report.outside * 100.0
                ),
                fix: None,
            });
        }
    }
    Ok(window)
}

fn padding(config: &TrainConfig, dataset: &Dataset) -> Option<Finding> {
    let lengths = dataset.lengths();
    let (shortest, longest) = (lengths.iter().min()?, lengths.iter().max()?);
    let share = padding_share(&lengths, config.model.chunk_size, delays(config));
    let much = share > MUCH_PADDING;
    Some(Finding {
        severity: if much { Severity::Warning } else { Severity::Note },
        code: "padding",
        message: format!(
            "chunk {} against episodes of {shortest}..{longest} frames: {:.1} % of action steps are padding and carry no loss",
            config.model.chunk_size,
            share * 100.0
        ),
        fix: much.then(|| shorter(config, (longest / 4).max(1))),
    })
}

/// What reaches too far, within `most` frames.
fn shorter(config: &TrainConfig, most: usize) -> String {
    let reach = [("model.chunk_size", config.model.chunk_size), ("train.delay.max", config.train.delay.max)];
    let long = reach.into_iter().filter(|(_, frames)| *frames > most);
    long.map(|(key, _)| format!("{key}={most}")).collect::<Vec<_>>().join(" ")
}

/// A dataset that cannot be opened has often more than one fault: lists them all, where the check finds any.
fn with_all_findings(root: &Path, config: &TrainConfig, error: TrainError) -> TrainError {
    if error.kind() != crate::error::Kind::Input || !matches!(error, TrainError::Dataset(_)) {
        return error;
    }
    let options = check::Options {
        selection: Selection {
            episodes: config.data.episodes.clone(),
            cameras: config.data.cameras.clone(),
            rename: config.data.rename.clone(),
        },
        horizon: config.model.chunk_size,
        min_range: config.normalization.min_range,
        ..check::Options::default()
    };
    let report = check::check(root, &options);
    if report.findings.iter().any(|finding| finding.severity == Severity::Error) {
        TrainError::Findings(report.findings)
    } else {
        error
    }
}

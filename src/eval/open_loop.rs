//! Open-loop errors: what a policy predicts on recorded episodes against what was done there.
//!
//! Nothing is executed, so errors do not add up and do not tell whether a task succeeds; they tell by joint and by step
//! of the chunk where a policy is off, and how that grows with the delay whose future state it is told.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::campaign::{Policies, spread};
use super::error::EvalError;
use super::report::{PolicyFacet, SCHEMA};
use super::stats::mean;
use crate::chart::{self, Axis, Frame as ChartFrame, Series};
use crate::config::ranges;
use crate::dataset::Dataset;
use crate::dataset::sample::Sample;
use crate::dataset::window::{StateRule, WindowSpec};
use crate::realtime::policy::{Continuity, PolicyFacts, Request};
use crate::robot::Frame;

/// The prefix of cameras' feature names.
const IMAGES: &str = "observation.images.";

/// What to predict.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Steps of a chunk that are compared; none: all.
    pub horizon: Option<usize>,
    /// Frames, spread evenly over the selected episodes.
    pub frames: usize,
    /// Largest delay whose future state is told; none: what the policy was trained for.
    pub delay: Option<usize>,
    pub threads: usize,
    pub seed: u64,
}

/// Errors in raw units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    pub schema: u32,
    pub dataset: String,
    pub episodes: String,
    pub frames: usize,
    pub policy: PolicyFacet,
    pub joints: Vec<String>,
    pub delays: Vec<ByDelay>,
}

/// Errors at one delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByDelay {
    pub delay: usize,
    /// Mean absolute error, `[steps][joints]`; none where every such step lies past an episode's end.
    pub error: Vec<Vec<Option<f64>>>,
    /// The same of an arm that stays in the state that the policy was told.
    pub standing: Vec<Vec<Option<f64>>>,
}

/// Sums of absolute errors by step and joint, and of a step's targets.
struct Sums {
    error: Vec<f64>,
    standing: Vec<f64>,
    targets: Vec<usize>,
}

/// Predicts chunks on `dataset`, whose selection is what was held out.
///
/// # Errors
/// A dataset that does not fit the policy, a frame that cannot be read, a failed inference.
pub fn run(dataset: &Dataset, policies: &dyn Policies, settings: &Settings) -> Result<OpenLoop, EvalError> {
    let facts = policies.facts();
    fits(dataset, facts)?;
    let horizon = settings.horizon.unwrap_or(facts.horizon).min(facts.horizon);
    let largest = settings.delay.unwrap_or(facts.trained_delay);
    // The commanded target that precedes the chunk where the state is the same quantity, as in training.
    let state = match dataset.state_dim() == dataset.action_dim() {
        true => StateRule::ActionProxy,
        false => StateRule::GroundTruth,
    };
    let window = WindowSpec { horizon, state };
    let wanted = settings.frames.clamp(1, dataset.len().max(1));
    let positions: Vec<usize> = (0..wanted).map(|i| i * dataset.len() / wanted).collect();
    let one = |position: usize| {
        let delays: Vec<usize> = (0..=largest).collect();
        let sample = dataset.branches(position, &window, delays)?;
        predict(&sample, policies, position as u64 ^ settings.seed, horizon)
    };
    let frames = spread(&positions, settings.threads, &one)?;
    let dims = facts.action_dim;
    Ok(OpenLoop {
        schema: SCHEMA,
        dataset: dataset.meta().root.display().to_string(),
        episodes: ranges::list(&dataset.episodes().iter().map(|episode| episode.meta.index).collect::<Vec<_>>()),
        frames: frames.len(),
        policy: policies.facet(),
        joints: (0..dims).map(|joint| dataset.action_feature().dimension_name(joint)).collect(),
        delays: (0..=largest).map(|delay| ByDelay::of(delay, &frames, horizon, dims)).collect(),
    })
}

/// FF-05: by name, before anything is computed.
fn fits(dataset: &Dataset, facts: &PolicyFacts) -> Result<(), EvalError> {
    let widths = [("state", dataset.state_dim(), facts.state_dim), ("action", dataset.action_dim(), facts.action_dim)];
    if let Some((what, found, expected)) = widths.into_iter().find(|(_, found, expected)| found != expected) {
        let problem = format!("the dataset's {what} has {found} values, the policy's {expected}");
        return Err(EvalError::setting(problem, "evaluate on a dataset of the robot that the policy was trained for"));
    }
    let offered: Vec<&str> = dataset.cameras().iter().map(|camera| camera.name.trim_start_matches(IMAGES)).collect();
    if let Some(missing) = facts.cameras.iter().find(|camera| !offered.contains(&camera.as_str())) {
        let problem = format!("the policy expects camera {missing}; the dataset offers [{}]", offered.join(", "));
        return Err(EvalError::setting(
            problem,
            "evaluate on a dataset with the cameras that the policy was trained with",
        ));
    }
    if dataset.is_empty() {
        return Err(EvalError::setting("no frame is selected", "--episodes 40..49"));
    }
    Ok(())
}

/// The errors of one frame, for each of its delays.
fn predict(sample: &Sample, policies: &dyn Policies, seed: u64, horizon: usize) -> Result<Vec<Sums>, EvalError> {
    let facts = policies.facts();
    let mut policy = policies.fork(seed)?;
    let images = images(sample, facts)?;
    let task: Arc<str> = sample.task.as_str().into();
    let dims = facts.action_dim.max(1);
    let branches = sample
        .state
        .chunks(facts.state_dim.max(1))
        .zip(sample.actions.chunks(dims * horizon.max(1)))
        .zip(sample.action_is_pad.chunks(horizon.max(1)));
    branches
        .map(|((state, actions), is_pad)| {
            let request = Request {
                images: images.clone(),
                state: state.to_vec(),
                task: Arc::clone(&task),
                noise_seed: seed,
                continuity: Continuity::Free,
                leftover: None,
            };
            let rollout = || format!("episode {}, frame {}", sample.episode, sample.frame);
            let chunk = policy.infer(&request).map_err(|source| EvalError::Infer { rollout: rollout(), source })?;
            let hold: Vec<f32> = (0..horizon).flat_map(|_| state.iter().copied().take(dims)).collect();
            Ok(Sums {
                error: differences(&chunk.actions, actions, is_pad, dims),
                standing: differences(&hold, actions, is_pad, dims),
                targets: is_pad.iter().map(|&pad| usize::from(!pad)).collect(),
            })
        })
        .collect()
}

fn images(sample: &Sample, facts: &PolicyFacts) -> Result<Vec<Frame>, EvalError> {
    let one = |camera: &String| {
        let found = sample.images.iter().find(|(name, _)| name.trim_start_matches(IMAGES) == camera.as_str());
        let (_, image) = found.ok_or_else(|| {
            EvalError::setting(format!("frame {} has no image of camera {camera}", sample.index), "vlash data check")
        })?;
        Ok(Frame { captured: Duration::ZERO, sequence: sample.index as u64, image: Arc::clone(image) })
    };
    facts.cameras.iter().map(one).collect()
}

/// `|predicted − done|`, `[steps, dims]`; 0 past the episode's end.
fn differences(predicted: &[f32], done: &[f32], is_pad: &[bool], dims: usize) -> Vec<f64> {
    let counts = is_pad.iter().flat_map(|&pad| std::iter::repeat_n(!pad, dims));
    let pairs = predicted.iter().zip(done).zip(counts);
    pairs.map(|((p, d), counts)| if counts { (f64::from(*p) - f64::from(*d)).abs() } else { 0.0 }).collect()
}

impl ByDelay {
    fn of(delay: usize, frames: &[Vec<Sums>], horizon: usize, dims: usize) -> ByDelay {
        let all = || frames.iter().filter_map(|branches| branches.get(delay));
        let by_step = |values: &dyn Fn(&Sums) -> &[f64]| -> Vec<Vec<Option<f64>>> {
            let cell = |step: usize, joint: usize| {
                let targets: usize = all().filter_map(|sums| sums.targets.get(step)).sum();
                let sum: f64 = all().filter_map(|sums| values(sums).get(step * dims + joint)).sum();
                (targets > 0).then(|| sum / targets as f64)
            };
            (0..horizon).map(|step| (0..dims).map(|joint| cell(step, joint)).collect()).collect()
        };
        ByDelay { delay, error: by_step(&|sums| &sums.error), standing: by_step(&|sums| &sums.standing) }
    }
}

/// The mean over steps of one joint's column, or over everything.
fn over(table: &[Vec<Option<f64>>], joint: Option<usize>) -> Option<f64> {
    let of = |row: &Vec<Option<f64>>| -> Vec<f64> {
        row.iter().enumerate().filter(|(at, _)| joint.is_none_or(|j| j == *at)).filter_map(|(_, v)| *v).collect()
    };
    mean(&table.iter().flat_map(of).collect::<Vec<_>>())
}

impl OpenLoop {
    /// By joint and delay, over all steps; below it by step.
    pub fn markdown(&self) -> String {
        let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
        let mut text = format!(
            "open loop: {} frames of episodes {} of {}; policy {} ({})\nmean absolute error, raw units\n\n",
            self.frames,
            self.episodes.trim_matches(['"', '[', ']']),
            self.dataset,
            self.policy.name,
            self.policy.digest.get(..12).unwrap_or(&self.policy.digest)
        );
        let row = |name: &str, values: Vec<String>| format!("| {name:<16} | {} |\n", values.join(" | "));
        let head = self.delays.iter().map(|by| format!("delay {}", by.delay)).chain(["standing still".into()]);
        text.push_str(&row("joint", head.collect()));
        text.push_str(&format!("|:---|{}\n", "---:|".repeat(self.delays.len() + 1)));
        let joints = self.joints.iter().enumerate().map(|(at, name)| (name.as_str(), Some(at))).chain([("all", None)]);
        for (name, joint) in joints {
            let errors = self.delays.iter().map(|by| number(over(&by.error, joint)));
            let standing = self.delays.first().map(|by| number(over(&by.standing, joint)));
            text.push_str(&row(name, errors.chain(standing).collect()));
        }
        text.push_str("\nby step, all joints\n\n");
        for step in self.shown_steps() {
            let at = |table: &[Vec<Option<f64>>]| table.get(step).and_then(|row| over(std::slice::from_ref(row), None));
            let errors = self.delays.iter().map(|by| number(at(&by.error)));
            let standing = self.delays.first().map(|by| number(at(&by.standing)));
            text.push_str(&row(&format!("step {step}"), errors.chain(standing).collect()));
        }
        text
    }

    /// At most ten, the first and the last among them.
    fn shown_steps(&self) -> Vec<usize> {
        let steps = self.delays.first().map_or(0, |by| by.error.len());
        let mut shown: Vec<usize> = (0..10).map(|i| i * steps.saturating_sub(1) / 9).collect();
        shown.dedup();
        shown.retain(|&step| step < steps);
        shown
    }

    /// Error by step of the chunk, a line a joint, of an observation that is fresh.
    pub fn by_joint(&self) -> String {
        let Some(fresh) = self.delays.first() else { return String::new() };
        let series = self.joints.iter().enumerate().map(|(joint, name)| {
            let points = fresh.error.iter().enumerate();
            let point = |(step, row): (usize, &Vec<Option<f64>>)| Some([step as f64, (*row.get(joint)?)?]);
            Series { name: name.clone(), points: points.filter_map(point).collect(), band: None }
        });
        self.draw("Open-loop error by joint, delay 0", series.collect())
    }

    /// Error by step of the chunk, a line a delay, mean over joints.
    pub fn by_delay(&self) -> String {
        let points = |table: &[Vec<Option<f64>>]| {
            let mean =
                |(step, row): (usize, &Vec<Option<f64>>)| Some([step as f64, over(std::slice::from_ref(row), None)?]);
            table.iter().enumerate().filter_map(mean).collect::<Vec<_>>()
        };
        let errors = self.delays.iter().map(|by| (format!("delay {}", by.delay), points(&by.error)));
        let standing = self.delays.first().map(|by| ("standing still".to_string(), points(&by.standing)));
        let series = errors.chain(standing).map(|(name, points)| Series { name, points, band: None });
        self.draw("Open-loop error by delay, mean over joints", series.collect())
    }

    fn draw(&self, title: &str, series: Vec<Series>) -> String {
        let (x, y) = (Axis::new("step of the chunk"), Axis::new("mean absolute error (rad, m)").at_least(0.0, 0.0));
        chart::lines(&ChartFrame::new(title, x, y), &series)
    }
}

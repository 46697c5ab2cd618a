//! Whether an action can stand for the state that follows it: what temporal delay augmentation by default assumes.

use super::meta::Feature;
use super::reader::{Dataset, row};
use super::stats::FeatureStats;
use super::window::WindowError;

/// How far actions lie from the states that follow them, per joint.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyReport {
    /// `mean |a(t−1) − s(t)|` over the joint's range (of state and action together); 0 for a joint that never moves.
    pub ratios: Vec<f64>,
    /// Mean of `ratios` over the joints that move.
    pub mean_ratio: f64,
    /// Share of action values outside of the state's q01 … q99 (they are normalised with the state's statistics).
    pub outside: f64,
}

/// Above this mean ratio the actions are no positions that the state follows.
///
/// Absolute targets of the recordings at hand give 0.01 (simulated) to 0.08 (a humanoid under gravity, single joints
/// up to 0.25); differences instead of positions give 0.25 and more, values of another unit up to 1.
pub const LIMIT: f64 = 0.15;

impl ProxyReport {
    /// Measures over the selected frames. State and action must have the same number of dimensions.
    pub fn measure(dataset: &Dataset, state: &FeatureStats) -> Result<ProxyReport, WindowError> {
        let width = dataset.action_dim();
        if dataset.state_dim() != width {
            return Err(WindowError::ProxyDimensions { state: dataset.state_dim(), action: width });
        }
        let rows = dataset.episodes().iter().map(|episode| (&*episode.rows.state, &*episode.rows.action));
        Ok(ProxyReport::of_episodes(rows, width, state))
    }

    /// Measures over episodes, each given as states and actions, both `[frames, width]` row-major.
    pub fn of_episodes<'a>(
        episodes: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
        width: usize,
        state: &FeatureStats,
    ) -> ProxyReport {
        let mut joints = vec![Joint::default(); width];
        for (states, actions) in episodes.clone() {
            for frame in 0..states.len() / width.max(1) {
                let before = frame.checked_sub(1).map(|before| row(actions, width, before));
                let (state, action) = (row(states, width, frame), row(actions, width, frame));
                for (at, ((joint, &s), &a)) in joints.iter_mut().zip(state).zip(action).enumerate() {
                    joint.take(s.into(), a.into(), before.and_then(|row| row.get(at)).map(|&a| a.into()));
                }
            }
        }
        let ratios: Vec<f64> = joints.iter().map(Joint::ratio).collect();
        let moving: Vec<f64> = joints.iter().filter(|joint| joint.range() > 0.0).map(Joint::ratio).collect();
        let mean_ratio = moving.iter().sum::<f64>() / moving.len().max(1) as f64;
        ProxyReport { ratios, mean_ratio, outside: outside(episodes.map(|(_, actions)| actions), state) }
    }

    /// Refuses actions that are no positions.
    pub fn check(&self, action: &Feature) -> Result<(), WindowError> {
        if self.mean_ratio <= LIMIT {
            return Ok(());
        }
        let worst = self.ratios.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let worst = worst.map(|(at, ratio)| format!("{} {ratio:.2}", action.dimension_name(at))).unwrap_or_default();
        Err(WindowError::ProxyFar { mean_ratio: self.mean_ratio, limit: LIMIT, worst })
    }
}

#[derive(Debug, Clone)]
struct Joint {
    low: f64,
    high: f64,
    difference: f64,
    pairs: u64,
}

impl Default for Joint {
    fn default() -> Joint {
        Joint { low: f64::INFINITY, high: f64::NEG_INFINITY, difference: 0.0, pairs: 0 }
    }
}

impl Joint {
    fn take(&mut self, state: f64, action: f64, action_before: Option<f64>) {
        self.low = self.low.min(state).min(action);
        self.high = self.high.max(state).max(action);
        if let Some(before) = action_before {
            self.difference += (before - state).abs();
            self.pairs += 1;
        }
    }

    fn range(&self) -> f64 {
        self.high - self.low
    }

    fn ratio(&self) -> f64 {
        if self.range() > 0.0 { self.difference / self.pairs.max(1) as f64 / self.range() } else { 0.0 }
    }
}

fn outside<'a>(actions: impl Iterator<Item = &'a [f32]>, state: &FeatureStats) -> f64 {
    let (Some(low), Some(high)) = (&state.q01, &state.q99) else { return 0.0 };
    let bounds: Vec<(f64, f64)> = low.iter().copied().zip(high.iter().copied()).collect();
    let (mut out, mut all) = (0u64, 0u64);
    for actions in actions {
        for values in actions.chunks_exact(bounds.len().max(1)) {
            let beyond = |&(&value, &(low, high)): &(&f32, &(f64, f64))| !(low..=high).contains(&f64::from(value));
            out += values.iter().zip(&bounds).filter(beyond).count() as u64;
            all += values.len() as u64;
        }
    }
    out as f64 / all.max(1) as f64
}

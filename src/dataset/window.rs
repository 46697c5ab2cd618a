//! Which frames a sample is made of: pure index arithmetic.
//!
//! Frame t of an episode of `length` frames, delay offset o, horizon H (VLASH, arXiv 2512.01031, temporal delay
//! augmentation; the rules are those of its public code of April 2026):
//!
//! * images and task: frame t, whatever the delay;
//! * action k of the window: frame `min(t + o + k, length − 1)`, padding where `t + o + k ≥ length`;
//! * state: frame t for o = 0; else, by [`StateRule`], the action of frame `min(t + o − 1, length − 1)` or the state of
//!   frame `min(t + o, length − 1)`.

use thiserror::Error;

use super::finding::{Finding, Severity};
use crate::error::{Explain, Kind};

/// Where the state of a delayed sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateRule {
    /// The action that precedes the window: what the arm has been told by then.
    ActionProxy,
    /// The state recorded when the window begins.
    GroundTruth,
}

/// The shape of a sample's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    /// Action steps H.
    pub horizon: usize,
    pub state: StateRule,
}

/// Which delays of a frame are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delays {
    /// One a sample, drawn uniformly from those up to `max` that leave its window a step inside the episode.
    Drawn { max: usize },
    /// All of `0..=max` in order, as branches of one sample; those past the episode's end are padding.
    All { max: usize },
}

/// A value to take from an episode, by frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSource {
    State(usize),
    Action(usize),
}

/// A frame within an episode, and whether the one asked for lies outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub frame: usize,
    pub is_pad: bool,
}

/// Why a window cannot be had from a dataset.
#[derive(Debug, Error, PartialEq)]
pub enum WindowError {
    #[error("delayed states cannot be taken from actions: the state has {state} dimensions, the action {action}")]
    ProxyDimensions { state: usize, action: usize },

    #[error(
        "delayed states cannot be taken from actions: the mean difference between an action and the state that follows \
         is {mean_ratio:.2} of the joints' range (limit {limit}); worst: {worst}"
    )]
    ProxyFar { mean_ratio: f64, limit: f64, worst: String },

    #[error(
        "offset {delta} s of {feature} lies {off:.4} s beside the nearest frame at {fps} fps (tolerance {tolerance_s} s)"
    )]
    OffGrid { feature: String, delta: f64, off: f64, fps: u32, tolerance_s: f64 },
}

impl Explain for WindowError {
    fn kind(&self) -> Kind {
        Kind::Input
    }

    fn hint(&self) -> Option<String> {
        match self {
            WindowError::ProxyDimensions { .. } => Some("set train.delay.ground_truth = true".into()),
            WindowError::ProxyFar { .. } => Some(
                "set train.delay.ground_truth = true (the actions look like differences, or have another unit than the state)"
                    .into(),
            ),
            WindowError::OffGrid { .. } => Some("give offsets that are multiples of 1/fps, or raise data.tolerance_s".into()),
        }
    }
}

impl WindowSpec {
    /// Refuses the action proxy where state and action cannot be the same quantity.
    pub fn check(&self, state_dim: usize, action_dim: usize, max_delay: usize) -> Result<(), WindowError> {
        if max_delay > 0 && self.state == StateRule::ActionProxy && state_dim != action_dim {
            return Err(WindowError::ProxyDimensions { state: state_dim, action: action_dim });
        }
        Ok(())
    }

    /// The action steps of frame `t` with delay `delay`, in order.
    pub fn actions(&self, t: usize, delay: usize, length: usize) -> impl Iterator<Item = Step> + use<> {
        let first = t.saturating_add(delay);
        (0..self.horizon).map(move |k| {
            let frame = first.saturating_add(k);
            Step { frame: frame.min(length.saturating_sub(1)), is_pad: frame >= length }
        })
    }

    /// What to give as the state of frame `t` with delay `delay`.
    pub fn state(&self, t: usize, delay: usize, length: usize) -> StateSource {
        let last = length.saturating_sub(1);
        match (delay, self.state) {
            (0, _) => StateSource::State(t.min(last)),
            (delay, StateRule::ActionProxy) => StateSource::Action(t.saturating_add(delay - 1).min(last)),
            (delay, StateRule::GroundTruth) => StateSource::State(t.saturating_add(delay).min(last)),
        }
    }
}

/// The largest delay of at most `max_delay` that leaves frame `t` a step inside the episode (FF-04).
pub fn largest_delay(t: usize, length: usize, max_delay: usize) -> usize {
    max_delay.min(length.saturating_sub(1).saturating_sub(t))
}

impl Delays {
    /// The largest delay that a sample of frame `t` may have.
    fn largest(self, t: usize, length: usize) -> usize {
        match self {
            Delays::Drawn { max } => largest_delay(t, length, max),
            Delays::All { max } => max,
        }
    }
}

/// The share of action steps that are padding, over episodes of these lengths.
pub fn padding_share(lengths: &[usize], horizon: usize, trained: Delays) -> f64 {
    let mut padded = 0.0;
    let mut frames = 0.0;
    for &length in lengths {
        for t in 0..length {
            let delays = trained.largest(t, length);
            // Steps past the end grow by one a frame of delay, from the first delay at which there are any to all steps.
            let past = |delay: usize| (t + delay + horizon).saturating_sub(length).min(horizon);
            // From the episode's end on all of them are.
            let inside = delays.min(length - t);
            let sum: f64 = (0..=inside).map(|delay| past(delay) as f64).sum();
            let outside = (delays - inside) as f64;
            padded += (sum + outside * horizon as f64) / (delays as f64 + 1.0);
        }
        frames += length as f64;
    }
    if frames == 0.0 || horizon == 0 { 0.0 } else { padded / (frames * horizon as f64) }
}

/// How much of the action windows is padding: a note, and a warning from where most of a policy's targets would be.
pub fn padding_finding(lengths: &[usize], horizon: usize, max_delay: usize) -> Finding {
    const WARN_ABOVE: f64 = 0.4;
    let share = padding_share(lengths, horizon, Delays::Drawn { max: max_delay });
    let (shortest, longest) = (lengths.iter().min().unwrap_or(&0), lengths.iter().max().unwrap_or(&0));
    let heavy = share > WARN_ABOVE;
    Finding {
        severity: if heavy { Severity::Warning } else { Severity::Note },
        code: "padding-share",
        message: format!(
            "chunk {horizon} against episodes of {shortest}..{longest} frames: {:.1} % of action steps are padding and \
             carry no loss",
            share * 100.0
        ),
        fix: heavy.then(|| format!("model.chunk_size = {}", (shortest / 2).max(1))),
    }
}

/// Time offsets of `feature` in whole frames. An offset may lie `tolerance_s` beside the frame's time.
pub fn offsets_in_frames(feature: &str, deltas: &[f64], fps: u32, tolerance_s: f64) -> Result<Vec<i64>, WindowError> {
    let rate = f64::from(fps);
    deltas
        .iter()
        .map(|&delta| {
            let frames = (delta * rate).round();
            let off = (delta * rate - frames).abs() / rate;
            if off <= tolerance_s && frames.abs() < 1e15 {
                Ok(frames as i64)
            } else {
                Err(WindowError::OffGrid { feature: feature.to_owned(), delta, off, fps, tolerance_s })
            }
        })
        .collect()
}

/// Frame `t + offset`, clamped to the episode.
pub fn shifted(t: usize, offset: i64, length: usize) -> Step {
    let wanted = i64::try_from(t).unwrap_or(i64::MAX).saturating_add(offset);
    let last = i64::try_from(length.saturating_sub(1)).unwrap_or(i64::MAX);
    let frame = wanted.clamp(0, last);
    Step { frame: usize::try_from(frame).unwrap_or(0), is_pad: wanted != frame }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_reference() {
        // Horizon 6, frame 10 of a 12-frame episode, delay 4.
        let spec = |state| WindowSpec { horizon: 6, state };
        let steps: Vec<Step> = spec(StateRule::ActionProxy).actions(10, 4, 12).collect();
        assert!(steps.iter().all(|step| *step == Step { frame: 11, is_pad: true }));
        assert_eq!(spec(StateRule::ActionProxy).state(10, 4, 12), StateSource::Action(11));
        assert_eq!(spec(StateRule::GroundTruth).state(10, 4, 12), StateSource::State(11));
        assert_eq!(largest_delay(10, 12, 4), 1);
    }

    #[test]
    fn offsets_beside_the_grid_are_refused() {
        assert_eq!(offsets_in_frames("action", &[-1.0 / 30.0, 0.0, 0.06666], 30, 1e-4), Ok(vec![-1, 0, 2]));
        let error = offsets_in_frames("action", &[0.05], 30, 1e-4).unwrap_err();
        assert!(error.to_string().starts_with("offset 0.05 s of action lies 0.0167 s beside"), "{error}");
        assert!(offsets_in_frames("action", &[f64::NAN, f64::INFINITY], 30, 1e-4).is_err());
    }

    #[test]
    fn padding_of_a_long_chunk_on_short_episodes() {
        // An episode of 60 and a chunk of 50: the last 49 frames miss 1, 2, … 49 steps.
        let share = padding_share(&[60], 50, Delays::Drawn { max: 0 });
        assert!((share - (49.0 * 50.0 / 2.0) / (60.0 * 50.0)).abs() < 1e-12);
        assert_eq!(padding_share(&[1], 1, Delays::Drawn { max: 8 }), 0.0);
        assert_eq!(padding_share(&[1], 1, Delays::All { max: 8 }), 8.0 / 9.0);
        // Two frames, each with its own step at delay 0 and the first also at delay 1; without a pass over all delays.
        assert_eq!(padding_share(&[2], 1, Delays::All { max: 3 }), 5.0 / 8.0);
        assert_eq!(padding_share(&[2], 1, Delays::All { max: usize::MAX }), 1.0);
        let note = padding_finding(&[60, 340], 50, 0);
        assert_eq!(note.severity, Severity::Note);
        assert_eq!(
            note.message,
            "chunk 50 against episodes of 60..340 frames: 12.2 % of action steps are padding and carry no loss"
        );
        assert_eq!(padding_finding(&[30], 50, 0).severity, Severity::Warning);
    }

    proptest! {
        #[test]
        fn windows_stay_inside_and_sampled_delays_keep_a_step(
            length in 1usize..50, at in any::<prop::sample::Index>(), max_delay in 0usize..12, horizon in 1usize..20,
        ) {
            let t = at.index(length);
            let spec = WindowSpec { horizon, state: StateRule::ActionProxy };
            for delay in 0..=largest_delay(t, length, max_delay) {
                let steps: Vec<Step> = spec.actions(t, delay, length).collect();
                prop_assert!(steps.iter().all(|step| step.frame < length));
                prop_assert!(!steps[0].is_pad);
            }
            let beyond = largest_delay(t, length, max_delay) + 1;
            if beyond <= max_delay {
                prop_assert!(spec.actions(t, beyond, length).all(|step| step.is_pad));
            }
        }
    }
}

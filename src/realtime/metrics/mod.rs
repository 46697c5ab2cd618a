//! What a rollout measured: every figure of a rollout's report, exact, from what each tick and each chunk was.
//!
//! A [`Recorder`] keeps every value (memory for the expected number of ticks is taken at the start, so that a tick does not
//! allocate); [`Recorder::summary`] computes the [`Metrics`]. Lengths of joint vectors count in the joints' own units (rad,
//! m); where several joints make one figure, grippers are left out.

mod distribution;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::distribution::Distribution;
use super::policy::Timing;
use crate::track::telemetry::Origin;

/// One tick.
#[derive(Debug, Clone, Copy)]
pub struct TickFacts<'a> {
    /// When the command was sent.
    pub time: Duration,
    /// Control ticks that were passed over just before.
    pub missed: u32,
    /// None: the arm was not under the policy (disarmed, held by the operator, approaching its start).
    pub origin: Option<Origin>,
    /// Whether the command is the first of another chunk.
    pub spliced: bool,
    pub clipped: bool,
    pub command: &'a [f32],
    /// Measured in this tick, before the command.
    pub state: &'a [f32],
    /// Age of the oldest image behind the action.
    pub image_age: Option<Duration>,
}

/// Steps of one joint where chunks meet, against steps inside of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Boundary {
    pub joint: String,
    /// Median of |step| inside of chunks, rad or m a tick.
    pub median_step: f64,
    /// |first command of a chunk − last of the one before|.
    pub jump: Distribution,
    /// |that step − the step before it|.
    pub velocity_jump: Distribution,
}

/// Every figure of a rollout. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    pub fps: f64,
    pub seconds: f64,
    pub ticks: u64,
    /// Launch → chunk on the host, and its parts as the policy told them.
    pub latency_ms: Distribution,
    pub preprocess_ms: Distribution,
    pub prefix_ms: Distribution,
    pub denoise_ms: Distribution,
    pub copy_ms: Distribution,
    /// Between commands, and |period − 1/fps|.
    pub period_ms: Distribution,
    pub jitter_ms: Distribution,
    /// Ticks of the absolute schedule that were passed over.
    pub missed_ticks: u64,
    pub chunks: u64,
    /// Chunks that were not there at their planned tick; that came too late to be used; that the filter rejected or whose
    /// inference failed.
    pub late_chunks: u64,
    pub discarded_chunks: u64,
    pub rejected_chunks: u64,
    pub held_ticks: u64,
    pub continued_ticks: u64,
    pub clipped_ticks: u64,
    /// Ticks in which the arm was not under the policy: held by the watchdog or the operator, on its way to a far start or
    /// to its rest pose.
    pub inactive_ticks: u64,
    /// Ticks under the policy without a fresh action, of all ticks under the policy.
    pub idle_fraction: f64,
    pub observation_age_ms: Distribution,
    pub boundaries: Vec<Boundary>,
    /// Largest jump of a joint, by splice.
    pub boundary_jump: Distribution,
    /// Root of the mean square of the third derivative of the commands, rad/s³.
    pub jerk_rms: f64,
    /// Changes of direction of the commands, all joints together.
    pub sign_changes: u64,
    /// Largest difference of a joint between the state and the command before it, by tick.
    pub tracking_error: Distribution,
    /// Largest difference of a joint between the state that the policy was told and the measured one at its chunk's splice.
    pub state_error: Distribution,
}

/// Commands of the last three ticks under the policy, newest last.
#[derive(Debug, Clone)]
struct History {
    commands: [Vec<f32>; 3],
    known: usize,
}

impl History {
    fn push(&mut self, command: &[f32]) {
        self.commands.rotate_left(1);
        if let Some(newest) = self.commands.last_mut() {
            newest.clear();
            newest.extend_from_slice(command);
        }
        self.known = (self.known + 1).min(3);
    }
}

/// Accumulates a rollout.
#[derive(Debug, Clone)]
pub struct Recorder {
    joints: Vec<String>,
    rotary: Vec<bool>,
    fps: f64,
    first: Option<Duration>,
    last: Option<Duration>,
    history: History,
    /// The sign of each joint's last movement.
    direction: Vec<f32>,
    active: u64,
    idle: u64,
    jerk_squares: f64,
    jerk_count: u64,
    latency: [Vec<f64>; 5],
    periods: Vec<f64>,
    ages: Vec<f64>,
    steps: Vec<Vec<f32>>,
    jumps: Vec<Vec<f64>>,
    velocity_jumps: Vec<Vec<f64>>,
    largest_jumps: Vec<f64>,
    tracking: Vec<f64>,
    state_errors: Vec<f64>,
    counted: Metrics,
}

impl Recorder {
    /// For `expected` ticks at `fps`; more are recorded too, with allocations now and then. `grippers` are not angles.
    pub fn new(joints: &[String], grippers: &[usize], fps: f64, expected: usize) -> Recorder {
        let count = joints.len();
        let room = |length: usize| Vec::with_capacity(length);
        let splices = expected / 2 + 1;
        Recorder {
            joints: joints.to_vec(),
            rotary: (0..count).map(|joint| !grippers.contains(&joint)).collect(),
            fps,
            first: None,
            last: None,
            history: History { commands: std::array::from_fn(|_| Vec::with_capacity(count)), known: 0 },
            direction: vec![0.0; count],
            active: 0,
            idle: 0,
            jerk_squares: 0.0,
            jerk_count: 0,
            latency: std::array::from_fn(|_| room(splices)),
            periods: room(expected),
            ages: room(expected),
            steps: (0..count).map(|_| Vec::with_capacity(expected)).collect(),
            jumps: (0..count).map(|_| room(splices)).collect(),
            velocity_jumps: (0..count).map(|_| room(splices)).collect(),
            largest_jumps: room(splices),
            tracking: room(expected),
            state_errors: room(splices),
            counted: Metrics { fps, ..Metrics::default() },
        }
    }

    /// A tick.
    pub fn tick(&mut self, tick: &TickFacts<'_>) {
        if let Some(last) = self.last {
            self.periods.push(milliseconds(tick.time.saturating_sub(last)));
        }
        self.first.get_or_insert(tick.time);
        self.last = Some(tick.time);
        self.counted.ticks += 1;
        self.counted.missed_ticks += u64::from(tick.missed);
        let Some(origin) = tick.origin else {
            self.counted.inactive_ticks += 1;
            self.history.known = 0;
            return;
        };
        self.active += 1;
        self.idle += u64::from(origin != Origin::Fresh);
        self.counted.held_ticks += u64::from(origin == Origin::Hold);
        self.counted.continued_ticks += u64::from(origin == Origin::Continued);
        self.counted.clipped_ticks += u64::from(tick.clipped);
        if let Some(age) = tick.image_age {
            self.ages.push(milliseconds(age));
        }
        self.movement(tick);
        self.history.push(tick.command);
    }

    /// Steps, jumps, jerk, direction and tracking, against the commands before.
    fn movement(&mut self, tick: &TickFacts<'_>) {
        let [older, old, last] = &self.history.commands;
        let known = self.history.known;
        if known == 0 {
            return;
        }
        let at = |command: &[f32], joint: usize| command.get(joint).copied().unwrap_or(f32::NAN);
        let (mut largest, mut furthest) = (0.0f64, 0.0f64);
        for joint in 0..self.joints.len() {
            let rotary = self.rotary.get(joint).copied().unwrap_or(false);
            let (now, before) = (at(tick.command, joint), at(last, joint));
            let step = now - before;
            if rotary {
                furthest = furthest.max(f64::from((at(tick.state, joint) - before).abs()));
            }
            if !tick.spliced {
                self.steps.get_mut(joint).into_iter().for_each(|steps| steps.push(step.abs()));
            } else {
                self.jumps.get_mut(joint).into_iter().for_each(|jumps| jumps.push(f64::from(step.abs())));
                largest = if rotary { largest.max(f64::from(step.abs())) } else { largest };
                if known > 1 {
                    let change = f64::from((step - (before - at(old, joint))).abs());
                    self.velocity_jumps.get_mut(joint).into_iter().for_each(|jumps| jumps.push(change));
                }
            }
            if rotary && known > 2 {
                let third = f64::from(now) - 3.0 * f64::from(before) + 3.0 * f64::from(at(old, joint));
                let jerk = (third - f64::from(at(older, joint))) * self.fps.powi(3);
                self.jerk_squares += jerk * jerk;
                self.jerk_count += 1;
            }
            if let Some(direction) = self.direction.get_mut(joint).filter(|_| step != 0.0) {
                self.counted.sign_changes += u64::from(*direction * step < 0.0);
                *direction = step.signum();
            }
        }
        self.tracking.push(furthest);
        if tick.spliced {
            self.largest_jumps.push(largest);
        }
    }

    /// An inference gave a chunk after `latency`.
    pub fn inference(&mut self, latency: Duration, timing: &Timing) {
        let parts = [latency, timing.preprocess, timing.prefix, timing.denoise, timing.copy];
        self.latency.iter_mut().zip(parts).for_each(|(values, part)| values.push(milliseconds(part)));
    }

    /// A chunk began: the policy had been told `told`, the arm is at `measured`.
    pub fn spliced(&mut self, told: &[f32], measured: &[f32]) {
        self.counted.chunks += 1;
        self.state_errors.push(f64::from(largest_difference(told, measured, &self.rotary)));
    }

    pub fn late_chunk(&mut self) {
        self.counted.late_chunks += 1;
    }

    pub fn discarded_chunk(&mut self) {
        self.counted.discarded_chunks += 1;
    }

    pub fn rejected_chunk(&mut self) {
        self.counted.rejected_chunks += 1;
    }

    /// What was only counted so far: without distributions.
    pub fn counted(&self) -> &Metrics {
        &self.counted
    }

    /// Latencies in milliseconds, in order: for a histogram.
    pub fn latencies(&self) -> &[f64] {
        &self.latency[0]
    }

    /// Periods between commands in milliseconds, in order.
    pub fn periods(&self) -> &[f64] {
        &self.periods
    }

    /// Everything.
    pub fn summary(&self) -> Metrics {
        let wanted = 1e3 / self.fps;
        let jitter: Vec<f64> = self.periods.iter().map(|period| (period - wanted).abs()).collect();
        let [latency_ms, preprocess_ms, prefix_ms, denoise_ms, copy_ms] = std::array::from_fn(|part| {
            self.latency.get(part).map(|values| Distribution::of(values)).unwrap_or_default()
        });
        let seconds = self.last.unwrap_or_default().saturating_sub(self.first.unwrap_or_default());
        Metrics {
            seconds: seconds.as_secs_f64(),
            latency_ms,
            preprocess_ms,
            prefix_ms,
            denoise_ms,
            copy_ms,
            period_ms: Distribution::of(&self.periods),
            jitter_ms: Distribution::of(&jitter),
            idle_fraction: if self.active == 0 { 0.0 } else { self.idle as f64 / self.active as f64 },
            observation_age_ms: Distribution::of(&self.ages),
            boundaries: self.boundaries(),
            boundary_jump: Distribution::of(&self.largest_jumps),
            jerk_rms: if self.jerk_count == 0 { 0.0 } else { (self.jerk_squares / self.jerk_count as f64).sqrt() },
            tracking_error: Distribution::of(&self.tracking),
            state_error: Distribution::of(&self.state_errors),
            ..self.counted.clone()
        }
    }

    fn boundaries(&self) -> Vec<Boundary> {
        let joints = self.joints.iter().zip(&self.steps).zip(self.jumps.iter().zip(&self.velocity_jumps));
        joints
            .map(|((joint, steps), (jumps, velocity_jumps))| {
                let steps: Vec<f64> = steps.iter().map(|&step| f64::from(step)).collect();
                Boundary {
                    joint: joint.clone(),
                    median_step: Distribution::of(&steps).p50,
                    jump: Distribution::of(jumps),
                    velocity_jump: Distribution::of(velocity_jumps),
                }
            })
            .collect()
    }
}

/// The largest |a − b| of the values that `counts` names.
pub(super) fn largest_difference(a: &[f32], b: &[f32], counts: &[bool]) -> f32 {
    let differences = a.iter().zip(b).zip(counts).filter(|(_, counts)| **counts).map(|((a, b), _)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

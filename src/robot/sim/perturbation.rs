//! Disturbed execution for demonstrations: the arm is led astray, and the expert shows how to come back.
//!
//! A policy that has only seen flawless motion does not know what to do a centimetre beside it. So what is executed gets
//! noise while what is recorded stays the expert's (disturbances for augmenting robot trajectories, DART,
//! arXiv 1703.09327).

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Standard deviation of the noise a tick at level 1, by joint: radians. The gripper obeys.
const NOISE: [f32; 6] = [0.005, 0.004, 0.004, 0.003, 0.004, 0.003];
/// Chance of a push in a tick at level 1, how long it lasts in ticks, and its strength a tick in radians.
const PUSH_CHANCE: f64 = 1.0 / 45.0;
const PUSH_TICKS: std::ops::Range<u32> = 3..8;
const PUSH: [f32; 6] = [0.03, 0.025, 0.025, 0.008, 0.02, 0.008];

/// A stream of disturbances.
#[derive(Debug)]
pub struct Perturbation {
    random: ChaCha8Rng,
    level: f32,
    push: [f32; 6],
    left: u32,
}

impl Perturbation {
    /// A function of the seed; `level` 0 disturbs nothing, 1 is what demonstrations are recorded with.
    pub fn new(seed: u64, level: f32) -> Perturbation {
        let random = crate::random::stream(seed, "sim/perturbation", &[]);
        Perturbation { random, level, push: [0.0; 6], left: 0 }
    }

    /// What is executed instead of `command` in this tick.
    pub fn apply(&mut self, command: &[f32; 7]) -> [f32; 7] {
        let mut executed = *command;
        if self.level <= 0.0 {
            return executed;
        }
        if self.left == 0 && self.random.random_bool((PUSH_CHANCE * f64::from(self.level)).min(1.0)) {
            self.left = self.random.random_range(PUSH_TICKS);
            self.push = PUSH.map(|most| self.random.random_range(-most..most));
        }
        let pushing = if self.left > 0 { 1.0 } else { 0.0 };
        self.left = self.left.saturating_sub(1);
        for (joint, value) in executed.iter_mut().take(6).enumerate() {
            let noise: f32 = StandardNormal.sample(&mut self.random);
            *value += self.level * (NOISE[joint] * noise + pushing * self.push[joint]);
        }
        executed
    }
}

//! Disturbed execution for demonstrations: the arm is led astray, and the expert shows how to come back.
//!
//! A policy that has only seen flawless motion does not know what to do a centimetre beside it. So what is executed gets
//! noise while what is recorded stays the expert's (disturbances for augmenting robot trajectories, DART,
//! arXiv 1703.09327).

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Standard deviation of the noise a tick at level 1, by joint: radians.
const NOISE: [f32; 6] = [0.005, 0.004, 0.004, 0.003, 0.004, 0.003];
/// Chance of a push in a tick at level 1, how long it lasts in ticks, and its strength a tick in radians.
const PUSH_CHANCE: f64 = 1.0 / 45.0;
const PUSH_TICKS: std::ops::Range<u32> = 3..8;
const PUSH: [f32; 6] = [0.03, 0.025, 0.025, 0.008, 0.02, 0.008];

/// Chance in a tick at level 1 that the fingers go somewhere else, for how long in ticks, and where to in metres: what
/// closes without the ball has to open again, what lets go has to go back.
const SLIP_CHANCE: f64 = 1.0 / 110.0;
const SLIP_TICKS: std::ops::Range<u32> = 5..12;
const SLIP: std::ops::Range<f32> = 0.03..0.07;

/// A stream of disturbances.
#[derive(Debug)]
pub struct Perturbation {
    random: ChaCha8Rng,
    level: f32,
    push: [f32; 6],
    left: u32,
    /// Opening that the fingers go to, and for how many ticks.
    slip: (f32, u32),
}

impl Perturbation {
    /// A function of the seed; `level` 0 disturbs nothing; demonstrations begin after levels of 1 and 1.5.
    pub fn new(seed: u64, level: f32) -> Perturbation {
        let random = crate::random::stream(seed, "sim/perturbation", &[]);
        Perturbation { random, level, push: [0.0; 6], left: 0, slip: (0.0, 0) }
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
        if self.slip.1 == 0 && self.random.random_bool((SLIP_CHANCE * f64::from(self.level)).min(1.0)) {
            self.slip = (self.random.random_range(SLIP), self.random.random_range(SLIP_TICKS));
        }
        if self.slip.1 > 0 {
            self.slip.1 -= 1;
            executed[6] = self.slip.0;
        }
        executed
    }
}

//! One episode of the simulated task, played by the expert.

use crate::dataset::frame::RgbFrame;
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::world::FPS;
use crate::robot::sim::{Expert, Outcome, Perturbation, Setup, World};

/// What is recorded of one control tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Measured joints before the action: radians, metres.
    pub state: [f32; 7],
    /// The expert's command. What was executed may differ, by disturbance.
    pub action: [f32; 7],
    /// In the order of [`Camera::ALL`].
    pub images: Vec<RgbFrame>,
}

/// A played episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Demonstration {
    pub steps: Vec<Step>,
    pub outcome: Outcome,
}

/// Ticks that are recorded after success: the hand on its way home.
const AFTER: usize = 8;

/// Plays the episode of `setup` with disturbed execution of `noise` (0: none), for at most `seconds`, and draws what the
/// cameras see in `size` × `size` pixels. A function of its arguments.
pub fn play(setup: &Setup, noise: f32, seconds: f64, size: usize) -> Demonstration {
    let mut world = World::new(setup);
    let mut disturbed = Perturbation::new(setup.seed, noise);
    let (mut steps, mut after) = (Vec::new(), 0);
    while after < AFTER && world.time() < seconds && world.outcome() != Outcome::Lost {
        let snapshot = world.snapshot();
        let action = Expert.act(&world);
        let images = Camera::ALL.iter().map(|&camera| render(&snapshot, camera, size)).collect();
        steps.push(Step { state: world.joints(), action, images });
        world.step(&disturbed.apply(&action));
        after += usize::from(matches!(world.outcome(), Outcome::Placed { .. }));
    }
    Demonstration { steps, outcome: world.outcome() }
}

/// Longest episode in seconds: an expert that needs longer has lost its way.
pub const TIME_LIMIT: f64 = 12.0;
/// Control ticks a second.
pub const RATE: u32 = FPS as u32;

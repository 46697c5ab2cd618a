//! One episode of the simulated task, played by the expert.

use rand::Rng;

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

/// Plays the episode of `setup` for at most `seconds`, and draws what the cameras see in `size` × `size` pixels. A
/// function of its arguments.
///
/// With `noise` the recording begins somewhere on the way, after the arm was led astray: so a policy learns to come back,
/// and yet every recorded action is what was executed, and every chunk of them what the expert does undisturbed. (Noise
/// in the recorded part would stand in the chunks of a policy that samples: it would play back disturbances that it cannot
/// see.)
pub fn play(setup: &Setup, noise: f32, seconds: f64, size: usize) -> Demonstration {
    let mut world = World::new(setup);
    astray(&mut world, setup.seed, noise);
    let (mut steps, mut after) = (Vec::new(), 0);
    while after < AFTER && world.time() < seconds && world.outcome() != Outcome::Lost {
        let snapshot = world.snapshot();
        let action = Expert.act(&world);
        let images = Camera::ALL.iter().map(|&camera| render(&snapshot, camera, size)).collect();
        steps.push(Step { state: world.joints(), action, images });
        world.step(&action);
        after += usize::from(matches!(world.outcome(), Outcome::Placed { .. }));
    }
    Demonstration { steps, outcome: world.outcome() }
}

/// Plays the disturbed part before the recording: of four episodes one begins at its beginning.
fn astray(world: &mut World, seed: u64, noise: f32) {
    if noise <= 0.0 {
        return;
    }
    let mut random = crate::random::stream(seed, "collect/astray", &[]);
    let ticks = if random.random_bool(0.25) { 0 } else { random.random_range(1..LONGEST_WAY) };
    let mut disturbed = Perturbation::new(seed, noise);
    for _ in 0..ticks {
        // What is nearly done teaches nothing more.
        if world.outcome() != Outcome::Running || world.rests_on_goal() {
            break;
        }
        let command = disturbed.apply(&Expert.act(world));
        world.step(&command);
    }
}

/// Ticks of the disturbed part at most: an undisturbed episode takes about a hundred.
const LONGEST_WAY: usize = 100;

/// Longest episode in seconds: an expert that needs longer has lost its way.
pub const TIME_LIMIT: f64 = 12.0;
/// Control ticks a second.
pub const RATE: u32 = FPS as u32;

//! One episode of the simulated task: what was seen and commanded, tick by tick.

use rand::Rng;

use super::lead::by_policy;
use crate::dataset::write::{Episode, Value, WriteError};
use crate::error::Failure;
use crate::realtime::policy::ChunkPolicy;
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::snapshot::Snapshot;
use crate::robot::sim::world::FPS;
use crate::robot::sim::{Expert, Outcome, Perturbation, Setup, World};

/// What is recorded of one control tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Measured joints before the action: radians, metres.
    pub state: [f32; 7],
    /// The command of this tick.
    pub action: [f32; 7],
    /// What the cameras can see; drawn when it is known that the episode is kept.
    pub snapshot: Snapshot,
}

/// A played episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Demonstration {
    pub steps: Vec<Step>,
    pub success: bool,
    /// How it ended, in a word: `placed`, `wrong-pedestal`, `lost`, `time-limit`, `stopped`.
    pub ending: &'static str,
}

impl Demonstration {
    /// Draws what the cameras saw in `size` × `size` pixels, and appends everything to `episode`, whose features are those
    /// of [`Settings::spec`](super::settings::Settings::spec).
    ///
    /// # Errors
    /// What [`Episode::push`] refuses.
    pub fn record(&self, size: usize, episode: &mut Episode) -> Result<(), WriteError> {
        self.steps.iter().try_for_each(|step| {
            let images = Camera::ALL.map(|camera| render(&step.snapshot, camera, size));
            let mut values: Vec<Value> = images.iter().map(Value::Image).collect();
            values.push(Value::F32(&step.state));
            values.push(Value::F32(&step.action));
            episode.push(&values)
        })
    }
}

/// Whoever can do the task.
pub trait Player: Sync {
    /// Plays the episode of `setup`: a function of it alone, on any thread.
    ///
    /// # Errors
    /// Nothing that a failed task could be: the player itself cannot play.
    fn play(&self, setup: &Setup) -> Result<Demonstration, Failure>;
}

/// The scripted expert.
pub struct ExpertPlayer {
    /// How far the arm is led astray before the recording begins; 0: not.
    ///
    /// With noise the recording begins somewhere on the way: so a policy learns to come back, and yet every recorded action
    /// is what was executed, and every chunk of them what the expert does undisturbed. (Noise in the recorded part would
    /// stand in the chunks of a policy that samples: it would play back disturbances that it cannot see.)
    pub noise: f32,
    /// Who leads, instead of noise, before the recording of every other pair of seeds begins; see [`lead`](super::lead).
    pub leader: Option<Leader>,
    /// Simulated seconds of the recording after which the task has failed.
    pub time_limit_s: f64,
}

/// Gives a policy to each thread.
pub type Leader = Box<dyn Fn() -> Result<Box<dyn ChunkPolicy>, Failure> + Send + Sync>;

/// Ticks that are recorded after success: the hand on its way home.
const AFTER: usize = 8;

impl Player for ExpertPlayer {
    fn play(&self, setup: &Setup) -> Result<Demonstration, Failure> {
        let mut world = World::new(setup);
        // Pairs, because the variant may change from seed to seed.
        match self.leader.as_ref().filter(|_| (setup.seed / 2) % 2 == 1) {
            Some(leader) => by_policy(&mut world, setup.seed, leader()?.as_mut())?,
            None => astray(&mut world, setup.seed, self.noise),
        }
        Ok(demonstrate(&mut world, self.time_limit_s))
    }
}

/// What the expert does from here on, for at most `seconds`.
pub(super) fn demonstrate(world: &mut World, seconds: f64) -> Demonstration {
    let end = world.time() + seconds;
    let (mut steps, mut after) = (Vec::new(), 0);
    while after < AFTER && world.time() < end && world.outcome() != Outcome::Lost {
        let action = Expert.act(world);
        steps.push(Step { state: world.joints(), action, snapshot: world.snapshot() });
        world.step(&action);
        after += usize::from(matches!(world.outcome(), Outcome::Placed { .. }));
    }
    let (success, ending) = match world.outcome() {
        Outcome::Placed { .. } => (true, "placed"),
        Outcome::WrongPedestal => (false, "wrong-pedestal"),
        Outcome::Lost => (false, "lost"),
        Outcome::Running => (false, "time-limit"),
    };
    Demonstration { steps, success, ending }
}

/// Plays the disturbed part before the recording: of four episodes one begins at its beginning.
pub(super) fn astray(world: &mut World, seed: u64, noise: f32) {
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

/// Longest episode of the expert in seconds: if it needs longer, it has lost its way.
pub const TIME_LIMIT: f64 = 12.0;
/// Control ticks a second.
pub const RATE: u32 = FPS as u32;

//! What one seed looks like: where things stand, their colours, light, cameras, and the arm's start.

use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::dimensions::{GRIPPER_MAX, PEDESTAL_RADIUS, PLATFORM_RADIUS};
use super::ik::{HOME, solve};
use super::snapshot::{Colour, Look};

/// Whether the platform moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The platform stands.
    Static,
    /// The platform travels to and fro along y at constant speed.
    Moving,
}

impl Variant {
    /// Every variant, by its word.
    pub const ALL: [(&str, Variant); 2] = [("static", Variant::Static), ("moving", Variant::Moving)];

    /// As written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Static => "static",
            Variant::Moving => "moving",
        }
    }
}

/// Which episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub variant: Variant,
    /// The whole domain variation is a function of it.
    pub seed: u64,
}

/// Height of the platform's top and of the pedestals' tops, metres.
pub const PLATFORM_TOP: f64 = 0.05;
pub const PEDESTAL_TOP: f64 = 0.08;
/// The moving platform's speed along y, metres a second, and how far it goes to either side of its middle.
pub const PLATFORM_SPEED: f64 = 0.05;
pub const PLATFORM_TRAVEL: f64 = 0.09;

/// Where everything stands when an episode begins. Metres in the arm's base frame.
#[derive(Debug, Clone)]
pub struct Scene {
    pub variant: Variant,
    pub look: Arc<Look>,
    /// Middle of the platform's path.
    pub platform: [f64; 2],
    /// Where on its path the moving platform begins, −1 … 1, and its direction.
    pub phase: f64,
    pub heading: i8,
    /// The ball, from the platform's middle.
    pub ball: [f64; 2],
    pub pedestals: [[f64; 2]; 2],
    /// Joints at the beginning: radians, metres.
    pub start: [f64; 7],
}

impl Scene {
    /// Draws the scene of a setup.
    pub fn draw(setup: &Setup) -> Scene {
        let mut random = crate::random::stream(setup.seed, "sim/scene", &[]);
        let look = look(&mut random);
        let mut between = |low: f64, high: f64| random.random_range(low..high);
        let platform = match setup.variant {
            Variant::Static => [between(0.30, 0.38), between(-0.06, 0.06)],
            Variant::Moving => [between(0.31, 0.37), between(-0.01, 0.01)],
        };
        let mut pedestals = [[between(0.23, 0.29), between(0.18, 0.23)], [between(0.23, 0.29), between(-0.23, -0.18)]];
        if setup.variant == Variant::Moving {
            for pedestal in &mut pedestals {
                clear_the_way(pedestal, platform);
            }
        }
        let ball = [between(-0.012, 0.012), between(-0.012, 0.012)];
        let phase = between(-1.0, 1.0);
        let tcp = [between(0.24, 0.34), between(-0.12, 0.12), between(0.15, 0.23)];
        let heading = if between(0.0, 1.0) < 0.5 { -1 } else { 1 };
        let mut start = [0.0; 7];
        start[..6].copy_from_slice(&solve(tcp, &HOME));
        start[6] = GRIPPER_MAX;
        let heading = if setup.variant == Variant::Moving { heading } else { 0 };
        Scene { variant: setup.variant, look: Arc::new(look), platform, phase, heading, ball, pedestals, start }
    }

    /// Index of the pedestal that the ball belongs on.
    pub fn goal(&self) -> usize {
        usize::from(self.look.pedestals[0] != self.look.ball)
    }
}

/// Air between the moving platform and a pedestal at the least, metres.
const CLEARANCE: f64 = 0.005;

/// Moves a pedestal outwards along y, by less than two centimetres, until the platform passes it.
fn clear_the_way(pedestal: &mut [f64; 2], platform: [f64; 2]) {
    let end = platform[1] + PLATFORM_TRAVEL.copysign(pedestal[1]);
    let apart = PLATFORM_RADIUS + PEDESTAL_RADIUS + CLEARANCE;
    let aside = (apart * apart - (pedestal[0] - platform[0]).powi(2)).max(0.0).sqrt();
    let least = end + aside.copysign(pedestal[1]);
    if pedestal[1].abs() < least.abs() {
        pedestal[1] = least;
    }
}

fn look(random: &mut ChaCha8Rng) -> Look {
    let ball = if random.random_bool(0.5) { Colour::Red } else { Colour::Blue };
    let pedestals = if random.random_bool(0.5) { [Colour::Red, Colour::Blue] } else { [Colour::Blue, Colour::Red] };
    let mut around = |middle: f32, spread: f32| middle + spread * random.random_range(-1.0f32..1.0);
    let brightness = around(1.0, 0.12);
    let light = unit([around(0.3, 0.3), around(0.0, 0.4), 1.0]);
    let tint = around(0.0, 0.05);
    let table = [around(0.58, 0.06) + tint, around(0.52, 0.06) + tint, around(0.44, 0.06) + tint];
    let tripod_shift = [around(0.0, 0.002), around(0.0, 0.002), around(0.0, 0.002)];
    let tripod_turn = [around(0.0, 0.003), around(0.0, 0.003)];
    Look { ball, pedestals, brightness, light, table, tripod_shift, tripod_turn }
}

fn unit(v: [f32; 3]) -> [f32; 3] {
    let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
    v.map(|x| x / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_is_a_function_of_its_seed_and_its_goal_has_the_balls_colour() {
        for seed in 0..50 {
            let setup = Setup { variant: Variant::Moving, seed };
            let (a, b) = (Scene::draw(&setup), Scene::draw(&setup));
            assert_eq!((&a.look, a.start, a.pedestals), (&b.look, b.start, b.pedestals));
            assert_eq!(a.look.pedestals[a.goal()], a.look.ball);
            assert_ne!(a.look.pedestals[0], a.look.pedestals[1]);
        }
    }

    #[test]
    fn the_platform_passes_the_pedestals() {
        for variant in [Variant::Static, Variant::Moving] {
            for seed in 0..5000 {
                let scene = Scene::draw(&Setup { variant, seed });
                let travel = if variant == Variant::Moving { PLATFORM_TRAVEL } else { 0.0 };
                for [x, y] in scene.pedestals {
                    let end = scene.platform[1] + travel.copysign(y);
                    let apart = (x - scene.platform[0]).hypot(y - end);
                    assert!(apart > PLATFORM_RADIUS + PEDESTAL_RADIUS + 0.004, "seed {seed}: {apart} m");
                    assert!((0.17..0.25).contains(&y.abs()) && x.hypot(y) < 0.4, "seed {seed}: pedestal at {x}, {y}");
                }
            }
        }
    }
}

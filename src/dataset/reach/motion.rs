//! How the hand moves. Only `+ − × ÷ √` on f64, so that every machine computes the same path.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Metres in the table's plane, the origin in its middle.
pub(super) type Point = [f64; 2];

/// Hand and target stay within ± this many metres of the middle, on both axes.
pub(super) const REACHABLE: f64 = 0.18;

/// Shortest and longest way from the start to the target, metres.
const DISTANCE: (f64, f64) = (0.10, 0.36);
/// Largest commanded displacement a frame, metres (0.6 m/s at 30 fps).
const TOP_SPEED: f64 = 0.02;
/// Share of the remaining way that is commanded a frame, near the target.
const GAIN: f64 = 0.25;
/// The hand has arrived within this distance, metres; it then rests for some frames.
const ARRIVED: f64 = 0.004;
const REST_FRAMES: usize = 4;
/// Bounds of an episode's length in frames.
pub(super) const FRAMES: (usize, usize) = (20, 30);
/// The hand follows its command to ± this, metres.
const TRACKING_ERROR: f64 = 0.0008;

/// One frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub hand: Point,
    /// Where the hand is sent until the next frame.
    pub command: Point,
}

/// One reach from a random place to a random target.
#[derive(Debug)]
pub(super) struct Reach {
    pub target: Point,
    pub steps: Vec<Step>,
}

impl Reach {
    pub(super) fn draw(random: &mut ChaCha8Rng) -> Self {
        let target = place(random);
        let mut hand = loop {
            let start = place(random);
            if (DISTANCE.0..DISTANCE.1).contains(&distance(start, target)) {
                break start;
            }
        };
        let mut steps = Vec::with_capacity(FRAMES.1);
        let mut rested = 0;
        while steps.len() < FRAMES.1 && (steps.len() < FRAMES.0 || rested < REST_FRAMES) {
            let command = toward(hand, target);
            steps.push(Step { hand, command });
            rested += usize::from(distance(hand, target) < ARRIVED);
            hand = command.map(|v| v + random.random_range(-TRACKING_ERROR..TRACKING_ERROR));
        }
        Reach { target, steps }
    }
}

/// The next commanded position: top speed from afar, then slower with the remaining way, with no kink between.
fn toward(hand: Point, target: Point) -> Point {
    let remaining = distance(hand, target);
    let wanted = GAIN * remaining;
    // A smooth minimum of `wanted` and the top speed: their harmonic combination of the fourth order.
    let ratio = wanted / TOP_SPEED;
    let step = wanted / (1.0 + ratio * ratio * ratio * ratio).sqrt().sqrt();
    let share = if remaining > 0.0 { step / remaining } else { 0.0 };
    [0, 1].map(|axis| hand[axis] + share * (target[axis] - hand[axis]))
}

fn place(random: &mut ChaCha8Rng) -> Point {
    [0, 1].map(|_| random.random_range(-REACHABLE..REACHABLE))
}

pub(super) fn distance(a: Point, b: Point) -> f64 {
    let (x, y) = (a[0] - b[0], a[1] - b[1]);
    (x * x + y * y).sqrt()
}

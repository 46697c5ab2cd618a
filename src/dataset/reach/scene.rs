//! What the camera sees: a disc (the target) and a square (the hand) on a plain table.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::motion::{Point, distance};
use crate::dataset::frame::RgbFrame;

/// Height and width of the image in pixels.
pub(super) const SIZE: usize = 56;

/// Half the width of what the camera sees, metres: the reachable square with room for both shapes.
const HALF_VIEW: f64 = 0.23;
const METRES_PER_PIXEL: f64 = 2.0 * HALF_VIEW / SIZE as f64;

/// Radius of the disc and half the edge of the square, metres. The disc shows around the hand that covers it.
const DISC: f64 = 0.045;
const HAND: f64 = 0.022;

const TABLE: [f64; 3] = [206.0, 198.0, 184.0];
const HAND_COLOUR: [f64; 3] = [40.0, 60.0, 150.0];
const DISCS: [(&str, [f64; 3]); 2] =
    [("reach the red disc", [200.0, 50.0, 45.0]), ("reach the green disc", [45.0, 150.0, 65.0])];

/// How one episode looks.
#[derive(Debug)]
pub(super) struct Look {
    disc: usize,
    /// Brightness of table, disc and hand around 1.
    brightness: [f64; 3],
}

impl Look {
    pub(super) fn draw(random: &mut ChaCha8Rng) -> Self {
        Look {
            disc: random.random_range(0..DISCS.len()),
            brightness: [(); 3].map(|()| random.random_range(0.92..1.08)),
        }
    }

    pub(super) fn task(&self) -> &'static str {
        DISCS[self.disc].0
    }

    pub(super) fn render(&self, hand: Point, target: Point) -> RgbFrame {
        let [table, disc, square] = self.brightness;
        let mut data = Vec::with_capacity(SIZE * SIZE * 3);
        for pixel in 0..SIZE * SIZE {
            let at = centre(pixel / SIZE, pixel % SIZE);
            let on_disc = coverage(distance(at, target) - DISC);
            let on_hand = coverage((at[0] - hand[0]).abs().max((at[1] - hand[1]).abs()) - HAND);
            for channel in 0..3 {
                let mut value = TABLE[channel] * table;
                value += on_disc * (DISCS[self.disc].1[channel] * disc - value);
                value += on_hand * (HAND_COLOUR[channel] * square - value);
                data.push(value.round().clamp(0.0, 255.0) as u8);
            }
        }
        RgbFrame { height: SIZE, width: SIZE, data }
    }
}

/// Where the middle of a pixel lies on the table; x grows to the right, y upwards.
fn centre(row: usize, column: usize) -> Point {
    let metres = |i: usize| (i as f64 + 0.5) * METRES_PER_PIXEL - HALF_VIEW;
    [metres(column), -metres(row)]
}

/// Share of a pixel inside a shape whose edge is `outside` metres away: soft over one pixel, so that the
/// image tells positions finer than its grid.
fn coverage(outside: f64) -> f64 {
    (0.5 - outside / METRES_PER_PIXEL).clamp(0.0, 1.0)
}

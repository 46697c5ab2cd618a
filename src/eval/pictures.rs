//! Two rollouts of one world side by side, as pictures.

use super::font::{ADVANCE, LINE, fill, write};
use super::rollout::Ending;
use crate::dataset::frame::RgbFrame;
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::snapshot::Snapshot;

/// Side of a pane, pixels; heights below add up to a multiple of 16, of which H.264 is made.
const PANE: usize = 320;
const HEADER: usize = 28;
const STRIP: usize = 20;
pub const WIDTH: usize = 2 * PANE;
pub const HEIGHT: usize = HEADER + PANE + STRIP;
/// Ticks for which the last picture stands.
const LINGER: usize = 45;
/// Side of the wrist camera's picture in the corner.
const INSET: usize = 96;

const PAPER: [u8; 3] = [24, 26, 30];
const INK: [u8; 3] = [235, 235, 235];
const MOVING: [u8; 3] = [0, 158, 115];
const WAITING: [u8; 3] = [213, 94, 0];
const TRACK: [u8; 3] = [60, 64, 72];

/// What one rollout looked like.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `SYNC 5444MS`.
    pub title: String,
    /// By control tick.
    pub ticks: Vec<Shown>,
    pub ending: Ending,
}

/// One tick.
#[derive(Debug, Clone)]
pub struct Shown {
    pub snapshot: Snapshot,
    /// No action was there to be executed.
    pub waiting: bool,
}

/// The frames of the video, one a control tick; a rollout that has ended stands still.
pub fn frames<'a>(left: &'a Recorded, right: &'a Recorded, fps: f64) -> impl Iterator<Item = RgbFrame> + 'a {
    let length = left.ticks.len().max(right.ticks.len());
    (0..length + LINGER).map(move |tick| {
        let mut frame = RgbFrame { height: HEIGHT, width: WIDTH, data: vec![0; HEIGHT * WIDTH * 3] };
        fill(&mut frame, (0, 0), (WIDTH, HEIGHT), PAPER);
        pane(&mut frame, left, 0, tick, length, fps);
        pane(&mut frame, right, PANE, tick, length, fps);
        frame
    })
}

fn pane(frame: &mut RgbFrame, recorded: &Recorded, x: usize, tick: usize, length: usize, fps: f64) {
    let last = recorded.ticks.len().saturating_sub(1);
    let Some(shown) = recorded.ticks.get(tick.min(last)) else { return };
    let ended = tick >= last;
    paste(frame, &render(&shown.snapshot, Camera::Front, PANE), (x, HEADER));
    paste(frame, &render(&shown.snapshot, Camera::Wrist, INSET), (x + PANE - INSET, HEADER + PANE - INSET));
    let (said, colour) = match (ended, shown.waiting) {
        (true, _) => (ending(recorded.ending), if recorded.ending == Ending::Placed { MOVING } else { WAITING }),
        (false, true) => ("WAITING", WAITING),
        (false, false) => ("MOVING", MOVING),
    };
    write(frame, &recorded.title, (x + 8, 7), 2, INK);
    let time = format!("{:.1} S", tick.min(last) as f64 / fps);
    write(frame, &time, (x + PANE - 8 - time.chars().count() * ADVANCE * 2, 7), 2, INK);
    write(frame, said, (x + 8, HEADER + PANE - 2 * LINE), 2, colour);
    // One column a tick, scaled so that the longer of the two fills the pane.
    let strip = HEADER + PANE + 4;
    fill(frame, (x + 4, strip), (PANE - 8, STRIP - 8), TRACK);
    let column = |tick: usize| x + 4 + tick * (PANE - 8) / length.max(1);
    for (at, shown) in recorded.ticks.iter().enumerate().take(tick + 1) {
        let width = (column(at + 1) - column(at)).max(1);
        fill(frame, (column(at), strip), (width, STRIP - 8), if shown.waiting { WAITING } else { MOVING });
    }
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Placed => "PLACED",
        Ending::WrongPedestal => "WRONG PEDESTAL",
        Ending::Lost => "BALL LOST",
        Ending::TimeLimit => "TIME IS UP",
        Ending::Stopped => "STOPPED",
    }
}

fn paste(frame: &mut RgbFrame, picture: &RgbFrame, (x, y): (usize, usize)) {
    for (row, pixels) in picture.data.chunks(picture.width.max(1) * 3).enumerate() {
        let start = ((y + row) * frame.width + x) * 3;
        if let Some(place) = frame.data.get_mut(start..start + pixels.len()) {
            place.copy_from_slice(pixels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robot::sim::{Setup, Variant, World};

    #[test]
    fn a_pane_tells_what_its_rollout_does() {
        let world = World::new(&Setup { variant: Variant::Static, seed: 1 });
        let shown = |waiting| Shown { snapshot: world.snapshot(), waiting };
        let left = Recorded {
            title: "SYNC".into(),
            ticks: vec![shown(true), shown(true), shown(false), shown(false)],
            ending: Ending::TimeLimit,
        };
        let right = Recorded { title: "VLASH".into(), ticks: vec![shown(false), shown(false)], ending: Ending::Placed };
        let all: Vec<RgbFrame> = frames(&left, &right, 30.0).take(4).collect();
        assert!(all.iter().all(|frame| frame.data.len() == WIDTH * HEIGHT * 3));
        let strip = |frame: &RgbFrame, x: usize| -> [u8; 3] {
            let at = ((HEADER + PANE + 8) * WIDTH + x) * 3;
            frame.data[at..at + 3].try_into().unwrap()
        };
        // At tick 1 the first half of the left strip is drawn, and the right rollout has ended.
        assert_eq!((strip(&all[1], 100), strip(&all[1], 250)), (WAITING, TRACK));
        assert_eq!(strip(&all[3], 250), MOVING);
        assert_eq!((strip(&all[3], PANE + 100), strip(&all[3], PANE + 250)), (MOVING, TRACK));
        assert!(all[0] != all[1]);
        assert_eq!(frames(&left, &right, 30.0).count(), 4 + LINGER);
    }
}

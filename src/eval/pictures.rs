//! Rollouts of one world side by side, as pictures.

use super::font::{ADVANCE, LINE, fill, write};
use super::rollout::Ending;
use crate::dataset::frame::RgbFrame;
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::snapshot::Snapshot;
use crate::robot::sim::world::FPS;

/// Side of a pane, pixels; widths, and heights below together, are multiples of 16, of which H.264 is made.
pub const PANE: usize = 480;
const HEADER: usize = 28;
const STRIP: usize = 20;
pub const HEIGHT: usize = HEADER + PANE + STRIP;
/// Ticks for which the last picture stands.
pub const LINGER: usize = 45;
/// Side of the wrist camera's picture in the corner.
const INSET: usize = 128;

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

/// After one tick.
#[derive(Debug, Clone)]
pub struct Shown {
    pub snapshot: Snapshot,
    /// No action was there to be executed.
    pub waiting: bool,
}

/// The frames of the video, one a control tick; a rollout that has ended stands still.
#[derive(Debug)]
pub struct Film<'a> {
    /// Each with the last picture that its cameras took, and of which tick.
    panes: Vec<(&'a Recorded, Option<(usize, RgbFrame)>)>,
    /// Ticks of the longest, and the next frame.
    length: usize,
    next: usize,
}

impl<'a> Film<'a> {
    /// From left to right.
    pub fn new(rollouts: &'a [Recorded]) -> Film<'a> {
        let length = rollouts.iter().map(|recorded| recorded.ticks.len()).max().unwrap_or(0);
        Film { panes: rollouts.iter().map(|recorded| (recorded, None)).collect(), length, next: 0 }
    }

    /// Of a frame, pixels.
    pub fn width(&self) -> usize {
        PANE * self.panes.len()
    }
}

impl Iterator for Film<'_> {
    type Item = RgbFrame;

    fn next(&mut self) -> Option<RgbFrame> {
        let (tick, length, width) = (self.next, self.length, self.width());
        if length == 0 || tick >= length + LINGER {
            return None;
        }
        self.next += 1;
        let mut frame = RgbFrame { height: HEIGHT, width, data: vec![0; HEIGHT * width * 3] };
        fill(&mut frame, (0, 0), (width, HEIGHT), PAPER);
        for (place, (recorded, picture)) in self.panes.iter_mut().enumerate() {
            pane(&mut frame, recorded, picture, place * PANE, tick, length);
        }
        Some(frame)
    }
}

/// Draws what `recorded` shows at `tick`; `taken` is what its cameras showed before.
fn pane(
    frame: &mut RgbFrame,
    recorded: &Recorded,
    taken: &mut Option<(usize, RgbFrame)>,
    x: usize,
    tick: usize,
    length: usize,
) {
    let last = recorded.ticks.len().saturating_sub(1);
    let at = tick.min(last);
    let Some(shown) = recorded.ticks.get(at) else { return };
    let known = taken.take().filter(|(of, _)| *of == at);
    let (_, picture) = taken.insert(known.unwrap_or_else(|| (at, cameras(&shown.snapshot))));
    paste(frame, picture, (x, HEADER));
    let (said, colour) = match (tick >= last, shown.waiting) {
        (true, _) => (ending(recorded.ending), if recorded.ending == Ending::Placed { MOVING } else { WAITING }),
        (false, true) => ("WAITING", WAITING),
        (false, false) => ("EXECUTING", MOVING),
    };
    write(frame, &recorded.title, (x + 8, 7), 2, INK);
    let time = format!("{:.1} S", (at + 1) as f64 / FPS);
    write(frame, &time, (x + PANE - 8 - time.chars().count() * ADVANCE * 2, 7), 2, INK);
    let caption = (said.chars().count() * ADVANCE * 2 + 14, 2 * LINE + 6);
    fill(frame, (x, HEADER + PANE - caption.1), caption, PAPER);
    write(frame, said, (x + 8, HEADER + PANE - 2 * LINE), 2, colour);
    // Between panes.
    fill(frame, (x + PANE - 1, 0), (2, HEIGHT), PAPER);
    // One column a tick, scaled so that the longest fills the pane.
    let strip = HEADER + PANE + 4;
    fill(frame, (x + 4, strip), (PANE - 8, STRIP - 8), TRACK);
    let column = |tick: usize| x + 4 + tick * (PANE - 8) / length.max(1);
    for (at, shown) in recorded.ticks.iter().enumerate().take(tick + 1) {
        let width = (column(at + 1) - column(at)).max(1);
        fill(frame, (column(at), strip), (width, STRIP - 8), if shown.waiting { WAITING } else { MOVING });
    }
}

/// The tripod's picture with the wrist's in its corner.
fn cameras(snapshot: &Snapshot) -> RgbFrame {
    let mut picture = render(snapshot, Camera::Front, PANE);
    paste(&mut picture, &render(snapshot, Camera::Wrist, INSET), (PANE - INSET, PANE - INSET));
    picture
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
        let rollouts = [left, right];
        let film = Film::new(&rollouts);
        let width = film.width();
        assert_eq!((width, width % 16, HEIGHT % 16), (2 * PANE, 0, 0));
        let all: Vec<RgbFrame> = film.collect();
        assert_eq!(all.len(), 4 + LINGER);
        assert!(all.iter().all(|frame| frame.data.len() == width * HEIGHT * 3));
        let strip = |frame: &RgbFrame, x: usize| -> [u8; 3] {
            let at = ((HEADER + PANE + 8) * width + x) * 3;
            frame.data[at..at + 3].try_into().unwrap()
        };
        // At tick 1 the first half of the left strip is drawn, and the right rollout has ended.
        assert_eq!((strip(&all[1], 100), strip(&all[1], 350)), (WAITING, TRACK));
        assert_eq!(strip(&all[3], 350), MOVING);
        assert_eq!((strip(&all[3], PANE + 100), strip(&all[3], PANE + 350)), (MOVING, TRACK));
        assert!(all[0] != all[1] && all[4] == all[4 + LINGER - 1]);
        assert_eq!(Film::new(&[]).count(), 0);
    }
}

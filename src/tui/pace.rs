//! When to draw: only after a change, not too often, and not while the window is being dragged.

use std::time::{Duration, Instant};

const LOCAL: Duration = Duration::from_millis(100);
const REMOTE: Duration = Duration::from_millis(250);
const SLOW: Duration = Duration::from_secs(1);
/// A frame that takes longer to send than this marks a slow line.
const SLOW_SEND: Duration = Duration::from_millis(150);
/// The size is settled when it has not changed for so long.
const SETTLED: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Pace {
    base: Duration,
    interval: Duration,
    dirty: bool,
    last: Option<Instant>,
    resized: Option<Instant>,
}

impl Pace {
    /// Ten frames a second; four when `remote`; one when `slow`.
    pub fn new(remote: bool, slow: bool) -> Pace {
        let base = if slow {
            SLOW
        } else if remote {
            REMOTE
        } else {
            LOCAL
        };
        Pace { base, interval: base, dirty: true, last: None, resized: None }
    }

    pub fn mark(&mut self, changed: bool) {
        self.dirty |= changed;
    }

    pub fn resized(&mut self, now: Instant) {
        self.dirty = true;
        self.resized = Some(now);
    }

    /// How long until a frame is due; none when nothing changed.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        if !self.dirty {
            return None;
        }
        let rate = self.last.map_or(now, |last| last + self.interval);
        let settled = self.resized.map_or(now, |at| at + SETTLED);
        Some(rate.max(settled).saturating_duration_since(now))
    }

    /// A frame went out at `now` and took `sending`. A slow line slows the rate; a quick frame restores it.
    pub fn drawn(&mut self, now: Instant, sending: Duration) {
        self.interval = if sending > SLOW_SEND { SLOW } else { self.base };
        (self.dirty, self.last, self.resized) = (false, Some(now), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_changes_and_keep_their_distance() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut pace = Pace::new(false, false);
        assert_eq!(pace.due_in(start), Some(ms(0)));
        pace.drawn(start, ms(1));
        assert_eq!(pace.due_in(at(500)), None);
        pace.mark(true);
        assert_eq!((pace.due_in(at(30)), pace.due_in(at(500))), (Some(ms(70)), Some(ms(0))));
        pace.resized(at(500));
        assert_eq!(pace.due_in(at(520)), Some(ms(30)));
        pace.drawn(at(550), ms(400));
        pace.mark(true);
        assert_eq!(pace.due_in(at(650)), Some(ms(900)));
        pace.drawn(at(1550), ms(10));
        pace.mark(true);
        assert_eq!(pace.due_in(at(1550)), Some(ms(100)));
    }

    #[test]
    fn remote_and_slow_lines_get_fewer_frames() {
        let start = Instant::now();
        for (remote, slow, expected) in [(true, false, 250), (false, true, 1000), (true, true, 1000)] {
            let mut pace = Pace::new(remote, slow);
            pace.drawn(start, Duration::ZERO);
            pace.mark(true);
            assert_eq!(pace.due_in(start), Some(Duration::from_millis(expected)));
        }
    }
}

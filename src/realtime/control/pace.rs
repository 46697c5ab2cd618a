//! When ticks begin: on the absolute schedule t₀ + k/fps, so that a late tick does not shift those after it.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::robot::clock::Clock;

/// A tick that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    pub now: Duration,
    /// Ticks that were passed over before it, because the one before took too long.
    pub missed: u32,
    /// How long after it was due.
    pub late: Duration,
}

/// The schedule of a rollout.
#[derive(Debug, Clone)]
pub struct Pace {
    clock: Clock,
    start: Duration,
    fps: f64,
    /// The tick that comes next.
    tick: u64,
    /// The last part of each wait, in which the thread looks at the clock instead of sleeping.
    spin: Duration,
}

impl Pace {
    /// The first tick is now. `spin` costs that much of a core each tick and takes the system's wake-up out of the jitter.
    pub fn new(clock: Clock, fps: f64, spin: Duration) -> Pace {
        Pace { start: clock.now(), clock, fps, tick: 0, spin }
    }

    /// When tick `tick` is due.
    fn due(&self, tick: u64) -> Duration {
        self.start + Duration::try_from_secs_f64(tick as f64 / self.fps).unwrap_or_default()
    }

    /// Waits for the next tick. Ticks whose whole period is over are passed over, and counted. A virtual clock is moved to
    /// it.
    pub fn wait(&mut self) -> Wake {
        let elapsed = self.clock.now().saturating_sub(self.start);
        let current = (elapsed.as_secs_f64() * self.fps + 1e-6).floor().max(0.0) as u64;
        let missed = current.saturating_sub(self.tick);
        self.tick += missed;
        let due = self.due(self.tick);
        self.tick += 1;
        match self.clock {
            Clock::Virtual(_) => self.clock.set(due),
            Clock::Monotonic(_) => self.sleep_until(due),
        }
        let now = self.clock.now();
        Wake { now, missed: u32::try_from(missed).unwrap_or(u32::MAX), late: now.saturating_sub(due) }
    }

    fn sleep_until(&self, due: Duration) {
        let wake = due.saturating_sub(self.spin);
        let left = wake.saturating_sub(self.clock.now());
        if !left.is_zero() && !sleep(left) {
            std::thread::sleep(left);
        }
        while !self.spin.is_zero() && self.clock.now() < due {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps until `left` from now on the monotonic clock, through signals. Whether it could.
fn sleep(left: Duration) -> bool {
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return false };
    let until = now + TimeSpec::from_duration(left);
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until) {
            Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_are_passed_over_and_shift_nothing() {
        let clock = Clock::virtual_();
        let mut pace = Pace::new(clock.clone(), 10.0, Duration::ZERO);
        let ms = Duration::from_millis;
        let wake = |now, missed, late| Wake { now: ms(now), missed, late: ms(late) };
        assert_eq!(pace.wait(), wake(0, 0, 0));
        clock.set(ms(40));
        assert_eq!(pace.wait(), wake(100, 0, 0));
        // The tick of 100 takes until 250: that of 200 is begun late, that of 300 on time.
        clock.set(ms(250));
        assert_eq!(pace.wait(), wake(250, 0, 50));
        assert_eq!(pace.wait(), wake(300, 0, 0));
        // Until 630: those of 400 and 500 are over.
        clock.set(ms(630));
        assert_eq!(pace.wait(), wake(630, 2, 30));
        assert_eq!(pace.wait(), wake(700, 0, 0));
    }
}

//! Time as robots and the control loop see it: a duration since the clock began, never backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that several parts share; clones show the same time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The system's monotonic clock, since this value.
    Monotonic(Instant),
    /// Stands still until it is moved; nanoseconds.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// A monotonic clock that begins now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    /// A virtual clock at zero.
    pub fn virtual_() -> Clock {
        Clock::Virtual(Arc::default())
    }

    /// Since it began.
    pub fn now(&self) -> Duration {
        match self {
            Clock::Monotonic(start) => start.elapsed(),
            Clock::Virtual(nanoseconds) => Duration::from_nanos(nanoseconds.load(Ordering::Acquire)),
        }
    }

    /// Moves a virtual clock to `time`, never back; a monotonic clock does not obey.
    pub fn set(&self, time: Duration) {
        if let Clock::Virtual(nanoseconds) = self {
            nanoseconds.fetch_max(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_stands_until_moved_and_never_goes_back() {
        let clock = Clock::virtual_();
        let other = clock.clone();
        clock.set(Duration::from_millis(40));
        other.set(Duration::from_millis(30));
        assert_eq!(other.now(), Duration::from_millis(40));
    }
}

//! How far a recording is: a bar on a terminal, a line now and then elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::tell;
use crate::collect::campaign::Progress;
use crate::track::console;

/// How often a line is said.
const SAY: Duration = Duration::from_secs(10);

pub struct Bar {
    bar: Option<ProgressBar>,
    episodes: u64,
    begun: Instant,
    said: Mutex<Instant>,
}

impl Bar {
    pub fn new(episodes: u64) -> Bar {
        let bar = console::bar();
        if let Some(bar) = &bar {
            bar.set_length(episodes);
        }
        let begun = Instant::now();
        Bar { bar, episodes, begun, said: Mutex::new(begun) }
    }

    pub fn say(&self, progress: Progress) {
        let Progress { kept, tried, resumed } = progress;
        let fresh = kept.saturating_sub(resumed);
        let left = match fresh {
            0 => String::new(),
            _ => {
                let open = self.episodes.saturating_sub(kept) as f64;
                format!(", {:.0} s left", self.begun.elapsed().as_secs_f64() / fresh as f64 * open)
            }
        };
        let failed = tried.saturating_sub(kept);
        if let Some(bar) = &self.bar {
            bar.set_position(kept);
            bar.set_message(format!("episodes, {failed} failed{left}"));
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.elapsed() >= SAY {
            *said = Instant::now();
            tell(format_args!("{kept} of {} episodes, {failed} failed{left}", self.episodes));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

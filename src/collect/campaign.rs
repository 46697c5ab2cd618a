//! All episodes of a recording, as many at a time as there are threads.
//!
//! Wanted are the first N seeds that succeed. A seed is begun only when it would be needed even if all that are being
//! played succeed; so exactly those are tried that one thread would try, and the dataset does not depend on threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::demonstration::Player;
use super::error::CollectError;
use super::recorder::{Known, Recorder};
use crate::error::Failure;
use crate::robot::sim::TASK;

/// Fewer successes than one in so many, and nobody waits for the rest.
const HOPELESS: u64 = 10;
/// Seeds that are tried before that is judged.
const JUDGED_AFTER: u64 = 200;
/// How often a thread without work looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How far a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Episodes that count.
    pub kept: u64,
    /// Seeds, failed ones and those of before among them.
    pub tried: u64,
    /// Of the kept ones, those of before.
    pub resumed: u64,
}

/// The state that the threads share.
#[derive(Default)]
struct Work {
    next: u64,
    progress: Progress,
    playing: u64,
    failure: Option<Failure>,
    stopped: bool,
}

/// Plays seeds until `recorder` has `episodes` of them, on `threads` threads. `stop` is asked between episodes; `say` is
/// told after each, by any thread. Whether the goal is reached.
///
/// # Errors
/// The first that occurred; what was finished by then lies in the recorder. [`CollectError::Hopeless`] when hardly any seed
/// succeeds.
pub fn run(
    recorder: &Recorder,
    player: &dyn Player,
    episodes: u64,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
    say: &(dyn Fn(Progress) + Sync),
) -> Result<bool, Failure> {
    let work = Mutex::new(Work { next: recorder.settings().seed, ..Work::default() });
    let changed = Condvar::new();
    let desk = Desk { recorder, player, episodes, stop, say, work, changed };
    let most = usize::try_from(episodes).unwrap_or(usize::MAX);
    std::thread::scope(|scope| -> Result<(), CollectError> {
        for _ in 0..threads.clamp(1, most.max(1)) {
            // A policy's operations stay in the thread of their episode: the work is parallel already.
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
            let desk = &desk;
            scope.spawn(move || alone.install(|| desk.work_off()));
        }
        Ok(())
    })?;
    let work = desk.work.into_inner().unwrap_or_else(PoisonError::into_inner);
    match work.failure {
        Some(failure) => Err(failure),
        None => Ok(work.progress.kept >= episodes),
    }
}

struct Desk<'a> {
    recorder: &'a Recorder,
    player: &'a dyn Player,
    episodes: u64,
    stop: &'a (dyn Fn() -> bool + Sync),
    say: &'a (dyn Fn(Progress) + Sync),
    work: Mutex<Work>,
    changed: Condvar,
}

impl Desk<'_> {
    fn work_off(&self) {
        while let Some(seed) = self.take() {
            let kept = self.one(seed);
            self.hand_in(kept);
        }
    }

    /// The next seed to play; none when there is nothing more to do.
    fn take(&self) -> Option<u64> {
        let mut work = self.lock();
        loop {
            work.stopped |= (self.stop)();
            if work.stopped || work.failure.is_some() {
                return None;
            }
            if work.progress.kept + work.playing < self.episodes {
                let seed = work.next;
                work.next += 1;
                match self.recorder.known(seed) {
                    Some(known) => {
                        let kept = u64::from(known == Known::Kept);
                        work.progress.kept += kept;
                        work.progress.resumed += kept;
                        work.progress.tried += 1;
                    }
                    None => {
                        work.playing += 1;
                        return Some(seed);
                    }
                }
            } else if work.playing == 0 {
                return None;
            } else {
                work = self.changed.wait_timeout(work, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Plays and keeps one seed; whether it counts.
    fn one(&self, seed: u64) -> Result<bool, Failure> {
        let settings = self.recorder.settings();
        let played = self.player.play(&settings.variant.setup(seed))?;
        if played.steps.is_empty() || !(played.success || settings.keep_failures) {
            self.recorder.leave_out(seed, played.ending)?;
            return Ok(false);
        }
        let mut episode = self.recorder.begin(TASK);
        played.record(settings.size, &mut episode).map_err(CollectError::from)?;
        self.recorder.keep(seed, episode, played.ending)?;
        Ok(true)
    }

    fn hand_in(&self, kept: Result<bool, Failure>) {
        let mut work = self.lock();
        work.playing -= 1;
        match kept {
            Ok(kept) => {
                work.progress.kept += u64::from(kept);
                work.progress.tried += 1;
                let Progress { kept, tried, .. } = work.progress;
                if tried >= JUDGED_AFTER && kept * HOPELESS < tried {
                    let out = self.recorder.out().to_owned();
                    work.failure.get_or_insert(CollectError::Hopeless { kept, tried, out }.into());
                }
                (self.say)(work.progress);
            }
            Err(failure) => {
                work.failure.get_or_insert(failure);
            }
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! All rollouts of a grid, as many at a time as there are threads.
//!
//! On the virtual clock a rollout depends on its key alone: results are the same with any number of threads and in any
//! order. Each thread is a pool of one, so that operations that would spread over threads stay in theirs: the work is
//! parallel already. In real time one rollout follows another, and its inference thread has the whole machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::EvalError;
use super::grid::{Cell, Grid};
use super::ledger::Ledger;
use super::report::{PolicyFacet, Rolled};
use super::rollout::Rollout;
use super::{real_run, virtual_run};
use crate::realtime::policy::{ChunkPolicy, PolicyFacts};

/// What a policy is forked from.
pub trait Policies: Sync {
    fn facts(&self) -> &PolicyFacts;

    /// How reports name it; its digest is part of every rollout's key.
    fn facet(&self) -> PolicyFacet;

    /// One for the rollout of `seed`.
    ///
    /// # Errors
    /// No memory, or a policy that cannot be shared.
    fn fork(&self, seed: u64) -> Result<Box<dyn ChunkPolicy>, EvalError>;
}

/// How far a campaign is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    /// Of these, taken from the ledger.
    pub resumed: usize,
}

struct Job<'a> {
    policy: usize,
    cell: &'a Cell,
    seed: u64,
}

/// Rolls out every cell of `grid` with every policy; what `ledger` has is not done again, what is done is added to it.
/// `say` is told after every rollout, by any thread.
///
/// # Errors
/// The first that occurred; what was finished by then is in the ledger.
pub fn run(
    grid: &Grid,
    policies: &[&dyn Policies],
    ledger: Option<&Ledger>,
    threads: usize,
    say: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Rolled>, EvalError> {
    let digests: Vec<String> = policies.iter().map(|policy| policy.facet().digest).collect();
    let cells = || (0..policies.len()).flat_map(|policy| grid.cells.iter().map(move |cell| (policy, cell)));
    let jobs: Vec<Job<'_>> =
        cells().flat_map(|(policy, cell)| grid.seeds.iter().map(move |&seed| Job { policy, cell, seed })).collect();
    let key = |job: &Job<'_>| grid.key(digests.get(job.policy).map_or("", String::as_str), job.cell, job.seed);
    let known: Vec<Option<Rollout>> =
        jobs.iter().map(|job| ledger.and_then(|ledger| ledger.get(&key(job))).cloned()).collect();
    let resumed = known.iter().flatten().count();
    let open: Vec<usize> = (0..jobs.len()).filter(|&at| known.get(at).is_some_and(Option::is_none)).collect();
    let total = jobs.len();
    let done = AtomicUsize::new(resumed);
    say(Progress { done: resumed, total, resumed });

    let one = |at: usize| -> Result<Rollout, EvalError> {
        let job = jobs.get(at).ok_or_else(|| EvalError::Report("a rollout that nobody planned".into()))?;
        let source = policies.get(job.policy).ok_or_else(|| EvalError::Report("a policy that is not there".into()))?;
        let mut policy = source.fork(job.seed)?;
        let rollout = match grid.is_real_time() {
            true => real_run::run(grid, job.cell, job.seed, policy)?,
            false => virtual_run::run(grid, job.cell, job.seed, policy.as_mut())?,
        };
        if let Some(ledger) = ledger {
            ledger.add(key(job), &rollout)?;
        }
        say(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total, resumed });
        Ok(rollout)
    };
    let fresh = spread(&open, if grid.is_real_time() { 1 } else { threads }, &one)?;
    let mut fresh = fresh.into_iter();
    let mut rollouts = known.into_iter().map(|known| known.or_else(|| fresh.next())).collect::<Vec<_>>().into_iter();
    let seeds = grid.seeds.len();
    let rolled = (0..policies.len()).flat_map(|policy| (0..grid.cells.len()).map(move |cell| (policy, cell)));
    Ok(rolled
        .map(|(policy, cell)| Rolled { policy, cell, rollouts: rollouts.by_ref().take(seeds).flatten().collect() })
        .collect())
}

/// `one` of every entry of `work`, in its order, by up to `threads` threads. After an error no further work begins.
pub(super) fn spread<T: Send>(
    work: &[usize],
    threads: usize,
    one: &(dyn Fn(usize) -> Result<T, EvalError> + Sync),
) -> Result<Vec<T>, EvalError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Mutex<Vec<(usize, Result<T, EvalError>)>> = Mutex::new(Vec::with_capacity(work.len()));
    let take = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&job) = work.get(at) else { return };
            let result = one(job);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| -> Result<(), EvalError> {
        for _ in 0..threads.clamp(1, work.len().max(1)) {
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build();
            let alone = alone.map_err(|error| EvalError::Report(format!("no thread for rollouts: {error}")))?;
            scope.spawn(move || alone.install(take));
        }
        Ok(())
    })?;
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::eval::grid::{Method, Wanted};
    use crate::eval::lag::Lag;
    use crate::eval::ledger;
    use crate::eval::report::Report;
    use crate::eval::testing::{Turner, facts};
    use crate::robot::sim::Variant;

    /// Two methods at one delay over four seeds: eight rollouts of a second each.
    fn grid(variant: Variant, execute: usize) -> Grid {
        let wanted = Wanted {
            variant,
            seeds: vec![0, 1, 2, 3],
            methods: vec![Method::Sync, Method::Vlash],
            lags: vec![Lag::fixed(3)],
            execute: Some(execute),
            time_limit_s: 1.0,
        };
        Grid::new(wanted, &facts()).unwrap()
    }

    /// Rolls out what is missing in `directory`; the report, and how many rollouts were there already.
    fn rolled_out(directory: &Path, grid: &Grid, source: &Turner, threads: usize) -> (Report, usize) {
        let resumed = AtomicUsize::new(0);
        let say = |progress: Progress| resumed.store(progress.resumed, Ordering::Relaxed);
        let ledger = Ledger::open(directory).unwrap();
        let rolled = run(grid, &[source], Some(&ledger), threads, &say).unwrap();
        (Report::new(grid, vec![source.facet()], &rolled), resumed.into_inner())
    }

    fn lines(directory: &Path) -> Vec<String> {
        let text = fs::read_to_string(directory.join(ledger::FILE)).unwrap();
        text.lines().map(String::from).collect()
    }

    #[test]
    fn rollouts_are_the_same_twice_and_with_any_number_of_threads() {
        let rows = |threads| {
            let directory = tempfile::tempdir().unwrap();
            rolled_out(directory.path(), &grid(Variant::Moving, 8), &Turner::new("a"), threads);
            lines(directory.path()).into_iter().collect::<BTreeSet<_>>()
        };
        let alone = rows(1);
        assert_eq!(alone.len(), 8);
        assert_eq!(rows(1), alone);
        assert_eq!(rows(3), alone);
    }

    #[test]
    fn what_was_killed_goes_on_with_what_is_missing_and_ends_as_if_it_had_not_been() {
        let directory = tempfile::tempdir().unwrap();
        let grid = grid(Variant::Static, 8);
        let (whole, resumed) = rolled_out(directory.path(), &grid, &Turner::new("a"), 1);
        assert_eq!(resumed, 0);
        // As a kill leaves it: three lines, and a part of the fourth.
        let path = directory.path().join(ledger::FILE);
        let rows = lines(directory.path());
        let torn = rows[..3].join("\n") + "\n" + &rows[3][..rows[3].len() / 2];
        fs::write(&path, torn).unwrap();

        let source = Turner::new("a");
        let (continued, resumed) = rolled_out(directory.path(), &grid, &source, 2);
        assert_eq!((resumed, source.forks.load(Ordering::Relaxed)), (3, 5));
        assert_eq!(continued, whole);
        assert_eq!(Ledger::open(directory.path()).unwrap().unreadable, 1);

        let source = Turner::new("a");
        let (again, resumed) = rolled_out(directory.path(), &grid, &source, 2);
        assert_eq!((resumed, source.forks.load(Ordering::Relaxed)), (8, 0));
        assert_eq!(again, whole);
    }

    #[test]
    fn another_policy_task_or_number_of_actions_has_rollouts_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let resumed =
            |digest, variant, execute| rolled_out(directory.path(), &grid(variant, execute), &Turner::new(digest), 2).1;
        assert_eq!(resumed("a", Variant::Static, 8), 0);
        assert_eq!(resumed("b", Variant::Static, 8), 0);
        assert_eq!(resumed("a", Variant::Moving, 8), 0);
        assert_eq!(resumed("a", Variant::Static, 7), 0);
        assert_eq!(resumed("b", Variant::Static, 8), 8);
    }

    #[test]
    fn work_comes_back_in_its_order_and_stops_at_an_error() {
        let work: Vec<usize> = (10..60).collect();
        let twice = |number: usize| Ok(number * 2);
        let expected: Vec<usize> = work.iter().map(|number| number * 2).collect();
        for threads in [1, 3, 200] {
            assert_eq!(spread(&work, threads, &twice).unwrap(), expected);
        }
        let begun = AtomicUsize::new(0);
        let failing = |number: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 12 { Err(EvalError::Report("twelve".into())) } else { Ok(number) }
        };
        assert!(spread(&work, 1, &failing).unwrap_err().to_string().contains("twelve"));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_spreads_over_threads_stays_in_that_of_its_rollout() {
        let width = |_| Ok(rayon::current_num_threads());
        assert_eq!(spread(&[0, 1, 2], 3, &width).unwrap(), [1, 1, 1]);
    }
}

//! What a reader of the numbers has to know beside them.

use super::grid::{Grid, Method};
use super::report::{CellReport, PolicyFacet, Rolled};
use super::rollout::Rollout;
use super::table::letter;
use crate::robot::sim::world::FPS;

/// A sentence each.
pub(super) fn all(grid: &Grid, policies: &[PolicyFacet], cells: &[CellReport], rolled: &[Rolled]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(machine) = grid.machine() {
        notes.push(format!(
            "latencies were measured on {machine}: with another machine, or other work on this one, every number here \
             changes"
        ));
        notes.extend(cells.iter().filter_map(|cell| beyond_training(cell, policies)));
        notes.extend(lost_ticks(rolled));
    }
    notes.extend(stopped(grid, rolled));
    notes
}

/// Whether the machine kept up with the control rate and the cameras.
fn lost_ticks(rolled: &[Rolled]) -> Vec<String> {
    let all = || rolled.iter().flat_map(|rolled| &rolled.rollouts);
    let sum = |of: fn(&Rollout) -> usize| all().map(of).sum::<usize>();
    let ticks = sum(|rollout| rollout.skipped + rollout.ticks);
    let share =
        |lost: usize| format!("{lost} of {ticks} control ticks ({:.1} %)", 100.0 * lost as f64 / ticks.max(1) as f64);
    let (skipped, inactive) = (sum(|rollout| rollout.skipped), sum(|rollout| rollout.inactive));
    let skipped =
        (skipped > 0).then(|| format!("{} were passed over, because the machine was late for them", share(skipped)));
    let inactive = (inactive > 0).then(|| {
        format!(
            "in {} the policy did not have the arm: the watchdog held it, or it was on its way to a far start",
            share(inactive)
        )
    });
    skipped.into_iter().chain(inactive).collect()
}

/// In mode `vlash` the plan is bounded by the training, so that chunks of a slower policy come late (FF-23).
fn beyond_training(cell: &CellReport, policies: &[PolicyFacet]) -> Option<String> {
    let trained = policies.get(cell.policy)?.trained_delay;
    let p95 = cell.latency_ms.filter(|_| cell.method == Method::Vlash)?.p95;
    let ticks = (p95 * FPS / 1e3).ceil() as usize;
    (ticks > trained).then(|| {
        format!(
            "vlash, policy {}: {p95:.0} ms (p95) are {ticks} ticks, this policy was trained for delays up to {trained} \
             (train.delay.max): such chunks come late",
            letter(cell.policy)
        )
    })
}

/// How many rollouts the safety filter or the watchdog ended, and why the first of them.
fn stopped(grid: &Grid, rolled: &[Rolled]) -> Option<String> {
    let mut stopped = rolled.iter().flat_map(|rolled| {
        let seeded = grid.seeds.iter().zip(&rolled.rollouts);
        seeded.filter_map(|(seed, rollout)| Some((grid.cells.get(rolled.cell)?, seed, rollout.reason.as_ref()?)))
    });
    let (cell, seed, reason) = stopped.next()?;
    let count = 1 + stopped.count();
    let (method, delay) = (cell.method, &cell.lag.label);
    Some(format!("stopped rollouts: {count}, the first in mode {method}, delay {delay}, seed {seed}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::grid::Wanted;
    use crate::eval::lag::Lag;
    use crate::eval::report::Report;
    use crate::eval::table;
    use crate::eval::testing::{facet, facts};
    use crate::robot::sim::Variant;

    #[test]
    fn what_was_measured_is_said_with_its_machine_and_what_it_could_not_keep_up_with() {
        let wanted = Wanted {
            variant: Variant::Static,
            seeds: vec![4],
            methods: vec![Method::Sync, Method::Vlash],
            lags: vec![Lag::measured("orin (CPU)")],
            execute: Some(8),
            time_limit_s: 1.0,
        };
        let grid = Grid::new(wanted, &facts()).unwrap();
        let slow = Rollout {
            ticks: 28,
            skipped: 2,
            inactive: 3,
            reason: Some("camera front: last new frame 3100 ms ago".into()),
            latencies_ms: vec![100.0, 300.0, 310.0],
            ..Rollout::default()
        };
        let rolled = [0, 1].map(|cell| Rolled { policy: 0, cell, rollouts: vec![slow.clone()] });
        let report = Report::new(&grid, vec![facet("a")], &rolled);
        assert_eq!((report.clock.as_str(), report.machine.as_deref()), ("real", Some("orin (CPU)")));
        let latency = report.cells[0].latency_ms.unwrap();
        assert_eq!((latency.count, latency.p50, latency.p95), (3, 300.0, 310.0));
        assert!((report.cells[0].delay_ticks - 7.1).abs() < 1e-9);
        // There is no rollout without a delay to be better or worse than.
        assert_eq!(report.cells[1].points_vs_best, None);
        insta::assert_snapshot!(table::markdown(&report));
    }
}

//! Rollouts to numbers by cell, and what they say beside each other.

use serde::{Deserialize, Serialize};

use super::grid::{Cell, Grid, Method, variant_name};
use super::lag::Lag;
use super::remarks;
use super::rollout::Rollout;
use super::stats::{Share, mean, median};
use crate::config::ranges;
use crate::realtime::metrics::Distribution;
use crate::robot::sim::world::FPS;

/// Of the JSON form.
pub const SCHEMA: u32 = 1;

/// An evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    /// Of the program.
    pub version: String,
    pub variant: String,
    /// As they are typed: `0, 2`, `0..199`.
    pub seeds: String,
    /// Actions of a chunk that are executed, n.
    pub execute: usize,
    pub time_limit_s: f64,
    /// `virtual`: injected delays; `real`: measured on [`Self::machine`].
    pub clock: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub policies: Vec<PolicyFacet>,
    pub cells: Vec<CellReport>,
    pub notes: Vec<String>,
}

/// A policy as the report names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyFacet {
    pub name: String,
    /// Of its weights and configuration.
    pub digest: String,
    pub horizon: usize,
    pub trained_delay: usize,
    pub rtc_trained_delay: usize,
}

/// The rollouts of one policy, method and delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Index into [`Report::policies`].
    pub policy: usize,
    pub method: Method,
    pub delay: String,
    /// Mean, in control ticks.
    pub delay_ticks: f64,
    /// Launch → chunk as measured, milliseconds, over all inferences of its rollouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Distribution>,
    pub success: Share,
    /// Seconds to completion, over successes.
    pub time_mean_s: Option<f64>,
    pub time_median_s: Option<f64>,
    /// RMS jerk of commands, rad/s³.
    pub jerk: f64,
    /// Jump at chunk boundaries, rad, largest joint.
    pub boundary_jump: Option<f64>,
    /// State told − measured state at the splice, rad, largest joint.
    pub state_error: Option<f64>,
    /// Age in ticks of the image behind an action.
    pub image_age: Option<f64>,
    /// Means of a rollout.
    pub held: f64,
    pub continued: f64,
    pub misses: f64,
    pub clipped: f64,
    pub inferences: f64,
    /// Points of success more than the same policy's `sync` at delay 0.
    pub points_vs_best: Option<f64>,
    /// Time by that of `sync` at delay 0, over seeds that both solve.
    pub time_vs_best: Option<f64>,
    /// Time of `sync` at the same delay by this one's, over seeds that both solve.
    pub speed_up: Option<f64>,
    /// What arithmetic expects of it: `(n + delay) / n`, waiting once a chunk against not at all.
    pub speed_up_expected: Option<f64>,
}

/// All rollouts of one cell, in the order of the seeds.
#[derive(Debug, Clone)]
pub struct Rolled {
    pub policy: usize,
    /// Index into the grid's cells.
    pub cell: usize,
    pub rollouts: Vec<Rollout>,
}

impl Report {
    /// Of a grid's rollouts.
    pub fn new(grid: &Grid, policies: Vec<PolicyFacet>, rolled: &[Rolled]) -> Report {
        let beside = |policy: usize, wanted: &dyn Fn(&Lag) -> bool| {
            rolled.iter().find(|other| {
                let sync = |cell: &Cell| cell.method == Method::Sync && wanted(&cell.lag);
                grid.cells.get(other.cell).is_some_and(sync) && other.policy == policy
            })
        };
        let cells = rolled.iter().filter_map(|own| {
            let cell = grid.cells.get(own.cell)?;
            let mut report = CellReport::of(own, cell);
            if let Some(best) = beside(own.policy, &|lag| lag.machine().is_none() && lag.mean() == 0.0) {
                report.points_vs_best = Some(100.0 * (report.success.rate() - share(best).rate()));
                report.time_vs_best = time_ratio(&own.rollouts, &best.rollouts);
            }
            if cell.method != Method::Sync
                && let Some(waiting) = beside(own.policy, &|lag| lag.label == cell.lag.label)
            {
                report.speed_up = time_ratio(&waiting.rollouts, &own.rollouts);
                let n = grid.execute as f64;
                report.speed_up_expected = Some((n + report.delay_ticks) / n);
            }
            Some(report)
        });
        let cells: Vec<CellReport> = cells.collect();
        let notes = remarks::all(grid, &policies, &cells, rolled);
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            variant: variant_name(grid.variant).into(),
            seeds: seeds(&grid.seeds),
            execute: grid.execute,
            time_limit_s: grid.time_limit_s,
            clock: if grid.is_real_time() { "real" } else { "virtual" }.into(),
            machine: grid.machine().map(String::from),
            policies,
            cells,
            notes: grid.notes.iter().cloned().chain(notes).collect(),
        }
    }

    /// The slowest `sync` cell beside the fastest asynchronous ones, by policy: success and time, where two latencies were
    /// asked for (the setting in which the method was published).
    pub fn across_latencies(&self) -> Vec<(&CellReport, &CellReport)> {
        let slowest = |policy| {
            let sync = self.cells.iter().filter(move |cell| cell.policy == policy && cell.method == Method::Sync);
            sync.max_by(|a, b| a.delay_ticks.total_cmp(&b.delay_ticks))
        };
        let pairs = (0..self.policies.len()).filter_map(|policy| {
            let slow = slowest(policy)?;
            let asynchronous = self.cells.iter().filter(|cell| cell.policy == policy && cell.method != Method::Sync);
            let fastest = asynchronous.clone().map(|cell| cell.delay_ticks).min_by(f64::total_cmp)?;
            let beside = asynchronous.filter(move |cell| cell.delay_ticks == fastest && fastest < slow.delay_ticks);
            Some(beside.map(|fast| (slow, fast)).collect::<Vec<_>>())
        });
        pairs.flatten().collect()
    }
}

impl CellReport {
    fn of(rolled: &Rolled, cell: &Cell) -> CellReport {
        let rollouts = &rolled.rollouts;
        let latencies: Vec<f64> = rollouts.iter().flat_map(|rollout| rollout.latencies_ms.iter().copied()).collect();
        let latency_ms = (!latencies.is_empty()).then(|| Distribution::of(&latencies));
        let over =
            |value: &dyn Fn(&Rollout) -> Option<f64>| -> Vec<f64> { rollouts.iter().filter_map(value).collect() };
        let count = |value: &dyn Fn(&Rollout) -> usize| {
            mean(&rollouts.iter().map(|rollout| value(rollout) as f64).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let times = over(&|rollout| rollout.success().then_some(rollout.seconds));
        CellReport {
            policy: rolled.policy,
            method: cell.method,
            delay: cell.lag.label.clone(),
            delay_ticks: latency_ms.map_or_else(|| cell.lag.mean(), |latency| latency.mean * FPS / 1e3),
            latency_ms,
            success: share(rolled),
            time_mean_s: mean(&times),
            time_median_s: median(&times),
            jerk: mean(&over(&|rollout| Some(rollout.jerk))).unwrap_or(0.0),
            boundary_jump: mean(&over(&|rollout| rollout.boundary_jump)),
            state_error: mean(&over(&|rollout| rollout.state_error)),
            image_age: mean(&over(&|rollout| rollout.image_age)),
            held: count(&|rollout| rollout.held),
            continued: count(&|rollout| rollout.continued),
            misses: count(&|rollout| rollout.misses),
            clipped: count(&|rollout| rollout.clipped),
            inferences: count(&|rollout| rollout.inferences),
            points_vs_best: None,
            time_vs_best: None,
            speed_up: None,
            speed_up_expected: None,
        }
    }
}

fn seeds(seeds: &[u64]) -> String {
    let seeds: Vec<usize> = seeds.iter().filter_map(|&seed| usize::try_from(seed).ok()).collect();
    ranges::list(&seeds).trim_matches(['"', '[', ']']).to_string()
}

fn share(rolled: &Rolled) -> Share {
    Share::of(rolled.rollouts.iter().filter(|rollout| rollout.success()).count(), rolled.rollouts.len())
}

/// Time of `a` by time of `b` over the seeds that both solve: what one of them cannot do would otherwise count as fast.
fn time_ratio(a: &[Rollout], b: &[Rollout]) -> Option<f64> {
    let both = || a.iter().zip(b).filter(|(a, b)| a.success() && b.success());
    let total = both().map(|(_, b)| b.seconds).sum::<f64>();
    (total > 0.0).then(|| both().map(|(a, _)| a.seconds).sum::<f64>() / total)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rollout::Ending;
    use super::*;
    use crate::robot::sim::Variant;

    fn rollout(seconds: f64, ending: Ending) -> Rollout {
        Rollout {
            ending,
            seconds,
            ticks: (seconds * 30.0) as usize,
            inferences: 20,
            held: 3,
            jerk: 12.5,
            boundary_jump: Some(0.0125),
            state_error: Some(0.004),
            ..Rollout::default()
        }
    }

    /// Two methods at two delays over four seeds.
    pub(in super::super) fn synthetic() -> Report {
        let cell = |method, ticks| Cell { method, lag: Lag::fixed(ticks) };
        let grid = Grid {
            variant: Variant::Moving,
            seeds: vec![0, 1, 2, 3],
            cells: vec![cell(Method::Sync, 0), cell(Method::Sync, 8), cell(Method::Vlash, 8), cell(Method::Async, 8)],
            execute: 16,
            time_limit_s: 30.0,
            notes: vec!["a note".into()],
        };
        let placed = |times: [f64; 4]| times.map(|seconds| rollout(seconds, Ending::Placed)).to_vec();
        let mut naive = placed([9.0, 30.0, 30.0, 11.0]);
        for failed in &mut naive[1..3] {
            failed.ending = Ending::TimeLimit;
        }
        let rolled =
            [placed([8.0, 9.0, 10.0, 11.0]), placed([12.0, 13.5, 15.0, 16.5]), placed([8.0, 9.0, 10.0, 11.0]), naive];
        let rolled: Vec<Rolled> =
            rolled.into_iter().enumerate().map(|(cell, rollouts)| Rolled { policy: 0, cell, rollouts }).collect();
        let policy = PolicyFacet {
            name: "small".into(),
            digest: "0123456789abcdef".into(),
            horizon: 32,
            trained_delay: 8,
            rtc_trained_delay: 0,
        };
        Report::new(&grid, vec![policy], &rolled)
    }

    #[test]
    fn cells_are_compared_over_the_seeds_that_both_solve() {
        let report = synthetic();
        let [best, waiting, vlash, naive] = report.cells.as_slice() else { panic!("{report:?}") };
        assert_eq!((best.points_vs_best, best.time_vs_best, best.speed_up), (Some(0.0), Some(1.0), None));
        assert_eq!((waiting.time_vs_best, waiting.speed_up), (Some(1.5), None));
        assert_eq!((vlash.speed_up, vlash.speed_up_expected), (Some(1.5), Some(1.5)));
        assert_eq!((naive.success.successes, naive.points_vs_best), (2, Some(-50.0)));
        // Seeds 0 and 3 only: (12 + 16.5) / (9 + 11).
        assert_eq!(naive.speed_up, Some(1.425));
        assert_eq!((naive.time_mean_s, naive.time_median_s), (Some(10.0), Some(10.0)));
    }

    #[test]
    fn the_published_setting_is_the_slowest_sync_beside_the_fastest_other() {
        let mut report = synthetic();
        assert!(report.across_latencies().is_empty(), "the same delay is no other setting");
        report.cells[1].delay_ticks = 164.0;
        let pairs: Vec<_> = report.across_latencies().iter().map(|(a, b)| (a.method, b.method)).collect();
        assert_eq!(pairs, [(Method::Sync, Method::Vlash), (Method::Sync, Method::Async)]);
    }

    #[test]
    fn a_report_survives_json() {
        let report = synthetic();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}

//! One rollout in real time: the loop of `vlash run` with its inference thread, on whatever latency this machine has.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::error::EvalError;
use super::grid::{Cell, Grid};
use super::rollout::{Ending, Rollout};
use super::virtual_run::schedule;
use crate::realtime::control::{self, ControlSettings, End, Hooks, Progress, RolloutSettings};
use crate::realtime::policy::{ChunkPolicy, PolicyFacts};
use crate::robot::clock::Clock;
use crate::robot::sim::world::FPS;
use crate::robot::sim::{Outcome, Setup, SimRobot, TASK};

/// Rolls out `cell` in the world of `seed` with `policy`, whose chunks arrive when they are there.
///
/// # Errors
/// What keeps the rollout from beginning, such as a policy that gives no chunk, or the arm's fault.
pub fn run(grid: &Grid, cell: &Cell, seed: u64, policy: Box<dyn ChunkPolicy>) -> Result<Rollout, EvalError> {
    let settings = settings(grid, cell, seed, policy.facts());
    conduct(grid, cell, seed, policy, &settings)
}

fn conduct(
    grid: &Grid,
    cell: &Cell,
    seed: u64,
    policy: Box<dyn ChunkPolicy>,
    settings: &RolloutSettings,
) -> Result<Rollout, EvalError> {
    let clock = Clock::monotonic();
    let mut robot = SimRobot::new(&Setup { variant: grid.variant, seed }, &clock, &[]);
    let judge = robot.judge();
    let mut progress = || {
        let (outcome, said) = judge.look();
        let over = outcome != Outcome::Running;
        Progress { state: over.then(|| Arc::from(said)), over }
    };
    let mut hooks = Hooks { progress: Some(&mut progress), view: None };
    // Nobody steers; the sender lives as long as the rollout.
    let (_sender, steer) = channel();
    let done = control::run(&mut robot, policy, settings, &clock, None, &steer, &mut hooks);
    let summary = done.map_err(|source| {
        let rollout = format!("{} {} in real time, seed {seed}", grid.variant.name(), cell.method);
        EvalError::Control { rollout, source }
    })?;
    let judge = robot.judge();
    let (ending, reason) = match (judge.look().0, summary.end) {
        (Outcome::Placed { .. }, _) => (Ending::Placed, None),
        (Outcome::WrongPedestal, _) => (Ending::WrongPedestal, None),
        (Outcome::Lost, _) => (Ending::Lost, None),
        (Outcome::Running, End::Fault(fault)) => (Ending::Stopped, Some(fault)),
        (Outcome::Running, _) => (Ending::TimeLimit, None),
    };
    Ok(Rollout {
        ending,
        seconds: judge.time(),
        inferences: summary.latencies.len(),
        reason,
        latencies_ms: summary.latencies,
        ..Rollout::of(&summary.metrics)
    })
}

fn settings(grid: &Grid, cell: &Cell, seed: u64, facts: &PolicyFacts) -> RolloutSettings {
    let control = ControlSettings {
        seed,
        // There is no operator to arm it again after a camera that was late once.
        recover: true,
        expected_ticks: (grid.time_limit_s * FPS).ceil().clamp(1.0, 1e6) as usize,
        ..ControlSettings::new(schedule(grid, cell, facts), TASK)
    };
    let limit = Duration::try_from_secs_f64(grid.time_limit_s).unwrap_or(Duration::MAX);
    RolloutSettings { duration: Some(limit), ..RolloutSettings::new(control) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::grid::{Method, Wanted};
    use crate::eval::lag::Lag;
    use crate::eval::testing::{Turning, facts};
    use crate::robot::sim::Variant;

    fn rolled(method: Method, policy: Turning) -> Result<Rollout, EvalError> {
        let wanted = Wanted {
            variant: Variant::Static,
            seeds: vec![1],
            methods: vec![method],
            lags: vec![Lag::measured("here")],
            execute: Some(8),
            time_limit_s: 0.8,
        };
        let grid = Grid::new(wanted, &facts()).unwrap();
        let mut settings = settings(&grid, &grid.cells[0], 1, &policy.facts);
        // What a busy machine does to the cameras is not asked here.
        settings.control.watchdog.camera_age = Duration::from_secs(60);
        settings.control.watchdog.camera_stop = Duration::from_secs(60);
        conduct(&grid, &grid.cells[0], 1, Box::new(policy), &settings)
    }

    #[test]
    fn the_latency_is_what_inference_takes() {
        let rollout = rolled(Method::Sync, Turning { takes: Duration::from_millis(40), ..Turning::new(None) }).unwrap();
        assert_eq!((rollout.ending, rollout.reason.as_deref()), (Ending::TimeLimit, None));
        assert_eq!(rollout.latencies_ms.len(), rollout.inferences);
        assert!(rollout.inferences >= 1 && rollout.latencies_ms.iter().all(|&latency| latency >= 40.0), "{rollout:?}");
        // Two ticks at least are waited for each chunk that came.
        assert!(rollout.held >= 2 && rollout.ticks + rollout.skipped >= 20, "{rollout:?}");
        assert!((0.5..1.5).contains(&rollout.seconds), "{rollout:?}");
    }

    #[test]
    fn a_chunk_that_is_no_number_stops_it_and_a_policy_that_gives_none_keeps_it_from_beginning() {
        // Three inferences warm it up.
        let stopped = rolled(Method::Vlash, Turning::new(Some(4))).unwrap();
        let reason = stopped.reason.unwrap();
        assert_eq!(stopped.ending, Ending::Stopped);
        assert!(reason.contains("joint_3 is NaN at step 1 of 16"), "{reason}");
        let error = rolled(Method::Vlash, Turning { fails: true, ..Turning::new(None) }).unwrap_err();
        assert!(error.to_string().contains("static vlash in real time, seed 1"), "{error}");
    }
}

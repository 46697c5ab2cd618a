//! One rollout on the virtual clock: the simulated world, the scheduler and the safety filter of a real rollout, and
//! inferences that take as many ticks as they are told to.

use std::sync::Arc;
use std::time::Duration;

use super::error::EvalError;
use super::grid::{Cell, Grid, Method};
use super::pictures::Shown;
use super::rollout::{Ending, Rollout};
use crate::realtime::filter::{FilterSettings, SafetyFilter};
use crate::realtime::metrics::{Recorder, TickFacts};
use crate::realtime::policy::{ChunkPolicy, InferError, PolicyFacts, Request};
use crate::realtime::scheduler::{Command, Event, Launch, Mode, Overlap, Scheduler, Settings};
use crate::robot::sim::render::{Camera, render};
use crate::robot::sim::snapshot::Snapshot;
use crate::robot::sim::world::FPS;
use crate::robot::sim::{IMAGE_SIZE, JOINT_NAMES, Outcome, Setup, TASK, World};
use crate::robot::{Frame, Limits};
use crate::track::telemetry::Origin;

/// The gripper's place among the joints.
const GRIPPER: usize = 6;

/// A chunk that will be there at a tick.
struct Pending {
    chunk: u64,
    actions: Vec<f32>,
    due: u64,
}

/// Everything that one rollout moves.
struct Stage<'a> {
    cell: &'a Cell,
    seed: u64,
    world: World,
    scheduler: Scheduler,
    filter: SafetyFilter,
    recorder: Recorder,
    policy: &'a mut dyn ChunkPolicy,
    pending: Option<Pending>,
    /// By launch, until its chunk begins: the number and the state that the policy was told.
    told: Vec<(u64, Vec<f32>)>,
    inferences: usize,
    /// Why nothing more is commanded.
    stopped: Option<String>,
}

/// Rolls out `cell` in the world of `seed` with `policy`, whose chunks arrive as late as the cell's lag says.
///
/// # Errors
/// The policy gave no chunk, or the settings make no schedule.
pub fn run(grid: &Grid, cell: &Cell, seed: u64, policy: &mut dyn ChunkPolicy) -> Result<Rollout, EvalError> {
    conduct(grid, cell, seed, policy, None)
}

/// One tick of a rollout: what was there, what was commanded, what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub before: Snapshot,
    /// Measured joints before the command: radians, metres.
    pub state: [f32; 7],
    /// As it left the safety filter.
    pub command: [f32; 7],
    pub after: Snapshot,
    /// Whether there was no action to command.
    pub waiting: bool,
}

/// What a tick commanded.
struct Sent {
    origin: Origin,
    state: [f32; 7],
    command: [f32; 7],
}

/// As [`run`], and what the world looks like after each tick. Nothing else depends on `see`.
///
/// # Errors
/// As [`run`].
pub fn watched(
    grid: &Grid,
    cell: &Cell,
    seed: u64,
    policy: &mut dyn ChunkPolicy,
    see: &mut dyn FnMut(Shown),
) -> Result<Rollout, EvalError> {
    observed(grid, cell, seed, policy, &mut |moment| see(Shown { snapshot: moment.after, waiting: moment.waiting }))
}

/// As [`run`], and each tick. Nothing else depends on `see`.
///
/// # Errors
/// As [`run`].
pub fn observed(
    grid: &Grid,
    cell: &Cell,
    seed: u64,
    policy: &mut dyn ChunkPolicy,
    see: &mut dyn FnMut(Moment),
) -> Result<Rollout, EvalError> {
    conduct(grid, cell, seed, policy, Some(see))
}

fn conduct(
    grid: &Grid,
    cell: &Cell,
    seed: u64,
    policy: &mut dyn ChunkPolicy,
    mut see: Option<&mut dyn FnMut(Moment)>,
) -> Result<Rollout, EvalError> {
    let name = || format!("{} {} at {}, seed {seed}", grid.variant.name(), cell.method, cell.lag.label);
    let wrong = |found: String| EvalError::Rollout { rollout: name(), found };
    let world = World::new(&Setup { variant: grid.variant, seed });
    let names: Vec<String> = JOINT_NAMES.map(String::from).to_vec();
    let mut filter = SafetyFilter::new(&names, &Limits::piper(), FilterSettings::new(FPS))
        .map_err(|error| wrong(error.to_string()))?;
    filter.begin(&world.joints()).map_err(|error| wrong(error.to_string()))?;
    let scheduler = Scheduler::new(schedule(grid, cell, policy.facts())).map_err(|error| wrong(error.to_string()))?;
    let limit = (grid.time_limit_s * FPS).ceil() as u64;
    let recorder = Recorder::new(&names, &[GRIPPER], FPS, usize::try_from(limit).unwrap_or(0));
    let mut stage = Stage {
        cell,
        seed,
        world,
        scheduler,
        filter,
        recorder,
        policy,
        pending: None,
        told: Vec::new(),
        inferences: 0,
        stopped: None,
    };
    let mut ending = Ending::TimeLimit;
    for tick in 0..limit {
        let before = see.is_some().then(|| stage.world.snapshot());
        let sent = stage.tick(tick).map_err(|source| EvalError::Infer { rollout: name(), source })?;
        if let (Some(see), Some(before), Some(sent)) = (&mut see, before, &sent) {
            let (after, waiting) = (stage.world.snapshot(), sent.origin == Origin::Hold);
            see(Moment { before, state: sent.state, command: sent.command, after, waiting });
        }
        match (sent.is_some(), stage.world.outcome()) {
            (_, Outcome::Placed { .. }) => ending = Ending::Placed,
            (_, Outcome::WrongPedestal) => ending = Ending::WrongPedestal,
            (_, Outcome::Lost) => ending = Ending::Lost,
            (false, Outcome::Running) => ending = Ending::Stopped,
            (true, Outcome::Running) => continue,
        }
        break;
    }
    Ok(rollout(ending, stage))
}

/// How chunks of a policy of these facts follow one another. A latency that is not known before is measured as it goes;
/// who waits for every chunk overlaps nothing, however long it takes.
pub(super) fn schedule(grid: &Grid, cell: &Cell, facts: &PolicyFacts) -> Settings {
    let mode = match cell.method {
        Method::Sync => Mode::Sync,
        Method::Async => Mode::Async,
        Method::Vlash => Mode::Vlash,
        Method::Rtc => Mode::Rtc,
        Method::RtcTrained => Mode::RtcTrained,
    };
    let mut settings = Settings::new(mode, facts.horizon, grid.execute, facts.action_dim, FPS);
    if cell.lag.machine().is_none() && mode != Mode::Sync {
        settings.overlap = Overlap::Fixed(cell.lag.planned());
    }
    settings.trained_delay = facts.trained_delay;
    settings.rtc_trained_delay = facts.rtc_trained_delay;
    settings.grippers = vec![GRIPPER];
    settings
}

impl Stage<'_> {
    /// One control tick, and what was commanded; none: nothing more is to be.
    fn tick(&mut self, tick: u64) -> Result<Option<Sent>, InferError> {
        let measured = self.world.joints();
        if !self.deliver(tick) {
            return Ok(None);
        }
        if let Some(launch) = self.scheduler.launch(&measured, &mut self.filter) {
            self.infer(tick, launch)?;
            if !self.deliver(tick) {
                return Ok(None);
            }
        }
        let (origin, observed) = match self.scheduler.command() {
            Command::Action(action) => {
                let origin = if action.continued { Origin::Continued } else { Origin::Fresh };
                self.filter.apply(Some(action.target));
                (origin, Some(action.observed))
            }
            Command::Hold(_) => {
                self.filter.apply(None);
                (Origin::Hold, None)
            }
            Command::Stop => return Ok(None),
        };
        let clipped = self.filter.counts().clipped;
        let spliced = self.note_events(&measured);
        let mut command = [0.0; 7];
        for (value, filtered) in command.iter_mut().zip(self.filter.command()) {
            *value = *filtered;
        }
        self.recorder.tick(&TickFacts {
            time: Duration::from_secs_f64(tick as f64 / FPS),
            missed: 0,
            origin: Some(origin),
            spliced,
            clipped: clipped > self.recorder.counted().clipped_ticks,
            command: &command,
            state: &measured,
            image_age: observed.map(|observed| Duration::from_secs_f64(tick.saturating_sub(observed) as f64 / FPS)),
        });
        self.world.step(&command);
        Ok(Some(Sent { origin, state: measured, command }))
    }

    /// Hands a chunk over whose time has come; false: the filter rejects it, which ends a rollout as on a robot.
    fn deliver(&mut self, tick: u64) -> bool {
        let Some(ready) = self.pending.take_if(|pending| pending.due <= tick) else { return true };
        let horizon = self.policy.facts().horizon;
        if let Err(rejection) = self.filter.check(ready.chunk, &ready.actions, horizon) {
            self.recorder.rejected_chunk();
            self.stopped = Some(rejection.to_string());
            return false;
        }
        self.scheduler.arrive(ready.chunk, &ready.actions, None);
        true
    }

    fn infer(&mut self, tick: u64, launch: Launch) -> Result<(), InferError> {
        let snapshot = self.world.snapshot();
        let captured = Duration::from_secs_f64(tick as f64 / FPS);
        let cameras = self.policy.facts().cameras.clone();
        let camera = |name: &String| Camera::ALL.into_iter().find(|camera| camera.name() == name);
        let images = cameras.iter().filter_map(camera).map(|camera| Frame {
            captured,
            sequence: tick,
            image: Arc::new(render(&snapshot, camera, IMAGE_SIZE)),
        });
        let request = Request {
            images: images.collect(),
            state: launch.state.clone(),
            task: Arc::from(TASK),
            noise_seed: self.seed.wrapping_mul(1 << 20).wrapping_add(launch.chunk),
            continuity: launch.continuity,
            leftover: launch.leftover,
        };
        let inferred = self.policy.infer(&request)?;
        let lag = self.cell.lag.of(self.seed, self.inferences);
        self.inferences += 1;
        self.told.push((launch.chunk, launch.state));
        self.pending = Some(Pending { chunk: launch.chunk, actions: inferred.actions, due: tick + lag as u64 });
        Ok(())
    }

    /// Counts what happened to chunks; whether one began in this tick.
    fn note_events(&mut self, measured: &[f32; 7]) -> bool {
        let mut began = false;
        for event in self.scheduler.events() {
            match event {
                Event::Spliced { chunk, .. } => {
                    began = true;
                    if let Some((_, told)) = self.told.iter().find(|(number, _)| *number == chunk) {
                        self.recorder.spliced(told, measured);
                    }
                    self.told.retain(|(number, _)| *number > chunk);
                }
                Event::Missed { .. } => self.recorder.late_chunk(),
                Event::Discarded { .. } => self.recorder.discarded_chunk(),
            }
        }
        began
    }
}

fn rollout(ending: Ending, stage: Stage<'_>) -> Rollout {
    Rollout {
        ending,
        seconds: stage.world.time(),
        inferences: stage.inferences,
        reason: stage.stopped,
        ..Rollout::of(&stage.recorder.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::grid::Wanted;
    use crate::eval::lag::Lag;
    use crate::eval::testing::{Turning, facts};
    use crate::robot::sim::Variant;

    fn grid(method: Method, lag: usize) -> Grid {
        let wanted = Wanted {
            variant: Variant::Static,
            seeds: vec![1],
            methods: vec![method],
            lags: vec![Lag::fixed(lag)],
            execute: Some(8),
            time_limit_s: 2.4,
        };
        Grid::new(wanted, &facts()).unwrap()
    }

    fn rolled(method: Method, lag: usize, broken: Option<usize>) -> Rollout {
        let grid = grid(method, lag);
        run(&grid, &grid.cells[0], 1, &mut Turning::new(broken)).unwrap()
    }

    #[test]
    fn waiting_costs_the_delay_of_every_chunk_and_hiding_it_costs_that_of_the_first() {
        // 72 ticks: without delay nine chunks of eight; with four ticks of it six times four held and eight moved.
        let (fresh, sync, vlash) =
            (rolled(Method::Sync, 0, None), rolled(Method::Sync, 4, None), rolled(Method::Vlash, 4, None));
        assert_eq!((fresh.ticks, fresh.held, fresh.inferences), (72, 0, 9));
        assert_eq!((sync.ticks, sync.held, sync.inferences), (72, 24, 6));
        assert_eq!((vlash.ticks, vlash.held, vlash.misses), (72, 4, 0));
        assert_eq!(fresh.ending, Ending::TimeLimit);
        // Longer than a chunk lasts: 28 held, 8 moved, and again.
        let slow = rolled(Method::Sync, 28, None);
        assert_eq!((slow.ticks, slow.held, slow.inferences), (72, 56, 2));
    }

    #[test]
    fn vlash_is_told_the_state_of_its_first_action_and_naive_asynchrony_an_old_one() {
        let error = |method| rolled(method, 4, None).state_error.unwrap();
        assert!(error(Method::Vlash) < 1e-4, "{}", error(Method::Vlash));
        // Four steps of 2 mrad.
        assert!(error(Method::Async) > 4e-3, "{}", error(Method::Async));
    }

    #[test]
    fn the_same_rollout_gives_the_same_numbers() {
        assert_eq!(rolled(Method::Rtc, 3, None), rolled(Method::Rtc, 3, None));
    }

    #[test]
    fn who_watches_sees_every_tick_and_changes_nothing() {
        let grid = grid(Method::Sync, 4);
        let mut seen = Vec::new();
        let mut see = |shown| seen.push(shown);
        let rollout = watched(&grid, &grid.cells[0], 1, &mut Turning::new(None), &mut see).unwrap();
        assert_eq!(rollout, rolled(Method::Sync, 4, None));
        assert_eq!((seen.len(), seen.iter().filter(|shown| shown.waiting).count()), (rollout.ticks, rollout.held));
        // Four ticks of waiting, then eight of the chunk.
        let waiting: Vec<bool> = seen[..14].iter().map(|shown| shown.waiting).collect();
        assert_eq!(waiting, [&[true; 4][..], &[false; 8], &[true; 2]].concat());
        assert!(
            seen[3].snapshot.joints == seen[0].snapshot.joints && seen[11].snapshot.joints != seen[3].snapshot.joints
        );
    }

    #[test]
    fn a_chunk_that_is_no_number_ends_its_rollout_and_nothing_else() {
        let rollout = rolled(Method::Sync, 0, Some(2));
        assert_eq!((rollout.ending, rollout.ticks), (Ending::Stopped, 16));
        let reason = rollout.reason.unwrap();
        assert!(reason.contains("joint_3 is NaN at step 1 of 16"), "{reason}");
    }
}

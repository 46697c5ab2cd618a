//! A rollout in real time: connect, warm up, arm, tick on the absolute schedule, and leave the arm in an orderly state.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::core::{Core, End, Rejected, Rest};
use super::error::RolloutError;
use super::pace::{Pace, Wake};
use super::priority::{Place, Priority};
use super::settings::ControlSettings;
use crate::realtime::metrics::Metrics;
use crate::realtime::policy::ChunkPolicy;
use crate::realtime::scheduler::Overlap;
use crate::realtime::telemetry::Telemetry;
use crate::realtime::worker::{Injected, Worker};
use crate::robot::clock::Clock;
use crate::robot::{Exit, Frame, Robot};
use crate::track::event::Level;
use crate::track::telemetry::Steer;

/// What is told before anything moves.
const FOR_IMAGES: &str = "waiting for an image of every camera that shows something";
const FOR_POLICY: &str = "warming up the policy";
const FOR_OPERATOR: &str = "waiting for the operator to arm it";
/// How long cameras may take for their first image, and to find their exposure.
const FIRST_IMAGE: Duration = Duration::from_secs(5);
/// How long warming up may take.
const WARM_UP: Duration = Duration::from_secs(300);
const WARM_UP_RUNS: usize = 3;
/// How long the way to the rest pose may take.
const REST: Duration = Duration::from_secs(30);

/// What a rollout goes by.
#[derive(Debug, Clone)]
pub struct RolloutSettings {
    pub control: ControlSettings,
    /// Whether the arm moves at once; else an operator has to arm it.
    pub arm: bool,
    pub duration: Option<Duration>,
    pub exit: Exit,
    /// Part of the speed limits (0…1) at which the arm goes to its rest pose.
    pub rest_pace: f64,
    pub injected: Injected,
    pub priority: Priority,
    /// The last part of each wait that is spent looking at the clock.
    pub spin: Duration,
}

impl RolloutSettings {
    /// Armed at once, without end, held at the end, nothing asked of the system.
    pub fn new(control: ControlSettings) -> RolloutSettings {
        RolloutSettings {
            control,
            arm: true,
            duration: None,
            exit: Exit::Hold,
            rest_pace: 0.25,
            injected: Injected::None,
            priority: Priority::default(),
            spin: Duration::ZERO,
        }
    }
}

/// How a task stands, as its own judge says (of a simulated one: its physics).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    pub state: Option<Arc<str>>,
    /// The rollout ends; `state` is its outcome.
    pub over: bool,
}

/// What a tick saw and commanded, for recordings.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub now: Duration,
    pub state: &'a [f32],
    pub frames: &'a [Option<Frame>],
    pub command: &'a [f32],
    /// Whether the operator wants it recorded.
    pub recording: bool,
}

/// What others take part in the loop with. They run in the control thread and must not wait.
#[derive(Default)]
pub struct Hooks<'a> {
    pub progress: Option<&'a mut dyn FnMut() -> Progress>,
    pub view: Option<&'a mut dyn FnMut(View<'_>)>,
}

/// What a rollout was.
#[derive(Debug, Clone)]
pub struct RolloutSummary {
    pub end: End,
    pub metrics: Metrics,
    /// In milliseconds, in order: for histograms.
    pub latencies: Vec<f64>,
    pub periods: Vec<f64>,
    /// What was said before the arm moved: refused priorities, delays beyond the training.
    pub notices: Vec<String>,
    pub rejected: Option<Rejected>,
    /// Of the last warm-up run; not in the figures.
    pub warm_up: Duration,
}

/// Runs `policy` on `robot` until its end, and leaves the arm where the settings say. Times are of `clock`, which the
/// robot's have to be of too. On every way out the robot is disconnected; after a fault, or with the arm held or stopped,
/// it stays where it is.
///
/// # Errors
/// What keeps it from beginning, or the robot's fault in motion.
pub fn run(
    robot: &mut dyn Robot,
    policy: Box<dyn ChunkPolicy>,
    settings: &RolloutSettings,
    clock: &Clock,
    telemetry: Option<&Telemetry>,
    steer: &Receiver<Steer>,
    hooks: &mut Hooks<'_>,
) -> Result<RolloutSummary, RolloutError> {
    // What does not fit together is said before anything is powered.
    let core = Core::new(settings.control.clone(), policy.facts(), robot.features(), robot.limits())?;
    let priority = settings.priority;
    let worker = Worker::start_after(policy, settings.injected.clone(), move || priority.keep_off());
    let worker = worker.map_err(RolloutError::Thread)?;
    robot.connect()?;
    let place = Place::here();
    let result = Rollout { core, worker, settings, clock, telemetry, steer }.conduct(robot, hooks);
    place.restore(priority);
    let left = robot.disconnect();
    let summary = result?;
    left?;
    Ok(summary)
}

/// Hands over what there is to tell.
fn pass_on(core: &mut Core, telemetry: Option<&Telemetry>) {
    for record in core.records() {
        if let Some(telemetry) = telemetry {
            telemetry.send(record);
        }
    }
}

struct Rollout<'a> {
    core: Core,
    worker: Worker,
    settings: &'a RolloutSettings,
    clock: &'a Clock,
    telemetry: Option<&'a Telemetry>,
    steer: &'a Receiver<Steer>,
}

impl Rollout<'_> {
    fn conduct(mut self, robot: &mut dyn Robot, hooks: &mut Hooks<'_>) -> Result<RolloutSummary, RolloutError> {
        self.first_images(robot)?;
        let warm_up = self.warm_up()?;
        let notices = self.notices(warm_up);
        // The arm may have been moved meanwhile.
        self.core.begin(robot, self.clock.now())?;
        if self.settings.arm {
            self.core.arm();
            self.core.say(self.clock.now(), Level::Info, "armed: the configuration asks for no confirmation".into());
        } else {
            self.core.wait(&FOR_OPERATOR.into(), self.clock.now());
        }
        let mut pace = Pace::new(self.clock.clone(), self.settings.control.schedule.fps, self.settings.spin);
        let end = self.ticks(&mut pace, robot, hooks)?;
        if self.settings.exit == Exit::Rest {
            self.rest(&mut pace, robot)?;
        }
        Ok(RolloutSummary {
            end,
            metrics: self.core.recorder().summary(),
            latencies: self.core.recorder().latencies().to_vec(),
            periods: self.core.recorder().periods().to_vec(),
            notices,
            rejected: self.core.rejected().cloned(),
            warm_up,
        })
    }

    fn first_images(&mut self, robot: &mut dyn Robot) -> Result<(), RolloutError> {
        let deadline = self.clock.now() + FIRST_IMAGE;
        let reason = FOR_IMAGES.into();
        loop {
            self.core.begin(robot, self.clock.now())?;
            self.core.wait(&reason, self.clock.now());
            self.tell();
            let (blind, capped) = (self.core.blind(), self.core.capped());
            if blind.is_none() && capped.is_none() {
                return Ok(());
            }
            if let Some(fault) = capped.filter(|_| self.clock.now() >= deadline) {
                return Err(RolloutError::Blank(fault));
            }
            if let Some(blind) = blind.filter(|_| self.clock.now() >= deadline) {
                let camera = robot.features().cameras.get(blind).map(|camera| camera.name.clone()).unwrap_or_default();
                return Err(RolloutError::NoImage { camera, seconds: FIRST_IMAGE.as_secs() });
            }
            let pause = Duration::from_millis(10);
            match self.clock {
                Clock::Virtual(_) => self.clock.set(self.clock.now() + pause),
                Clock::Monotonic(_) => std::thread::sleep(pause),
            }
        }
    }

    fn warm_up(&mut self) -> Result<Duration, RolloutError> {
        let Rollout { core, worker, clock, telemetry, .. } = self;
        let (request, reason) = (core.request(), FOR_POLICY.into());
        let mut waiting = || {
            core.wait(&reason, clock.now());
            pass_on(core, *telemetry);
        };
        Ok(worker.warm_up(&request, WARM_UP_RUNS, WARM_UP, &mut waiting)?)
    }

    fn tell(&mut self) {
        pass_on(&mut self.core, self.telemetry);
    }

    /// What a person should know before it moves.
    fn notices(&mut self, warm_up: Duration) -> Vec<String> {
        let mut notices = self.settings.priority.apply();
        let schedule = self.core.scheduler().settings().clone();
        let injected = match &self.settings.injected {
            Injected::None => Duration::ZERO,
            Injected::Fixed(latency) => *latency,
            Injected::Trace(latencies) => latencies.iter().max().copied().unwrap_or_default(),
        };
        let expected = (warm_up.max(injected).as_secs_f64() * schedule.fps).ceil() as usize;
        let overlap = match schedule.overlap {
            Overlap::Fixed(ticks) => ticks,
            Overlap::Measured { .. } => expected.max(1),
        };
        self.core.expect_overlap(overlap);
        notices.extend(schedule.untrained(schedule.mode, overlap));
        for notice in &notices {
            self.core.say(self.clock.now(), Level::Warn, notice.clone());
        }
        notices
    }

    fn ticks(&mut self, pace: &mut Pace, robot: &mut dyn Robot, hooks: &mut Hooks<'_>) -> Result<End, RolloutError> {
        let start = self.clock.now();
        let mut before = Wake { now: start, missed: 0, late: Duration::ZERO };
        loop {
            let wake = pace.wait();
            self.operator(robot)?;
            self.task(hooks);
            self.passed_over(&wake, &before);
            before = wake;
            if self.settings.duration.is_some_and(|duration| wake.now.saturating_sub(start) >= duration) {
                self.core.finish(End::Duration);
            }
            let end = self.core.tick(wake.now, wake.missed, robot, &mut self.worker)?.cloned();
            if let Some(view) = &mut hooks.view {
                view(View {
                    now: wake.now,
                    state: &self.core.state().positions,
                    frames: self.core.frames(),
                    command: self.core.filter().command(),
                    recording: self.core.recording(),
                });
            }
            self.tell();
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Takes the arm to its rest pose, if it may be moved. The operator's stop, hold and emergency stop end the way.
    fn rest(&mut self, pace: &mut Pace, robot: &mut dyn Robot) -> Result<(), RolloutError> {
        let Some(pose) = robot.rest(self.core.filter().command()).filter(|_| self.core.may_rest()) else {
            return Ok(());
        };
        let until = self.clock.now() + REST;
        self.core.say(self.clock.now(), Level::Info, "going to the rest pose".into());
        loop {
            let wake = pace.wait();
            while let Ok(steer) = self.steer.try_recv() {
                if steer == Steer::Stop {
                    return Ok(());
                }
                self.core.steer(&steer, robot, self.clock.now())?;
            }
            let rest = self.core.rest(wake.now, wake.missed, robot, &pose, self.settings.rest_pace)?;
            self.tell();
            if rest != Rest::Going || wake.now >= until {
                return Ok(());
            }
        }
    }

    /// Says why ticks were passed over, as far as the tick `before` tells.
    fn passed_over(&mut self, wake: &Wake, before: &Wake) {
        if wake.missed == 0 {
            return;
        }
        let period = Duration::try_from_secs_f64(1.0 / self.settings.control.schedule.fps).unwrap_or(Duration::MAX);
        let (late, took) = (before.late.as_secs_f64() * 1e3, wake.now.saturating_sub(before.now).as_secs_f64() * 1e3);
        let by_system = before.late > period / 2;
        self.core.complain(wake.now, || {
            let cause = if by_system {
                format!("the system woke the loop {late:.0} ms late; control.realtime=true asks for priority")
            } else {
                format!(
                    "a tick took {took:.0} ms; the robot's driver waits, or the machine is too slow for control.fps"
                )
            };
            format!("{} control ticks passed over: {cause}", wake.missed)
        });
    }

    fn operator(&mut self, robot: &mut dyn Robot) -> Result<(), RolloutError> {
        loop {
            match self.steer.try_recv() {
                Ok(steer) => self.core.steer(&steer, robot, self.clock.now())?,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn task(&mut self, hooks: &mut Hooks<'_>) {
        let Some(progress) = &mut hooks.progress else { return };
        let Progress { state, over } = progress();
        if over {
            self.core.finish(End::Done(state.clone().unwrap_or_else(|| "the task is over".into())));
        }
        self.core.set_task_state(state);
    }
}

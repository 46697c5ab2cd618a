//! One control tick: read, watch, take a chunk, decide, limit, send. It knows no clock and does not wait, so the same
//! body runs a real arm and a virtual hour. Without a launch, an arrival or an event a tick allocates nothing.

mod chunks;
mod operator;
mod rest;
mod tell;

pub use self::rest::Rest;

use std::sync::Arc;
use std::time::Duration;

use super::error::RolloutError;
use super::settings::{ControlSettings, match_cameras, match_joints};
use crate::realtime::filter::{FarStart, SafetyFilter};
use crate::realtime::metrics::Recorder;
use crate::realtime::policy::{Continuity, PolicyFacts, Request};
use crate::realtime::scheduler::Scheduler;
use crate::realtime::telemetry::Record;
use crate::realtime::watchdog::{Fault, Observed, Verdict, Watchdog, blank};
use crate::realtime::worker::Inference;
use crate::robot::{Features, Frame, JointState, Limits, Robot, RobotError};
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Origin};

/// Records that a tick can have: itself, a status, a thumbnail a camera, and a chunk's or an arm's events.
const RECORDS: usize = 32;

/// How a rollout ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The task is over, in its own words.
    Done(Arc<str>),
    /// The time is over.
    Duration,
    /// The operator ended it.
    Stopped,
    /// What it depends on failed, or commands were not to be followed.
    Fault(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Done(outcome) => f.write_str(outcome),
            End::Duration => f.write_str("time is over"),
            End::Stopped => f.write_str("stopped by the operator"),
            End::Fault(fault) => f.write_str(fault),
        }
    }
}

/// What is kept of the observation that a chunk answers.
#[derive(Debug, Clone, Default)]
struct Behind {
    chunk: u64,
    /// The oldest image.
    captured: Option<Duration>,
    told: Vec<f32>,
    /// Ticks from its launch to its planned begin.
    overlap: u64,
}

/// Images that a camera gave in the last second.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    sequence: u64,
    since: Duration,
    hz: f64,
}

/// A chunk that was rejected, with what the policy was asked.
#[derive(Debug, Clone)]
pub struct Rejected {
    pub chunk: u64,
    pub request: Request,
    pub actions: Vec<f32>,
    pub reason: String,
}

/// What a tick did, for the next stages.
#[derive(Debug, Clone, Copy)]
struct Sent {
    origin: Option<Origin>,
    action: Option<(u64, u32)>,
    clipped: u32,
    /// The action led the gripper out of its workspace.
    outside: bool,
    image_age: Option<Duration>,
}

impl Sent {
    /// The arm is not under the policy.
    const IDLE: Sent = Sent { origin: None, action: None, clipped: 0, outside: false, image_age: None };
}

/// The loop's state.
pub struct Core {
    settings: ControlSettings,
    robot_name: String,
    horizon: usize,
    cameras: Vec<usize>,
    camera_names: Vec<String>,
    scheduler: Scheduler,
    filter: SafetyFilter,
    watchdog: Watchdog,
    recorder: Recorder,
    arm: ArmState,
    reason: Option<Arc<str>>,
    /// The hold is the watchdog's, so that it may end by itself.
    watched: bool,
    /// The next action is the first since the arm was armed.
    starting: bool,
    approach: Option<Vec<f32>>,
    recording: bool,
    task_state: Option<Arc<str>>,
    state: JointState,
    frames: Vec<Option<Frame>>,
    asked: Option<Request>,
    asked_at: Option<Duration>,
    /// The chunk that was asked for and neither began nor was given up.
    pending: Option<u64>,
    flying: Behind,
    used: Behind,
    continued: bool,
    spliced: bool,
    /// Of the newest chunk.
    latency: Duration,
    complained: Option<Duration>,
    rejected: Option<Rejected>,
    heartbeat: Duration,
    last_sent: Option<Duration>,
    status_due: Duration,
    thumbnails_due: Duration,
    rates: Vec<Rate>,
    end: Option<End>,
    outbox: Vec<Record>,
}

impl Core {
    /// For a robot with these features and limits and a policy of these facts. Disarmed.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn new(
        settings: ControlSettings,
        facts: &PolicyFacts,
        features: &Features,
        limits: &Limits,
    ) -> Result<Core, RolloutError> {
        match_joints(facts, features, limits)?;
        let cameras = match_cameras(facts, features, &settings.cameras)?;
        let names: Vec<String> = features.cameras.iter().map(|camera| camera.name.clone()).collect();
        let joints = features.joints.len();
        let grippers = &settings.schedule.grippers;
        let mut schedule = settings.schedule.clone();
        (schedule.horizon, schedule.action_dim) = (facts.horizon, facts.action_dim);
        (schedule.trained_delay, schedule.rtc_trained_delay) = (facts.trained_delay, facts.rtc_trained_delay);
        let behind = Behind { told: Vec::with_capacity(joints), ..Behind::default() };
        Ok(Core {
            robot_name: features.robot_type.clone(),
            horizon: facts.horizon,
            cameras,
            scheduler: Scheduler::new(schedule)?,
            filter: SafetyFilter::new(&features.joints, limits, settings.filter.clone())?,
            watchdog: Watchdog::new(settings.watchdog.clone(), &names, joints),
            recorder: Recorder::new(&features.joints, grippers, settings.schedule.fps, settings.expected_ticks),
            arm: ArmState::Disarmed,
            reason: None,
            watched: false,
            starting: true,
            approach: None,
            recording: false,
            task_state: None,
            state: JointState { positions: vec![0.0; joints], captured: Duration::ZERO },
            frames: Vec::with_capacity(names.len()),
            asked: None,
            asked_at: None,
            pending: None,
            flying: behind.clone(),
            used: behind,
            continued: false,
            spliced: false,
            latency: Duration::ZERO,
            complained: None,
            rejected: None,
            heartbeat: Duration::ZERO,
            last_sent: None,
            status_due: Duration::ZERO,
            thumbnails_due: Duration::ZERO,
            rates: vec![Rate::default(); names.len()],
            camera_names: names,
            end: None,
            outbox: Vec::with_capacity(RECORDS),
            settings,
        })
    }

    /// Reads the arm once and takes its pose as the command in force. Before the first tick.
    ///
    /// # Errors
    /// The arm's, or a pose from which it must not move.
    pub fn begin(&mut self, robot: &mut dyn Robot, now: Duration) -> Result<(), RolloutError> {
        robot.read(&mut self.state)?;
        robot.frames(&mut self.frames);
        self.filter.begin(&self.state.positions)?;
        self.heartbeat = now;
        Ok(())
    }

    /// The arm moves from the next tick on, from where it stands.
    pub fn arm(&mut self) {
        self.scheduler.reset();
        self.pending = None;
        self.watchdog.forgive();
        (self.arm, self.reason, self.watched) = (ArmState::Armed, None, false);
        (self.starting, self.approach, self.asked_at) = (true, None, None);
    }

    /// Nothing moves yet, and why: told like a tick's state, so that whoever watches knows that somebody is there.
    pub fn wait(&mut self, reason: &Arc<str>, now: Duration) {
        self.reason = Some(Arc::clone(reason));
        self.tell_state(now);
    }

    /// Whether there is an image of every camera that the policy needs.
    pub fn sees(&self) -> bool {
        self.blind().is_none()
    }

    /// The first camera, by its number, that the policy needs and that gave no image yet.
    pub fn blind(&self) -> Option<usize> {
        self.cameras.iter().copied().find(|&camera| self.frame(camera).is_none())
    }

    /// The first camera that the policy needs whose image shows nothing, with the image's lowest and highest value.
    pub fn capped(&self) -> Option<Fault> {
        self.cameras.iter().find_map(|&camera| {
            let [low, high] = blank(&self.frame(camera)?.image)?;
            let camera = self.camera_names.get(camera).cloned().unwrap_or_default();
            Some(Fault::CameraBlank { camera, low, high })
        })
    }

    /// A request on what is seen now, as at a launch with the measured state: for warming up.
    pub fn request(&self) -> Request {
        Request {
            images: self.cameras.iter().filter_map(|&camera| self.frame(camera).cloned()).collect(),
            state: self.state.positions.clone(),
            task: Arc::clone(&self.settings.task),
            noise_seed: self.settings.seed,
            continuity: Continuity::Free,
            leftover: None,
        }
    }

    /// One tick at `now`, after `missed` ticks that were passed over. How the rollout ended, if it did.
    ///
    /// # Errors
    /// The arm's: it must not be commanded any further.
    pub fn tick(
        &mut self,
        now: Duration,
        missed: u32,
        robot: &mut dyn Robot,
        inference: &mut dyn Inference,
    ) -> Result<Option<&End>, RobotError> {
        robot.read(&mut self.state)?;
        robot.frames(&mut self.frames);
        self.watch(now);
        self.spliced = false;
        let sent = if self.arm == ArmState::Armed && self.end.is_none() {
            self.under_policy(now, inference)
        } else {
            // An answer to what was asked before the hold is nobody's any more.
            drop(inference.poll());
            self.filter.apply(None);
            Sent::IDLE
        };
        if self.arm != ArmState::EmergencyStopped {
            robot.send(self.filter.command())?;
        }
        self.account(now, missed, sent);
        self.tell_state(now);
        Ok(self.end.as_ref())
    }

    /// What a measured overlap begins with, in ticks.
    pub fn expect_overlap(&mut self, ticks: usize) {
        self.scheduler.expect_overlap(ticks);
    }

    /// Ends the rollout with the next tick.
    pub fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// What the task says of itself.
    pub fn set_task_state(&mut self, state: Option<Arc<str>>) {
        self.task_state = state;
    }

    /// What there is to tell since the last call.
    pub fn records(&mut self) -> impl Iterator<Item = Record> + '_ {
        self.outbox.drain(..)
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn filter(&self) -> &SafetyFilter {
        &self.filter
    }

    /// The last chunk that the filter rejected.
    pub fn rejected(&self) -> Option<&Rejected> {
        self.rejected.as_ref()
    }

    pub fn arm_state(&self) -> ArmState {
        self.arm
    }

    /// Why it holds.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether the operator wants the rollout recorded.
    pub fn recording(&self) -> bool {
        self.recording
    }

    /// As read in the last tick, before its command.
    pub fn state(&self) -> &JointState {
        &self.state
    }

    /// As seen in the last tick.
    pub fn frames(&self) -> &[Option<Frame>] {
        &self.frames
    }

    fn frame(&self, camera: usize) -> Option<&Frame> {
        self.frames.get(camera).and_then(Option::as_ref)
    }

    fn verdict(&mut self, now: Duration) -> Verdict {
        self.watchdog.observe(&Observed {
            now,
            frames: &self.frames,
            state: &self.state.positions,
            command: self.filter.command(),
            waiting_since: self.asked_at,
            continued: self.continued,
        })
    }

    /// Whether there was no sign of the operator for too long.
    fn is_alone(&self, now: Duration) -> bool {
        self.settings.dead_man.is_some_and(|limit| now.saturating_sub(self.heartbeat) > limit)
    }

    fn watch(&mut self, now: Duration) {
        let verdict = self.verdict(now);
        match verdict {
            // Also where it holds already, because of a fault that has lasted too long by now.
            Verdict::Stop(fault) if self.arm == ArmState::Armed || (self.arm == ArmState::Holding && self.watched) => {
                self.finish(End::Fault(fault.to_string()))
            }
            Verdict::Hold(fault) if self.arm == ArmState::Armed => self.hold(fault.to_string(), true, now),
            Verdict::Well if self.arm == ArmState::Holding && self.watched && self.settings.recover => {
                self.arm();
                self.say(now, Level::Info, "armed again: what held the arm is over".into());
            }
            _ if self.arm == ArmState::Armed && self.is_alone(now) => {
                self.hold("no sign of the operator".into(), false, now)
            }
            _ => {}
        }
    }

    fn under_policy(&mut self, now: Duration, inference: &mut dyn Inference) -> Sent {
        if let Some(target) = self.approach.take() {
            let FarStart::Approach(pace) = self.settings.filter.far_start else { return Sent::IDLE };
            if !self.filter.approach(&target, pace) {
                self.approach = Some(target);
            }
            return Sent::IDLE;
        }
        self.take(now, inference);
        if self.sees() {
            let launch = self.scheduler.launch(&self.state.positions, &mut self.filter);
            self.note_events(now);
            if let Some(launch) = launch {
                self.ask(now, launch, inference);
                self.take(now, inference);
            }
        }
        if self.arm != ArmState::Armed || self.end.is_some() {
            self.filter.apply(None);
            return Sent::IDLE;
        }
        self.command(now)
    }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

//! What is known of the watched run, rebuilt from its directory alone.

use std::collections::VecDeque;

use super::commands::{Commands, Progress};
use super::format;
use super::history::Series;
use super::log::Log;
use crate::track::event::{Body, Event, Level, Outcome, StepMetrics, ValidationMetrics};
use crate::track::reader::{Problem, RunFacts, Update};
use crate::track::status::{State as RunState, Status};

/// A heartbeat older than this is stale: values dim. Runs beat at least every two seconds.
pub const STALE_S: f64 = 15.0;
/// A heartbeat older than this is a silence that a person should look into.
pub const SILENT_S: f64 = 600.0;
/// Most notifications kept.
const NOTIFICATIONS: usize = 200;

/// Something a person should read.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// When it happened, by the run's clock.
    pub time: f64,
    /// When we read of it, by ours.
    pub noticed: f64,
    pub level: Level,
    pub text: String,
    pub seen: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    pub outcome: Outcome,
    pub step: u64,
    pub detail: String,
    pub checkpoint: Option<String>,
}

impl Ending {
    pub fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Finished => "finished",
            Outcome::Stopped => "stopped",
            Outcome::Failed => "failed",
        }
    }
}

/// Whether the run gives signs of life. Ages in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Liveness {
    /// Nothing has been heard yet.
    Waiting,
    Alive(f64),
    Stale(f64),
    Silent(f64),
    /// Its process is gone from this host and left no word.
    Vanished,
    Ended,
}

/// The newest complete checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointNote {
    pub step: u64,
    pub path: String,
    pub bytes: u64,
    pub seconds: f64,
}

/// What the process said when it began.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    pub time: f64,
    pub steps: u64,
    pub pid: u32,
    pub host: String,
    pub version: String,
}

/// All that is known. Plain data.
#[derive(Debug, Default)]
pub struct Run {
    pub facts: RunFacts,
    pub status: Option<Status>,
    pub start: Option<Start>,
    pub weights: Option<String>,
    pub metrics: Option<StepMetrics>,
    pub validated: Option<ValidationMetrics>,
    pub checkpoint: Option<CheckpointNote>,
    ended: Option<Ending>,
    pub loss: Series,
    pub grad_norm: Series,
    pub lr: Series,
    pub validation: Series,
    pub log: Log,
    pub commands: Commands,
    pub notifications: VecDeque<Notification>,
    /// What keeps the directory from being read, once it was found at two looks in a row.
    pub problem: Option<Problem>,
    problems_in_a_row: u32,
    /// Event lines of kinds this version does not know, and lines that are none.
    pub unknown: u64,
    pub damaged: u64,
    /// Share of the event file read so far.
    pub progress: f64,
    /// Whether the process is on this host: known only when the run is.
    pub process_alive: Option<bool>,
    heartbeat: Option<Heartbeat>,
    /// The history has been read: from here on events are news.
    caught_up: bool,
    /// Now, by our clock.
    pub clock: f64,
}

/// The last sign of life, by the run's clock, and when its change was noticed by ours.
#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    value: f64,
    noticed: Option<f64>,
}

impl Run {
    /// A run of which nothing is known yet at `now`.
    pub fn new(now: f64) -> Run {
        Run { clock: now, progress: 1.0, ..Run::default() }
    }

    /// Takes over what one look found.
    pub fn apply(&mut self, update: Update, now: f64) {
        self.clock = now;
        if update.restarted {
            self.forget();
            self.notify(Level::Warn, "the run's event file began anew: read again from its start".into());
        }
        if let Some(facts) = update.run {
            self.facts = facts;
        }
        self.unknown += update.unknown;
        self.damaged += update.damaged;
        self.progress = update.progress;
        for event in update.events {
            self.event(event);
        }
        for line in update.log {
            self.log.push_file_line(format::clean(&line));
        }
        if let Some(status) = update.status {
            self.beat(status.heartbeat, now);
            self.status = Some(status);
        }
        self.caught_up |= self.progress >= 1.0;
        self.note_problem(update.problem);
    }

    fn note_problem(&mut self, problem: Option<Problem>) {
        // One failed look is common where files are replaced under a network file system.
        self.problems_in_a_row = if problem.is_some() { self.problems_in_a_row + 1 } else { 0 };
        self.problem = problem.filter(|_| self.problems_in_a_row >= 2);
    }

    fn beat(&mut self, value: f64, now: f64) {
        match self.heartbeat {
            None => self.heartbeat = Some(Heartbeat { value, noticed: None }),
            Some(old) if old.value != value => self.heartbeat = Some(Heartbeat { value, noticed: Some(now) }),
            Some(_) => {}
        }
    }

    fn forget(&mut self) {
        let keep = std::mem::take(self);
        *self = Run {
            facts: keep.facts,
            status: keep.status,
            heartbeat: keep.heartbeat,
            process_alive: keep.process_alive,
            commands: keep.commands,
            notifications: keep.notifications,
            ..Run::new(keep.clock)
        };
    }

    fn event(&mut self, event: Event) {
        let time = event.time;
        match event.body {
            Body::Started { step, steps, pid, host, version, resumed_from } => {
                self.ended = None;
                if step > 0 {
                    self.forget_after(step);
                }
                let from = resumed_from.map(|from| format!(" from {}", format::clean(&from))).unwrap_or_default();
                let text =
                    if step > 0 { format!("resumed at step {step}{from}") } else { format!("started, {steps} steps") };
                self.tell(time, Level::Info, text);
                self.start =
                    Some(Start { time, steps, pid, host: format::clean(&host), version: format::clean(&version) });
            }
            Body::Weights { account, .. } => {
                let account = format::clean(&account);
                self.log.push_event_line(time, Level::Info, &account);
                self.weights = Some(account);
            }
            Body::Step(metrics) => self.step(time, metrics),
            Body::Validation(metrics) => self.validation(time, metrics),
            Body::Checkpoint { step, path, bytes, seconds } => {
                let path = format::clean(&path);
                self.tell(time, Level::Info, format!("checkpoint at step {step}: {path} ({})", format::bytes(bytes)));
                self.checkpoint = Some(CheckpointNote { step, path, bytes, seconds });
            }
            Body::CheckpointFailed { step, reason, last_good, next_step } => {
                let good = last_good.map_or_else(|| "none".into(), |path| format::clean(&path));
                let reason = format::clean(&reason);
                let text = format!(
                    "checkpoint at step {step} failed: {reason}; last good: {good}; next try at step {next_step}"
                );
                self.tell(time, Level::Error, text);
            }
            Body::CommandSeen { id, command, step } => {
                self.commands.answer(&id, &format::clean(&command), time, Progress::Seen { step });
            }
            Body::CommandDone { id, command, step, detail } => {
                let (command, detail) = (format::clean(&command), format::clean(&detail));
                self.tell(time, Level::Info, format!("{command} done at step {step} {detail}").trim_end().into());
                self.commands.answer(&id, &command, time, Progress::Done { step, detail });
            }
            Body::CommandRefused { id, command, step, reason } => {
                let (command, reason) = (format::clean(&command), format::clean(&reason));
                self.tell(time, Level::Error, format!("{command} refused: {reason}"));
                self.commands.answer(&id, &command, time, Progress::Refused { step, reason });
            }
            Body::Notice { level, text } => self.tell(time, level, format::clean(&text)),
            Body::Ended { step, outcome, detail, checkpoint } => {
                let ending = Ending {
                    outcome,
                    step,
                    detail: format::clean(&detail),
                    checkpoint: checkpoint.map(|c| format::clean(&c)),
                };
                let level = if outcome == Outcome::Failed { Level::Error } else { Level::Info };
                self.tell(time, level, format!("{} at step {step} {}", ending.word(), ending.detail).trim_end().into());
                self.ended = Some(ending);
            }
        }
    }

    fn step(&mut self, time: f64, metrics: StepMetrics) {
        let step = metrics.step;
        let known_bad = self.loss.last_non_finite();
        self.loss.push(step, time, metrics.loss);
        self.grad_norm.push(step, time, metrics.grad_norm);
        self.lr.push(step, time, metrics.lr);
        if !metrics.loss.is_finite() && known_bad.is_none() {
            let text =
                format!("loss is not finite at step {step}: S stop, R lower the rate, or go back to a checkpoint");
            self.tell(time, Level::Error, text);
        }
        let line = format!(
            "step {step} loss {} gnorm {} lr {}",
            format::metric(metrics.loss),
            format::metric(metrics.grad_norm),
            format::rate(metrics.lr)
        );
        self.log.push_event_line(time, Level::Info, &line);
        self.metrics = Some(metrics);
    }

    fn validation(&mut self, time: f64, metrics: ValidationMetrics) {
        self.validation.push(metrics.step, time, metrics.loss);
        let loss = format::metric(metrics.loss);
        let zero = format::metric(metrics.zero_velocity);
        let line = format!("validation at step {} loss {loss} (zero velocity {zero})", metrics.step);
        self.log.push_event_line(time, Level::Info, &line);
        self.validated = Some(metrics);
    }

    fn forget_after(&mut self, step: u64) {
        for series in [&mut self.loss, &mut self.grad_norm, &mut self.lr, &mut self.validation] {
            series.forget_after(step);
        }
    }

    /// A log line and a notification, which counts as seen when it is history.
    fn tell(&mut self, time: f64, level: Level, text: String) {
        self.log.push_event_line(time, level, &text);
        self.note(time, level, text, !self.caught_up);
    }

    /// Raises a notification of this program itself, now.
    pub fn notify(&mut self, level: Level, text: String) {
        self.note(self.clock, level, text, false);
    }

    fn note(&mut self, time: f64, level: Level, text: String, seen: bool) {
        if self.notifications.len() == NOTIFICATIONS {
            self.notifications.pop_front();
        }
        self.notifications.push_back(Notification { time, noticed: self.clock, level, text, seen });
    }

    /// How the run ended, by its events or by its status alone.
    pub fn ending(&self) -> Option<Ending> {
        if self.ended.is_some() {
            return self.ended.clone();
        }
        let status = self.status.as_ref()?;
        let outcome = match status.state {
            RunState::Finished => Outcome::Finished,
            RunState::Stopped => Outcome::Stopped,
            RunState::Failed => Outcome::Failed,
            _ => return None,
        };
        let checkpoint = status.checkpoint.as_deref().map(format::clean);
        Some(Ending { outcome, step: status.step, detail: String::new(), checkpoint })
    }

    pub fn is_paused(&self) -> bool {
        self.ending().is_none() && self.status.as_ref().is_some_and(|s| s.state == RunState::Paused)
    }

    /// Signs of life at `now`. An age is counted on our clock from the moment a heartbeat was seen to change, because
    /// the clocks of two hosts differ; only before the first change the run's own clock must do.
    pub fn liveness(&self, now: f64) -> Liveness {
        if self.ending().is_some() {
            return Liveness::Ended;
        }
        let Some(beat) = self.heartbeat else { return Liveness::Waiting };
        let age = (now - beat.noticed.unwrap_or(beat.value)).max(0.0);
        if age > STALE_S && self.process_alive == Some(false) {
            Liveness::Vanished
        } else if age > SILENT_S {
            Liveness::Silent(age)
        } else if age > STALE_S {
            Liveness::Stale(age)
        } else {
            Liveness::Alive(age)
        }
    }

    /// The run's state in one capital word.
    pub fn word(&self) -> &'static str {
        if let Some(ending) = self.ending() {
            return match ending.outcome {
                Outcome::Finished => "FINISHED",
                Outcome::Stopped => "STOPPED",
                Outcome::Failed => "FAILED",
            };
        }
        match self.status.as_ref().map(|s| s.state) {
            None => "WAITING",
            Some(RunState::Starting) => "STARTING",
            Some(RunState::Paused) => "PAUSED",
            Some(RunState::Stopping) => "STOPPING",
            Some(_) => "RUNNING",
        }
    }

    /// Optimizer steps done and wanted.
    pub fn steps(&self) -> (u64, u64) {
        let status = self.status.as_ref();
        let done = self.metrics.as_ref().map_or(0, |m| m.step).max(status.map_or(0, |s| s.step));
        (done, status.map(|s| s.steps).or(self.start.as_ref().map(|s| s.steps)).unwrap_or(0))
    }

    pub fn name(&self) -> String {
        let name = self.status.as_ref().map(|s| s.name.as_str()).or(self.facts.name.as_deref()).unwrap_or("run");
        format::clean(name)
    }

    /// Seconds to the end: what the run says, else from the newest step.
    pub fn eta(&self) -> Option<f64> {
        if self.ending().is_some() {
            return None;
        }
        let stated = self.status.as_ref().and_then(|s| s.eta_s);
        let (done, steps) = self.steps();
        let derived = self.metrics.as_ref().map(|m| steps.saturating_sub(done) as f64 * m.step_s);
        stated.or(derived.filter(|_| steps > 0)).filter(|eta| eta.is_finite())
    }

    /// The newest complete checkpoint's path, by event, ending or status.
    pub fn last_checkpoint(&self) -> Option<String> {
        let ended = self.ended.as_ref().and_then(|e| e.checkpoint.clone());
        let noted = self.checkpoint.as_ref().map(|c| c.path.clone());
        ended.or(noted).or_else(|| self.status.as_ref()?.checkpoint.as_deref().map(format::clean))
    }

    /// The version that wrote the run, when it is newer than `ours`.
    pub fn newer_version(&self, ours: &str) -> Option<String> {
        let theirs = self.start.as_ref().map(|s| s.version.clone()).or_else(|| self.facts.version.clone())?;
        (release(&theirs)? > release(ours)?).then(|| format::clean(&theirs))
    }

    /// Process and host of the run, as far as they are known.
    pub fn process(&self) -> Option<(u32, String)> {
        let status = self.status.as_ref().map(|s| (s.pid, format::clean(&s.host)));
        status.or_else(|| self.start.as_ref().map(|s| (s.pid, s.host.clone())))
    }
}

/// Major and minor number: patches do not change what a run writes.
fn release(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next().unwrap_or("0").parse().ok()?))
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

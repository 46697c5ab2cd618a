//! What a rollout told, bounded: the last minute in full, latencies and events for longer.
//!
//! Everything is kept with its time on the robot's clock, and everything that is shown is asked for *as of* a moment, so
//! that a frozen screen can be moved over the last minute. The same message taken twice changes nothing: what came over
//! the socket may come again from the file.

use std::collections::VecDeque;
use std::sync::Arc;

use super::pictures::Picture;
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Chunk, Hello, Message, Phase, Status, Tick};
use crate::tui::format;

/// What scrubbing reaches, and what "last minute" means, in seconds.
pub const MINUTE_S: f64 = 60.0;
/// What is kept: the minute, and what the oldest moment of it looks back on.
const KEEP_S: f64 = 2.0 * MINUTE_S + 5.0;
/// Most entries of each kind, whatever their times claim.
const CAPACITY: usize = 20_000;
const EVENTS: usize = 500;
/// Images of the last minute: two cameras, two a second.
const PICTURES: usize = 400;
/// Most joints and cameras; no robot has as many.
const WIDEST: usize = 64;

/// Anything a person should read.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub time: f64,
    pub level: Level,
    pub text: String,
}

/// How the rollout ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    pub time: f64,
    pub outcome: String,
    pub report: Option<String>,
}

/// A finished inference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    pub time: f64,
    pub ms: f64,
    pub synchronous: bool,
}

/// What is known of one chunk: times in seconds, places in control ticks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Life {
    pub number: u64,
    pub launched: Option<Launch>,
    pub arrived: Option<Arrival>,
    pub spliced: Option<Splice>,
    pub discarded: Option<Discard>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    pub time: f64,
    pub tick: u64,
    /// The tick at which it is planned to start.
    pub splice: u64,
    pub synchronous: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    pub time: f64,
    pub tick: u64,
    pub latency_ms: f64,
    /// Preprocessing, prefix, denoising and copying, milliseconds.
    pub parts_ms: [f64; 4],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Splice {
    pub time: f64,
    pub tick: u64,
    /// Its first action that was commanded.
    pub index: u32,
    /// Ticks after the plan.
    pub late: u32,
    pub jump: f32,
    pub state_error: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Discard {
    pub time: f64,
    pub tick: u64,
    /// Why it is not used.
    pub reason: String,
}

impl Life {
    /// The chunk as it was known at `at`; none when it had not begun.
    pub fn as_of(&self, at: f64) -> Option<Life> {
        let life = Life {
            number: self.number,
            launched: self.launched.filter(|l| l.time <= at),
            arrived: self.arrived.filter(|a| a.time <= at),
            spliced: self.spliced.filter(|s| s.time <= at),
            discarded: self.discarded.clone().filter(|d| d.time <= at),
        };
        let known = life.launched.is_some() || life.arrived.is_some() || life.spliced.is_some();
        (known || life.discarded.is_some()).then_some(life)
    }
}

/// The record of one rollout.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub hello: Option<Hello>,
    pub ended: Option<Ending>,
    ticks: VecDeque<Tick>,
    statuses: VecDeque<Status>,
    chunks: VecDeque<Life>,
    latencies: VecDeque<Latency>,
    events: VecDeque<Said>,
    pictures: VecDeque<Arc<Picture>>,
    /// The newest time of any message.
    latest: f64,
}

impl History {
    /// Takes over a message. Another rollout's greeting begins anew.
    pub fn apply(&mut self, message: Message) {
        match message {
            Message::Hello(hello) => self.greet(hello),
            Message::Tick(tick) => self.tick(tick),
            Message::Chunk(chunk) => self.chunk(chunk),
            Message::Status(status) => self.status(status),
            Message::Thumbnail(_) => {}
            Message::Event { time, level, text } => self.say(time, level, &text),
            Message::Ended { time, outcome, report } => {
                self.reach(time);
                let report = report.map(|report| format::clean(&report));
                self.ended.get_or_insert(Ending { time, outcome: format::clean(&outcome), report });
            }
        }
        self.forget();
    }

    pub fn picture(&mut self, picture: Picture) {
        let newer = self.pictures.iter().rev().find(|p| p.camera == picture.camera);
        if newer.is_none_or(|before| before.time < picture.time) {
            self.reach(picture.time);
            push(&mut self.pictures, Arc::new(picture), PICTURES);
        }
    }

    fn greet(&mut self, mut hello: Hello) {
        hello.joints.truncate(WIDEST);
        hello.cameras.truncate(WIDEST);
        for text in [&mut hello.robot, &mut hello.policy, &mut hello.task, &mut hello.host, &mut hello.version] {
            *text = format::clean(text);
        }
        hello.joints.iter_mut().chain(&mut hello.cameras).for_each(|name| *name = format::clean(name));
        let same =
            self.hello.as_ref().is_none_or(|h| (h.pid, &h.host, &h.robot) == (hello.pid, &hello.host, &hello.robot));
        if !same {
            *self = History::default();
        }
        self.hello = Some(hello);
    }

    fn tick(&mut self, mut tick: Tick) {
        if self.ticks.back().is_some_and(|last| tick.tick <= last.tick) {
            return;
        }
        tick.state.truncate(WIDEST);
        tick.command.truncate(WIDEST);
        tick.time = self.reach(tick.time);
        push(&mut self.ticks, tick, CAPACITY);
    }

    fn status(&mut self, mut status: Status) {
        if self.statuses.back().is_some_and(|last| status.time <= last.time) {
            return;
        }
        for text in [status.reason.as_mut(), Some(&mut status.mode), status.task_state.as_mut()].into_iter().flatten() {
            *text = format::clean(text);
        }
        status.camera_age_ms.truncate(WIDEST);
        status.camera_hz.truncate(WIDEST);
        self.reach(status.time);
        push(&mut self.statuses, status, CAPACITY);
    }

    fn chunk(&mut self, chunk: Chunk) {
        let Chunk { chunk: number, time, tick, phase } = chunk;
        self.reach(time);
        let place = match self.chunks.iter().rposition(|life| life.number <= number) {
            Some(found) if self.chunks.get(found).is_some_and(|life| life.number == number) => found,
            before => {
                let place = before.map_or(0, |found| found + 1);
                self.chunks.insert(place, Life { number, ..Life::default() });
                place
            }
        };
        let Some(life) = self.chunks.get_mut(place) else { return };
        match phase {
            Phase::Launched { splice, synchronous } => {
                life.launched.get_or_insert(Launch { time, tick, splice, synchronous });
            }
            Phase::Arrived { latency_ms, preprocess_ms, prefix_ms, denoise_ms, copy_ms } if life.arrived.is_none() => {
                let parts_ms = [preprocess_ms, prefix_ms, denoise_ms, copy_ms];
                life.arrived = Some(Arrival { time, tick, latency_ms, parts_ms });
                let synchronous = life.launched.is_some_and(|l| l.synchronous);
                push(&mut self.latencies, Latency { time, ms: latency_ms, synchronous }, CAPACITY);
            }
            Phase::Arrived { .. } => {}
            Phase::Spliced { index, late, jump, state_error } => {
                life.spliced.get_or_insert(Splice { time, tick, index, late, jump, state_error });
            }
            Phase::Discarded { reason } => {
                life.discarded.get_or_insert(Discard { time, tick, reason: format::clean(&reason) });
            }
        }
    }

    fn say(&mut self, time: f64, level: Level, text: &str) {
        let said = Said { time, level, text: format::clean(text) };
        self.reach(time);
        if !self.events.contains(&said) {
            push(&mut self.events, said, EVENTS);
        }
    }

    /// Moves the newest time on and returns it, so that times never run backwards.
    fn reach(&mut self, time: f64) -> f64 {
        if time.is_finite() {
            self.latest = self.latest.max(time);
        }
        self.latest
    }

    fn forget(&mut self) {
        let oldest = self.latest - KEEP_S;
        while self.ticks.front().is_some_and(|t| t.time < oldest) {
            self.ticks.pop_front();
        }
        while self.statuses.len() > 1 && self.statuses.front().is_some_and(|s| s.time < oldest) {
            self.statuses.pop_front();
        }
        // A chunk whose launch was not seen has no time of its own: it goes with those around it.
        let is_old = |life: &Life| life.launched.is_none_or(|l| l.time < oldest);
        while self.chunks.len() > CAPACITY || (self.chunks.len() > 64 && self.chunks.front().is_some_and(is_old)) {
            self.chunks.pop_front();
        }
        while self.pictures.front().is_some_and(|p| p.time < oldest) {
            self.pictures.pop_front();
        }
    }

    /// The robot's clock at the newest message.
    pub fn latest(&self) -> f64 {
        self.latest
    }

    /// The oldest moment that can be shown.
    pub fn earliest(&self) -> f64 {
        let first = self.ticks.front().map(|t| t.time).or_else(|| self.statuses.front().map(|s| s.time));
        first.unwrap_or(self.latest).max(self.latest - MINUTE_S)
    }

    pub fn tick_at(&self, at: f64) -> Option<&Tick> {
        self.ticks.get(self.ticks.partition_point(|t| t.time <= at).checked_sub(1)?)
    }

    /// The ticks later than `from` up to `to`.
    pub fn ticks_between(&self, from: f64, to: f64) -> impl DoubleEndedIterator<Item = &Tick> {
        let first = self.ticks.partition_point(|t| t.time <= from);
        let end = self.ticks.partition_point(|t| t.time <= to).max(first);
        self.ticks.range(first..end)
    }

    pub fn status_at(&self, at: f64) -> Option<&Status> {
        self.statuses.get(self.statuses.partition_point(|s| s.time <= at).checked_sub(1)?)
    }

    /// When the arm was armed again after it was not; none while it is not, and where it always was.
    pub fn armed_since(&self, at: f64) -> Option<f64> {
        let end = self.statuses.partition_point(|s| s.time <= at);
        let mut newest = self.statuses.range(..end).rev().peekable();
        newest.next_if(|s| s.arm == ArmState::Armed)?;
        newest.find(|s| s.arm != ArmState::Armed).map(|s| s.time)
    }

    /// The newest chunks as they were known at `at`, newest first.
    pub fn chunks_at(&self, at: f64) -> impl Iterator<Item = Life> {
        self.chunks.iter().rev().filter_map(move |life| life.as_of(at))
    }

    /// Latencies known at `at`, oldest first.
    pub fn latencies_at(&self, at: f64) -> impl Iterator<Item = &Latency> {
        self.latencies.iter().filter(move |l| l.time <= at)
    }

    /// Newest first.
    pub fn events_at(&self, at: f64) -> impl Iterator<Item = &Said> {
        self.events.iter().rev().filter(move |e| e.time <= at)
    }

    pub fn picture_at(&self, camera: &str, at: f64) -> Option<&Arc<Picture>> {
        self.pictures.iter().rev().find(|p| p.camera == camera && p.time <= at)
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T, capacity: usize) {
    if queue.len() >= capacity {
        queue.pop_front();
    }
    queue.push_back(value);
}

/// The `share` quantile of `values` (nearest rank); none without any finite one.
pub fn quantile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

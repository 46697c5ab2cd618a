//! The whole state of the Robot screen: plain data, changed by keys and telemetry, drawn by `view`.

use std::path::PathBuf;

use jiff::tz::TimeZone;
use ratatui::layout::Size;

use super::history::{History, quantile};
use super::lines::Item;
use super::orders::{Orders, arm_words};
use super::overlay::Overlay;
use super::pictures::Encoded;
use super::probe::Graphics;
use super::source::{Data, Link};
use crate::track::event::Level;
use crate::track::telemetry::{Hello, Status};
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::format;
use crate::tui::theme::{Theme, Tone};

/// The robot's side speaks about ten times a second: silence of so many seconds is a lost link.
pub const LOST_S: f64 = 1.0;
/// A file is looked at four times a second, and written when its writer sees fit.
const LOST_FILE_S: f64 = 5.0;
/// A camera whose newest image is older, in milliseconds, is frozen.
pub const FROZEN_MS: f64 = 1000.0;

/// The panes, in Tab order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Loop,
    Latency,
    Chunks,
    Joints,
    Cameras,
    Events,
}

impl Pane {
    pub const ALL: [Pane; 6] = [Pane::Loop, Pane::Latency, Pane::Chunks, Pane::Joints, Pane::Cameras, Pane::Events];

    pub fn title(self) -> &'static str {
        match self {
            Pane::Loop => "Loop",
            Pane::Latency => "Latency",
            Pane::Chunks => "Chunks",
            Pane::Joints => "Joints",
            Pane::Cameras => "Cameras",
            Pane::Events => "Events",
        }
    }

    /// The pane `by` places further in Tab order.
    pub fn shifted(self, by: usize) -> Pane {
        let position = Pane::ALL.iter().position(|&p| p == self).unwrap_or(0);
        Pane::ALL[(position + by) % Pane::ALL.len()]
    }
}

/// What the session was told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address or the directory, as given.
    pub target: String,
    /// The directory, where one was given.
    pub run_dir: Option<PathBuf>,
    pub read_only: bool,
    /// The rollout was started by this very command: leaving asks what becomes of it.
    pub owned: bool,
    pub color: ColorLevel,
    pub glyphs: Glyphs,
    pub tone: Tone,
    pub images: bool,
    /// What the terminal can draw images with.
    pub graphics: Graphics,
    /// Over SSH: fewer frames and images.
    pub remote: bool,
    pub zone: TimeZone,
    pub version: &'static str,
}

/// A view that stands still.
#[derive(Debug, Clone)]
pub struct Frozen {
    pub history: History,
    /// The moment shown, on the robot's clock.
    pub at: f64,
}

/// Whether the rollout is heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Liveness {
    /// Nothing was heard yet.
    Waiting,
    /// Seconds since the last word.
    Alive(f64),
    Lost(f64),
    /// Its process died without a word.
    Gone,
    Ended,
}

impl Liveness {
    /// Nothing more will come.
    pub fn is_over(self) -> bool {
        matches!(self, Liveness::Gone | Liveness::Ended)
    }
}

/// Everything. `now` is the only clock of this host that view and update know.
#[derive(Debug)]
pub struct State {
    pub settings: Settings,
    /// Seconds since the Unix epoch.
    pub now: f64,
    pub size: Size,
    pub live: History,
    pub frozen: Option<Box<Frozen>>,
    pub link: Link,
    /// When the last word was heard.
    pub heard: Option<f64>,
    /// Lines of unknown kinds, and lines that were none.
    pub unknown: u64,
    pub damaged: u64,
    pub orders: Orders,
    /// Something about this session that a person should read, and when it was said.
    pub note: Option<(f64, Level, String)>,
    pub focus: Pane,
    /// The pane shown in the place that Joints, Cameras and Events share on a small screen.
    pub tab: Pane,
    pub zoomed: bool,
    pub scroll: usize,
    pub overlays: Vec<Overlay>,
    pub encoded: Encoded,
    /// The mode that `t` goes back to from `sync`.
    pub asynchronous: String,
    pub interrupted: Option<f64>,
    pub leave_at_end: bool,
}

impl State {
    pub fn new(settings: Settings, now: f64, size: Size) -> State {
        State {
            settings,
            now,
            size,
            live: History::default(),
            frozen: None,
            link: Link::Connecting,
            heard: None,
            unknown: 0,
            damaged: 0,
            orders: Orders::default(),
            note: None,
            focus: Pane::Chunks,
            tab: Pane::Joints,
            zoomed: false,
            scroll: 0,
            overlays: Vec::new(),
            encoded: Encoded::default(),
            asynchronous: "vlash".into(),
            interrupted: None,
            leave_at_end: false,
        }
    }

    /// Takes over what the threads tell.
    pub fn data(&mut self, data: Data) {
        match data {
            Data::Items(items) => items.into_iter().for_each(|item| self.item(item)),
            Data::Link(link) => self.link = link,
            Data::Delivered { ticket, delivery } => self.orders.delivered(ticket, delivery),
        }
    }

    fn item(&mut self, item: Item) {
        self.heard = Some(self.now);
        match item {
            Item::Message(message) => {
                let answer = message.clone();
                self.live.apply(message);
                self.orders.answer(&answer, &self.live);
                if let Some(mode) = self.newest().map(|s| &s.mode).filter(|m| !m.is_empty() && *m != "sync") {
                    self.asynchronous = mode.clone();
                }
            }
            Item::Picture(picture) => self.live.picture(picture),
            Item::Unknown => self.unknown += 1,
            Item::Damaged => self.damaged += 1,
        }
    }

    /// Moves the clock. Returns whether a shown age changed.
    pub fn tick(&mut self, now: f64) -> bool {
        let before = self.ages();
        self.now = now;
        before != self.ages()
    }

    /// All texts on the screen that time alone changes.
    fn ages(&self) -> (String, (Level, String)) {
        (super::view::link_words(self), super::view::message(self))
    }

    pub fn notify(&mut self, level: Level, text: String) {
        self.note = Some((self.now, level, text));
    }

    /// The note of this session, for ten seconds.
    pub fn fresh_note(&self) -> Option<(Level, &str)> {
        let (said, level, text) = self.note.as_ref()?;
        (self.now - said < 10.0).then_some((*level, text.as_str()))
    }

    /// What is shown: the record, and the moment in it.
    pub fn shown(&self) -> (&History, f64) {
        match &self.frozen {
            Some(frozen) => (&frozen.history, frozen.at),
            None => (&self.live, self.live.latest()),
        }
    }

    /// What the arm does now, in a word; of a rollout that is over nothing is known.
    pub fn arm_words(&self, status: &Status) -> &'static str {
        match self.liveness() {
            Liveness::Ended if self.frozen.is_none() => "ENDED",
            Liveness::Gone if self.frozen.is_none() => "GONE",
            _ => arm_words(status.arm),
        }
    }

    /// Where a file of the rollout's run directory lies, as far as this session can say.
    pub fn place(&self, name: &str) -> String {
        match &self.settings.run_dir {
            Some(run_dir) => run_dir.join(name).display().to_string(),
            None => name.to_owned(),
        }
    }

    /// The state of the whole as it was last told, whatever is frozen.
    pub fn newest(&self) -> Option<&Status> {
        self.live.status_at(f64::INFINITY)
    }

    pub fn hello(&self) -> Option<&Hello> {
        self.shown().0.hello.as_ref()
    }

    pub fn liveness(&self) -> Liveness {
        if self.live.ended.is_some() || self.link == Link::Finished {
            return Liveness::Ended;
        }
        if matches!(self.link, Link::Gone { .. }) {
            return Liveness::Gone;
        }
        let Some(heard) = self.heard else { return Liveness::Waiting };
        let age = (self.now - heard).max(0.0);
        let limit = if matches!(self.link, Link::Connected(_)) { LOST_S } else { LOST_FILE_S };
        // A connection that is known to be broken is lost at once, unless its file goes on telling.
        let broken = matches!(self.link, Link::Down { file: false, .. });
        if age > limit || (broken && age > 0.3) { Liveness::Lost(age) } else { Liveness::Alive(age) }
    }

    /// Values on the screen may be old.
    pub fn is_stale(&self) -> bool {
        self.frozen.is_none() && matches!(self.liveness(), Liveness::Lost(_) | Liveness::Gone)
    }

    /// Median latencies of synchronous and of other inferences up to the moment shown.
    pub fn medians(&self) -> [Option<f64>; 2] {
        let (history, at) = self.shown();
        [true, false]
            .map(|kind| quantile(history.latencies_at(at).filter(|l| l.synchronous == kind).map(|l| l.ms), 0.5))
    }

    /// Cameras by name, with the age of their newest image in milliseconds at the moment shown.
    pub fn cameras(&self) -> Vec<(String, Option<f64>, f64)> {
        let (history, at) = self.shown();
        let Some(hello) = &history.hello else { return Vec::new() };
        let status = history.status_at(at);
        // What passed since the robot's side last spoke of it.
        let silence = match (self.frozen.is_some(), self.liveness()) {
            (false, Liveness::Lost(age)) => age * 1e3,
            _ => 0.0,
        };
        let each = hello.cameras.iter().enumerate().map(|(i, name)| {
            let told = status.and_then(|s| s.camera_age_ms.get(i).copied().flatten());
            let since = status.map_or(0.0, |s| (at - s.time).max(0.0) * 1e3);
            let hz = status.and_then(|s| s.camera_hz.get(i).copied()).unwrap_or(0.0);
            (name.clone(), told.map(|age| age + since + silence), hz)
        });
        each.collect()
    }

    pub fn frozen_camera(&self) -> Option<(String, f64)> {
        let frozen = |(name, age, _): (String, Option<f64>, f64)| age.filter(|a| *a > FROZEN_MS).map(|age| (name, age));
        self.cameras().into_iter().find_map(frozen)
    }

    pub fn theme(&self) -> Theme {
        Theme { color: self.settings.color, glyphs: self.settings.glyphs, tone: self.settings.tone }
    }

    /// How images can be drawn now.
    pub fn graphics(&self) -> Graphics {
        let plain = Graphics::without_asking(self.settings.color, self.settings.glyphs) == Graphics::None;
        if plain || !self.settings.images { Graphics::None } else { self.settings.graphics }
    }

    /// A name for the robot before it said its own.
    pub fn robot(&self) -> String {
        let name = self.hello().map(|h| h.robot.clone()).filter(|name| !name.is_empty());
        name.unwrap_or_else(|| format::clean(&self.settings.target))
    }
}

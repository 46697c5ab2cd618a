//! The whole state of the interface: plain data, changed by [`State::apply`] and the data that arrives, drawn by `view`.

use std::path::PathBuf;

use jiff::tz::TimeZone;
use ratatui::layout::Size;

use super::capability::{ColorLevel, Glyphs};
use super::log::Filter;
use super::overlay::Overlay;
use super::run::Run;
use super::theme::{Theme, Tone};
use crate::track::event::Level;
use crate::track::reader::Update;

/// The panes of the Train screen, in Tab order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Loss,
    GradNorm,
    LearningRate,
    Speed,
    Memory,
    Log,
}

impl Pane {
    pub const ALL: [Pane; 6] = [Pane::Loss, Pane::GradNorm, Pane::LearningRate, Pane::Speed, Pane::Memory, Pane::Log];

    pub fn title(self) -> &'static str {
        match self {
            Pane::Loss => "loss",
            Pane::GradNorm => "grad norm",
            Pane::LearningRate => "lr",
            Pane::Speed => "Speed",
            Pane::Memory => "Memory",
            Pane::Log => "Log",
        }
    }

    pub fn is_chart(self) -> bool {
        matches!(self, Pane::Loss | Pane::GradNorm | Pane::LearningRate)
    }

    /// The pane `by` places further in Tab order.
    pub fn shifted(self, by: usize) -> Pane {
        let position = Pane::ALL.iter().position(|&p| p == self).unwrap_or(0);
        Pane::ALL[(position + by) % Pane::ALL.len()]
    }
}

/// What a chart's horizontal axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Steps,
    Time,
}

/// How charts are smoothed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Smoothing {
    Off,
    Low,
    High,
}

/// How the charts are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    pub log_scale: bool,
    pub axis: Axis,
    /// The recent window in place of the whole run.
    pub recent: bool,
    pub smoothing: Smoothing,
    /// The step under the cursor.
    pub cursor: Option<u64>,
}

impl Default for Look {
    fn default() -> Self {
        Look { log_scale: false, axis: Axis::Steps, recent: false, smoothing: Smoothing::Off, cursor: None }
    }
}

/// What the session was told once.
#[derive(Debug, Clone)]
pub struct Settings {
    pub run_dir: PathBuf,
    pub read_only: bool,
    /// The run was started by this very command: leaving asks what becomes of it.
    pub owned: bool,
    pub color: ColorLevel,
    pub glyphs: Glyphs,
    pub tone: Tone,
    pub mouse: bool,
    pub zone: TimeZone,
    /// Version of this program.
    pub version: &'static str,
}

/// Everything. `now` is the only clock that view and update know.
#[derive(Debug)]
pub struct State {
    pub settings: Settings,
    /// Seconds since the Unix epoch.
    pub now: f64,
    pub size: Size,
    pub run: Run,
    pub look: Look,
    pub focus: Pane,
    /// The pane shown in the place that Speed, Memory and Log share on a small screen.
    pub tab: Pane,
    pub zoomed: bool,
    pub overlays: Vec<Overlay>,
    pub log_filter: Filter,
    /// Lines between the newest and the bottom of the log pane; 0 follows.
    pub log_scroll: usize,
    /// When Ctrl-C was last pressed.
    pub interrupted: Option<f64>,
    /// The person asked to stop the run and to leave when it has ended.
    pub leave_at_end: bool,
}

/// What the reading thread tells.
#[derive(Debug)]
pub enum Data {
    /// One look at the run directory.
    Update(Box<Update>),
    /// Whether the run's process is on this host; none when the run is elsewhere.
    Process(Option<bool>),
    /// The fate of a request.
    Sent { ticket: u64, result: Result<String, String> },
}

impl State {
    pub fn new(settings: Settings, now: f64, size: Size) -> State {
        State {
            settings,
            now,
            size,
            run: Run::new(now),
            look: Look::default(),
            focus: Pane::Loss,
            tab: Pane::Speed,
            zoomed: false,
            overlays: Vec::new(),
            log_filter: Filter::default(),
            log_scroll: 0,
            interrupted: None,
            leave_at_end: false,
        }
    }

    /// Takes over data. Returns whether anything that is drawn may have changed.
    pub fn data(&mut self, data: Data) -> bool {
        match data {
            Data::Update(update) => {
                let before = self.run.status.as_ref().map(|s| s.heartbeat);
                let quiet = update.events.is_empty()
                    && update.log.is_empty()
                    && update.run.is_none()
                    && !update.restarted
                    && update.damaged + update.unknown == 0
                    && update.problem == self.run.problem;
                self.run.apply(*update, self.now);
                !quiet || self.run.status.as_ref().map(|s| s.heartbeat) != before
            }
            Data::Process(alive) => std::mem::replace(&mut self.run.process_alive, alive) != alive,
            Data::Sent { ticket, result } => {
                if let Err(reason) = &result {
                    self.run.notify(Level::Error, format!("request not sent: {reason}"));
                }
                self.run.commands.sent(ticket, result);
                true
            }
        }
    }

    /// Moves the clock. Returns whether a shown age changed.
    pub fn tick(&mut self, now: f64) -> bool {
        let before = self.ages();
        self.now = now;
        self.run.clock = now;
        before != self.ages()
    }

    /// All texts on the screen that time alone changes.
    fn ages(&self) -> (String, Option<u64>, usize) {
        use super::run::Liveness;
        let life = match self.run.liveness(self.now) {
            Liveness::Alive(age) => super::format::age(age),
            Liveness::Stale(age) => format!("~{}", super::format::age(age)),
            Liveness::Silent(age) => format!("!{}", super::format::age(age)),
            other => format!("{other:?}"),
        };
        let overdue = self.run.commands.overdue(self.now).map(|e| (self.now - e.time) as u64 / 60);
        (life, overdue, self.fresh_notifications())
    }

    fn fresh_notifications(&self) -> usize {
        self.run.notifications.iter().filter(|n| self.is_fresh(n)).count()
    }

    /// Whether a notification still belongs into the footer: errors until seen, others for half a minute.
    pub fn is_fresh(&self, notification: &super::run::Notification) -> bool {
        !notification.seen && (notification.level == Level::Error || self.now - notification.noticed < 30.0)
    }

    /// The newest notification that belongs into the footer; an error goes before younger notes.
    pub fn headline(&self) -> Option<&super::run::Notification> {
        let fresh = || self.run.notifications.iter().rev().filter(|n| self.is_fresh(n));
        fresh().find(|n| n.level == Level::Error).or_else(|| fresh().next())
    }

    /// Turns to `pane`.
    pub fn set_focus(&mut self, pane: Pane) {
        self.focus = pane;
        if !pane.is_chart() {
            self.tab = pane;
        }
    }

    pub fn theme(&self) -> Theme {
        Theme { color: self.settings.color, glyphs: self.settings.glyphs, tone: self.settings.tone }
    }

    /// Values on the screen may be old.
    pub fn is_stale(&self) -> bool {
        use super::run::Liveness;
        let life = self.run.liveness(self.now);
        matches!(life, Liveness::Stale(_) | Liveness::Silent(_) | Liveness::Vanished) || self.run.problem.is_some()
    }
}

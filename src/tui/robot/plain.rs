//! A rollout as lines of text: for screen readers, pipes and logs. A line appears when something changed.

use std::io::{self, Write};
use std::sync::mpsc;

use super::RobotSource;
use super::orders::arm_words;
use super::source::Source;
use super::state::{Liveness, Settings, State};
use super::view::{gone_words, jitter_words, queue_words};
use crate::track::event::Outcome;
use crate::track::now;
use crate::tui::{Exit, TuiError, format, theme};

/// At most one line of figures in so many seconds.
const FIGURES_S: f64 = 10.0;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Plain {
    heading: Option<String>,
    link: Option<&'static str>,
    task: Option<String>,
    camera: Option<String>,
    event_time: f64,
    events_at_it: usize,
    figures: Option<f64>,
    ended: bool,
}

impl Plain {
    /// The lines that are new, given the state as it is now.
    pub fn lines(&mut self, state: &State) -> Vec<String> {
        let mut lines = self.link(state);
        if let Some(status) = state.newest() {
            let recording = if status.recording { ", recording" } else { "" };
            let why = status.reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
            let heading =
                format!("{} is {}{why}, mode {}{recording}", state.robot(), arm_words(status.arm), status.mode);
            lines.extend(changed(&mut self.heading, heading));
            lines.extend(status.task_state.as_ref().and_then(|t| changed(&mut self.task, format!("task: {t}"))));
            let camera = state.frozen_camera().map(|(name, _)| name);
            if camera != self.camera {
                lines.extend(camera.as_ref().map(|name| format!("! camera {name} is FROZEN")));
                lines.extend(self.camera.take().map(|name| format!("camera {name} sends images again")));
                self.camera = camera;
            }
        }
        lines.extend(self.events(state));
        lines.extend(self.figures(state));
        if let Some(ended) = state.live.ended.as_ref().filter(|_| !self.ended) {
            self.ended = true;
            let report = ended.report.as_ref().map(|r| format!("; report: {}", state.place(r))).unwrap_or_default();
            lines.push(format!("ended: {}{report}", ended.outcome));
        }
        let clock = format::clock(state.now, &state.settings.zone);
        lines.into_iter().map(|line| format!("{clock} {line}")).collect()
    }

    fn link(&mut self, state: &State) -> Vec<String> {
        let (kind, line) = match state.liveness() {
            Liveness::Waiting => ("waiting", format!("waiting for the robot at {}", state.settings.target)),
            Liveness::Alive(_) => ("alive", "the robot is heard".into()),
            Liveness::Lost(age) => ("lost", format!("x LINK LOST {}", format::age(age))),
            Liveness::Gone => ("gone", format!("x {}", gone_words(state))),
            Liveness::Ended => ("ended", String::new()),
        };
        let before = self.link.replace(kind);
        if before == Some(kind) || kind == "ended" { Vec::new() } else { vec![line] }
    }

    fn events(&mut self, state: &State) -> Vec<String> {
        let newer: Vec<_> = state.live.events_at(f64::INFINITY).take_while(|e| e.time >= self.event_time).collect();
        let fresh = newer.len().saturating_sub(self.events_at_it);
        let lines = newer.iter().take(fresh).rev();
        let lines = lines.map(|e| format!("{:.1} s {} {}", e.time, theme::mark(e.level), e.text)).collect();
        if let Some(newest) = newer.first().filter(|_| fresh > 0) {
            self.event_time = newest.time;
            self.events_at_it = newer.iter().filter(|e| e.time >= newest.time).count();
        }
        lines
    }

    fn figures(&mut self, state: &State) -> Option<String> {
        let early = self.figures.is_some_and(|told| state.now - told < FIGURES_S);
        let status = state.newest().filter(|_| !early || (state.live.ended.is_some() && !self.ended))?;
        self.figures = Some(state.now);
        let [sync, other] = state.medians().map(|ms| ms.map_or_else(|| "n/a".into(), |ms| format!("{ms:.0} ms")));
        let counts = format!(
            "held {}, continued {}, late {}, clipped {}, rejected {}",
            status.held_ticks, status.continued_ticks, status.late_chunks, status.clipped_ticks, status.rejected_chunks
        );
        let queue = queue_words(state).map(|words| format!(", {words}")).unwrap_or_default();
        Some(format!("{}; latency p50 sync {sync}, async {other}{queue}; {counts}", jitter_words(state)))
    }
}

fn changed(memory: &mut Option<String>, line: String) -> Option<String> {
    if memory.as_ref() == Some(&line) {
        return None;
    }
    *memory = Some(line.clone());
    Some(line)
}

/// Follows the rollout on `out` until it ends or `out` closes. Nobody watches for the robot here: no sign of life is sent.
pub fn run(source: &RobotSource, settings: Settings, out: &mut dyn Write) -> Result<Exit, TuiError> {
    let (sender, receiver) = mpsc::sync_channel(16);
    let threads = Source::spawn(source, move |data| sender.send(data).is_ok());
    let _threads = threads.map_err(|source| TuiError::Terminal { source })?;
    let mut state = State::new(settings, now(), ratatui::layout::Size::new(80, 24));
    let mut plain = Plain::default();
    for data in receiver.iter() {
        state.tick(now());
        state.data(data);
        for line in plain.lines(&state) {
            match writeln!(out, "{line}").and_then(|()| out.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Left),
                other => other.map_err(|source| TuiError::Terminal { source })?,
            }
        }
        if state.liveness().is_over() {
            return Ok(Exit::Ended(Outcome::Finished));
        }
    }
    Ok(Exit::Left)
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;

//! The same state as lines of text: for screen readers, pipes and logs. A line appears when something changed.

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;

use super::app::settings;
use super::capability::Capability;
use super::format;
use super::run::Liveness;
use super::source::Source;
use super::state::State;
use super::view::{life_words, message};
use super::{Exit, Options, TuiError, theme};
use crate::track::now;

/// At most one line of progress in so many seconds.
const PROGRESS_S: f64 = 10.0;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Plain {
    word: Option<String>,
    message: Option<String>,
    life: Option<&'static str>,
    step: u64,
    step_told: Option<f64>,
    validated: Option<u64>,
}

impl Plain {
    /// The lines that are new, given the state as it is now.
    pub fn lines(&mut self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        // While a long history is read, every value is out of date the moment it is known.
        if state.run.progress < 1.0 {
            return lines;
        }
        let word = format!("{} {}", state.run.name(), state.run.word());
        if self.word.as_ref() != Some(&word) {
            lines.push(heading(state));
            self.word = Some(word);
        }
        lines.extend(self.life(state));
        lines.extend(self.progress(state));
        if let Some(v) = state.run.validated.as_ref().filter(|v| Some(v.step) != self.validated) {
            self.validated = Some(v.step);
            let zero = format::metric(v.zero_velocity);
            lines.push(format!("validation at step {}: loss {}, zero velocity {zero}", v.step, format::metric(v.loss)));
        }
        let message = message(state).map(|(level, text)| format!("{} {text}", theme::mark(level)).trim().to_owned());
        if message != self.message {
            lines.extend(message.clone());
            self.message = message;
        }
        let clock = format::clock(state.now, &state.settings.zone);
        lines.into_iter().map(|line| format!("{clock} {line}")).collect()
    }

    /// Said when the signs of life change in kind, not with every second of age.
    fn life(&mut self, state: &State) -> Option<String> {
        let kind = match state.run.liveness(state.now) {
            Liveness::Alive(_) => "alive",
            Liveness::Stale(_) => "stale",
            _ => "other",
        };
        let before = self.life.replace(kind)?;
        match (before, kind) {
            ("alive", "stale") => Some(life_words(state)),
            ("stale" | "other", "alive") => Some("signs of life again".into()),
            _ => None,
        }
    }

    fn progress(&mut self, state: &State) -> Option<String> {
        let metrics = state.run.metrics.as_ref().filter(|m| m.step != self.step)?;
        let early = self.step_told.is_some_and(|told| state.now - told < PROGRESS_S);
        if early && state.run.ending().is_none() {
            return None;
        }
        (self.step, self.step_told) = (metrics.step, Some(state.now));
        let (_, steps) = state.run.steps();
        let eta = state.run.eta().map(|eta| format!(", {} left", format::duration(eta))).unwrap_or_default();
        Some(format!(
            "step {} of {steps}: {}, lr {}, {} samples/s{eta}",
            metrics.step,
            trend(state),
            format::rate(metrics.lr),
            format::metric(metrics.samples_per_s),
        ))
    }
}

fn heading(state: &State) -> String {
    let (done, steps) = state.run.steps();
    let place = state.run.process().map(|(pid, host)| format!(" on {host}, process {pid}")).unwrap_or_default();
    format!("{} is {}{place}, step {done} of {steps}", state.run.name(), state.run.word().to_lowercase())
}

/// A chart in words: `loss 0.31, down 12 % over 500 steps`.
fn trend(state: &State) -> String {
    let last = state.run.loss.last().map_or_else(|| "n/a".into(), |p| format::metric(p.value));
    match state.run.loss.trend(500) {
        Some((change, span)) => {
            let way = if change < 0.0 { "down" } else { "up" };
            format!("loss {last}, {way} {:.0} % over {span} steps", (change * 100.0).abs())
        }
        None => format!("loss {last}"),
    }
}

/// Follows the run on `out` until it ends or `out` closes.
pub fn run(run_dir: &Path, options: &Options, capability: &Capability, out: &mut dyn Write) -> Result<Exit, TuiError> {
    let (sender, receiver) = mpsc::sync_channel(16);
    let source = Source::spawn(run_dir, move |data| sender.send(data).is_ok());
    let _source = source.map_err(|source| TuiError::Terminal { source })?;
    let mut state = State::new(settings(run_dir, options, capability), now(), ratatui::layout::Size::new(80, 24));
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
        if let Some(ending) = state.run.ending().filter(|_| state.run.progress >= 1.0) {
            return Ok(Exit::Ended(ending.outcome));
        }
    }
    Ok(Exit::Left)
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;

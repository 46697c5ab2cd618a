//! The last lines: what a person should know now, and the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use crate::track::event::{Level, Outcome};
use crate::tui::action::Action;
use crate::tui::format;
use crate::tui::keymap::BINDINGS;
use crate::tui::overlay::Overlay;
use crate::tui::run::{Ending, Liveness};
use crate::tui::state::State;
use crate::tui::theme::{self, Theme};

/// The one message that matters most now: what is wrong with the run, how it ended, the newest notification.
pub fn message(state: &State) -> Option<(Level, String)> {
    let run = &state.run;
    if let Some(problem) = &run.problem {
        return Some((Level::Error, format!("{problem}; last known values are shown")));
    }
    if let Some(ending) = run.ending() {
        return Some(ended(state, &ending));
    }
    match run.liveness(state.now) {
        Liveness::Vanished => return Some((Level::Error, vanished(state))),
        Liveness::Silent(age) => {
            let text = format!("no heartbeat for {}; i shows what is known", format::age(age));
            return Some((Level::Error, text));
        }
        Liveness::Waiting => return Some((Level::Info, "waiting for the run's first sign of life".into())),
        _ => {}
    }
    if let Some(notification) = state.headline() {
        return Some((notification.level, notification.text.clone()));
    }
    standing(state)
}

/// Conditions that last.
fn standing(state: &State) -> Option<(Level, String)> {
    let run = &state.run;
    if let Some(entry) = run.commands.overdue(state.now) {
        let text = format!("{}: not seen after {}; $ lists requests", entry.text, format::age(state.now - entry.time));
        return Some((Level::Warn, text));
    }
    if let Some(theirs) = run.newer_version(state.settings.version) {
        let ours = state.settings.version;
        return Some((Level::Warn, format!("run written by {theirs}, this is {ours}: some panels may be hidden")));
    }
    if let Some(step) = run.loss.last_non_finite() {
        return Some((Level::Error, format!("loss was not finite at step {step}")));
    }
    if run.is_paused() {
        return Some((Level::Info, "paused: p goes on".into()));
    }
    if run.damaged > 0 {
        return Some((Level::Warn, format!("{} lines of events.jsonl are damaged and were passed over", run.damaged)));
    }
    let doing = run.status.as_ref().and_then(|s| s.doing.as_deref());
    doing.map(|doing| (Level::Info, format::clean(doing)))
}

fn ended(state: &State, ending: &Ending) -> (Level, String) {
    let checkpoint = state.run.last_checkpoint();
    let detail = if ending.detail.is_empty() { String::new() } else { format!(": {}", ending.detail) };
    let kept =
        checkpoint.as_deref().map_or_else(|| "no checkpoint".to_owned(), |path| format!("last checkpoint {path}"));
    let next = match (ending.outcome, &checkpoint) {
        (Outcome::Finished, Some(path)) => {
            format!("next: vlash policy info {}", state.settings.run_dir.join(path).display())
        }
        (Outcome::Finished, None) => "q leaves".into(),
        (Outcome::Stopped, _) => "next: the same vlash train command continues it".into(),
        (Outcome::Failed, Some(_)) => "next: L shows the log; the same vlash train command continues from there".into(),
        (Outcome::Failed, None) => "next: L shows the log".into(),
    };
    let level = if ending.outcome == Outcome::Failed { Level::Error } else { Level::Info };
    (level, format!("{} at step {}{detail}; {kept}; {next}", ending.word(), ending.step))
}

fn vanished(state: &State) -> String {
    let (pid, host) = state.run.process().unwrap_or_default();
    let kept =
        state.run.last_checkpoint().map_or_else(|| "no checkpoint".to_owned(), |c| format!("last checkpoint {c}"));
    format!(
        "process {pid} on {host} is gone without a word (killed?); {kept}; the same vlash train command continues from it"
    )
}

/// Lines the message gets: one that is always there on larger screens so that nothing jumps, up to three when it is long.
pub fn banner_lines(state: &State, area: Rect) -> u16 {
    let width = usize::from(area.width);
    let wanted = message(state).map_or(0, |(level, text)| format::wrapped_lines(&marked(level, &text), width));
    match area.height {
        0..12 => wanted.min(1) as u16,
        12..20 => 1,
        _ => wanted.clamp(1, 3) as u16,
    }
}

fn marked(level: Level, text: &str) -> String {
    format!(" {} {text}", theme::mark(level))
}

pub fn banner(state: &State, frame: &mut Frame, area: Rect) {
    if let Some((level, text)) = message(state) {
        let line = Line::styled(marked(level, &text), state.theme().level(level));
        frame.render_widget(Paragraph::new(line).wrap(Wrap { trim: false }), area);
    }
}

/// The keys that work now, from the table of bindings.
pub fn hints(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let width = usize::from(area.width);
    let pairs: Vec<(String, String)> = match state.overlays.last() {
        None => key_hints(state),
        Some(overlay) => overlay_hints(overlay),
    };
    frame.render_widget(Paragraph::new(hint_line(&theme, width, pairs, 0)), area);
}

/// As many `pairs` of key and word as fit: the first `head` and the last two (help and quit) always stay.
pub fn hint_line(theme: &Theme, width: usize, pairs: Vec<(String, String)>, head: usize) -> Line<'static> {
    let cost = |pair: &(String, String)| pair.0.chars().count() + pair.1.chars().count() + 3;
    let count = pairs.len();
    let stays = |i: usize| i < head || i + 2 >= count;
    let kept: usize = pairs.iter().enumerate().filter(|(i, _)| stays(*i)).map(|(_, pair)| cost(pair)).sum();
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1 + kept;
    for (i, pair) in pairs.into_iter().enumerate() {
        if !stays(i) {
            let needed = cost(&pair);
            if used + needed > width {
                continue;
            }
            used += needed;
        }
        spans.push(Span::styled(pair.0, theme.strong()));
        spans.push(Span::styled(format!(" {}  ", pair.1), theme.grey()));
    }
    Line::from(spans)
}

fn key_hints(state: &State) -> Vec<(String, String)> {
    let usable = BINDINGS.iter().filter(|b| b.action.obstacle(state).is_none());
    usable
        .filter_map(|b| {
            let hint = match b.action {
                Action::PauseOrResume if state.run.is_paused() => "resume",
                _ => b.hint?,
            };
            Some((b.keys.first()?.label(), hint.to_owned()))
        })
        .collect()
}

fn overlay_hints(overlay: &Overlay) -> Vec<(String, String)> {
    let rows: &[(&str, &str)] = match overlay {
        Overlay::Palette { .. } => {
            &[("letters", "are typed"), ("Up/Down", "choose"), ("Enter", "run"), ("Esc", "close")]
        }
        Overlay::Help { .. } => &[("letters", "search"), ("Up/Down", "scroll"), ("Esc", "close")],
        Overlay::LearningRate { .. } => &[("letters", "are typed"), ("Enter", "send"), ("Esc", "cancel")],
        Overlay::Filter { .. } => &[("letters", "are typed"), ("Enter", "keep"), ("Esc", "close")],
        Overlay::ConfirmStop => &[("y", "stop"), ("n", "go on training")],
        Overlay::Quit => &[("Enter", "leave it running"), ("s", "stop gracefully"), ("Esc", "cancel")],
        Overlay::Commands { .. } | Overlay::Notifications { .. } => &[("Up/Down", "scroll"), ("Esc", "close")],
        Overlay::Evidence => &[("Esc", "close")],
    };
    rows.iter().map(|&(key, word)| (key.to_owned(), word.to_owned())).collect()
}

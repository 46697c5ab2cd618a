//! The last lines: what a person should know now, and the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::track::event::Level;
use crate::track::telemetry::{ArmState, TELEMETRY_FILE};
use crate::tui::format;
use crate::tui::robot::keymap::{BINDINGS, STOPS};
use crate::tui::robot::overlay::Overlay;
use crate::tui::robot::source::Link;
use crate::tui::robot::state::{Liveness, State};
use crate::tui::theme;
use crate::tui::view::footer::hint_line;

/// How long the newest order stays in sight, in seconds; one that failed stays longer.
const ORDER_S: f64 = 5.0;
const BAD_ORDER_S: f64 = 60.0;
/// How long a warning of the robot's side stays in sight.
const EVENT_S: f64 = 10.0;

/// The one message that matters most now. While anybody takes orders a fresh one goes before all: whoever pressed a stop
/// wants to know.
pub fn message(state: &State) -> (Level, String) {
    if state.liveness() == Liveness::Gone {
        return (Level::Error, format!("{}. f looks back, q leaves", gone_words(state)));
    }
    if let Some(ended) = &state.live.ended {
        let report = ended.report.as_ref().map(|r| format!("; report: {}", state.place(r))).unwrap_or_default();
        return (Level::Info, format!("ended: {}{report}; f looks back, q leaves", ended.outcome));
    }
    if let Some(order) = fresh_order(state) {
        return order;
    }
    if let Liveness::Lost(age) = state.liveness() {
        return (Level::Error, lost(state, age));
    }
    if let Some(frozen) = &state.frozen {
        let ago = state.live.latest() - frozen.at;
        let text = format!("VIEW FROZEN {ago:.1} s ago; the robot continues. Left/Right look back, f goes on");
        return (Level::Warn, text);
    }
    if let Some((level, text)) = state.fresh_note() {
        return (level, text.to_owned());
    }
    if let Some((camera, age)) = state.frozen_camera() {
        return (Level::Error, format!("camera {camera} is FROZEN for {}", format::age(age / 1e3)));
    }
    if let Some(said) = warning(state) {
        return said;
    }
    if let (Liveness::Waiting, Link::Down { reason, .. }) = (state.liveness(), &state.link) {
        return (Level::Info, format!("waiting for the robot: {}", format::clean(reason)));
    }
    let holding = state.newest().filter(|s| s.arm != ArmState::Armed).and_then(|s| s.reason.as_ref());
    if let Some(reason) = holding {
        return (Level::Info, reason.clone());
    }
    standing(state)
}

/// What a rollout that died means for whoever stands beside the arm.
pub fn gone_words(state: &State) -> String {
    let pid = if let Link::Gone { pid } = state.link { pid } else { 0 };
    let what = "was killed or crashed: the arm got no orderly end. Use its own stop";
    format!("GONE: process {pid} {what}. What it told is in {}", state.place(TELEMETRY_FILE))
}

/// What is said when nothing else is.
fn standing(state: &State) -> (Level, String) {
    let theirs = state.hello().map(|h| &h.version).filter(|v| !v.is_empty() && *v != state.settings.version);
    if let Some(theirs) = theirs.filter(|_| state.unknown > 0) {
        let ours = state.settings.version;
        return (Level::Warn, format!("rollout of {theirs}, this is {ours}: some of what it tells is not shown"));
    }
    let text = "No safety device: the physical stop comes first. E lets the arm sink.";
    (Level::Info, text.into())
}

fn fresh_order(state: &State) -> Option<(Level, String)> {
    let order = state.orders.newest()?;
    let bad = order.is_bad(state.now);
    let limit = if bad { BAD_ORDER_S } else { ORDER_S };
    let fresh = state.now - order.time < limit;
    let level = if bad { Level::Error } else { Level::Info };
    fresh.then(|| (level, format!("{}: {}", order.text(), order.describe(state.now))))
}

fn lost(state: &State, age: f64) -> String {
    let why = match &state.link {
        Link::Down { reason, .. } => format!(": {}", format::clean(reason)),
        _ => ": connected, but silent".into(),
    };
    format!(
        "LINK LOST {}{why}. What the arm does now is decided at the robot; stops go by every way that is left",
        format::age(age)
    )
}

/// The newest warning or error of the robot's side, while it is fresh.
fn warning(state: &State) -> Option<(Level, String)> {
    let (history, at) = state.shown();
    // What was wrong before the arm was armed again is over.
    let armed = history.armed_since(at);
    let fresh = |time: f64| at - time < EVENT_S && armed.is_none_or(|armed| time >= armed);
    let said = history.events_at(at).take_while(|e| fresh(e.time)).find(|e| e.level != Level::Info)?;
    Some((said.level, said.text.clone()))
}

fn marked((level, text): &(Level, String)) -> String {
    format!(" {} {text}", theme::mark(*level))
}

/// Lines the message gets: one that is always there on larger screens so that nothing jumps, up to three when it is long.
pub fn banner_lines(state: &State, area: Rect) -> u16 {
    let wanted = format::wrapped_lines(&marked(&message(state)), usize::from(area.width));
    match area.height {
        0..12 => 1,
        12..20 => wanted.clamp(1, 2) as u16,
        _ => wanted.clamp(1, 3) as u16,
    }
}

pub fn banner(state: &State, frame: &mut Frame, area: Rect) {
    let message = message(state);
    let line = Line::styled(marked(&message), state.theme().level(message.0));
    frame.render_widget(Paragraph::new(line).wrap(Wrap { trim: false }), area);
}

/// The keys that work now, from the table of bindings. The stops come first under every layer.
pub fn hints(state: &State, frame: &mut Frame, area: Rect) {
    let usable = BINDINGS.iter().filter(|b| b.action.obstacle(state).is_none());
    let named = usable.filter_map(|b| Some((b.action, b.keys.first()?.label(), b.hint?)));
    let stop = |action| BINDINGS.iter().take(STOPS).any(|b| b.action == action);
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut head = 0;
    for (action, key, word) in named {
        head += usize::from(stop(action));
        if stop(action) || state.overlays.is_empty() {
            // As it stands on the key.
            pairs.push((if key == "Space" { "SPACE".into() } else { key }, word.to_owned()));
        }
    }
    if let Some(overlay) = state.overlays.last() {
        pairs.extend(overlay_hints(overlay).iter().map(|&(key, word)| (key.to_owned(), word.to_owned())));
    }
    let line = hint_line(&state.theme(), usize::from(area.width), pairs, head);
    frame.render_widget(Paragraph::new(line), area);
}

fn overlay_hints(overlay: &Overlay) -> &'static [(&'static str, &'static str)] {
    match overlay {
        Overlay::Palette { .. } => &[("letters", "narrow"), ("Up/Down", "choose"), ("Enter", "run"), ("Esc", "close")],
        Overlay::Help { .. } => &[("letters", "search"), ("Up/Down", "scroll"), ("Esc", "close")],
        Overlay::Arm { .. } => &[("letters", "are typed"), ("Enter", "arm"), ("Esc", "cancel")],
        Overlay::ConfirmStop => &[("y", "stop"), ("n", "go on")],
        Overlay::Quit => &[("Enter", "leave it running"), ("s", "stop it"), ("Esc", "cancel")],
        Overlay::Orders { .. } | Overlay::Events { .. } => &[("Up/Down", "scroll"), ("Esc", "close")],
    }
}

//! Keys and actions in, changed state and effects out.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::action::{Action, Effect};
use super::history::MINUTE_S;
use super::keymap;
use super::overlay::{Overlay, typable};
use super::state::{Frozen, Liveness, Pane, State};
use super::view::layout;
use crate::track::event::Level;
use crate::track::telemetry::Steer;
use crate::tui::overlay::Input;

/// Two Ctrl-C within this many seconds leave at once.
const TWICE_S: f64 = 2.0;
/// A step of scrubbing, as a share of the minute.
const STRIDE_S: f64 = MINUTE_S / 120.0;

impl State {
    /// A key press. Stops come before everything else, whatever lies over the screen.
    pub fn key(&mut self, key: &KeyEvent) -> Vec<Effect> {
        if let Some(stop) = keymap::stop(key) {
            // Whoever stops does not go on arming.
            self.overlays.retain(|overlay| !matches!(overlay, Overlay::Arm { .. }));
            return self.apply(stop);
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.interrupt();
        }
        match self.overlays.last() {
            None => keymap::action(key).map(|action| self.apply(action)).unwrap_or_default(),
            Some(Overlay::Quit | Overlay::ConfirmStop) => self.dialog_key(key),
            Some(_) => self.overlay_key(key),
        }
    }

    /// Ctrl-C is `q`; a second one soon after leaves, whatever is open.
    fn interrupt(&mut self) -> Vec<Effect> {
        let twice = self.interrupted.is_some_and(|before| self.now - before < TWICE_S);
        self.interrupted = Some(self.now);
        if twice {
            return vec![Effect::Leave];
        }
        self.overlays.clear();
        self.apply(Action::Quit)
    }

    fn dialog_key(&mut self, key: &KeyEvent) -> Vec<Effect> {
        let quitting = self.overlays.last() == Some(&Overlay::Quit);
        match key.code {
            KeyCode::Char('y') if !quitting => {
                self.overlays.pop();
                self.order(Steer::Stop)
            }
            KeyCode::Enter | KeyCode::Char('l') if quitting => vec![Effect::Leave],
            KeyCode::Char('s') if quitting => {
                self.overlays.pop();
                self.leave_at_end = true;
                self.order(Steer::Stop)
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('n' | 'c' | 'q') => {
                self.overlays.pop();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn overlay_key(&mut self, key: &KeyEvent) -> Vec<Effect> {
        let page = usize::from(self.size.height / 2).max(1);
        match key.code {
            KeyCode::Esc => return self.apply(Action::Escape),
            KeyCode::Enter => return self.enter(),
            KeyCode::Up => self.scroll_overlay(|n| n.saturating_sub(1)),
            KeyCode::Down => self.scroll_overlay(|n| n.saturating_add(1)),
            KeyCode::PageUp => self.scroll_overlay(|n| n.saturating_sub(page)),
            KeyCode::PageDown => self.scroll_overlay(|n| n.saturating_add(page)),
            KeyCode::Home => self.scroll_overlay(|_| 0),
            _ => return self.overlay_letter(key),
        }
        Vec::new()
    }

    fn overlay_letter(&mut self, key: &KeyEvent) -> Vec<Effect> {
        let second_help = matches!(self.overlays.last(), Some(Overlay::Help { input, .. }) if input.text.is_empty());
        if second_help && key.code == KeyCode::Char('?') {
            return self.apply(Action::Escape);
        }
        let Some(top) = self.overlays.last_mut() else { return Vec::new() };
        if let Some(input) = top.input() {
            if input.key(key) {
                self.input_changed();
            }
            return Vec::new();
        }
        match keymap::action(key) {
            Some(Action::Up) => self.scroll_overlay(|n| n.saturating_sub(1)),
            Some(Action::Down) => self.scroll_overlay(|n| n.saturating_add(1)),
            Some(Action::Suspend) => return vec![Effect::Suspend],
            // The key that opened a list closes it, as `q` does.
            Some(Action::Quit | Action::Orders | Action::Events) => {
                self.overlays.pop();
            }
            _ => {}
        }
        Vec::new()
    }

    fn input_changed(&mut self) {
        match self.overlays.last_mut() {
            Some(Overlay::Palette { selected, .. }) => *selected = 0,
            Some(Overlay::Arm { error, .. }) => *error = None,
            Some(Overlay::Help { scroll, .. }) => *scroll = 0,
            _ => {}
        }
    }

    fn scroll_overlay(&mut self, change: impl Fn(usize) -> usize) {
        let limit = match self.overlays.last() {
            Some(Overlay::Palette { input, .. }) => keymap::commands(&input.text).len(),
            Some(Overlay::Orders { .. }) => self.orders.iter().count(),
            Some(Overlay::Events { .. }) => self.live.events_at(f64::INFINITY).count(),
            Some(Overlay::Help { .. }) => keymap::BINDINGS.len() + keymap::Group::ALL.len(),
            _ => 0,
        };
        if let Some(position) = self.overlays.last_mut().and_then(Overlay::scroll) {
            *position = change(*position).min(limit.saturating_sub(1));
        }
    }

    fn enter(&mut self) -> Vec<Effect> {
        match self.overlays.pop() {
            Some(Overlay::Palette { input, selected }) => {
                let chosen = keymap::commands(&input.text).get(selected).copied();
                match chosen {
                    Some(command) => self.apply(command.action),
                    None => {
                        self.notify(Level::Warn, format!("no command fits '{}'", input.text));
                        Vec::new()
                    }
                }
            }
            Some(Overlay::Arm { input, .. }) => self.arm(input),
            _ => Vec::new(),
        }
    }

    /// Arms when the name was typed, else says what is missing.
    fn arm(&mut self, input: Input) -> Vec<Effect> {
        if let Some(reason) = Action::Arm.obstacle(self) {
            self.notify(Level::Warn, format!("arm: {reason}"));
            return Vec::new();
        }
        let robot = self.live.hello.as_ref().map(|h| h.robot.clone()).unwrap_or_default();
        if !robot.is_empty() && typable(&input.text) == typable(&robot) {
            return self.order(Steer::Arm { robot });
        }
        let error = Some(format!("that is not {}", typable(&robot)));
        self.overlays.push(Overlay::Arm { input, error });
        Vec::new()
    }

    /// Pasted text goes into the open field or nowhere, and stops nothing.
    pub fn paste(&mut self, text: &str) {
        if let Some(input) = self.overlays.last_mut().and_then(Overlay::input) {
            input.paste(text);
            self.input_changed();
        }
    }

    /// A click focuses, the wheel scrolls.
    pub fn mouse(&mut self, event: &MouseEvent) -> Vec<Effect> {
        let up = match event.kind {
            MouseEventKind::ScrollUp => Some(true),
            MouseEventKind::ScrollDown => Some(false),
            MouseEventKind::Down(MouseButton::Left) => None,
            _ => return Vec::new(),
        };
        match (up, self.overlays.is_empty()) {
            (Some(true), false) => self.scroll_overlay(|n| n.saturating_sub(1)),
            (Some(false), false) => self.scroll_overlay(|n| n.saturating_add(1)),
            (None, false) => {}
            (up, true) => {
                let position = Position::new(event.column, event.row);
                let pane = layout(self).panes.into_iter().find(|(_, area)| area.contains(position));
                if let Some((pane, _)) = pane {
                    self.set_focus(pane);
                }
                let action = up.map(|up| if up { Action::Up } else { Action::Down });
                return action.map(|action| self.apply(action)).unwrap_or_default();
            }
        }
        Vec::new()
    }

    /// Carries out `action`, or says why not.
    pub fn apply(&mut self, action: Action) -> Vec<Effect> {
        if let Some(reason) = action.obstacle(self) {
            let name = keymap::binding(action).map_or("this", |b| b.name);
            self.notify(Level::Warn, format!("{name}: {reason}"));
            return Vec::new();
        }
        match action {
            Action::Hold => return self.order(Steer::Hold),
            Action::EmergencyStop => return self.order(Steer::EmergencyStop),
            Action::Mode(mode) => return self.order(Steer::Mode { mode: mode.into() }),
            Action::ToggleMode => {
                let synchronous = self.newest().is_some_and(|s| s.mode == "sync");
                let mode = if synchronous { self.asynchronous.clone() } else { "sync".into() };
                return self.order(Steer::Mode { mode });
            }
            Action::Record => {
                let on = !self.newest().is_some_and(|s| s.recording);
                return self.order(Steer::Record { on });
            }
            Action::Suspend => return vec![Effect::Suspend],
            Action::Quit if self.settings.owned && !self.liveness().is_over() => self.open(Overlay::Quit),
            Action::Quit => return vec![Effect::Leave],
            Action::SetMouse(on) => return vec![Effect::Mouse(on)],
            Action::Arm => self.open(Overlay::Arm { input: Input::default(), error: None }),
            Action::Stop => self.open(Overlay::ConfirmStop),
            Action::Help => self.open(Overlay::Help { input: Input::default(), scroll: 0 }),
            Action::Palette => self.open(Overlay::Palette { input: Input::default(), selected: 0 }),
            Action::Orders => self.open(Overlay::Orders { scroll: 0 }),
            Action::Events => self.open(Overlay::Events { scroll: 0 }),
            Action::Images(on) => self.settings.images = on,
            Action::SetColor(color) => self.settings.color = color,
            Action::SetGlyphs(glyphs) => self.settings.glyphs = glyphs,
            Action::SetTone(tone) => self.settings.tone = tone,
            other => self.navigate(other),
        }
        Vec::new()
    }

    fn open(&mut self, overlay: Overlay) {
        self.overlays.push(overlay);
    }

    /// Orders; a stop goes by every way when the link is not known to be good.
    fn order(&mut self, steer: Steer) -> Vec<Effect> {
        let ticket = self.orders.ask(&steer, self.now, self.live.latest());
        let stops = matches!(steer, Steer::Hold | Steer::EmergencyStop | Steer::Stop);
        let every = stops && !matches!(self.liveness(), Liveness::Alive(_));
        vec![Effect::Order { ticket, steer, every }]
    }

    fn navigate(&mut self, action: Action) {
        let page = usize::from(self.size.height / 2).max(1);
        match action {
            Action::Freeze if self.frozen.is_some() => self.frozen = None,
            Action::Freeze => {
                let at = self.live.latest();
                self.frozen = Some(Box::new(Frozen { history: self.live.clone(), at }));
            }
            Action::Earlier => self.scrub(-STRIDE_S),
            Action::Later => self.scrub(STRIDE_S),
            Action::NextPane => self.set_focus(self.focus.shifted(1)),
            Action::PreviousPane => self.set_focus(self.focus.shifted(Pane::ALL.len() - 1)),
            Action::Zoom => self.zoomed = !self.zoomed,
            Action::Up => self.scroll_by(-1),
            Action::Down => self.scroll_by(1),
            Action::PageUp => self.scroll_by(-(page as isize)),
            Action::PageDown => self.scroll_by(page as isize),
            Action::Escape => self.escape(),
            _ => {}
        }
    }

    pub fn set_focus(&mut self, pane: Pane) {
        (self.focus, self.scroll) = (pane, 0);
        if matches!(pane, Pane::Joints | Pane::Cameras | Pane::Events) {
            self.tab = pane;
        }
    }

    /// Moves the frozen view, from one control tick to another.
    fn scrub(&mut self, by: f64) {
        if let Some(frozen) = &mut self.frozen {
            let (from, to) = (frozen.history.earliest(), frozen.history.latest());
            frozen.at = (frozen.at + by).min(to).max(from.min(to));
        }
    }

    /// Scrolls the list in focus: joints or events.
    fn scroll_by(&mut self, by: isize) {
        let (history, at) = self.shown();
        let length = match self.focus {
            Pane::Joints => history.hello.as_ref().map_or(0, |h| h.joints.len()),
            Pane::Events => history.events_at(at).count(),
            _ => 0,
        };
        self.scroll = self.scroll.saturating_add_signed(by).min(length.saturating_sub(1));
    }

    /// One layer out: overlay, then zoom, then the frozen view.
    fn escape(&mut self) {
        if self.overlays.pop().is_some() {
        } else if self.zoomed {
            self.zoomed = false;
        } else {
            self.frozen = None;
        }
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;

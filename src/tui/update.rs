//! Keys and actions in, changed state and effects out.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::action::{Action, Effect};
use super::keymap;
use super::log::Filter;
use super::overlay::{Input, Overlay};
use super::palette;
use super::state::{Axis, Look, Pane, Smoothing, State};
use super::view::layout;
use crate::track::control::Command;
use crate::track::event::Level;

/// Two Ctrl-C within this many seconds leave at once.
const TWICE_S: f64 = 2.0;

impl State {
    /// A key press.
    pub fn key(&mut self, key: &KeyEvent) -> Vec<Effect> {
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
                self.send(Command::Stop)
            }
            KeyCode::Enter | KeyCode::Char('l') if quitting => vec![Effect::Leave],
            KeyCode::Char('s') if quitting => {
                self.overlays.pop();
                if let Some(reason) = Action::Stop.obstacle(self) {
                    self.run.notify(Level::Warn, format!("stop: {reason}"));
                    return Vec::new();
                }
                self.leave_at_end = true;
                self.send(Command::Stop)
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
            Some(Action::Quit | Action::Commands | Action::Notifications | Action::Evidence) => {
                self.overlays.pop();
            }
            _ => {}
        }
        Vec::new()
    }

    /// The state that follows from a field's new text.
    fn input_changed(&mut self) {
        match self.overlays.last_mut() {
            Some(Overlay::Filter { input }) => {
                self.log_filter = Filter::new(&input.text);
                self.log_scroll = 0;
            }
            Some(Overlay::Palette { selected, error, .. }) => (*selected, *error) = (0, None),
            Some(Overlay::LearningRate { error, .. }) => *error = None,
            Some(Overlay::Help { scroll, .. }) => *scroll = 0,
            _ => {}
        }
    }

    fn scroll_overlay(&mut self, change: impl Fn(usize) -> usize) {
        let limit = match self.overlays.last() {
            Some(Overlay::Palette { input, .. }) => palette::candidates(&input.text).len(),
            Some(Overlay::Commands { .. }) => self.run.commands.iter().count(),
            Some(Overlay::Notifications { .. }) => self.run.notifications.len(),
            Some(Overlay::Help { .. }) => keymap::BINDINGS.len() + 8,
            _ => 0,
        };
        if let Some(position) = self.overlays.last_mut().and_then(Overlay::scroll) {
            *position = change(*position).min(limit.saturating_sub(1));
        }
    }

    fn enter(&mut self) -> Vec<Effect> {
        match self.overlays.pop() {
            Some(Overlay::Palette { input, selected, .. }) => self.run_command(input, selected),
            Some(Overlay::LearningRate { input, .. }) => match palette::learning_rate(&input.text) {
                Ok(rate) => self.apply(Action::SetLearningRate(rate)),
                Err(error) => {
                    self.overlays.push(Overlay::LearningRate { input, error: Some(error) });
                    Vec::new()
                }
            },
            // A filter stays; lists and help close.
            _ => Vec::new(),
        }
    }

    /// Runs the typed line, or completes it to the chosen candidate.
    fn run_command(&mut self, input: Input, selected: usize) -> Vec<Effect> {
        let candidates = palette::candidates(&input.text);
        let typed_whole = palette::parse(&input.text);
        let chosen = candidates.get(selected).filter(|_| !input.text.trim().contains(' '));
        let line = match (chosen, &typed_whole) {
            (Some(chosen), Err(_)) => chosen.name.to_owned(),
            (Some(chosen), Ok(_)) if selected > 0 => chosen.name.to_owned(),
            _ => input.text.clone(),
        };
        match palette::parse(&line) {
            Ok(action) => self.apply(action),
            Err(error) => {
                // A command that wants an argument is completed, so that only the argument is left to type.
                let text = if chosen.is_some() { format!("{line} ") } else { input.text };
                self.overlays.push(Overlay::Palette { input: Input { text }, selected: 0, error: Some(error) });
                Vec::new()
            }
        }
    }

    /// Pasted text goes into the open field or nowhere.
    pub fn paste(&mut self, text: &str) {
        if let Some(input) = self.overlays.last_mut().and_then(Overlay::input) {
            input.paste(text);
            self.input_changed();
        }
    }

    /// A click focuses, the wheel scrolls.
    pub fn mouse(&mut self, event: &MouseEvent) -> Vec<Effect> {
        let wheel = match event.kind {
            MouseEventKind::ScrollUp => Some(Action::Up),
            MouseEventKind::ScrollDown => Some(Action::Down),
            MouseEventKind::Down(MouseButton::Left) => None,
            _ => return Vec::new(),
        };
        if self.overlays.is_empty() {
            let position = Position::new(event.column, event.row);
            let panes = layout(self).panes;
            if let Some((pane, _)) = panes.iter().find(|(_, area)| area.contains(position)) {
                self.set_focus(*pane);
            }
            wheel.map(|action| self.apply(action)).unwrap_or_default()
        } else {
            match wheel {
                Some(Action::Up) => self.scroll_overlay(|n| n.saturating_sub(1)),
                Some(_) => self.scroll_overlay(|n| n.saturating_add(1)),
                None => {}
            }
            Vec::new()
        }
    }

    /// Carries out `action`, or says why not.
    pub fn apply(&mut self, action: Action) -> Vec<Effect> {
        if let Some(reason) = action.obstacle(self) {
            let name = keymap::binding(action).map_or("this", |b| b.name);
            self.run.notify(Level::Warn, format!("{name}: {reason}"));
            return Vec::new();
        }
        match action {
            Action::PauseOrResume if self.run.is_paused() => return self.send(Command::Resume),
            Action::PauseOrResume | Action::Pause => return self.send(Command::Pause),
            Action::Resume => return self.send(Command::Resume),
            Action::Checkpoint => return self.send(Command::Checkpoint),
            Action::Evaluate => return self.send(Command::Evaluate),
            Action::SetLearningRate(lr) => return self.send(Command::SetLearningRate { lr }),
            Action::Refresh => return vec![Effect::Refresh],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Copy => return self.copy(),
            Action::Quit if self.settings.owned && self.run.ending().is_none() => self.open(Overlay::Quit),
            Action::Quit => return vec![Effect::Leave],
            Action::SetMouse(on) => {
                self.settings.mouse = on;
                return vec![Effect::Mouse(on)];
            }
            Action::Stop => self.open(Overlay::ConfirmStop),
            Action::LearningRate => self.open(Overlay::LearningRate { input: Input::default(), error: None }),
            Action::Evidence => self.open(Overlay::Evidence),
            Action::Help => self.open(Overlay::Help { input: Input::default(), scroll: 0 }),
            Action::Palette => self.open(Overlay::Palette { input: Input::default(), selected: 0, error: None }),
            Action::Filter => {
                self.set_focus(Pane::Log);
                self.open(Overlay::Filter { input: Input { text: self.log_filter.text().into() } });
            }
            Action::Commands => self.open(Overlay::Commands { scroll: 0 }),
            Action::Notifications => {
                self.run.notifications.iter_mut().for_each(|n| n.seen = true);
                self.open(Overlay::Notifications { scroll: 0 });
            }
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

    fn send(&mut self, command: Command) -> Vec<Effect> {
        let ticket = self.run.commands.ask(&command, self.now);
        vec![Effect::Send { ticket, command }]
    }

    fn navigate(&mut self, action: Action) {
        let page = usize::from(self.size.height / 2).max(1);
        match action {
            Action::LogScale => self.look.log_scale = !self.look.log_scale,
            Action::TimeAxis => self.look.axis = if self.look.axis == Axis::Steps { Axis::Time } else { Axis::Steps },
            Action::Window => {
                self.look.recent = !self.look.recent;
                self.look.cursor = None;
            }
            Action::Smoothing => {
                self.look.smoothing = match self.look.smoothing {
                    Smoothing::Off => Smoothing::Low,
                    Smoothing::Low => Smoothing::High,
                    Smoothing::High => Smoothing::Off,
                }
            }
            Action::Left => self.move_cursor(false),
            Action::Right => self.move_cursor(true),
            Action::ShowLog if self.zoomed && self.focus == Pane::Log => self.zoomed = false,
            Action::ShowLog => {
                self.set_focus(Pane::Log);
                self.zoomed = true;
            }
            Action::NextPane => self.set_focus(self.focus.shifted(1)),
            Action::PreviousPane => self.set_focus(self.focus.shifted(Pane::ALL.len() - 1)),
            Action::Zoom => self.zoomed = !self.zoomed,
            Action::Restore => {
                (self.zoomed, self.focus, self.log_scroll) = (false, Pane::Loss, 0);
                self.look = Look { log_scale: self.look.log_scale, ..Look::default() };
                self.log_filter = Filter::default();
            }
            Action::Up => self.scroll_log(1),
            Action::PageUp => self.scroll_log(page as isize),
            Action::Down => self.scroll_log(-1),
            Action::PageDown => self.scroll_log(-(page as isize)),
            Action::Home => self.scroll_log(isize::MAX),
            Action::End => self.log_scroll = 0,
            Action::Escape => self.escape(),
            _ => {}
        }
    }

    /// One layer out: overlay, then zoom, then cursor, then filter.
    fn escape(&mut self) {
        if self.overlays.pop().is_some() {
        } else if self.zoomed {
            self.zoomed = false;
        } else if self.look.cursor.is_some() {
            self.look.cursor = None;
        } else {
            self.log_filter = Filter::default();
        }
    }

    fn scroll_log(&mut self, by: isize) {
        let lines = self.run.log.matching(&self.log_filter).count();
        self.log_scroll = self.log_scroll.saturating_add_signed(by).min(lines.saturating_sub(1));
    }

    /// Moves by about a hundredth of what the chart shows, and at least to the next value.
    fn move_cursor(&mut self, later: bool) {
        let steps: Vec<u64> = if self.look.recent {
            self.run.loss.recent().map(|p| p.step).collect()
        } else {
            self.run.loss.full().iter().map(|b| b.start).collect()
        };
        let Some(last) = steps.len().checked_sub(1) else { return };
        let stride = (steps.len() / 100).max(1);
        let here = self.look.cursor.map_or(last, |step| steps.partition_point(|&s| s < step).min(last));
        let there = if later { (here + stride).min(last) } else { here.saturating_sub(stride) };
        self.look.cursor = steps.get(there).copied();
    }

    fn copy(&mut self) -> Vec<Effect> {
        let text = match (self.focus, self.look.cursor) {
            (Pane::Log, _) => {
                self.run.log.matching(&self.log_filter).rev().nth(self.log_scroll).map(|l| l.text.clone())
            }
            (_, Some(step)) => Some(super::view::charts::readout(self, step)),
            _ => None,
        };
        vec![Effect::Copy(text.unwrap_or_else(|| self.settings.run_dir.display().to_string()))]
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;

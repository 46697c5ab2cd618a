//! Key presses to actions. The one table of bindings, from which hints, help and palette are made too.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Action;

/// A key as it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Code(KeyCode),
}

impl Key {
    /// Whether `event` is this key. Shift is part of the character.
    pub fn matches(self, event: &KeyEvent) -> bool {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let alt = event.modifiers.contains(KeyModifiers::ALT);
        match self {
            Key::Char(c) => event.code == KeyCode::Char(c) && !control && !alt,
            Key::Ctrl(c) => control && event.code == KeyCode::Char(c),
            Key::Code(code) => event.code == code,
        }
    }

    /// How the key is written for a person.
    pub fn label(self) -> String {
        match self {
            Key::Char(' ') => "Space".into(),
            Key::Char(c) => c.to_string(),
            Key::Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Key::Code(code) => match code {
                KeyCode::BackTab => "Shift-Tab".into(),
                KeyCode::PageUp => "PgUp".into(),
                KeyCode::PageDown => "PgDn".into(),
                other => format!("{other}"),
            },
        }
    }
}

/// Where a binding is listed in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Run,
    Charts,
    Look,
    General,
}

impl Group {
    pub const ALL: [Group; 4] = [Group::Run, Group::Charts, Group::Look, Group::General];

    pub fn title(self) -> &'static str {
        match self {
            Group::Run => "This run",
            Group::Charts => "Charts",
            Group::Look => "Panes and lists",
            Group::General => "General",
        }
    }
}

/// One row of a screen's table, by default the Train screen's.
#[derive(Debug, Clone, Copy)]
pub struct Binding<A = Action, G = Group> {
    pub action: A,
    pub keys: &'static [Key],
    /// The name in the palette and in configuration.
    pub name: &'static str,
    /// The word in the hint bar; none keeps it out of there.
    pub hint: Option<&'static str>,
    pub help: &'static str,
    pub group: G,
}

pub const fn row<A: Copy, G: Copy>(
    action: A,
    keys: &'static [Key],
    name: &'static str,
    hint: Option<&'static str>,
    help: &'static str,
    group: G,
) -> Binding<A, G> {
    Binding { action, keys, name, hint, help, group }
}

use Key::{Char, Code, Ctrl};

/// Every binding, in the order of the hint bar.
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    row(Action::PauseOrResume, &[Char('p')], "pause", Some("pause"), "hold after the current step, or go on", Group::Run),
    row(Action::Checkpoint, &[Char('C')], "checkpoint", Some("checkpoint"), "write a checkpoint after the current step", Group::Run),
    row(Action::Stop, &[Char('S')], "stop", Some("stop"), "finish the step, write a checkpoint, end resumable", Group::Run),
    row(Action::LearningRate, &[Char('R')], "lr", Some("lr..."), "set the learning rate from the next step on", Group::Run),
    row(Action::Evaluate, &[Char('e')], "eval", Some("eval"), "validate after the current step", Group::Run),
    row(Action::Evidence, &[Char('i')], "info", None, "where the shown state comes from", Group::Run),
    row(Action::LogScale, &[Char('Y')], "log-y", Some("log-y"), "loss axis logarithmic or linear", Group::Charts),
    row(Action::TimeAxis, &[Char('x')], "axis", Some("axis"), "charts over steps or over time", Group::Charts),
    row(Action::Window, &[Char('w')], "window", Some("window"), "charts of the last steps or of the whole run", Group::Charts),
    row(Action::Smoothing, &[Char('s')], "smoothing", Some("smooth"), "smoothing off, low, high; raw values stay faint", Group::Charts),
    row(Action::Left, &[Code(KeyCode::Left), Char('h')], "cursor-left", None, "chart cursor to earlier values", Group::Charts),
    row(Action::Right, &[Code(KeyCode::Right), Char('l')], "cursor-right", None, "chart cursor to later values", Group::Charts),
    row(Action::ShowLog, &[Char('L')], "log", Some("log"), "the log on the whole screen", Group::Look),
    row(Action::NextPane, &[Code(KeyCode::Tab)], "next-pane", Some("pane"), "next pane", Group::Look),
    row(Action::PreviousPane, &[Code(KeyCode::BackTab)], "previous-pane", None, "previous pane", Group::Look),
    row(Action::Zoom, &[Char('z')], "zoom", Some("zoom"), "this pane on the whole screen, and back", Group::Look),
    row(Action::Restore, &[Char('0')], "restore", None, "panes, cursor and filter as at the start", Group::Look),
    row(Action::Filter, &[Char('/')], "filter", Some("filter"), "filter the log: word, !word, ~fuzzy", Group::Look),
    row(Action::Up, &[Code(KeyCode::Up), Char('k')], "up", None, "one line up", Group::Look),
    row(Action::Down, &[Code(KeyCode::Down), Char('j')], "down", None, "one line down", Group::Look),
    row(Action::PageUp, &[Code(KeyCode::PageUp)], "page-up", None, "one page up", Group::Look),
    row(Action::PageDown, &[Code(KeyCode::PageDown)], "page-down", None, "one page down", Group::Look),
    row(Action::Home, &[Code(KeyCode::Home), Char('g')], "top", None, "to the oldest", Group::Look),
    row(Action::End, &[Code(KeyCode::End), Char('G')], "bottom", None, "to the newest, and follow", Group::Look),
    row(Action::Copy, &[Char('y')], "copy", None, "copy line, values or path to the clipboard", Group::Look),
    row(Action::Notifications, &[Char('!')], "notifications", None, "all notifications", Group::Look),
    row(Action::Commands, &[Char('$')], "commands", None, "what was asked of the run, and its answers", Group::Look),
    row(Action::Palette, &[Char(':')], "palette", Some("command"), "run any action by name", Group::General),
    row(Action::Help, &[Char('?')], "help", Some("help"), "this list", Group::General),
    row(Action::Refresh, &[Char('r')], "refresh", None, "read the run directory now", Group::General),
    row(Action::Suspend, &[Ctrl('z')], "suspend", None, "to the shell; fg comes back", Group::General),
    row(Action::Escape, &[Code(KeyCode::Esc)], "back", None, "one layer out", Group::General),
    row(Action::Quit, &[Char('q'), Ctrl('c')], "quit", Some("quit"), "leave; Ctrl-C twice leaves at once", Group::General),
];

/// The action bound to `event`.
pub fn action(event: &KeyEvent) -> Option<Action> {
    BINDINGS.iter().find(|b| b.keys.iter().any(|key| key.matches(event))).map(|b| b.action)
}

/// The row of `action`.
pub fn binding(action: Action) -> Option<&'static Binding> {
    BINDINGS.iter().find(|b| b.action == action)
}

/// The first key of `action`, written out.
pub fn key_label(action: Action) -> String {
    binding(action).and_then(|b| b.keys.first()).map(|key| key.label()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_and_no_name_is_bound_twice_and_hijackers_are_avoided() {
        let keys: Vec<String> = BINDINGS.iter().flat_map(|b| b.keys.iter().map(|k| k.label())).collect();
        let names: Vec<&str> = BINDINGS.iter().map(|b| b.name).collect();
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{key} is bound twice");
            assert!(!["Ctrl-A", "Ctrl-B", "Ctrl-S", "Ctrl-Q"].contains(&key.as_str()), "{key} belongs to others");
        }
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} is named twice");
        }
    }

    #[test]
    fn capitals_and_control_are_told_apart() {
        let press = |c, modifiers| action(&KeyEvent::new(KeyCode::Char(c), modifiers));
        assert_eq!(press('C', KeyModifiers::SHIFT), Some(Action::Checkpoint));
        assert_eq!(press('c', KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press('c', KeyModifiers::NONE), None);
        assert_eq!(press('p', KeyModifiers::ALT), None);
        assert_eq!(press('s', KeyModifiers::NONE), Some(Action::Smoothing));
    }
}

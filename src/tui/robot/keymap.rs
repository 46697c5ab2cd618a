//! Key presses to actions on the Robot screen: the one table of bindings, from which hints, help and palette are made.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Action;
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::keymap::Key::{self, Char, Code, Ctrl};
use crate::tui::keymap::{self, row};
use crate::tui::palette::rank;
use crate::tui::theme::Tone;

/// Where a binding is listed in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Stop,
    Robot,
    Look,
    General,
}

impl Group {
    pub const ALL: [Group; 4] = [Group::Stop, Group::Robot, Group::Look, Group::General];

    pub fn title(self) -> &'static str {
        match self {
            Group::Stop => "Stops, live everywhere on this screen (it is no safety device)",
            Group::Robot => "The robot",
            Group::Look => "The view",
            Group::General => "General",
        }
    }
}

pub type Binding = keymap::Binding<Action, Group>;

/// How many of the first bindings are stops, which the hint bar always shows.
pub const STOPS: usize = 2;

/// Every binding, in the order of the hint bar.
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    row(Action::Hold, &[Char(' ')], "hold", Some("hold"), "hold the position under torque, at once", Group::Stop),
    row(Action::EmergencyStop, &[Char('E')], "estop", Some("e-stop (arm sinks)"), "the arm's own emergency stop, at once: it may sink", Group::Stop),
    row(Action::Arm, &[Char('A')], "arm", Some("arm..."), "let it move again; asks for the robot's name", Group::Robot),
    row(Action::ToggleMode, &[Char('t')], "toggle", Some("sync/async"), "wait for each inference, or not, from the next chunk on", Group::Robot),
    row(Action::Freeze, &[Char('f')], "freeze", Some("freeze"), "freeze this view and look back; the robot continues", Group::Look),
    row(Action::Record, &[Char('m')], "record", Some("record"), "begin or end recording the rollout", Group::Robot),
    row(Action::Stop, &[Char('S')], "stop", Some("stop..."), "end the rollout in an orderly way", Group::Robot),
    row(Action::Earlier, &[Code(KeyCode::Left), Char('h')], "earlier", None, "in the frozen view: back", Group::Look),
    row(Action::Later, &[Code(KeyCode::Right), Char('l')], "later", None, "in the frozen view: forward", Group::Look),
    row(Action::NextPane, &[Code(KeyCode::Tab)], "next-pane", Some("pane"), "next pane", Group::Look),
    row(Action::PreviousPane, &[Code(KeyCode::BackTab)], "previous-pane", None, "previous pane", Group::Look),
    row(Action::Zoom, &[Char('z')], "zoom", Some("zoom"), "this pane on the whole screen, and back", Group::Look),
    row(Action::Up, &[Code(KeyCode::Up), Char('k')], "up", None, "scroll up", Group::Look),
    row(Action::Down, &[Code(KeyCode::Down), Char('j')], "down", None, "scroll down", Group::Look),
    row(Action::PageUp, &[Code(KeyCode::PageUp)], "page-up", None, "scroll up by a page", Group::Look),
    row(Action::PageDown, &[Code(KeyCode::PageDown)], "page-down", None, "scroll down by a page", Group::Look),
    row(Action::Orders, &[Char('$')], "orders", None, "what was asked of the robot, by which way, and its answers", Group::Look),
    row(Action::Events, &[Char('!')], "events", None, "everything that the robot's side said", Group::Look),
    row(Action::Palette, &[Char(':')], "palette", Some("command"), "choose any action from a list", Group::General),
    row(Action::Suspend, &[Ctrl('z')], "suspend", None, "to the shell; fg comes back; the rollout goes on", Group::General),
    row(Action::Escape, &[Code(KeyCode::Esc)], "back", None, "one layer out", Group::General),
    row(Action::Quit, &[Char('q'), Ctrl('c')], "quit", Some("leave"), "leave; the rollout goes on; Ctrl-C twice leaves at once", Group::General),
    row(Action::Help, &[Char('?')], "help", Some("help"), "this list", Group::General),
];

/// The stop that a key means, whatever lies over the screen. Small `e` is no stop: it is a letter.
pub fn stop(event: &KeyEvent) -> Option<Action> {
    // With ALT too: so an Esc pressed just before arrives.
    let modified = event.modifiers.contains(KeyModifiers::CONTROL);
    match event.code {
        KeyCode::Char(' ') => Some(Action::Hold),
        KeyCode::Char('E') if !modified => Some(Action::EmergencyStop),
        _ => None,
    }
}

/// The action bound to `event`.
pub fn action(event: &KeyEvent) -> Option<Action> {
    BINDINGS.iter().find(|b| b.keys.iter().any(|key| key.matches(event))).map(|b| b.action)
}

/// The row of `action`.
pub fn binding(action: Action) -> Option<&'static Binding> {
    BINDINGS.iter().find(|b| b.action == action)
}

/// An entry of the command list: complete, so that nothing has to be typed but letters that narrow the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Command {
    pub name: &'static str,
    pub action: Action,
    pub help: &'static str,
    pub key: Option<Key>,
}

/// Commands that are not keys.
const MORE: &[(&str, Action, &str)] = &[
    ("images-on", Action::Images(true), "camera images"),
    ("images-off", Action::Images(false), "cameras in words"),
    ("mode-sync", Action::Mode("sync"), "the arm waits for each inference"),
    ("mode-async", Action::Mode("async"), "chunks as they come"),
    ("mode-vlash", Action::Mode("vlash"), "inference from the state at the splice"),
    ("mode-rtc", Action::Mode("rtc"), "real-time chunking"),
    ("mode-rtc-trained", Action::Mode("rtc-trained"), "real-time chunking as trained"),
    ("color-never", Action::SetColor(ColorLevel::Never), "no colours"),
    ("color-16", Action::SetColor(ColorLevel::Ansi16), "sixteen colours"),
    ("color-256", Action::SetColor(ColorLevel::Ansi256), "256 colours"),
    ("color-true", Action::SetColor(ColorLevel::True), "all colours"),
    ("glyphs-braille", Action::SetGlyphs(Glyphs::Braille), "fine characters"),
    ("glyphs-block", Action::SetGlyphs(Glyphs::Block), "block characters"),
    ("glyphs-ascii", Action::SetGlyphs(Glyphs::Ascii), "ASCII only"),
    ("theme-calm", Action::SetTone(Tone::Calm), "faint side information"),
    ("theme-contrast", Action::SetTone(Tone::Contrast), "full side information"),
    ("mouse-on", Action::SetMouse(true), "click to focus"),
    ("mouse-off", Action::SetMouse(false), "selection stays with the terminal"),
];

/// What fits `typed`, best first. Only letters and digits count, so that nobody needs a blank.
pub fn commands(typed: &str) -> Vec<Command> {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let typed = letters(typed);
    let bound = BINDINGS.iter().filter(|b| !matches!(b.action, Action::Palette | Action::Escape));
    let bound = bound.map(|b| Command { name: b.name, action: b.action, help: b.help, key: b.keys.first().copied() });
    let more = MORE.iter().map(|&(name, action, help)| Command { name, action, help, key: None });
    let mut found: Vec<(u8, Command)> =
        bound.chain(more).filter_map(|command| Some((rank(&typed, &letters(command.name))?, command))).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, command)| command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_and_no_name_is_bound_twice_and_every_stop_comes_first() {
        let keys: Vec<String> = BINDINGS.iter().flat_map(|b| b.keys.iter().map(|k| k.label())).collect();
        let names: Vec<&str> = commands("").iter().map(|c| c.name).collect();
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{key} is bound twice");
            assert!(!["Ctrl-A", "Ctrl-B", "Ctrl-S", "Ctrl-Q"].contains(&key.as_str()), "{key} belongs to others");
        }
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} is named twice");
        }
        assert!(BINDINGS[..STOPS].iter().all(|b| b.group == Group::Stop));
        assert!(BINDINGS[STOPS..].iter().all(|b| b.group != Group::Stop));
    }

    #[test]
    fn stops_are_told_from_letters() {
        let key = |c, modifiers| stop(&KeyEvent::new(KeyCode::Char(c), modifiers));
        assert_eq!(key(' ', KeyModifiers::NONE), Some(Action::Hold));
        assert_eq!(key(' ', KeyModifiers::SHIFT), Some(Action::Hold));
        assert_eq!(key('E', KeyModifiers::SHIFT), Some(Action::EmergencyStop));
        assert_eq!(key('E', KeyModifiers::SHIFT | KeyModifiers::ALT), Some(Action::EmergencyStop));
        assert_eq!(key('e', KeyModifiers::NONE), None);
        assert_eq!(key('E', KeyModifiers::CONTROL), None);
    }

    #[test]
    fn commands_are_found_without_blanks() {
        let first = |typed| commands(typed)[0].name;
        assert_eq!(
            [first("imagesoff"), first("images-off"), first("est"), first("vlash")],
            ["images-off", "images-off", "estop", "mode-vlash"]
        );
        assert!(commands("zzzz").is_empty());
    }
}

//! Layers over the Robot screen. Each says that the stop keys work under it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::event_lines;
use crate::track::event::Level;
use crate::tui::format;
use crate::tui::robot::keymap::{self, BINDINGS, Group};
use crate::tui::robot::overlay::{Overlay, typable};
use crate::tui::robot::state::State;
use crate::tui::view::overlay::{DIALOG, Entry, Palette, help_lines, list_width, palette_box, text_box};

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let Some(overlay) = state.overlays.last() else { return };
    let theme = state.theme();
    match overlay {
        Overlay::Palette { input, selected } => palette(state, frame, area, &input.text, *selected),
        Overlay::Arm { input, error } => {
            let lines = arm_lines(state, &input.text, error.as_deref());
            text_box(&theme, frame, area, "Let the arm move?", lines, DIALOG);
        }
        Overlay::ConfirmStop => text_box(&theme, frame, area, "End the rollout?", stop_lines(state), DIALOG),
        Overlay::Quit => text_box(&theme, frame, area, "Leave", quit_lines(state), DIALOG),
        Overlay::Help { input, scroll } => list(state, frame, area, "Help", help(state, &input.text), *scroll),
        Overlay::Orders { scroll } => {
            list(state, frame, area, "Asked of the robot, newest first", order_lines(state), *scroll);
        }
        Overlay::Events { scroll } => {
            let lines = event_lines(state).skip(*scroll).take(usize::from(area.height)).collect();
            list(state, frame, area, "What the robot's side said, newest first", lines, 0);
        }
    }
}

fn list(state: &State, frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>, scroll: usize) {
    let mut shown: Vec<Line> = lines.into_iter().skip(scroll).collect();
    if shown.is_empty() {
        shown.push(Line::styled("none", state.theme().grey()));
    }
    text_box(&state.theme(), frame, area, title, shown, list_width(area));
}

fn arm_lines(state: &State, text: &str, error: Option<&str>) -> Vec<Line<'static>> {
    let theme = state.theme();
    let name = state.live.hello.as_ref().map(|h| typable(&h.robot)).unwrap_or_default();
    let mut lines = vec![
        Line::raw("It moves as soon as this is accepted. Is everybody out of its reach?"),
        Line::raw(""),
        Line::raw(format!("Type {name} and press Enter.")),
        Line::styled("SPACE and E still stop: write small letters.", theme.grey()),
        Line::raw(format!("> {text}_")),
    ];
    lines.extend(error.map(|error| Line::styled(format!("x {error}"), theme.level(Level::Error))));
    lines
}

fn stop_lines(state: &State) -> Vec<Line<'static>> {
    vec![
        Line::raw(format!("The rollout on {} ends in an orderly way and writes its report.", state.robot())),
        Line::raw("What the arm does then, its configuration says: hold, or rest."),
        Line::raw(""),
        Line::raw("y  end it      n  go on (default)"),
    ]
}

fn quit_lines(state: &State) -> Vec<Line<'static>> {
    vec![
        Line::raw(format!("The rollout on {} goes on without this screen.", state.robot())),
        Line::raw(""),
        Line::raw("Enter  leave it running (default)"),
        Line::raw(format!("       come back: vlash watch {}", state.settings.target)),
        Line::raw("s      end it in an orderly way"),
        Line::raw("Esc    cancel, stay here"),
    ]
}

fn palette(state: &State, frame: &mut Frame, area: Rect, text: &str, selected: usize) {
    let entry = |command: &keymap::Command| Entry {
        name: command.name.into(),
        key: command.key.map(|key| key.label()).unwrap_or_default(),
        help: command.help,
    };
    let entries: Vec<Entry> = keymap::commands(text).iter().map(entry).collect();
    palette_box(&state.theme(), frame, area, Palette { text, selected, error: None, entries: &entries });
}

fn help(state: &State, text: &str) -> Vec<Line<'static>> {
    let groups = Group::ALL.map(|group| (group, group.title()));
    help_lines(&state.theme(), text, &groups, BINDINGS, |action| action.obstacle(state))
}

fn order_lines(state: &State) -> Vec<Line<'static>> {
    let theme = state.theme();
    let line = |order: &crate::tui::robot::orders::Order| {
        Line::from(vec![
            Span::styled(format!("{}  ", format::clock(order.time, &state.settings.zone)), theme.grey()),
            Span::raw(format!("{:<18}", order.text())),
            Span::styled(
                order.describe(state.now),
                if order.is_bad(state.now) { theme.orange() } else { Default::default() },
            ),
        ])
    };
    state.orders.iter().map(line).collect()
}

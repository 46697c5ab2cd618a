//! Layers over the Robot screen. Each says that the stop keys work under it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::event_lines;
use crate::track::event::Level;
use crate::tui::format;
use crate::tui::log::fuzzy;
use crate::tui::robot::keymap::{self, BINDINGS, Binding, Group};
use crate::tui::robot::overlay::{Overlay, typable};
use crate::tui::robot::state::State;
use crate::tui::view::overlay::{DIALOG, LIST, boxed, text_box};

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
        Overlay::Help { input, scroll } => list(state, frame, area, "Help", help_lines(state, &input.text), *scroll),
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
    text_box(&state.theme(), frame, area, title, shown, LIST.min(area.width.saturating_sub(4)));
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
    let theme = state.theme();
    let commands = keymap::commands(text);
    let rows = commands.len().min(12);
    let width = LIST.min(area.width.saturating_sub(4));
    let inner = boxed(&theme, frame, area, "Command", width, rows as u16 + 1);
    let mut lines = vec![Line::raw(format!(":{text}_"))];
    // The chosen line stays in view.
    let first = selected.saturating_sub(rows.saturating_sub(1));
    for (i, command) in commands.iter().enumerate().skip(first).take(rows) {
        let chosen = i == selected;
        let name = format!("{} {}", if chosen { ">" } else { " " }, command.name);
        let style = if chosen { theme.selected() } else { theme.strong() };
        let key = command.key.map(|key| key.label()).unwrap_or_default();
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<18}"), style),
            Span::styled(format!(" {key:<10}"), theme.blue()),
            Span::styled(command.help, theme.grey()),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn help_lines(state: &State, text: &str) -> Vec<Line<'static>> {
    let theme = state.theme();
    let wanted = text.to_lowercase();
    let fits = |b: &&Binding| b.help.contains(&wanted) || fuzzy(&wanted, b.name);
    let mut lines = vec![Line::raw(format!("search: {text}_"))];
    for group in Group::ALL {
        let rows: Vec<&Binding> = BINDINGS.iter().filter(|b| b.group == group).filter(fits).collect();
        if !rows.is_empty() {
            lines.push(Line::styled(group.title(), theme.strong()));
            lines.extend(rows.into_iter().map(|b| help_row(state, b)));
        }
    }
    lines
}

fn help_row(state: &State, binding: &Binding) -> Line<'static> {
    let theme = state.theme();
    let keys: Vec<String> = binding.keys.iter().map(|key| key.label()).collect();
    let mut spans = vec![
        Span::styled(format!("  {:<10}", keys.join(" ")), theme.blue()),
        Span::raw(format!("{:<14}", binding.name)),
    ];
    if let Some(reason) = binding.action.obstacle(state) {
        spans.push(Span::styled(format!("not now: {reason}; "), theme.orange()));
    }
    spans.push(Span::raw(binding.help));
    Line::from(spans)
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

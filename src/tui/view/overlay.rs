//! Layers over the screen: dialogs, lists, the palette, the help. Centred, at most 60 columns for dialogs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use crate::track::event::Level;
use crate::tui::commands::Progress;
use crate::tui::format;
use crate::tui::keymap::{BINDINGS, Binding, Group};
use crate::tui::log::fuzzy;
use crate::tui::overlay::Overlay;
use crate::tui::palette;
use crate::tui::state::State;
use crate::tui::theme::{self, Theme};

/// Most columns of a dialog and of a list.
pub const DIALOG: u16 = 60;
const LIST: u16 = 100;

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let Some(overlay) = state.overlays.last() else { return };
    match overlay {
        // The filter is typed in the log pane itself.
        Overlay::Filter { .. } => {}
        Overlay::ConfirmStop => dialog(state, frame, area, "Stop the run?", stop_lines(state)),
        Overlay::Quit => dialog(state, frame, area, "Leave", quit_lines(state)),
        Overlay::LearningRate { input, error } => {
            dialog(state, frame, area, "Learning rate", rate_lines(state, &input.text, error.as_deref()));
        }
        Overlay::Palette { input, selected, error } => {
            palette_list(state, frame, area, &input.text, *selected, error.as_deref());
        }
        Overlay::Help { input, scroll } => help(state, frame, area, &input.text, *scroll),
        Overlay::Commands { scroll } => {
            list(state, frame, area, "Requests to the run, newest first", command_lines(state), *scroll);
        }
        Overlay::Notifications { scroll } => {
            list(state, frame, area, "Notifications, newest first", notification_lines(state), *scroll);
        }
        Overlay::Evidence => list(state, frame, area, "What is known of this run", evidence_lines(state), 0),
    }
}

/// Draws an empty box for `lines` lines of text in the middle of `area` and returns its inside.
pub fn boxed(theme: &Theme, frame: &mut Frame, area: Rect, title: &str, width: u16, lines: u16) -> Rect {
    let width = width.min(area.width);
    let height = lines.saturating_add(2).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::bordered().border_set(theme.border()).title(Line::styled(format!(" {title} "), theme.strong()));
    let inner = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    inner
}

fn dialog(state: &State, frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>) {
    text_box(&state.theme(), frame, area, title, lines, DIALOG);
}

fn list(state: &State, frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>, scroll: usize) {
    let shown = lines.into_iter().skip(scroll).collect();
    text_box(&state.theme(), frame, area, title, shown, list_width(area));
}

/// A box of text, wrapped.
pub fn text_box(theme: &Theme, frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>, width: u16) {
    let room = usize::from(width.min(area.width).saturating_sub(2));
    let height: usize = lines.iter().map(|line| format::wrapped_lines(&line.to_string(), room)).sum();
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    let inner = boxed(theme, frame, area, title, width, u16::try_from(height).unwrap_or(u16::MAX));
    frame.render_widget(text, inner);
}

fn stop_lines(state: &State) -> Vec<Line<'static>> {
    let (done, steps) = state.run.steps();
    vec![
        Line::raw(format!("{} is at step {done} of {steps}.", state.run.name())),
        Line::raw(
            "It finishes the step, writes a checkpoint and ends; the same vlash train command continues it later.",
        ),
        Line::raw(""),
        Line::raw("y  stop it      n  go on training (default)"),
    ]
}

fn quit_lines(state: &State) -> Vec<Line<'static>> {
    vec![
        Line::raw(format!("{} is {}.", state.run.name(), state.run.word().to_lowercase())),
        Line::raw(""),
        Line::raw("Enter  leave it running (default)"),
        Line::raw(format!("       come back: vlash watch {}", state.settings.run_dir.display())),
        Line::raw("s      stop gracefully: step, checkpoint, end"),
        Line::raw("Esc    cancel, stay here"),
    ]
}

fn rate_lines(state: &State, text: &str, error: Option<&str>) -> Vec<Line<'static>> {
    let now = state.run.lr.last().map_or_else(|| "n/a".into(), |p| format::rate(p.value));
    let mut lines = vec![
        Line::raw(format!("now {now}; the schedule is scaled so that the next step has the new rate")),
        Line::raw(format!("new rate: {text}_")),
    ];
    if let Some(error) = error {
        lines.push(Line::styled(format!("x {error}"), state.theme().level(Level::Error)));
    }
    lines
}

fn palette_list(state: &State, frame: &mut Frame, area: Rect, text: &str, selected: usize, error: Option<&str>) {
    let entry = |candidate: &palette::Candidate| Entry {
        name: candidate.argument.map_or_else(|| candidate.name.into(), |form| format!("{} {form}", candidate.name)),
        key: candidate.key.clone(),
        help: candidate.help,
    };
    let entries: Vec<Entry> = palette::candidates(text).iter().map(entry).collect();
    palette_box(&state.theme(), frame, area, Palette { text, selected, error, entries: &entries });
}

/// A line of a palette.
pub struct Entry {
    /// With the form of its argument.
    pub name: String,
    pub key: String,
    pub help: &'static str,
}

/// An open palette.
pub struct Palette<'a> {
    pub text: &'a str,
    pub selected: usize,
    pub error: Option<&'a str>,
    pub entries: &'a [Entry],
}

/// Draws a palette: what is typed, and the entries about the selected one.
pub fn palette_box(theme: &Theme, frame: &mut Frame, area: Rect, palette: Palette<'_>) {
    let Palette { text, selected, error, entries } = palette;
    let rows = entries.len().min(12);
    let width = list_width(area);
    let inner = boxed(theme, frame, area, "Command", width, rows as u16 + 1 + u16::from(error.is_some()));
    let mut lines = vec![Line::raw(format!(":{text}_"))];
    lines.extend(error.map(|error| Line::styled(format!("x {error}"), theme.level(Level::Error))));
    // The chosen line stays in view.
    let first = selected.saturating_sub(rows.saturating_sub(1));
    for (i, entry) in entries.iter().enumerate().skip(first).take(rows) {
        let chosen = i == selected;
        let name = format!("{} {}", if chosen { ">" } else { " " }, entry.name);
        let style = if chosen { theme.selected() } else { theme.strong() };
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<18}"), style),
            Span::styled(format!(" {:<10}", entry.key), theme.blue()),
            Span::styled(entry.help, theme.grey()),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

/// The columns of a list in `area`.
pub fn list_width(area: Rect) -> u16 {
    LIST.min(area.width.saturating_sub(4))
}

fn help(state: &State, frame: &mut Frame, area: Rect, text: &str, scroll: usize) {
    let groups = Group::ALL.map(|group| (group, group.title()));
    let lines = help_lines(&state.theme(), text, &groups, BINDINGS, |action| action.obstacle(state));
    list(state, frame, area, "Help", lines, scroll);
}

/// The bindings that fit `text`, by group; `obstacle` says why one cannot be used now.
pub fn help_lines<A: Copy, G: Copy + PartialEq>(
    theme: &Theme,
    text: &str,
    groups: &[(G, &'static str)],
    bindings: &[Binding<A, G>],
    obstacle: impl Fn(A) -> Option<String>,
) -> Vec<Line<'static>> {
    let wanted = text.to_lowercase();
    let mut lines = vec![Line::raw(format!("search: {text}_"))];
    for (group, title) in groups {
        let fits = |b: &&Binding<A, G>| b.group == *group && (b.help.contains(&wanted) || fuzzy(&wanted, b.name));
        let rows: Vec<Line> = bindings.iter().filter(fits).map(|b| help_row(theme, b, obstacle(b.action))).collect();
        if !rows.is_empty() {
            lines.push(Line::styled(*title, theme.strong()));
            lines.extend(rows);
        }
    }
    lines
}

fn help_row<A, G>(theme: &Theme, binding: &Binding<A, G>, obstacle: Option<String>) -> Line<'static> {
    let keys: Vec<String> = binding.keys.iter().map(|key| key.label()).collect();
    let mut spans = vec![
        Span::styled(format!("  {:<13}", keys.join(" ")), theme.blue()),
        Span::raw(format!("{:<15}", binding.name)),
    ];
    spans.extend(obstacle.map(|reason| Span::styled(format!("not now: {reason}; "), theme.orange())));
    spans.push(Span::raw(binding.help));
    Line::from(spans)
}

fn command_lines(state: &State) -> Vec<Line<'static>> {
    let theme = state.theme();
    let mut lines: Vec<Line> = state
        .run
        .commands
        .iter()
        .map(|entry| {
            let bad = entry.is_overdue(state.now)
                || matches!(entry.progress, Progress::NotSent(_) | Progress::Refused { .. });
            Line::from(vec![
                Span::styled(format!("{}  ", format::clock(entry.time, &state.settings.zone)), theme.grey()),
                Span::raw(format!("{:<20}", entry.text)),
                Span::styled(entry.describe(state.now), if bad { theme.orange() } else { Default::default() }),
            ])
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::styled("nothing was asked of the run yet", theme.grey()));
    }
    lines
}

fn notification_lines(state: &State) -> Vec<Line<'static>> {
    let theme = state.theme();
    let mut lines: Vec<Line> = state
        .run
        .notifications
        .iter()
        .rev()
        .map(|n| {
            let clock = format::clock(n.time, &state.settings.zone);
            Line::from(vec![
                Span::styled(format!("{clock} "), theme.grey()),
                Span::styled(format!("{} {}", theme::mark(n.level), n.text), theme.level(n.level)),
            ])
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::styled("none", theme.grey()));
    }
    lines
}

/// Where the shown state comes from.
fn evidence_lines(state: &State) -> Vec<Line<'static>> {
    let run = &state.run;
    let zone = &state.settings.zone;
    let time = |seconds: f64| format::date(seconds, zone);
    let none = || "n/a".to_owned();
    let status = run.status.as_ref();
    let process = run.process().map(|(pid, host)| {
        let alive = match run.process_alive {
            Some(true) => "is on this host",
            Some(false) => "is not on this host any more",
            None => "is on another host, or was not looked for",
        };
        format!("{pid} on {host}; it {alive}")
    });
    let rows = [
        ("directory", state.settings.run_dir.display().to_string()),
        ("status.json", status.map_or_else(none, |s| format!("{:?} at step {} of {}", s.state, s.step, s.steps))),
        ("heartbeat", status.map_or_else(none, |s| format!("{} by the run's clock", time(s.heartbeat)))),
        ("sign of life", super::header::life_words(state)),
        ("started", status.map_or_else(none, |s| time(s.started))),
        ("process", process.unwrap_or_else(none)),
        ("doing", status.and_then(|s| s.doing.as_deref()).map_or_else(none, format::clean)),
        ("checkpoint", run.last_checkpoint().unwrap_or_else(none)),
        ("events", format!("{} of unknown kinds, {} damaged lines", run.unknown, run.damaged)),
        ("written by", run.start.as_ref().map_or_else(none, |s| format!("vlash {}", s.version))),
        ("command", if run.facts.command.is_empty() { none() } else { format::clean(&run.facts.command.join(" ")) }),
        ("problem", run.problem.as_ref().map_or_else(|| "none".into(), ToString::to_string)),
    ];
    let theme = state.theme();
    rows.into_iter()
        .map(|(name, text)| Line::from(vec![Span::styled(format!("{name:<14}"), theme.grey()), Span::raw(text)]))
        .collect()
}

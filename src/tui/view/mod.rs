//! The Train screen, drawn from the state alone.

pub mod charts;
pub mod footer;
mod header;
mod log;
pub mod overlay;
pub mod plot;
mod raster;
mod speed;

pub use footer::message;
pub use header::life_words;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};

use crate::tui::format;
use crate::tui::state::{Pane, State};
use crate::tui::theme::Theme;

/// How much of the screen there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Designed for 120×40: every pane at once.
    Full,
    /// 80×24: charts above, the other panes as tabs below.
    Tabs,
    /// 60×15, or a zoomed pane: one pane with its status.
    Single,
    /// Smaller still: state, step, loss and time left as text.
    Text,
}

/// Where everything goes.
#[derive(Debug, Clone)]
pub struct Layout {
    pub form: Form,
    pub header: Rect,
    pub panes: Vec<(Pane, Rect)>,
    pub banner: Rect,
    pub hints: Rect,
}

/// Places everything for the state's size.
pub fn layout(state: &State) -> Layout {
    let area = Rect::new(0, 0, state.size.width, state.size.height);
    let form = match (area.width, area.height) {
        (w, h) if w < 40 || h < 8 => Form::Text,
        (w, h) if w < 76 || h < 20 || state.zoomed => Form::Single,
        (w, h) if w < 110 || h < 32 => Form::Tabs,
        _ => Form::Full,
    };
    let banner_lines = if form == Form::Text { 0 } else { footer::banner_lines(state, area) };
    let [header, body, banner, hints] = Split::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(banner_lines),
        Constraint::Length(1),
    ])
    .areas(area);
    let panes = match form {
        Form::Text => Vec::new(),
        Form::Single => vec![(state.focus, body)],
        Form::Tabs => tabs(state, body),
        Form::Full => full(body),
    };
    Layout { form, header, panes, banner, hints }
}

fn tabs(state: &State, body: Rect) -> Vec<(Pane, Rect)> {
    let [top, bottom] = Split::vertical([Constraint::Min(0), Constraint::Length(8)]).areas(body);
    let [loss, side] = Split::horizontal([Constraint::Percentage(62), Constraint::Min(0)]).areas(top);
    let [norm, rate] = Split::vertical([Constraint::Percentage(50), Constraint::Min(0)]).areas(side);
    vec![(Pane::Loss, loss), (Pane::GradNorm, norm), (Pane::LearningRate, rate), (state.tab, bottom)]
}

fn full(body: Rect) -> Vec<(Pane, Rect)> {
    let [top, middle, bottom] =
        Split::vertical([Constraint::Percentage(45), Constraint::Length(8), Constraint::Min(0)]).areas(body);
    let [loss, norm, rate] =
        Split::horizontal([Constraint::Percentage(54), Constraint::Percentage(23), Constraint::Min(0)]).areas(top);
    let [speed, memory] = Split::horizontal([Constraint::Percentage(45), Constraint::Min(0)]).areas(middle);
    vec![
        (Pane::Loss, loss),
        (Pane::GradNorm, norm),
        (Pane::LearningRate, rate),
        (Pane::Speed, speed),
        (Pane::Memory, memory),
        (Pane::Log, bottom),
    ]
}

/// Draws everything.
pub fn render(state: &State, frame: &mut Frame) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let layout = layout(state);
    if layout.form == Form::Text {
        return text(state, frame, area);
    }
    header::render(state, frame, layout.header);
    for &(pane, area) in &layout.panes {
        render_pane(state, frame, pane, area, layout.form);
    }
    footer::banner(state, frame, layout.banner);
    footer::hints(state, frame, layout.hints);
    overlay::render(state, frame, above_hints(area));
}

/// Layers leave the header and the hints in sight: the hints name their keys.
pub fn above_hints(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area }
}

fn render_pane(state: &State, frame: &mut Frame, pane: Pane, area: Rect, form: Form) {
    let title = title(state, pane, form);
    match pane {
        Pane::Loss | Pane::GradNorm | Pane::LearningRate => charts::render(state, frame, pane, area, title),
        Pane::Speed => speed::render_speed(state, frame, area, title),
        Pane::Memory => speed::render_memory(state, frame, area, title),
        Pane::Log => log::render(state, frame, area, title),
    }
}

/// The title: the pane's own, or the row of tabs it shares its place with. Brackets mark the focus.
fn title(state: &State, pane: Pane, form: Form) -> String {
    let shown = |p: Pane| if p == state.focus { format!("[{}]", p.title()) } else { p.title().to_owned() };
    let group: &[Pane] = match form {
        Form::Single => &Pane::ALL,
        Form::Tabs if !pane.is_chart() => &[Pane::Speed, Pane::Memory, Pane::Log],
        _ => return shown(pane),
    };
    let marked = |&p: &Pane| if p == pane && p != state.focus { format!("({})", p.title()) } else { shown(p) };
    group.iter().map(marked).collect::<Vec<_>>().join(" ")
}

/// The frame of a pane.
fn block<'a>(state: &State, pane: Pane, title: String) -> Block<'a> {
    framed(&state.theme(), title, state.focus == pane, state.is_stale())
}

/// A frame with its title: strong when it has the focus, faint when what it holds is stale.
pub fn framed<'a>(theme: &Theme, title: String, focused: bool, stale: bool) -> Block<'a> {
    let style = if focused { Style::new() } else { theme.grey() };
    let title_style = match (stale, focused) {
        (true, _) => theme.grey(),
        (false, true) => theme.strong(),
        (false, false) => Style::new(),
    };
    Block::bordered()
        .border_set(theme.border())
        .border_style(style)
        .title(Line::styled(format!(" {title} "), title_style))
}

/// State, step, loss and time left, most important first, over as many lines as there are.
fn text(state: &State, frame: &mut Frame, area: Rect) {
    let run = &state.run;
    let (done, steps) = run.steps();
    let mut parts = vec![header::state_words(state), format!("{}/{}", format::count(done), format::count(steps))];
    if let Some(metrics) = &run.metrics {
        parts.push(format!("loss {}", format::metric(metrics.loss)));
    }
    if let Some(eta) = run.eta() {
        parts.push(format!("ETA {}", format::duration(eta)));
    }
    if state.is_stale() {
        parts.push(header::life_words(state));
    }
    let style = if state.is_stale() { state.theme().grey() } else { Style::new() };
    if !state.overlays.is_empty() {
        parts.insert(0, "Esc: dialog".into());
    }
    let lines: Vec<Line> = pack(&parts, usize::from(area.width)).into_iter().map(Line::raw).collect();
    frame.render_widget(Paragraph::new(lines).style(style), area);
}

/// As many parts a line as fit, none of them cut in two.
pub fn pack(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= width => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// The style of measured values: faint once they may be old.
fn value_style(state: &State) -> Style {
    if state.is_stale() { state.theme().grey() } else { Style::new() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! The Robot screen, drawn from the state alone.

mod cameras;
mod chunks;
mod footer;
mod header;
mod joints;
mod latency;
mod overlay;
mod pulse;

pub use cameras::prepare as prepare_images;
pub use chunks::queue_words;
pub use footer::{gone_words, message};
pub use header::link_words;
pub use pulse::jitter_words;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::action::Action;
use super::state::{Pane, State};
use crate::tui::theme;
use crate::tui::view::{above_hints, framed, pack};

/// How much of the screen there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Designed for 120×40: every pane at once.
    Full,
    /// 80×24: loop, latency and chunks above, the other panes as tabs below.
    Tabs,
    /// 60×15, or a zoomed pane: one pane.
    Single,
    /// Smaller still: state and stop keys as text.
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
    let [header, body, banner, hints] = Split::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(footer::banner_lines(state, area)),
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
    let [top, middle, bottom] =
        Split::vertical([Constraint::Length(8), Constraint::Min(5), Constraint::Length(7)]).areas(body);
    let [pulse, latency] = Split::horizontal([Constraint::Length(36), Constraint::Min(0)]).areas(top);
    vec![(Pane::Loop, pulse), (Pane::Latency, latency), (Pane::Chunks, middle), (state.tab, bottom)]
}

fn full(body: Rect) -> Vec<(Pane, Rect)> {
    // What a larger screen has more goes to the images first: more than a few chunks are never of interest.
    let top = 13 + body.height.saturating_sub(37) / 2;
    let [top, middle, bottom] =
        Split::vertical([Constraint::Length(top), Constraint::Min(8), Constraint::Length(11)]).areas(body);
    let [pulse, latency, cameras] =
        Split::horizontal([Constraint::Length(36), Constraint::Percentage(36), Constraint::Min(0)]).areas(top);
    let [joints, events] = Split::horizontal([Constraint::Percentage(58), Constraint::Min(0)]).areas(bottom);
    vec![
        (Pane::Loop, pulse),
        (Pane::Latency, latency),
        (Pane::Cameras, cameras),
        (Pane::Chunks, middle),
        (Pane::Joints, joints),
        (Pane::Events, events),
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
        let block = framed(&state.theme(), title(state, pane, layout.form), state.focus == pane, state.is_stale());
        let inner = block.inner(area);
        frame.render_widget(block, area);
        match pane {
            Pane::Loop => pulse::render(state, frame, inner),
            Pane::Latency => latency::render(state, frame, inner),
            Pane::Chunks => chunks::render(state, frame, inner),
            Pane::Joints => joints::render(state, frame, inner),
            Pane::Cameras => cameras::render(state, frame, inner),
            Pane::Events => events(state, frame, inner),
        }
    }
    footer::banner(state, frame, layout.banner);
    footer::hints(state, frame, layout.hints);
    overlay::render(state, frame, above_hints(area));
}

/// The title: the pane's own, or the row of tabs it shares its place with. Brackets mark the focus.
fn title(state: &State, pane: Pane, form: Form) -> String {
    let shown = |p: Pane| if p == state.focus { format!("[{}]", p.title()) } else { p.title().to_owned() };
    let group: &[Pane] = match form {
        Form::Single => &Pane::ALL,
        Form::Tabs if pane == state.tab => &[Pane::Joints, Pane::Cameras, Pane::Events],
        _ => &[],
    };
    if group.is_empty() {
        return shown(pane);
    }
    let marked = |&p: &Pane| if p == pane && p != state.focus { format!("({})", p.title()) } else { shown(p) };
    group.iter().map(marked).collect::<Vec<_>>().join(" ")
}

/// What the robot's side said, newest first.
fn events(state: &State, frame: &mut Frame, area: Rect) {
    let lines: Vec<Line> = event_lines(state).skip(state.scroll).take(usize::from(area.height)).collect();
    if lines.is_empty() {
        return frame.render_widget(Paragraph::new("none yet").style(state.theme().grey()), area);
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Events up to the moment shown, newest first.
fn event_lines(state: &State) -> impl Iterator<Item = Line<'static>> {
    let (history, at) = state.shown();
    let theme = state.theme();
    history.events_at(at).map(move |said| {
        Line::from(vec![
            Span::styled(format!("{:>7.1} s ", said.time), theme.grey()),
            Span::styled(format!("{} {}", theme::mark(said.level), said.text), theme.level(said.level)),
        ])
    })
}

/// State and stop keys, most important first, over as many lines as there are.
fn text(state: &State, frame: &mut Frame, area: Rect) {
    let mut parts = Vec::new();
    if !state.overlays.is_empty() {
        parts.push("Esc: dialog".to_owned());
    }
    match state.newest() {
        Some(status) => parts.push(format!("{} {}", state.arm_words(status), status.mode)),
        None => parts.push("no word yet".into()),
    }
    parts.push(link_words(state));
    if Action::Hold.obstacle(state).is_none() {
        parts.push("SPACE hold".into());
        parts.push("E e-stop".into());
    }
    let pulse = pulse::pulse(state);
    parts.extend(pulse.rate.map(|hz| format!("{hz:.1} Hz")));
    parts.extend(pulse.p99_ms.map(|ms| format!("p99 {ms:.1} ms")));
    let lines: Vec<Line> = pack(&parts, usize::from(area.width)).into_iter().map(Line::raw).collect();
    frame.render_widget(Paragraph::new(lines).style(value_style(state)), area);
}

/// The style of measured values: faint once they may be old.
fn value_style(state: &State) -> Style {
    if state.is_stale() { state.theme().grey() } else { Style::new() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

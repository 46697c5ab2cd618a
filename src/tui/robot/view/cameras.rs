//! What the cameras see: an image each where the terminal can, and always the words.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui_image::Image;

use super::value_style;
use crate::tui::capability::ColorLevel;
use crate::tui::format;
use crate::tui::robot::probe::Graphics;
use crate::tui::robot::state::{FROZEN_MS, Pane, State};

/// Most columns that images take over SSH.
const REMOTE_COLUMNS: u16 = 64;
/// Most cameras side by side.
const MOST: usize = 4;

/// The place of each camera: its image, and the line of words below.
fn places(state: &State, area: Rect) -> Vec<(Rect, Rect)> {
    let count = state.cameras().len().min(MOST);
    let width = if state.settings.remote { area.width.min(REMOTE_COLUMNS) } else { area.width };
    let area = Rect { width, ..area };
    let columns = Split::horizontal(vec![Constraint::Fill(1); count]).spacing(1).split(area);
    let split = |column: &Rect| {
        let [image, words] = Split::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(*column);
        (image, words)
    };
    columns.iter().map(split).collect()
}

/// Whether images are drawn now. Nothing can be drawn over images of pixels, so that they go while a layer is open.
fn drawable(state: &State) -> bool {
    let graphics = state.graphics();
    graphics != Graphics::None && (!graphics.is_pixels() || state.overlays.is_empty())
}

/// Encodes the images that will be drawn and are not yet. Returns how many cells changed by that.
pub fn prepare(state: &mut State) -> usize {
    let panes = super::layout(state).panes;
    let Some((_, area)) = panes.into_iter().find(|(pane, _)| *pane == Pane::Cameras) else { return 0 };
    if !drawable(state) {
        return 0;
    }
    let inner = Rect::new(area.x + 1, area.y + 1, area.width.saturating_sub(2), area.height.saturating_sub(2));
    let graphics = state.graphics();
    let mut cells = 0;
    for ((camera, age, _), (image, _)) in state.cameras().into_iter().zip(places(state, inner)) {
        let (history, at) = state.shown();
        let Some(picture) = history.picture_at(&camera, at).cloned() else { continue };
        let stale = state.is_stale() || age.is_some_and(|age| age > FROZEN_MS);
        if state.encoded.prepare(&picture, image.as_size(), stale, graphics) {
            cells +=
                state.encoded.of(&camera).map_or(0, |p| usize::from(p.size().width) * usize::from(p.size().height));
        }
    }
    cells
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let cameras = state.cameras();
    if cameras.is_empty() {
        return frame.render_widget(Paragraph::new("no camera").style(theme.grey()), area);
    }
    if !drawable(state) || area.height < 3 {
        let lines: Vec<Line> =
            cameras.iter().map(|(name, age, hz)| words(state, name, *age, *hz, usize::from(area.width))).collect();
        return frame.render_widget(Paragraph::new(lines), area);
    }
    for ((name, age, hz), (image, below)) in cameras.iter().zip(places(state, area)) {
        match state.encoded.of(name) {
            Some(protocol) => {
                frame.render_widget(Image::new(protocol), image);
                if state.settings.color == ColorLevel::Ansi256 && !state.graphics().is_pixels() {
                    reduce(frame, image);
                }
            }
            None => frame.render_widget(Paragraph::new("no image yet").style(theme.grey()), image),
        }
        frame.render_widget(Paragraph::new(words(state, name, *age, *hz, usize::from(below.width))), below);
    }
}

/// True colours to the nearest of xterm's 6×6×6 cube, for terminals that know 256 colours.
fn reduce(frame: &mut Frame, area: Rect) {
    let nearest = |color: Color| match color {
        Color::Rgb(r, g, b) => {
            let [r, g, b] = [r, g, b].map(|c| (u16::from(c) * 5 + 127) / 255);
            Color::Indexed((16 + 36 * r + 6 * g + b) as u8)
        }
        other => other,
    };
    for position in area.positions() {
        if let Some(cell) = frame.buffer_mut().cell_mut(position) {
            (cell.fg, cell.bg) = (nearest(cell.fg), nearest(cell.bg));
        }
    }
}

/// `wrist 30 Hz, 20 ms ago`, `front FROZEN 3 s`: the longest form that there is room for.
fn words(state: &State, name: &str, age: Option<f64>, hz: f64, width: usize) -> Line<'static> {
    let theme = state.theme();
    let (forms, style) = match age {
        None => (vec!["no image yet".to_owned(), "no image".into()], theme.grey()),
        Some(age) if age > FROZEN_MS => {
            let age = format::age(age / 1e3);
            (vec![format!("FROZEN {age}"), "FROZEN".into()], theme.orange().patch(theme.strong()))
        }
        // By tens: the last digit of an age says nothing and changes with every look.
        Some(age) => {
            let age = (age / 10.0).ceil() * 10.0;
            let forms =
                vec![format!("{hz:.0} Hz, {age:.0} ms ago"), format!("{hz:.0} Hz {age:.0} ms"), format!("{age:.0} ms")];
            (forms, value_style(state))
        }
    };
    let name_width = name.chars().count() + 1;
    let fitting = forms.iter().find(|form| name_width + form.chars().count() <= width);
    let text = fitting.or(forms.last()).cloned().unwrap_or_default();
    let name = if name_width + text.chars().count() <= width { format!("{name} ") } else { String::new() };
    Line::from(vec![Span::styled(name, theme.grey()), Span::styled(text, style)])
}

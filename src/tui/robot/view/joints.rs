//! The joints: where each stands on its range, what it is commanded, and the difference.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::value_style;
use crate::tui::capability::Glyphs;
use crate::tui::robot::state::State;

/// Columns beside the bar: name, value, command, error and a word.
const BESIDE: usize = 52;
const NAME: usize = 9;

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let (history, at) = state.shown();
    let (Some(hello), Some(tick)) = (&history.hello, history.tick_at(at)) else {
        return frame.render_widget(Paragraph::new("no joint measured yet").style(theme.grey()), area);
    };
    let room = usize::from(area.width);
    let bar_width = room.saturating_sub(BESIDE).min(60);
    let rows = hello.joints.iter().enumerate().skip(state.scroll).take(usize::from(area.height));
    let lines: Vec<Line> = rows
        .map(|(i, name)| {
            let measured = tick.state.get(i).copied();
            let command = tick.command.get(i).copied();
            let clipped = i < 32 && tick.clipped >> i & 1 == 1;
            let limits = hello.limits.get(i).copied();
            let name: String = name.trim_end_matches(".pos").chars().take(NAME).collect();
            let mut spans = vec![
                Span::styled(format!("{name:<NAME$} "), theme.grey()),
                Span::styled(format!("{:>7} ", number(measured)), value_style(state)),
            ];
            if bar_width >= 5 {
                spans.push(Span::styled(bar(state, measured, command, limits, bar_width), value_style(state)));
            }
            let error = command.zip(measured).map(|(command, measured)| command - measured);
            spans.push(Span::styled("  cmd ", theme.grey()));
            spans.push(Span::styled(format!("{:>7}", number(command)), value_style(state)));
            spans.push(Span::styled("  err ", theme.grey()));
            spans.push(Span::styled(format!("{:>7}", number(error)), value_style(state)));
            if clipped {
                spans.push(Span::styled(" clipped", theme.orange()));
            }
            Line::from(spans)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn number(value: Option<f32>) -> String {
    match value {
        None => "n/a".into(),
        // Never "-0.000".
        Some(v) if v.is_finite() && v.abs() < 1000.0 => format!("{:.3}", if v.abs() < 5e-4 { 0.0 } else { v }),
        Some(v) => format!("{v:.0e}"),
    }
}

/// The range with the measured place on it, and the command where it is another.
fn bar(state: &State, measured: Option<f32>, command: Option<f32>, limits: Option<[f32; 2]>, width: usize) -> String {
    let ascii = state.settings.glyphs == Glyphs::Ascii;
    let (rule, place, target) = if ascii { ('-', 'o', '+') } else { ('─', '●', '+') };
    let mut cells = vec![rule; width];
    let column = |value: Option<f32>| {
        let [low, high] = limits?;
        let share = (value? - low) / (high - low);
        share.is_finite().then(|| (share.clamp(0.0, 1.0) * (width - 1) as f32).round() as usize)
    };
    for (value, character) in [(command, target), (measured, place)] {
        if let Some(cell) = column(value).and_then(|column| cells.get_mut(column)) {
            *cell = character;
        }
    }
    cells.into_iter().collect()
}

//! The log pane: newest below, following unless scrolled.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::block;
use crate::tui::format;
use crate::tui::overlay::Overlay;
use crate::tui::state::{Pane, State};

pub fn render(state: &State, frame: &mut Frame, area: Rect, title: String) {
    let theme = state.theme();
    let follow = if state.log_scroll == 0 { "follow".to_owned() } else { format!("{} below", state.log_scroll) };
    let typing = matches!(state.overlays.last(), Some(Overlay::Filter { .. }));
    let filter = match (state.log_filter.text(), typing) {
        ("", false) => String::new(),
        (text, typing) => format!("  /{text}{}", if typing { "_" } else { "" }),
    };
    let block = block(state, Pane::Log, format!("{title}  {follow}{filter}"));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let height = usize::from(inner.height);
    let newest_first = state.run.log.matching(&state.log_filter).rev().skip(state.log_scroll).take(height);
    let mut lines: Vec<Line> = newest_first
        .map(|line| {
            let clock = line.time.map(|time| format!("{} ", format::clock(time, &state.settings.zone)));
            Line::from(vec![
                Span::styled(clock.unwrap_or_default(), theme.grey()),
                Span::styled(line.text.clone(), theme.level(line.level)),
            ])
        })
        .collect();
    if lines.is_empty() {
        let word = if state.log_filter.is_empty() { "no lines yet" } else { "no line passes the filter" };
        lines.push(Line::styled(word, theme.grey()));
    }
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), inner);
}

//! The control loop: its rate and jitter, what was missed, and the counters of everything that should not happen often.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::value_style;
use crate::tui::capability::Glyphs;
use crate::tui::robot::history::{MINUTE_S, quantile};
use crate::tui::robot::state::State;

/// The loop over the minute before the moment shown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pulse {
    /// Hz, over the last second.
    pub rate: Option<f64>,
    /// Quantile 0.99 and largest of |period − 1/fps|, milliseconds.
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub missed: u64,
}

pub fn pulse(state: &State) -> Pulse {
    let (history, at) = state.shown();
    let wanted = period_ms(state);
    let periods = |from: f64| history.ticks_between(from, at).map(|t| t.period_ms).filter(|ms| *ms > 0.0);
    let jitter = || periods(at - MINUTE_S).map(|ms| (ms - wanted).abs());
    let last: Vec<f64> = periods(at - 1.0).collect();
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    Pulse {
        rate: (mean > 0.0 && mean.is_finite()).then(|| 1e3 / mean),
        p99_ms: quantile(jitter(), 0.99),
        max_ms: quantile(jitter(), 1.0),
        missed: history.ticks_between(at - MINUTE_S, at).map(|t| u64::from(t.missed)).sum(),
    }
}

/// The control period; a thirtieth of a second until the robot said its own.
pub fn period_ms(state: &State) -> f64 {
    let fps = state.hello().map(|h| h.fps).filter(|fps| fps.is_finite() && *fps > 0.0);
    1e3 / fps.unwrap_or(30.0)
}

/// Ticks by which the latest chunk of the last minute was late.
fn worst_delay(state: &State) -> Option<u32> {
    let (history, at) = state.shown();
    let splices = history.chunks_at(at).filter_map(|life| life.spliced).filter(|splice| at - splice.time < MINUTE_S);
    splices.map(|splice| splice.late).max().filter(|late| *late > 0)
}

fn milliseconds(value: Option<f64>) -> String {
    match value {
        None => "n/a".into(),
        Some(ms) if ms < 100.0 => format!("{ms:.1} ms"),
        Some(ms) => format!("{ms:.0} ms"),
    }
}

/// `30.0 Hz, jitter p99 0.6 ms`.
pub fn jitter_words(state: &State) -> String {
    let pulse = pulse(state);
    let rate = pulse.rate.map_or_else(|| "n/a".into(), |hz| format!("{hz:.1}"));
    format!("{rate} Hz, jitter p99 {}", milliseconds(pulse.p99_ms))
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let value = value_style(state);
    let attention = if state.is_stale() { theme.grey() } else { theme.orange() };
    let pulse = pulse(state);
    let (history, at) = state.shown();
    let rate = pulse.rate.map_or_else(|| "n/a".into(), |hz| format!("{hz:.1}"));
    let total = history.status_at(at).map_or(0, |s| s.missed_ticks);
    let row = |name: &'static str, text: String, style: Style| {
        Line::from(vec![Span::styled(format!("{name:<8}"), theme.grey()), Span::styled(text, style)])
    };
    let missed_style = if pulse.missed > 0 { attention } else { value };
    let mut lines = vec![
        row("rate", format!("{rate} of {:.0} Hz", 1e3 / period_ms(state)), value),
        row("jitter", format!("p99 {}  max {}", milliseconds(pulse.p99_ms), milliseconds(pulse.max_ms)), value),
        row("missed", format!("{} /1m  {total} total", pulse.missed), missed_style),
    ];
    if let Some(s) = history.status_at(at) {
        lines.push(row("ticks", format!("held {}  continued {}", s.held_ticks, s.continued_ticks), value));
        let style = if s.late_chunks + s.rejected_chunks > 0 { attention } else { value };
        let worst = worst_delay(state).map(|ticks| format!(" max {ticks}")).unwrap_or_default();
        let text = format!("late {}{worst}  rejected {}", s.late_chunks, s.rejected_chunks);
        lines.push(row("chunks", text, style));
        let clipped = row("clipped", format!("{} ticks", s.clipped_ticks), value);
        let task = s.task_state.as_ref().map(|task| row("task", task.clone(), value));
        // The task where there is room for one line more only.
        match (task, usize::from(area.height) > lines.len() + 1) {
            (Some(task), true) => lines.extend([clipped, task]),
            (task, _) => lines.push(task.unwrap_or(clipped)),
        }
    }
    if usize::from(area.height) > lines.len() {
        lines.push(Line::styled(sparkline(state, usize::from(area.width)), value.patch(theme.blue())));
        lines.push(Line::styled("jitter, last minute", theme.grey()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The largest jitter of each slice of the last minute. Slices begin at round times, so that a new tick changes one.
fn sparkline(state: &State, width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '_', '.', '.', '-', '-', '=', '#'];
    let steps = if state.settings.glyphs == Glyphs::Ascii { ASCII } else { BLOCKS };
    let (history, at) = state.shown();
    let wanted = period_ms(state);
    let slice = MINUTE_S / width.max(1) as f64;
    let newest = (at / slice).floor();
    let mut tallest = vec![None::<f64>; width];
    // A rollout's first tick has none before it.
    for tick in history.ticks_between(at - MINUTE_S, at).filter(|t| t.period_ms > 0.0) {
        let back = newest - (tick.time / slice).floor();
        let place = (0.0..width as f64).contains(&back).then(|| width - 1 - back as usize);
        if let Some(slot) = place.and_then(|place| tallest.get_mut(place)) {
            *slot = Some(slot.unwrap_or(0.0).max((tick.period_ms - wanted).abs()));
        }
    }
    // A whole period of jitter is full height: what is harmless looks small.
    let level = |jitter: f64| ((jitter / wanted * 8.0) as usize).min(7);
    tallest.into_iter().map(|t| t.map_or(' ', |jitter| steps.get(level(jitter)).copied().unwrap_or(' '))).collect()
}

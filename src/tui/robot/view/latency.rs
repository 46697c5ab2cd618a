//! How long inferences take: a histogram with the budget among its rows, and the medians of both kinds of execution.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::pulse::period_ms;
use super::value_style;
use crate::tui::robot::history::quantile;
use crate::tui::robot::state::State;
use crate::tui::view::plot::round_up_finely;

/// Inferences that the histogram counts: about the last minute of them.
const RECENT: usize = 300;
/// Inferences whose parts are averaged.
const PARTS: usize = 20;
/// With fewer rows the histogram needs them all.
const ROOMY: u16 = 10;

/// What an inference may take, in control ticks: the overlap that the next launch plans with, or without one, the actions
/// that are executed of a chunk.
fn budget_ticks(state: &State) -> Option<(u32, bool)> {
    let (history, at) = state.shown();
    let status = history.status_at(at);
    let overlap = status.filter(|s| s.mode != "sync").map(|s| s.overlap).filter(|o| *o > 0);
    let whole = || history.hello.as_ref().map(|h| h.execute as u32).filter(|n| *n > 0);
    overlap.map(|ticks| (ticks, true)).or_else(|| Some((whole()?, false)))
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let (history, at) = state.shown();
    let all: Vec<f64> = history.latencies_at(at).map(|l| l.ms).filter(|ms| ms.is_finite() && *ms >= 0.0).collect();
    let recent = all.get(all.len().saturating_sub(RECENT)..).unwrap_or_default();
    let budget = budget_ticks(state).map(|(ticks, overlap)| (f64::from(ticks) * period_ms(state), ticks, overlap));
    let mut lines = words(state, recent, budget);
    if area.height >= ROOMY {
        lines.extend(parts(state));
    }
    let rows = usize::from(area.height).saturating_sub(lines.len());
    let of_interest = || recent.iter().copied().chain(budget.map(|(ms, ..)| ms));
    let lowest = of_interest().fold(f64::INFINITY, f64::min);
    let highest = of_interest().fold(0.0, f64::max);
    if recent.is_empty() || rows < 2 || highest <= 0.0 {
        return frame.render_widget(Paragraph::new(lines), area);
    }
    // One row is lost to rounding the first one down.
    let bucket = round_up_finely((highest - lowest).max(highest * 1e-3) * 1.001 / (rows - 1) as f64);
    let first = (lowest / bucket).floor();
    let row_of = |ms: f64| (ms / bucket - first).max(0.0) as usize;
    let mut counts = vec![0usize; rows];
    for ms in recent {
        if let Some(count) = counts.get_mut(row_of(*ms)) {
            *count += 1;
        }
    }
    let tallest = counts.iter().copied().max().unwrap_or(1).max(1);
    // No rows of nothing below the last that says something.
    let used = counts.iter().rposition(|c| *c > 0).unwrap_or(0).max(budget.map_or(0, |(ms, ..)| row_of(ms))) + 1;
    let room = usize::from(area.width).saturating_sub(18);
    let bars = counts.iter().take(used).enumerate().map(|(i, count)| {
        let holds_budget = budget.is_some_and(|(ms, ..)| row_of(ms) == i);
        let bar = theme.bar(*count as f64 / tallest as f64, room);
        let fill = " ".repeat(room.saturating_sub(bar.chars().count()));
        let style = if state.is_stale() { theme.grey() } else { theme.blue() };
        let mark = if holds_budget { "< budget" } else { "" };
        Line::from(vec![
            Span::styled(format!("{:>7} ", label((first + i as f64) * bucket)), theme.grey()),
            Span::styled(bar, style),
            Span::raw(fill),
            Span::styled(format!(" {mark}"), theme.orange()),
        ])
    });
    let bars: Vec<Line> = bars.collect();
    lines.splice(0..0, bars);
    frame.render_widget(Paragraph::new(lines), area);
}

fn label(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{:.1} s", ms / 1e3) } else { format!("{ms:.0}") }
}

/// Where the time of the last inferences went, milliseconds on average.
fn parts(state: &State) -> Option<Line<'static>> {
    let (history, at) = state.shown();
    let parts: Vec<[f64; 4]> =
        history.chunks_at(at).filter_map(|life| life.arrived).map(|a| a.parts_ms).take(PARTS).collect();
    let mean = |part: usize| {
        let sum: f64 = parts.iter().filter_map(|all| all.get(part)).sum();
        format!("{:.0}", sum / parts.len() as f64)
    };
    let names = ["images", "prefix", "denoise", "copy"];
    let words: Vec<String> = names.iter().enumerate().map(|(part, name)| format!("{name} {}", mean(part))).collect();
    (!parts.is_empty()).then(|| Line::styled(format!("{} ms", words.join(" ")), state.theme().grey()))
}

/// The lines below the histogram.
fn words(state: &State, recent: &[f64], budget: Option<(f64, u32, bool)>) -> Vec<Line<'static>> {
    let theme = state.theme();
    let ms = |value: Option<f64>| value.map_or_else(|| "n/a".into(), |ms| format!("{ms:.0} ms"));
    let [sync, other] = state.medians();
    let p95 = quantile(recent.iter().copied(), 0.95);
    let mut lines = Vec::new();
    if recent.is_empty() {
        lines.push(Line::styled("no inference yet", theme.grey()));
    }
    lines.push(Line::from(vec![
        Span::styled("p50 ", theme.grey()),
        Span::styled(format!("sync {}  async {}", ms(sync), ms(other)), value_style(state)),
        Span::styled("  p95 ", theme.grey()),
        Span::styled(ms(p95), value_style(state)),
    ]));
    if let Some((budget_ms, ticks, overlap)) = budget {
        let what = if overlap { "overlap" } else { "chunk" };
        let over = p95.is_some_and(|p95| p95 > budget_ms && overlap);
        let style = if over { theme.orange() } else { value_style(state) };
        let word = if over { "  p95 ABOVE" } else { "" };
        lines.push(Line::from(vec![
            Span::styled("budget ", theme.grey()),
            Span::styled(format!("{budget_ms:.0} ms ({what} {ticks}){word}"), style),
        ]));
    }
    lines
}

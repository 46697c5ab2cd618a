//! The timeline of chunks: one row each, time to the right, "now" in the middle.
//!
//! Columns are whole numbers of control ticks (or ticks whole numbers of columns), so that a new tick moves the picture by
//! whole columns and most cells stay what they are.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::pulse::period_ms;
use super::value_style;
use crate::track::telemetry::{ArmState, Origin};
use crate::tui::capability::Glyphs;
use crate::tui::robot::history::{Discard, Life, quantile};
use crate::tui::robot::state::State;
use crate::tui::view::plot::round_up;

/// Most chunks looked at.
const CHUNKS: usize = 64;
/// Columns of a row before its time begins: `#1234 `.
const LABEL: usize = 7;

/// What a cell of a chunk's row says. Later ones go over earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Nothing,
    Inferring,
    Planned,
    /// Passed over by the delay.
    Skipped,
    /// Not there yet when its turn had come.
    Late,
    /// Commanded past the chunk's planned end.
    Continued,
    Executed,
    Dropped,
}

impl Mark {
    const LEGEND: [(Mark, &'static str); 6] = [
        (Mark::Inferring, "inferring"),
        (Mark::Executed, "executed"),
        (Mark::Planned, "planned"),
        (Mark::Skipped, "delay-skipped"),
        (Mark::Late, "late"),
        (Mark::Continued, "continued"),
    ];

    fn character(self, glyphs: Glyphs) -> char {
        let ascii = glyphs == Glyphs::Ascii;
        match self {
            Mark::Nothing => ' ',
            Mark::Inferring => {
                if ascii {
                    '~'
                } else {
                    '▒'
                }
            }
            Mark::Planned => {
                if ascii {
                    '='
                } else {
                    '▄'
                }
            }
            Mark::Skipped => {
                if ascii {
                    ':'
                } else {
                    '░'
                }
            }
            Mark::Late => '!',
            Mark::Continued => '+',
            Mark::Executed => {
                if ascii {
                    '#'
                } else {
                    '█'
                }
            }
            Mark::Dropped => 'x',
        }
    }

    fn style(self, state: &State) -> Style {
        let theme = state.theme();
        match self {
            _ if state.is_stale() => theme.grey(),
            Mark::Executed | Mark::Planned => theme.blue(),
            Mark::Late | Mark::Dropped | Mark::Continued => theme.orange(),
            _ => theme.grey(),
        }
    }
}

/// Ticks to columns.
#[derive(Debug, Clone, Copy)]
struct Ruler {
    /// The tick at the left edge of the "now" column.
    anchor: i64,
    now_column: usize,
    width: usize,
    /// Columns a tick, or ticks a column.
    columns: i64,
    ticks: i64,
}

impl Ruler {
    /// About `span` ticks over `width` columns, with `now` in the middle.
    fn new(now: u64, span: usize, width: usize) -> Ruler {
        let (span, wide) = (span.max(1) as i64, width.max(1) as i64);
        let columns = (wide / span).clamp(1, 4);
        let ticks = if wide >= span { 1 } else { (span + wide - 1) / wide };
        let anchor = i64::try_from(now).unwrap_or(i64::MAX) / ticks * ticks;
        Ruler { anchor, now_column: width / 2, width, columns, ticks }
    }

    fn column(&self, tick: u64) -> i64 {
        let tick = i64::try_from(tick).unwrap_or(i64::MAX);
        let distance = tick.saturating_sub(self.anchor);
        (distance.saturating_mul(self.columns)).div_euclid(self.ticks).saturating_add(self.now_column as i64)
    }

    /// The columns of the ticks from `from` up to `to`, which is not among them; at least one for one tick.
    fn columns(&self, from: u64, to: u64) -> std::ops::Range<usize> {
        if to <= from {
            return 0..0;
        }
        let end = self.column(to).max(self.column(from).saturating_add(1));
        let inside = |column: i64| usize::try_from(column).unwrap_or(0).min(self.width);
        inside(self.column(from))..inside(end)
    }

    fn seconds_a_column(&self, period_s: f64) -> f64 {
        self.ticks as f64 / self.columns as f64 * period_s
    }
}

/// What the chunks are doing at the moment shown.
struct Queue {
    now: u64,
    lives: Vec<Life>,
    execute: u64,
}

fn queue(state: &State) -> Option<Queue> {
    let (history, at) = state.shown();
    let mut lives: Vec<Life> = history.chunks_at(at).take(CHUNKS).collect();
    lives.reverse();
    let ticked = history.tick_at(at).map(|t| t.tick);
    let now = ticked.or_else(|| lives.last()?.launched.map(|l| l.tick))?;
    let execute = history.hello.as_ref().map_or(0, |h| h.execute as u64);
    Some(Queue { now, lives, execute })
}

impl Queue {
    /// The newest chunk whose turn has come.
    fn current(&self) -> Option<&Life> {
        self.lives.iter().rev().find(|life| life.spliced.is_some())
    }

    /// The chunk that is under way or waits for its turn.
    fn next(&self) -> Option<&Life> {
        let newest = self.lives.iter().rev().find(|life| life.launched.is_some())?;
        (newest.spliced.is_none() && newest.discarded.is_none()).then_some(newest)
    }

    /// Steps until the next chunk has to take over.
    fn left(&self) -> Option<u64> {
        if let Some(launch) = self.next().and_then(|life| life.launched).filter(|l| !l.synchronous) {
            return Some(launch.splice.saturating_sub(self.now));
        }
        let begun = self.current()?.spliced?.tick;
        Some(begun.saturating_add(self.execute).saturating_sub(self.now))
    }
}

/// What is left and by how much the next inference is in time: the text, and whether it is low.
fn queue_state(state: &State) -> Option<(String, bool)> {
    let queue = queue(state)?;
    let (history, at) = state.shown();
    if history.status_at(at).is_some_and(|s| s.arm != ArmState::Armed) {
        return None;
    }
    let period = period_ms(state);
    let left = queue.left();
    let mut words = Vec::new();
    words.extend(left.map(|steps| format!("queue left {steps} steps = {:.0} ms", steps as f64 * period)));
    let mut low = false;
    let launched = queue.next().and_then(|life| Some((life, life.launched?)));
    let margin = match launched {
        Some((_, launch)) if launch.synchronous => {
            words.push("the arm waits for the inference".into());
            None
        }
        Some((life, launch)) if life.arrived.is_none() => {
            let p95 = quantile(history.latencies_at(at).filter(|l| !l.synchronous).map(|l| l.ms), 0.95);
            let eta = p95.map(|p95| (p95 - (at - launch.time) * 1e3).max(0.0));
            words.extend(eta.map(|eta| format!("eta {eta:.0} ms")));
            eta.and_then(|eta| Some(left? as f64 * period - eta))
        }
        _ => {
            let last = queue.lives.iter().rev().find_map(|life| Some((life.launched?, life.arrived?)));
            let last = last.filter(|(launch, _)| !launch.synchronous);
            last.map(|(launch, arrival)| launch.splice.saturating_sub(launch.tick) as f64 * period - arrival.latency_ms)
        }
    };
    if let Some(margin) = margin.filter(|m| m.is_finite()) {
        low = margin < period;
        words.push(format!("margin {margin:+.0} ms{}", if low { " LOW" } else { "" }));
    }
    (!words.is_empty()).then(|| (words.join("  "), low))
}

/// `queue left 9 steps = 300 ms  margin +140 ms`.
pub fn queue_words(state: &State) -> Option<String> {
    queue_state(state).map(|(words, _)| words)
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let Some(queue) = queue(state) else {
        return frame.render_widget(Paragraph::new("no chunk yet").style(theme.grey()), area);
    };
    let (width, height) = (usize::from(area.width).saturating_sub(LABEL), usize::from(area.height));
    let mut below = vec![queue_line(state)];
    if height >= 4 {
        below.insert(0, scale(state, width, &queue));
    }
    if height >= 8 {
        below.push(legend(state, usize::from(area.width)));
    }
    let rows = height.saturating_sub(below.len());
    let ruler = Ruler::new(queue.now, span(&queue), width);
    let drawn = marks(state, &queue, &ruler);
    let shown = drawn.len().saturating_sub(rows);
    let mut lines: Vec<Line> = drawn.into_iter().skip(shown).map(|(n, row)| line(state, n, &row, &ruler)).collect();
    lines.resize_with(rows, || line(state, 0, &[], &ruler));
    lines.extend(below);
    frame.render_widget(Paragraph::new(lines), area);
}

/// Ticks that the timeline spans: two chunks before now, and one after.
fn span(queue: &Queue) -> usize {
    (queue.execute.clamp(5, 1000) * 4) as usize
}

/// The marks of every chunk that has any, oldest first.
fn marks(state: &State, queue: &Queue, ruler: &Ruler) -> Vec<(u64, Vec<Mark>)> {
    let mut rows: BTreeMap<u64, Vec<Mark>> = BTreeMap::new();
    let mut put = |number: u64, columns: std::ops::Range<usize>, mark: Mark| {
        let row = rows.entry(number).or_insert_with(|| vec![Mark::Nothing; ruler.width]);
        for cell in row.get_mut(columns).into_iter().flatten() {
            *cell = (*cell).max(mark);
        }
    };
    let newest_splice = queue.current().map(|life| life.number);
    for life in &queue.lives {
        let number = life.number;
        if let Some(launch) = life.launched {
            let done = life.arrived.map(|a| a.tick).or(life.discarded.as_ref().map(|d| d.tick));
            put(number, ruler.columns(launch.tick, done.unwrap_or(queue.now.saturating_add(1))), Mark::Inferring);
            if life.spliced.is_none() && life.discarded.is_none() {
                let begins = launch.splice.max(queue.now);
                put(number, ruler.columns(launch.splice, queue.now), Mark::Late);
                put(number, ruler.columns(begins, begins.saturating_add(queue.execute)), Mark::Planned);
            }
            if let Some(Discard { tick: end, .. }) = life.discarded {
                put(number, ruler.columns(end, end.saturating_add(1)), Mark::Dropped);
            }
        }
        if let Some(splice) = life.spliced {
            let skipped = splice.tick.saturating_sub(u64::from(splice.index));
            put(number, ruler.columns(skipped, splice.tick), Mark::Skipped);
            let planned = splice.tick.saturating_sub(u64::from(splice.late));
            put(number, ruler.columns(planned, splice.tick), Mark::Late);
            if newest_splice == Some(number) {
                let end = queue.left().map_or(queue.now, |left| queue.now.saturating_add(left));
                put(number, ruler.columns(queue.now, end), Mark::Planned);
            }
        }
    }
    // What was commanded, by the ticks themselves.
    let (history, at) = state.shown();
    let reach = ruler.seconds_a_column(period_ms(state) / 1e3) * ruler.width as f64;
    let newest = history.tick_at(at).map_or(at, |tick| tick.time);
    for tick in history.ticks_between(newest - reach, newest) {
        let mark = match tick.origin {
            Origin::Fresh => Mark::Executed,
            Origin::Continued => Mark::Continued,
            Origin::Hold => continue,
        };
        if let Some(number) = tick.chunk {
            put(number, ruler.columns(tick.tick, tick.tick.saturating_add(1)), mark);
        }
    }
    rows.into_iter().filter(|(_, row)| row.iter().any(|m| *m != Mark::Nothing)).collect()
}

/// A row: the chunk's number, then its marks with "now" through them.
fn line(state: &State, number: u64, row: &[Mark], ruler: &Ruler) -> Line<'static> {
    let theme = state.theme();
    let glyphs = state.settings.glyphs;
    let name = if row.is_empty() { String::new() } else { format!("#{number}") };
    let mut spans = vec![Span::styled(format!("{name:<LABEL$}"), theme.grey())];
    let bar = if glyphs == Glyphs::Ascii { '|' } else { '│' };
    for column in 0..ruler.width {
        let mark = row.get(column).copied().unwrap_or(Mark::Nothing);
        let (character, style) = if column == ruler.now_column {
            (bar, theme.strong())
        } else {
            (mark.character(glyphs), mark.style(state))
        };
        match spans.last_mut() {
            Some(last) if last.style == style && column > 0 => last.content.to_mut().push(character),
            _ => spans.push(Span::styled(character.to_string(), style)),
        }
    }
    Line::from(spans)
}

/// Seconds from now, at round distances.
fn scale(state: &State, width: usize, queue: &Queue) -> Line<'static> {
    let ruler = Ruler::new(queue.now, span(queue), width);
    let unit = ruler.seconds_a_column(period_ms(state) / 1e3).max(1e-6);
    let step = round_up(unit * 10.0);
    let mut text = vec![' '; width + LABEL];
    let reach = (width as f64 * unit / step) as i64;
    for i in -reach..=reach {
        let label = if i == 0 { "now".to_owned() } else { format!("{:+}s", rounded(i as f64 * step)) };
        let middle = LABEL as f64 + ruler.now_column as f64 + i as f64 * step / unit;
        let from = middle.round() as i64 - (label.len() / 2) as i64;
        for (at, c) in (from..).zip(label.chars()) {
            if let Some(slot) = usize::try_from(at).ok().and_then(|at| text.get_mut(at)) {
                *slot = c;
            }
        }
    }
    Line::styled(text.into_iter().collect::<String>(), state.theme().grey())
}

/// Without the noise of binary fractions.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn queue_line(state: &State) -> Line<'static> {
    let theme = state.theme();
    match queue_state(state) {
        Some((words, low)) => {
            let style =
                if low && !state.is_stale() { theme.orange().patch(theme.strong()) } else { value_style(state) };
            Line::styled(words, style)
        }
        None => Line::raw(""),
    }
}

/// As many marks as there is room for.
fn legend(state: &State, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for (mark, word) in Mark::LEGEND {
        used += word.len() + 4;
        // The blanks behind the last need no room.
        if used > width + 2 {
            break;
        }
        let character = mark.character(state.settings.glyphs);
        spans.push(Span::styled(character.to_string(), mark.style(state)));
        spans.push(Span::styled(format!(" {word}  "), state.theme().grey()));
    }
    Line::from(spans)
}

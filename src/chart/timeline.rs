//! Chunks of actions over time: when each was asked for, when it came, when it was executed.

use super::scale::{Scale, shown};
use super::sheet::{ALARM, Drawn, Entry, Marker, Pen, Style, sheet};
use super::{Axis, Frame};

/// One chunk; times on the x axis, in its unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chunk {
    /// When its inference was launched.
    pub launched: f64,
    /// When it arrived; none while it is under way or was given up.
    pub arrived: Option<f64>,
    /// From its first action's tick to its last one's.
    pub executed: Option<[f64; 2]>,
}

/// One row a chunk, number 1 at the bottom: a line from launch to arrival, a bar while it was executed, crosses at the
/// top where a tick had no action (`misses`).
pub fn timeline(frame: &Frame, chunks: &[Chunk], misses: &[f64]) -> String {
    let misses: Vec<f64> = misses.iter().copied().filter(|t| shown(*t)).collect();
    let spans = chunks.iter().flat_map(|c| c.executed.into_iter().flatten());
    let times = chunks.iter().flat_map(|c| [Some(c.launched), c.arrived]).flatten().chain(spans);
    let x = Scale::covering(&frame.x, times.clone().chain(misses.iter().copied()), 0.0);
    let rows = Axis::new("").at_least(0.0, chunks.len() as f64 + 1.0);
    let y = Scale::covering(&rows, frame.y.at_least.into_iter().flatten(), 1.0);
    let legend = [("inference", waiting()), ("executed", executed()), ("missed tick", missed())];
    let legend = legend.map(|(name, style)| Entry { name, style });
    let any = times.chain(misses.iter().copied()).any(shown);
    sheet(frame, [x, y], &legend, any, |pen| {
        for (row, chunk) in chunks.iter().enumerate() {
            draw(pen, row as f64 + 1.0, chunk)?;
        }
        let crosses: Vec<_> = misses.iter().map(|t| pen.at(*t, pen.y.high)).collect();
        for (cross, time) in crosses.iter().zip(&misses) {
            pen.line(vec![*cross, pen.at(*time, pen.y.low)], &Style { width: 1, ..missed() })?;
        }
        pen.markers(&crosses, &missed())
    })
}

fn draw(pen: &Pen<'_, '_>, row: f64, chunk: &Chunk) -> Drawn {
    if let Some([from, to]) = chunk.executed.filter(|span| span.iter().all(|t| shown(*t))) {
        pen.bar([pen.at(from, row + 0.35), pen.at(to, row - 0.35)], executed().colour)?;
    }
    if !shown(chunk.launched) {
        return Ok(());
    }
    let start = pen.at(chunk.launched, row);
    match chunk.arrived.filter(|t| shown(*t)) {
        Some(arrived) => pen.line(vec![start, pen.at(arrived, row)], &waiting())?,
        // Still awaited at the chart's end.
        None => pen.line(vec![start, pen.at(pen.x.high, row)], &Style { dash: Some((3, 4)), ..waiting() })?,
    }
    pen.markers(&[start], &waiting())
}

fn waiting() -> Style {
    Style { dash: None, marker: Some(Marker::Dot), ..Style::of(1) }
}

fn executed() -> Style {
    Style { dash: None, marker: None, width: 10, ..Style::of(5) }
}

fn missed() -> Style {
    Style { colour: ALARM, dash: None, marker: Some(Marker::Cross), width: 1 }
}

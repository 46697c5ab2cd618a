//! How often which value occurs.

use super::scale::{Scale, round_step, shown};
use super::sheet::{Entry, Style, sheet};
use super::{Frame, Mark};

/// Bars that a histogram has about.
const BARS: f64 = 40.0;

/// Counts of `values` in bars of one round width, and named values, such as a latency's budget. The y axis counts.
pub fn histogram(frame: &Frame, values: &[f64], marks: &[Mark]) -> String {
    let values: Vec<f64> = values.iter().copied().filter(|v| shown(*v)).collect();
    let bars = Bars::of(&values);
    let ends = bars.iter().flat_map(|b| [b.edge(0), b.edge(b.counts.len())]);
    let x = Scale::covering(&frame.x, ends.chain(marks.iter().map(|m| m.at)), 0.0);
    let highest = bars.iter().flat_map(|b| b.counts.iter()).max().copied().unwrap_or(0);
    let y = Scale::covering(&frame.y, [0.0, highest as f64], 1.0);
    let legend: Vec<Entry> =
        marks.iter().enumerate().map(|(i, m)| Entry { name: &m.name, style: Style::mark(i) }).collect();
    sheet(frame, [x, y], &legend, bars.is_some(), |pen| {
        if let Some(bars) = &bars {
            for (index, count) in bars.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let corners = [pen.at(bars.edge(index), *count as f64), pen.at(bars.edge(index + 1), 0.0)];
                pen.bar(corners, Style::of(0).colour)?;
            }
        }
        for (index, mark) in marks.iter().enumerate().filter(|(_, mark)| shown(mark.at)) {
            let ends = vec![pen.at(mark.at, pen.y.low), pen.at(mark.at, pen.y.high)];
            pen.line(ends, &Style::mark(index))?;
        }
        Ok(())
    })
}

/// Counts in stretches of equal width.
pub(super) struct Bars {
    /// The first stretch's lower edge, in widths.
    first: f64,
    width: f64,
    pub counts: Vec<usize>,
}

impl Bars {
    /// None without values.
    pub fn of(values: &[f64]) -> Option<Bars> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let least = (low.abs().max(high.abs()) * 1e-6).max(1e-9);
        let width = round_step(((high - low) / BARS).max(least));
        let first = (low / width).floor();
        let place = |value: f64| (value / width).floor() - first;
        let mut counts = vec![0; place(high).clamp(0.0, 2.0 * BARS) as usize + 1];
        let last = counts.len() - 1;
        for value in values {
            counts[(place(*value).max(0.0) as usize).min(last)] += 1;
        }
        Some(Bars { first, width, counts })
    }

    fn edge(&self, index: usize) -> f64 {
        (self.first + index as f64) * self.width
    }
}

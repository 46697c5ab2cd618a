//! Charts as SVG files, for reports.
//!
//! Pure functions from data to the text of an SVG document. Series differ by colour (Okabe and Ito's palette, which
//! people with any colour vision tell apart), by dash and by marker. What is not a finite number is left out and leaves a
//! gap; a chart without data says so.

mod histogram;
mod plot;
mod scale;
mod sheet;
#[cfg(test)]
mod tests;
mod timeline;

pub use histogram::histogram;
pub use plot::{lines, scatter};
pub use timeline::{Chunk, timeline};

/// Title and axes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Frame {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
}

impl Frame {
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Frame {
        Frame { title: title.into(), x, y }
    }
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// What it measures, with its unit: `inference latency (ms)`.
    pub label: String,
    /// Shown whatever the data; the axis grows beyond it where the data do.
    pub at_least: Option<[f64; 2]>,
    /// Where to put ticks; at round numbers where none are given.
    pub ticks: Vec<f64>,
}

impl Axis {
    pub fn new(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// Shows at least `low` … `high`.
    pub fn at_least(mut self, low: f64, high: f64) -> Axis {
        self.at_least = Some([low, high]);
        self
    }

    /// Ticks just there.
    pub fn with_ticks(mut self, ticks: impl Into<Vec<f64>>) -> Axis {
        self.ticks = ticks.into();
        self
    }
}

/// Data of one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    pub name: String,
    /// `[x, y]`, in the order in which they are joined.
    pub points: Vec<[f64; 2]>,
    /// Lowest and highest y of each point, such as a confidence interval.
    pub band: Option<Vec<[f64; 2]>>,
}

/// A named straight line across the chart, such as a budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub name: String,
    pub at: f64,
}

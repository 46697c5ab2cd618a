//! From data to an axis: its range, its ticks and how their numbers are written.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::Axis;

/// Numbers of a larger magnitude are left out, like those that are not finite: no axis could show them beside others.
const LARGEST: f64 = 1e12;

/// Steps between ticks that an axis has about.
const STEPS: f64 = 6.0;

/// Whether a chart can show it.
pub fn shown(value: f64) -> bool {
    value.abs() <= LARGEST
}

/// What an axis shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<f64>,
    decimals: usize,
}

impl Scale {
    /// An axis that holds all `values` and what `axis` asks for. `least_step` is the smallest step between round ticks: 1
    /// for counts, 0 for measures.
    pub fn covering(axis: &Axis, values: impl IntoIterator<Item = f64>, least_step: f64) -> Scale {
        let given: Vec<f64> = axis.ticks.iter().copied().filter(|v| shown(*v)).collect();
        let wanted = values.into_iter().chain(axis.at_least.into_iter().flatten()).chain(given.iter().copied());
        let (low, high) = wanted
            .filter(|v| shown(*v))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let (low, high) = widened(low, high, least_step);
        let step = round_step((high - low) / STEPS).max(least_step);
        if given.is_empty() {
            // A hair's breadth less, so that 11.000000000000002 steps are 11.
            let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
            let count = (last - first).clamp(1.0, 4.0 * STEPS) as usize;
            let ticks = (0..=count).map(|i| (first + i as f64) * step).collect();
            return Scale { low: first * step, high: (first + count as f64) * step, ticks, decimals: decimals(step) };
        }
        let margin = (high - low) * 0.03;
        let fraction = given.iter().any(|v| v.fract() != 0.0);
        let decimals = if fraction { decimals(step / 10.0) } else { 0 };
        Scale { low: low - margin, high: high + margin, ticks: given, decimals }
    }

    /// A tick's number.
    pub fn written(&self, value: f64) -> String {
        if value.abs() >= 1e7 {
            return format!("{value:.2e}");
        }
        let text = format!("{value:.*}", self.decimals);
        // No negative zero.
        if text.trim_start_matches(['-', '0', '.']).is_empty() { text.trim_start_matches('-').to_owned() } else { text }
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        start + (part * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// At least so wide that the ticks are different numbers.
fn widened(low: f64, high: f64, least_step: f64) -> (f64, f64) {
    let width = (low.abs().max(high.abs()) * 1e-6).max(1e-9).max(least_step);
    if high - low >= width {
        return (low, high);
    }
    let middle = (low + high) / 2.0;
    let half = if low == high { (middle.abs() * 0.1).max(width).max(1e-3) } else { width };
    (middle - half, middle + half)
}

/// The smallest of 1, 2 and 5 times a power of ten that is no smaller than `step`.
pub fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|s| *s >= step * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

fn decimals(step: f64) -> usize {
    (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize
}

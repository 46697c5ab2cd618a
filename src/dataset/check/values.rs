//! The numbers themselves: finite, moving, plausible. Pure: values in, findings out.

use super::collector::Collector;
use super::report::counted;
use crate::dataset::finding::Severity;
use crate::dataset::meta::Feature;

/// A value is a wild outlier this many interquartile ranges beyond the quartiles.
const OUTLIER_RANGES: f64 = 20.0;

/// The action follows the state when the next state is, on average, within this share of the joint's range of it.
/// Position-controlled arms lag by a few hundredths; delta actions are off by about the range itself.
const PROXY_SHARE: f64 = 0.25;

/// The values of one vector feature over the selected episodes.
pub(super) struct Series<'a> {
    pub feature: &'a Feature,
    /// Row-major, `feature.dimensions()` values a row.
    pub values: Vec<f32>,
    /// Episode number and rows of each stretch of `values`, in order.
    pub stretches: Vec<(usize, usize)>,
}

impl<'a> Series<'a> {
    pub(super) fn new(feature: &'a Feature) -> Self {
        Series { feature, values: Vec::new(), stretches: Vec::new() }
    }

    /// Appends the values of an episode.
    pub(super) fn push(&mut self, episode: usize, values: Vec<f32>) {
        self.stretches.push((episode, values.len() / self.width().max(1)));
        self.values.extend(values);
    }

    fn width(&self) -> usize {
        self.feature.dimensions()
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width().max(1))
    }

    /// The finite values of dimension `d`.
    fn column(&self, d: usize) -> Vec<f64> {
        self.rows().filter_map(|row| row.get(d)).filter(|v| v.is_finite()).map(|&v| f64::from(v)).collect()
    }

    /// Episode and frame of a row.
    fn place(&self, mut row: usize) -> (usize, usize) {
        for &(episode, length) in &self.stretches {
            if row < length {
                return (episode, row);
            }
            row -= length;
        }
        (0, row)
    }

    /// `action[4] (joint_5)`
    fn dimension(&self, d: usize) -> String {
        format!("{}[{d}] ({})", self.feature.name, self.feature.dimension_name(d))
    }
}

/// NaN and infinities (errors), constant and nearly constant dimensions, wild outliers.
pub(super) fn check(series: &Series, min_range: f64, collector: &mut Collector) {
    not_finite(series, collector);
    for d in 0..series.width() {
        let mut sorted = series.column(d);
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { continue };
        if low == high {
            let message = format!("{} is {low} in all {}", series.dimension(d), counted(sorted.len(), "frame"));
            collector.push(Severity::Note, "constant-dimension", message + "; it normalises to 0", None);
            continue;
        }
        narrow(series, d, &sorted, min_range, collector);
        outliers(series, d, &sorted, collector);
    }
}

/// One finding an episode and feature, at its first bad value.
fn not_finite(series: &Series, collector: &mut Collector) {
    let width = series.width();
    let mut start = 0;
    for &(episode, length) in &series.stretches {
        let values = series.values.get(start * width..(start + length) * width).unwrap_or_default();
        start += length;
        let bad: Vec<usize> = values.iter().enumerate().filter(|(_, v)| !v.is_finite()).map(|(i, _)| i).collect();
        if let Some(&first) = bad.first() {
            let (frame, d) = (first / width, first % width);
            let more = match bad.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more in this episode"),
            };
            let message = format!("episode {episode}, frame {frame}: {} is {}{more}", series.dimension(d), values[first]);
            collector.problem(Severity::Error, "not-finite", &[episode], message);
        }
    }
}

/// FF-03: a range below the floor would amplify small differences out of all proportion.
fn narrow(series: &Series, d: usize, sorted: &[f64], min_range: f64, collector: &mut Collector) {
    let range = quantile(sorted, 0.99) - quantile(sorted, 0.01);
    if range >= min_range {
        return;
    }
    let name = series.dimension(d);
    let frames = counted(sorted.len(), "frame");
    let amplified = match 2.0 / range {
        amplification if amplification.is_finite() => {
            format!("a value {min_range} away would normalise to {:.0}", min_range * amplification)
        }
        _ => "any other value would normalise to infinity".to_owned(),
    };
    collector.push(
        Severity::Warning,
        "narrow-dimension",
        format!("{name}: q99-q01 = {range:.6} over {frames}; {amplified}. It is widened to {min_range}"),
        Some(format!("normalization.min_range = {min_range}  # or mend the recording; 0 switches the floor off")),
    );
}

fn outliers(series: &Series, d: usize, sorted: &[f64], collector: &mut Collector) {
    let (first, third) = (quantile(sorted, 0.25), quantile(sorted, 0.75));
    let reach = OUTLIER_RANGES * (third - first);
    // Without a spread in the middle (a gripper that mostly rests) every other value would count.
    if reach <= 0.0 {
        return;
    }
    let is_outlier = |v: f32| v.is_finite() && !(first - reach..=third + reach).contains(&f64::from(v));
    let found: Vec<(usize, f32)> =
        series.rows().enumerate().filter_map(|(i, row)| row.get(d).map(|&v| (i, v))).filter(|&(_, v)| is_outlier(v)).collect();
    if let Some(&(row, value)) = found.first() {
        let (episode, frame) = series.place(row);
        let times = counted(found.len(), "value");
        collector.push(
            Severity::Warning,
            "outlier",
            format!(
                "{}: {times} beyond {OUTLIER_RANGES} interquartile ranges ({first:.4}..{third:.4}); the first is {value} at episode {episode}, frame {frame}",
                series.dimension(d)
            ),
            None,
        );
    }
}

/// Whether `action[t−1]` can stand for `state[t]`, as delay augmentation does by default: the same dimensions, the
/// same unit, absolute.
pub(super) fn delay_proxy(state: &Series, action: &Series, collector: &mut Collector) {
    const FIX: &str = "train.delay.ground_truth = true";
    let (of_state, of_action) = (state.width(), action.width());
    if of_state != of_action {
        collector.push(
            Severity::Note,
            "delay-proxy-dimensions",
            format!(
                "the action ({of_action}) cannot stand for the future state ({of_state}); delay augmentation needs the recorded one"
            ),
            Some(FIX.into()),
        );
        return;
    }
    if state.stretches != action.stretches {
        return;
    }
    let far: Vec<String> = (0..of_state).filter_map(|d| proxy_distance(state, action, d)).collect();
    if !far.is_empty() {
        collector.push(
            Severity::Warning,
            "delay-proxy-implausible",
            format!(
                "the action is not an absolute target in the state's unit, so it cannot stand for the future state in delay augmentation: {}",
                far.join("; ")
            ),
            Some(FIX.into()),
        );
    }
}

/// Says by how much `action[t−1]` misses `state[t]` in dimension `d`, if that is too much.
fn proxy_distance(state: &Series, action: &Series, d: usize) -> Option<String> {
    let (states, actions) = (state.column(d), action.column(d));
    if states.len() != actions.len() {
        return None; // Not finite somewhere, which is an error already.
    }
    let mut pairs: Vec<(f64, f64)> = Vec::with_capacity(states.len());
    let mut start = 0;
    for &(_, length) in &state.stretches {
        let (s, a) = (states.get(start..start + length)?, actions.get(start..start + length)?);
        pairs.extend(s.iter().skip(1).copied().zip(a.iter().copied()));
        start += length;
    }
    let bounds = |values: &[f64]| values.iter().fold((f64::MAX, f64::MIN), |(l, h), &v| (l.min(v), h.max(v)));
    let (low, high) = bounds(&states);
    let range = high - low;
    if pairs.is_empty() || range <= 0.0 {
        return None;
    }
    let distance = pairs.iter().map(|(s, a)| (a - s).abs()).sum::<f64>() / pairs.len() as f64;
    let share = distance / range;
    (share > PROXY_SHARE).then(|| {
        let name = state.feature.dimension_name(d);
        format!("{name} misses by {distance:.4} on average, {:.0} % of its range, correlation {:.2}", share * 100.0, correlation(&pairs))
    })
}

fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let (a, b) = pairs.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0 / n, sum.1 + p.1 / n));
    let [ab, aa, bb] = pairs.iter().fold([0.0; 3], |[ab, aa, bb], p| {
        let (x, y) = (p.0 - a, p.1 - b);
        [ab + x * y, aa + x * x, bb + y * y]
    });
    if aa * bb > 0.0 { ab / (aa * bb).sqrt() } else { 0.0 }
}

/// Linear interpolation between order statistics; 0 of nothing.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * sorted.len().saturating_sub(1) as f64;
    let low = sorted.get(position.floor() as usize).copied().unwrap_or(0.0);
    let high = sorted.get(position.ceil() as usize).copied().unwrap_or(low);
    low + (high - low) * position.fract()
}

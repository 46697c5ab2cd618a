//! The numbers themselves: finite, moving, plausible. Pure: values in, findings out.

use super::collector::Collector;
use super::report::counted;
use crate::dataset::finding::Severity;
use crate::dataset::meta::Feature;
use crate::dataset::proxy::ProxyReport;
use crate::dataset::statistics::{feature_stats, quantile};
use crate::dataset::stats::FeatureStats;
use crate::dataset::window::WindowError;

/// A value is a wild outlier this many interquartile ranges beyond the quartiles.
const OUTLIER_RANGES: f64 = 20.0;

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

    /// The values of one episode after the other.
    fn episodes(&self) -> impl Iterator<Item = &[f32]> + Clone {
        let width = self.width();
        self.stretches.iter().scan(0, move |start, (_, length)| {
            let values = self.values.get(*start * width..(*start + length) * width);
            *start += length;
            values
        })
    }

    /// Over all rows; meaningful when [`Series::is_finite`].
    pub(super) fn statistics(&self) -> FeatureStats {
        feature_stats(&[&self.values], self.width())
    }

    /// Whether the rows of so many episodes are here.
    pub(super) fn covers(&self, episodes: usize) -> bool {
        self.stretches.len() == episodes
    }

    /// Whether there are values, and no NaN or infinity among them.
    pub(super) fn is_finite(&self) -> bool {
        !self.values.is_empty() && self.values.iter().all(|value| value.is_finite())
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
    for (&(episode, _), values) in series.stretches.iter().zip(series.episodes()) {
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
    let range = at(sorted, 0.99) - at(sorted, 0.01);
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
    let (first, third) = (at(sorted, 0.25), at(sorted, 0.75));
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
    let (of_state, of_action) = (state.width(), action.width());
    if of_state == of_action && (state.stretches != action.stretches || state.stretches.is_empty()) {
        return; // Some rows could not be read, which is an error already.
    }
    let verdict = if of_state == of_action {
        let rows = state.episodes().zip(action.episodes());
        ProxyReport::of_episodes(rows, of_state, &state.statistics()).check(action.feature)
    } else {
        Err(WindowError::ProxyDimensions { state: of_state, action: of_action })
    };
    let Err(error) = verdict else { return };
    let (severity, code) = match error {
        WindowError::ProxyDimensions { .. } => (Severity::Note, "delay-proxy-dimensions"),
        _ => (Severity::Warning, "delay-proxy-implausible"),
    };
    collector.push(severity, code, error.to_string(), Some("train.delay.ground_truth = true".to_owned()));
}

/// The quantile of ascending values at `level`.
fn at(sorted: &[f64], level: f64) -> f64 {
    quantile(sorted.len(), |k| sorted.get(k).copied().unwrap_or_default(), level)
}

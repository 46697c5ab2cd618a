//! The numbers behind a chart: values by column, axes snapped to round numbers.
//!
//! Columns have a round width in steps (or seconds), so that a new value changes one column and not the whole chart,
//! until the chart is full and its scale changes.

use crate::tui::history::{Bucket, Point, RECENT, Series};
use crate::tui::state::{Axis, Look, Smoothing};

/// Values that fall into one column of dots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    pub x: usize,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// The smoothed value at the column's end; the mean when smoothing is off.
    pub line: f64,
}

/// Horizontal scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Steps (or seconds) at the left edge.
    pub start: f64,
    /// Steps (or seconds) a column of dots spans.
    pub unit: f64,
}

impl Scale {
    /// The column of `position`, if it is not left of the chart.
    pub fn column(&self, position: f64) -> Option<usize> {
        let column = (position - self.start) / self.unit;
        (0.0..1e6).contains(&column).then_some(column as usize)
    }

    /// The smallest round scale on which `from..=to` fits `width` columns. A start near zero becomes zero.
    pub fn fit(from: f64, to: f64, width: usize) -> Scale {
        let start = if from > 0.0 && from < 0.02 * to { 0.0 } else { from };
        let span = (to - start).max(1e-9);
        // The last value needs a column of its own beyond the span.
        let unit = round_to(span / (width.max(2) - 1) as f64, &FINE);
        Scale { start, unit }
    }

    /// Round positions for labels at least `columns` apart, up to `width`, as (column, position).
    pub fn ticks(&self, columns: usize, width: usize) -> impl Iterator<Item = (usize, f64)> + use<> {
        let Scale { start, unit } = *self;
        let step = round_up(unit * columns.max(1) as f64);
        let first = (start / step - 1e-9).ceil();
        let tick = move |i: usize| (first + i as f64) * step;
        (0..width)
            .map(tick)
            .map(move |at| (((at - start) / unit).round() as usize, at))
            .take_while(move |t| t.0 < width)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `value` (> 0).
pub fn round_up(value: f64) -> f64 {
    round_to(value, &[1.0, 2.0, 5.0, 10.0])
}

/// As [`round_up`], in finer steps.
pub fn round_up_finely(value: f64) -> f64 {
    round_to(value, &FINE)
}

/// Mantissas that leave little room unused.
const FINE: [f64; 11] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];

fn round_to(value: f64, mantissas: &[f64]) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    mantissas.iter().map(|m| m * power).find(|&c| c >= value * (1.0 - 1e-9)).unwrap_or(value)
}

/// The largest fine mantissa times a power of ten that is at most `value` (> 0).
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    FINE.iter().rev().map(|m| m * power).find(|&c| c <= value * (1.0 + 1e-9)).unwrap_or(value)
}

/// Vertical scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Range {
    /// Round limits around the finite `values`; none without any that can be shown.
    pub fn around(values: impl Iterator<Item = f64>, log: bool) -> Option<Range> {
        let shown = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return None;
        }
        if log {
            let (low, high) = (round_down(low), round_to(high, &FINE));
            return Some(Range { low, high: if high > low { high } else { high * 10.0 }, log });
        }
        let span = if high > low { high - low } else { low.abs().max(1e-12) * 0.1 };
        let unit = round_up(span / 5.0);
        let snapped = Range { low: (low / unit).floor() * unit, high: (high / unit).ceil() * unit, log };
        // A value exactly on a round number still needs a range.
        Some(if snapped.high > snapped.low { snapped } else { Range { high: snapped.low + unit, ..snapped } })
    }

    /// The row of `value` among `height` rows of dots, the top one 0; values outside are clamped to the edge.
    pub fn row(&self, value: f64, height: usize) -> Option<usize> {
        if !value.is_finite() || (self.log && value <= 0.0) || height == 0 {
            return None;
        }
        let share = (self.place(value) - self.place(self.low)) / (self.place(self.high) - self.place(self.low));
        let top = (height - 1) as f64;
        Some(((1.0 - share.clamp(0.0, 1.0)) * top).round() as usize)
    }

    fn place(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }

    /// The value at `share` of the height, 0 below and 1 on top.
    pub fn value_at(&self, share: f64) -> f64 {
        let place = self.place(self.low) + share * (self.place(self.high) - self.place(self.low));
        if self.log { 10f64.powf(place) } else { place }
    }
}

/// The values of `series` that `look` asks for, as buckets.
pub fn visible(series: &Series, look: &Look) -> Vec<Bucket> {
    if look.recent { series.recent().map(|p: &Point| Bucket::of(p.step, p)).collect() } else { series.full().to_vec() }
}

/// Where a bucket lies on the axis: its step, or seconds since `origin`.
pub fn position(bucket: &Bucket, look: &Look, origin: f64) -> f64 {
    match look.axis {
        Axis::Steps => bucket.start as f64,
        Axis::Time => bucket.time - origin,
    }
}

/// The scale for `buckets` on `width` columns of dots.
///
/// A recent window moves on in leaps of an eighth of itself, not with every value.
pub fn scale(buckets: &[Bucket], look: &Look, origin: f64, width: usize) -> Scale {
    let ends = buckets.first().zip(buckets.last());
    let (from, to) = ends.map_or((0.0, 1.0), |(a, b)| (position(a, look, origin), position(b, look, origin)));
    if !look.recent || buckets.len() < RECENT {
        return Scale::fit(from, to, width);
    }
    // The window lies within nine leaps from the last multiple of a leap before it.
    let leap = round_to((to - from).max(1e-9) / 8.0, &FINE);
    let start = (from / leap).floor() * leap;
    Scale::fit(start, start + 9.0 * leap, width)
}

/// `buckets` gathered into columns of `scale`.
pub fn columns(buckets: &[Bucket], look: &Look, origin: f64, scale: &Scale) -> Vec<Column> {
    let mut columns: Vec<(Column, u64)> = Vec::new();
    for bucket in buckets {
        let Some(mean) = bucket.mean() else { continue };
        let Some(x) = scale.column(position(bucket, look, origin)) else { continue };
        let line = match look.smoothing {
            Smoothing::Off => mean,
            Smoothing::Low => bucket.smooth[0],
            Smoothing::High => bucket.smooth[1],
        };
        let weight = u64::from(bucket.count);
        match columns.last_mut() {
            Some((last, total)) if last.x == x => {
                last.min = last.min.min(bucket.min);
                last.max = last.max.max(bucket.max);
                last.mean += (mean - last.mean) * weight as f64 / (*total + weight) as f64;
                *total += weight;
                last.line = if look.smoothing == Smoothing::Off { last.mean } else { line };
            }
            _ => columns.push((Column { x, min: bucket.min, max: bucket.max, mean, line }, weight)),
        }
    }
    columns.into_iter().map(|(column, _)| column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl Iterator<Item = f64>) -> Series {
        let mut series = Series::default();
        for (i, value) in values.enumerate() {
            series.push(i as u64 + 1, i as f64, value);
        }
        series
    }

    #[test]
    fn a_new_value_touches_one_column_until_the_chart_is_full() {
        let look = Look::default();
        let cut = |n: usize| {
            let series = series((0..n).map(|i| i as f64));
            let buckets = visible(&series, &look);
            let scale = scale(&buckets, &look, 0.0, 100);
            (columns(&buckets, &look, 0.0, &scale), scale)
        };
        let mut rescaled = 0;
        for n in 150..250 {
            let ((before, old), (after, new)) = (cut(n), cut(n + 1));
            if old == new {
                assert_eq!(before[..before.len() - 1], after[..before.len() - 1], "at {n}");
            } else {
                rescaled += 1;
            }
        }
        assert_eq!(rescaled, 2, "from 1.5 to 2 to 2.5 steps a column");
    }

    #[test]
    fn labels_stand_at_round_positions_and_apart() {
        let scale = Scale::fit(10.0, 12_400.0, 120);
        let ticks: Vec<_> = scale.ticks(24, 120).collect();
        assert_eq!(ticks, [(0, 0.0), (42, 5000.0), (83, 10_000.0)]);
        assert_eq!(Scale { start: 12_000.0, unit: 1.0 }.ticks(10, 25).last(), Some((20, 12_020.0)));
        assert_eq!(scale.ticks(0, 0).count(), 0);
    }

    #[test]
    fn columns_keep_the_weighted_mean_and_both_extremes() {
        let look = Look::default();
        let series = series([1.0, 3.0, f64::NAN, 8.0].into_iter());
        let buckets = visible(&series, &look);
        let all = columns(&buckets, &look, 0.0, &Scale { start: 1.0, unit: 10.0 });
        assert_eq!(all, [Column { x: 0, min: 1.0, max: 8.0, mean: 4.0, line: 4.0 }]);
    }

    #[test]
    fn ranges_are_round_and_never_empty() {
        let around = |values: &[f64], log| Range::around(values.iter().copied(), log);
        assert_eq!(around(&[0.31, 1.1], false), Some(Range { low: 0.2, high: 1.2000000000000002, log: false }));
        assert_eq!(around(&[0.31, 1.1], true), Some(Range { low: 0.30000000000000004, high: 1.2, log: true }));
        assert_eq!(around(&[f64::NAN, 0.0], true), None);
        for values in [[0.0, 0.0], [5.0, 5.0], [-1e300, 1e300], [1e-300, 1e-300], [-3.0, -3.0]] {
            for log in [false, true] {
                if let Some(range) = around(&values, log) {
                    assert!(range.high > range.low, "{values:?} {range:?}");
                    assert!(range.row(values[0], 8).is_none_or(|row| row < 8));
                }
            }
        }
    }

    #[test]
    fn rows_run_from_the_top() {
        let range = Range { low: 0.1, high: 10.0, log: true };
        assert_eq!([10.0, 1.0, 0.1, 99.0].map(|v| range.row(v, 9)), [Some(0), Some(4), Some(8), Some(0)]);
        assert_eq!([0.0, f64::NAN].map(|v| range.row(v, 9)), [None, None]);
        assert!((range.value_at(0.5) - 1.0).abs() < 1e-12);
    }
}

//! What a chart remembers of a run, in bounded memory: the whole run down-sampled, the recent past exactly.

use std::collections::VecDeque;

/// Most buckets of the whole history. Two per column of a very wide chart.
const BUCKETS: usize = 2048;
/// How many recent points stay exact.
pub const RECENT: usize = 1024;
/// Weight of the past in the two smoothing levels (as TensorBoard's slider).
const SMOOTHING: [f64; 2] = [0.8, 0.97];

/// One measured value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub step: u64,
    /// Seconds since the Unix epoch.
    pub time: f64,
    pub value: f64,
    /// Running means of the raw values, weakly and strongly smoothed.
    pub smooth: [f64; 2],
}

/// What is known of a stretch of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// First step of the stretch (a multiple of the width).
    pub start: u64,
    /// Time of the last value.
    pub time: f64,
    /// Finite values in it.
    pub count: u32,
    /// Values that were NaN or infinite.
    pub non_finite: u32,
    pub min: f64,
    pub max: f64,
    sum: f64,
    /// Smoothed values at the end of the stretch.
    pub smooth: [f64; 2],
}

impl Bucket {
    /// A bucket that begins at `start` and holds one point.
    pub fn of(start: u64, point: &Point) -> Bucket {
        let mut bucket = Bucket {
            start,
            time: point.time,
            count: 0,
            non_finite: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: 0.0,
            smooth: point.smooth,
        };
        bucket.add(point);
        bucket
    }

    fn add(&mut self, point: &Point) {
        self.time = point.time;
        self.smooth = point.smooth;
        if point.value.is_finite() {
            self.count = self.count.saturating_add(1);
            self.min = self.min.min(point.value);
            self.max = self.max.max(point.value);
            self.sum += point.value;
        } else {
            self.non_finite = self.non_finite.saturating_add(1);
        }
    }

    fn merge(&mut self, later: &Bucket) {
        self.time = later.time;
        self.smooth = later.smooth;
        self.count = self.count.saturating_add(later.count);
        self.non_finite = self.non_finite.saturating_add(later.non_finite);
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.sum += later.sum;
    }

    /// Mean of the finite values, if there are any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// One quantity over a run.
#[derive(Debug, Clone)]
pub struct Series {
    /// Steps a bucket spans: a power of two that doubles when the buckets run out.
    width: u64,
    buckets: Vec<Bucket>,
    recent: VecDeque<Point>,
    smooth: Option<[f64; 2]>,
    last_non_finite: Option<u64>,
}

impl Default for Series {
    fn default() -> Self {
        Series { width: 1, buckets: Vec::new(), recent: VecDeque::new(), smooth: None, last_non_finite: None }
    }
}

impl Series {
    /// Adds the value of `step`. Steps are expected to rise; see [`Series::forget_after`] for a run that went back.
    pub fn push(&mut self, step: u64, time: f64, value: f64) {
        let smooth = self.smoothed(value);
        let point = Point { step, time, value, smooth };
        if !value.is_finite() {
            self.last_non_finite = Some(step);
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
        self.push_bucket(&point);
    }

    /// The next smoothed values. Raw values only are smoothed, never down-sampled ones; NaN leaves them as they are.
    fn smoothed(&mut self, value: f64) -> [f64; 2] {
        let next = match self.smooth {
            None => [value; 2],
            Some(old) if value.is_finite() => {
                std::array::from_fn(|i| SMOOTHING[i] * old[i] + (1.0 - SMOOTHING[i]) * value)
            }
            Some(old) => old,
        };
        if value.is_finite() {
            self.smooth = Some(next);
        }
        next
    }

    fn push_bucket(&mut self, point: &Point) {
        let start = point.step - point.step % self.width;
        match self.buckets.binary_search_by_key(&start, |b| b.start) {
            Ok(i) => self.buckets[i].add(point),
            Err(i) => self.buckets.insert(i, Bucket::of(start, point)),
        }
        while self.buckets.len() > BUCKETS {
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let mut wide: Vec<Bucket> = Vec::with_capacity(BUCKETS);
        for bucket in &self.buckets {
            let start = bucket.start - bucket.start % self.width;
            match wide.last_mut() {
                Some(last) if last.start == start => last.merge(bucket),
                _ => wide.push(Bucket { start, ..*bucket }),
            }
        }
        self.buckets = wide;
    }

    /// Drops what lies after `step`: the run was resumed there and will report these steps again.
    pub fn forget_after(&mut self, step: u64) {
        self.recent.retain(|p| p.step <= step);
        self.buckets.retain(|b| b.start <= step);
        self.last_non_finite = self.last_non_finite.filter(|&s| s <= step);
        self.smooth = self.recent.iter().rev().find(|p| p.value.is_finite()).map(|p| p.smooth);
    }

    /// The whole run, by rising step.
    pub fn full(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The last [`RECENT`] values, by time of arrival.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.recent.iter()
    }

    /// The newest value.
    pub fn last(&self) -> Option<&Point> {
        self.recent.back()
    }

    /// The newest step whose value was NaN or infinite.
    pub fn last_non_finite(&self) -> Option<u64> {
        self.last_non_finite
    }

    /// Relative change of the weakly smoothed value over up to `steps` recent steps, and the steps it spans.
    pub fn trend(&self, steps: u64) -> Option<(f64, u64)> {
        let last = self.recent.back()?;
        let first = self.recent.iter().find(|p| p.step + steps >= last.step)?;
        let (from, to) = (first.smooth[0], last.smooth[0]);
        (last.step > first.step && from.is_finite() && from != 0.0)
            .then(|| ((to - from) / from, last.step - first.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_steps_stay_within_bounds_and_keep_every_extreme() {
        let mut series = Series::default();
        for step in 1..=1_000_000u64 {
            let value = if step == 777_777 { 50.0 } else { 1.0 };
            series.push(step, step as f64, value);
        }
        assert!(series.full().len() <= BUCKETS && series.full().len() > BUCKETS / 3);
        assert_eq!(series.recent().len(), RECENT);
        let total: u64 = series.full().iter().map(|b| u64::from(b.count)).sum();
        assert_eq!(total, 1_000_000);
        let spike = series.full().iter().find(|b| b.max == 50.0).unwrap();
        assert!(spike.start <= 777_777 && 777_777 < spike.start + series.width);
        assert!(spike.mean().unwrap() < 2.0 && spike.min == 1.0);
        let memory = series.buckets.capacity() * size_of::<Bucket>() + series.recent.capacity() * size_of::<Point>();
        assert!(memory < 512 << 10, "{memory} bytes");
    }

    #[test]
    fn not_a_number_is_counted_apart_and_does_not_spoil_means() {
        let mut series = Series::default();
        for (step, value) in [(1, 2.0), (2, f64::NAN), (3, 4.0)] {
            series.push(step, 0.0, value);
        }
        series.widen();
        series.widen();
        let [bucket] = series.full() else { panic!("{:?}", series.full()) };
        assert_eq!((bucket.mean(), bucket.non_finite), (Some(3.0), 1));
        assert_eq!(series.last_non_finite(), Some(2));
        assert!(series.last().unwrap().smooth[0].is_finite());
    }

    #[test]
    fn smoothing_follows_its_definition_on_raw_values() {
        let mut series = Series::default();
        for (step, value) in [(1, 1.0), (2, 0.0), (3, 0.0)] {
            series.push(step, 0.0, value);
        }
        let smooth = series.last().unwrap().smooth;
        assert!((smooth[0] - 0.64).abs() < 1e-12 && (smooth[1] - 0.97 * 0.97).abs() < 1e-12, "{smooth:?}");
    }

    #[test]
    fn a_resumed_run_replaces_the_steps_it_repeats() {
        let mut series = Series::default();
        (1..=100).for_each(|step| series.push(step, 0.0, f64::from(step as u32)));
        series.forget_after(50);
        series.push(51, 0.0, 7.0);
        assert_eq!(series.full().len(), 51);
        assert_eq!(series.full().last().unwrap().max, 7.0);
        assert_eq!(series.recent().len(), 51);
    }

    #[test]
    fn the_trend_names_its_span() {
        let mut series = Series::default();
        assert_eq!(series.trend(500), None);
        (1..=600u64).for_each(|step| series.push(step, 0.0, if step < 200 { 1.0 } else { 0.5 }));
        let (change, span) = series.trend(500).unwrap();
        assert_eq!(span, 500);
        assert!((change + 0.5).abs() < 1e-6, "{change}");
    }
}

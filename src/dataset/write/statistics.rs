//! Statistics of what is written: exact, per episode and over the whole dataset.
//!
//! LeRobot approximates quantiles by histograms and averages them over the episodes; ours are those of all frames.
//! Vectors are counted as the reader counts them ([`stats_of`](crate::dataset::statistics)); images by histogram.

use serde_json::{Map, Value, json};

use super::spec::FeatureSpec;
use crate::dataset::frame::RgbFrame;
use crate::dataset::statistics::{LEVELS, quantile};
use crate::dataset::stats::FeatureStats;

/// Counts of the 256 levels of each channel: all that any statistic of 8-bit images depends on.
#[derive(Debug)]
pub(super) struct ChannelHistogram {
    pub(super) levels: [[u64; 256]; 3],
    pub(super) frames: u64,
}

impl Default for ChannelHistogram {
    fn default() -> Self {
        ChannelHistogram { levels: [[0; 256]; 3], frames: 0 }
    }
}

impl ChannelHistogram {
    pub(super) fn add(&mut self, frame: &RgbFrame) {
        for pixel in frame.data.chunks_exact(3) {
            for (levels, &level) in self.levels.iter_mut().zip(pixel) {
                levels[usize::from(level)] += 1;
            }
        }
        self.frames += 1;
    }

    pub(super) fn merge(&mut self, other: &ChannelHistogram) {
        for (mine, theirs) in self.levels.iter_mut().flatten().zip(other.levels.iter().flatten()) {
            *mine += theirs;
        }
        self.frames += other.frames;
    }

    /// Per channel, in 0…1; the count is that of frames.
    pub(super) fn statistics(&self) -> FeatureStats {
        let channels = self.levels.iter().map(|levels| {
            let value = |level: usize| level as f64 / 255.0;
            let pixels: u64 = levels.iter().sum();
            let weighted = |f: &dyn Fn(f64) -> f64| {
                levels.iter().enumerate().map(|(level, &n)| f(value(level)) * n as f64).sum::<f64>() / pixels as f64
            };
            let mean = weighted(&|v| v);
            let variance = weighted(&|v| (v - mean).powi(2));
            let sorted = |k: usize| {
                let mut below = 0;
                value(
                    levels
                        .iter()
                        .position(|&n| {
                            below += n;
                            below > k as u64
                        })
                        .unwrap_or(255),
                )
            };
            let quantiles = LEVELS.map(|level| quantile(pixels as usize, sorted, level));
            (sorted(0), sorted((pixels as usize).saturating_sub(1)), mean, variance.sqrt(), quantiles)
        });
        let mut stats = FeatureStats { count: self.frames, ..FeatureStats::default() };
        let mut quantiles: [Vec<f64>; 5] = Default::default();
        for (min, max, mean, std, levels) in channels {
            stats.min.push(min);
            stats.max.push(max);
            stats.mean.push(mean);
            stats.std.push(std);
            quantiles.iter_mut().zip(levels).for_each(|(all, value)| all.push(value));
        }
        [stats.q01, stats.q10, stats.q50, stats.q90, stats.q99] = quantiles.map(Some);
        stats
    }
}

/// The statistics that the format stores besides `count`, in its order.
pub(super) fn entries(stats: &FeatureStats) -> impl Iterator<Item = (&'static str, &[f64])> {
    let always = [("min", &stats.min), ("max", &stats.max), ("mean", &stats.mean), ("std", &stats.std)];
    let quantiles = stats.quantiles().into_iter().filter_map(|(name, _, values)| Some((name, values?)));
    always.into_iter().chain(quantiles).map(|(name, values)| (name, values.as_slice()))
}

/// The content of `meta/stats.json`; image statistics have the shape `[3, 1, 1]`.
pub(super) fn to_json<'a>(features: impl Iterator<Item = (&'a FeatureSpec, FeatureStats)>) -> Value {
    let shaped = |feature: &FeatureSpec, values: &[f64]| match feature.kind.is_picture() {
        true => values.iter().map(|v| json!([[v]])).collect(),
        false => json!(values),
    };
    let mut all = Map::new();
    for (feature, stats) in features {
        let mut map: Map<String, Value> =
            entries(&stats).map(|(name, v)| (name.to_owned(), shaped(feature, v))).collect();
        map.insert("count".into(), json!([stats.count]));
        all.insert(feature.name.clone(), map.into());
    }
    all.into()
}

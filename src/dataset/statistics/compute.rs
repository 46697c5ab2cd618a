//! Exact statistics of vectors.

use rayon::prelude::*;

use crate::dataset::stats::FeatureStats;

/// The stored quantiles: q01, q10, q50, q90, q99.
pub(in crate::dataset) const LEVELS: [f64; 5] = [0.01, 0.10, 0.50, 0.90, 0.99];

/// Statistics of rows of `width` values, given as row-major pieces. All values must be finite.
///
/// Quantiles are those of all rows, with numpy's default (linear) interpolation. Works on one dimension at a time, so
/// the memory beyond the rows themselves is 8 bytes a row and thread.
pub fn feature_stats(pieces: &[&[f32]], width: usize) -> FeatureStats {
    stats_of(width, |dimension| column(pieces, width, dimension))
}

/// Statistics of `width` dimensions, whose finite values `column` gives; all have as many.
pub(in crate::dataset) fn stats_of(width: usize, column: impl Fn(usize) -> Vec<f64> + Sync) -> FeatureStats {
    let dimensions: Vec<Dimension> =
        (0..width).into_par_iter().map(|dimension| Dimension::of(column(dimension))).collect();
    let each = |take: fn(&Dimension) -> f64| dimensions.iter().map(take).collect::<Vec<f64>>();
    FeatureStats {
        min: each(|d| d.min),
        max: each(|d| d.max),
        mean: each(|d| d.mean),
        std: each(|d| d.std),
        count: dimensions.first().map_or(0, |d| d.count),
        q01: Some(each(|d| d.quantiles[0])),
        q10: Some(each(|d| d.quantiles[1])),
        q50: Some(each(|d| d.quantiles[2])),
        q90: Some(each(|d| d.quantiles[3])),
        q99: Some(each(|d| d.quantiles[4])),
    }
}

fn column(pieces: &[&[f32]], width: usize, dimension: usize) -> Vec<f64> {
    pieces.iter().flat_map(|piece| piece.iter().skip(dimension).step_by(width)).map(|&value| f64::from(value)).collect()
}

struct Dimension {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    std: f64,
    quantiles: [f64; 5],
}

impl Dimension {
    fn of(mut values: Vec<f64>) -> Dimension {
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        values.sort_unstable_by(f64::total_cmp);
        Dimension {
            count: values.len() as u64,
            min: values.first().copied().unwrap_or_default(),
            max: values.last().copied().unwrap_or_default(),
            mean,
            std: variance.sqrt(),
            quantiles: LEVELS.map(|level| quantile(values.len(), |k| at(&values, k), level)),
        }
    }
}

/// The quantile at `level` in 0 … 1 of `count` values of which `sorted` gives the k-th smallest, as `numpy.quantile`
/// computes it (method "linear"), bit for bit: its interpolation starts from whichever neighbour is nearer.
pub(in crate::dataset) fn quantile(count: usize, sorted: impl Fn(usize) -> f64, level: f64) -> f64 {
    let last = count.saturating_sub(1);
    let place = level * last as f64;
    let below = place.floor();
    let (low, high) = (sorted(below as usize), sorted((below as usize + 1).min(last)));
    let part = place - below;
    if part >= 0.5 { high - (high - low) * (1.0 - part) } else { low + (high - low) * part }
}

/// The k-th of ascending values; 0 of none.
fn at(sorted: &[f64], k: usize) -> f64 {
    sorted.get(k).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference: numpy 2.2, `np.quantile([3, 1, 4, 1, 5, 9, 2, 6], [.01, .1, .5, .9, .99])`, `mean`, `std`.
    #[test]
    fn agrees_with_numpy() {
        let values: [f32; 8] = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let stats = feature_stats(&[&values[..3], &values[3..]], 1);
        assert_eq!(stats.mean, [3.875]);
        assert_eq!(stats.std, [2.5708704751503917]);
        assert_eq!((stats.min[0], stats.max[0], stats.count), (1.0, 9.0, 8));
        assert_eq!(stats.q01, Some(vec![1.0]));
        assert_eq!(stats.q10, Some(vec![1.0]));
        assert_eq!(stats.q50, Some(vec![3.5]));
        assert_eq!(stats.q90, Some(vec![6.8999999999999995]));
        assert_eq!(stats.q99, Some(vec![8.79]));
    }

    #[test]
    fn one_row_has_no_spread() {
        let stats = feature_stats(&[&[2.0, -1.0]], 2);
        assert_eq!((stats.std, stats.q01, stats.q99), (vec![0.0; 2], Some(vec![2.0, -1.0]), Some(vec![2.0, -1.0])));
    }
}

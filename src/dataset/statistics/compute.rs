//! Exact statistics of vectors.

use rayon::prelude::*;

use crate::dataset::stats::FeatureStats;

/// Statistics of rows of `width` values, given as row-major pieces. All values must be finite.
///
/// Quantiles are those of all rows, with numpy's default (linear) interpolation. Works on one dimension at a time, so
/// the memory beyond the rows themselves is 8 bytes a row and thread.
pub fn feature_stats(pieces: &[&[f32]], width: usize) -> FeatureStats {
    let dimensions: Vec<Dimension> =
        (0..width).into_par_iter().map(|dimension| Dimension::of(column(pieces, width, dimension))).collect();
    let each = |take: fn(&Dimension) -> f64| dimensions.iter().map(take).collect::<Vec<f64>>();
    FeatureStats {
        min: each(|d| d.min),
        max: each(|d| d.max),
        mean: each(|d| d.mean),
        std: each(|d| d.std),
        count: pieces.iter().map(|piece| (piece.len() / width.max(1)) as u64).sum(),
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
            min: values.first().copied().unwrap_or_default(),
            max: values.last().copied().unwrap_or_default(),
            mean,
            std: variance.sqrt(),
            quantiles: [0.01, 0.10, 0.50, 0.90, 0.99].map(|level| quantile(&values, level)),
        }
    }
}

/// The quantile of ascending values at `level` in 0 … 1, as `numpy.quantile` computes it (method "linear"), bit for
/// bit: its interpolation starts from whichever neighbour is nearer.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let place = level * (sorted.len().max(1) - 1) as f64;
    let below = place.floor();
    let at = |index: usize| sorted.get(index).or(sorted.last()).copied().unwrap_or_default();
    let (low, high) = (at(below as usize), at(below as usize + 1));
    let part = place - below;
    if part >= 0.5 { high - (high - low) * (1.0 - part) } else { low + (high - low) * part }
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
        assert_eq!(stats.q90, Some(vec![6.9]));
        assert_eq!(stats.q99, Some(vec![8.79]));
    }

    #[test]
    fn one_row_has_no_spread() {
        let stats = feature_stats(&[&[2.0, -1.0]], 2);
        assert_eq!((stats.std, stats.q01, stats.q99), (vec![0.0; 2], Some(vec![2.0, -1.0]), Some(vec![2.0, -1.0])));
    }
}

//! The held-out episodes: a pure function of the selection, the configuration and the seed.

use rand::seq::SliceRandom;

use crate::config::train::ValidationConfig;
use crate::random;

/// Training and held-out episodes, each in the order of the selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
}

/// Divides `episodes` (dataset episode numbers) by `config`.
///
/// Named episodes are held out as they are; a fraction holds out at least one and leaves at least one. Errors name
/// held-out episodes that are not among the selected, and a split that leaves nothing to train on.
pub fn split(episodes: &[usize], config: &ValidationConfig, seed: u64) -> Result<Split, String> {
    let held: Vec<usize> = match &config.episodes {
        Some(named) => {
            let absent: Vec<usize> = named.iter().copied().filter(|e| !episodes.contains(e)).collect();
            if !absent.is_empty() {
                return Err(format!(
                    "validation.episodes names {absent:?}, which are not among the selected episodes {}",
                    brief(episodes)
                ));
            }
            named.clone()
        }
        None if config.fraction > 0.0 && episodes.len() > 1 => {
            let count = ((episodes.len() as f64 * config.fraction).round() as usize).clamp(1, episodes.len() - 1);
            let mut shuffled = episodes.to_vec();
            shuffled.shuffle(&mut random::stream(seed, "validation-split", &[]));
            shuffled.truncate(count);
            shuffled
        }
        None => Vec::new(),
    };
    let (validation, train): (Vec<usize>, Vec<usize>) = episodes.iter().partition(|e| held.contains(e));
    if train.is_empty() {
        return Err(format!(
            "all selected episodes {} are held out for validation; none is left to train on",
            brief(episodes)
        ));
    }
    Ok(Split { train, validation })
}

fn brief(episodes: &[usize]) -> String {
    if episodes.len() > 12 { format!("({} of them)", episodes.len()) } else { format!("{episodes:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(fraction: f64, episodes: Option<Vec<usize>>) -> ValidationConfig {
        ValidationConfig { fraction, episodes, every: 0, batches: 1 }
    }

    #[test]
    fn a_fraction_holds_out_at_least_one_and_leaves_one() {
        for n in 2..30 {
            let episodes: Vec<usize> = (10..10 + n).collect();
            for fraction in [0.001, 0.1, 0.5, 0.99] {
                let split = split(&episodes, &config(fraction, None), 3).unwrap();
                assert!(!split.train.is_empty() && !split.validation.is_empty());
                assert_eq!(split.train.len() + split.validation.len(), n);
            }
        }
        assert!(split(&[4], &config(0.2, None), 3).unwrap().validation.is_empty());
    }

    #[test]
    fn the_order_of_the_selection_is_kept_and_the_seed_decides() {
        let episodes = [9, 2, 7, 4, 1, 8];
        let first = split(&episodes, &config(0.5, None), 1).unwrap();
        assert_eq!(first, split(&episodes, &config(0.5, None), 1).unwrap());
        assert!((2..9).any(|seed| split(&episodes, &config(0.5, None), seed).unwrap() != first));
        let order: Vec<usize> = episodes.iter().copied().filter(|e| first.train.contains(e)).collect();
        assert_eq!(order, first.train);
    }

    #[test]
    fn impossible_wishes_are_named() {
        assert!(split(&[1, 2], &config(0.0, Some(vec![3])), 0).unwrap_err().contains("[3]"));
        assert!(split(&[1, 2], &config(0.0, Some(vec![1, 2])), 0).unwrap_err().contains("none is left"));
        assert_eq!(split(&[1, 2], &config(0.0, Some(vec![2])), 0).unwrap().validation, [2]);
    }
}

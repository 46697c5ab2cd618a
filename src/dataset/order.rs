//! In which order samples are seen, and with which delays: a pure function of (seed, epoch, position).

use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use rand::seq::SliceRandom;

use super::window::largest_delay;
use crate::random;

/// A place in the endless stream of samples: what a checkpoint stores to continue exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize)]
pub struct Cursor {
    pub epoch: u64,
    /// Within the epoch's order, below the number of samples.
    pub position: u64,
}

/// The order of `len` samples in each epoch.
#[derive(Debug)]
pub struct Order {
    seed: u64,
    len: usize,
    shuffled: bool,
    /// The permutations in use. Batches run over epoch borders, so there can be two.
    recent: Mutex<Vec<(u64, Arc<Vec<u32>>)>>,
}

impl Order {
    /// Every epoch in another random order.
    pub fn shuffled(seed: u64, len: usize) -> Order {
        Order { seed, len, shuffled: true, recent: Mutex::default() }
    }

    /// Every epoch from first to last. `seed` still keys the delays.
    pub fn sequential(seed: u64, len: usize) -> Order {
        Order { seed, len, shuffled: false, recent: Mutex::default() }
    }

    /// Samples an epoch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The cursor `n` samples after the start of epoch 0.
    pub fn cursor(&self, n: u64) -> Cursor {
        let len = self.len.max(1) as u64;
        Cursor { epoch: n / len, position: n % len }
    }

    /// How many samples lie before `cursor`.
    pub fn number(&self, cursor: Cursor) -> u64 {
        cursor.epoch.saturating_mul(self.len as u64).saturating_add(cursor.position)
    }

    /// The sample at `cursor`: an index below [`Order::len`].
    pub fn sample(&self, cursor: Cursor) -> usize {
        if !self.shuffled {
            return cursor.position as usize;
        }
        let permutation = self.permutation(cursor.epoch);
        permutation.get(cursor.position as usize).map_or(0, |&sample| sample as usize)
    }

    /// The delay offset of `sample` in `epoch`: uniform over the offsets up to `max` that leave its window a step inside
    /// the episode, where it is frame `frame` of `length`.
    pub fn delay(&self, epoch: u64, sample: usize, frame: usize, length: usize, max: usize) -> usize {
        match largest_delay(frame, length, max) {
            0 => 0,
            largest => random::stream(self.seed, "delay", &[epoch, sample as u64]).random_range(0..=largest),
        }
    }

    fn permutation(&self, epoch: u64) -> Arc<Vec<u32>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, permutation)) = recent.iter().find(|(of, _)| *of == epoch) {
            return permutation.clone();
        }
        let mut samples: Vec<u32> = (0..self.len.min(u32::MAX as usize) as u32).collect();
        samples.shuffle(&mut random::stream(self.seed, "order", &[epoch]));
        let samples = Arc::new(samples);
        if recent.len() >= 2 {
            recent.remove(0);
        }
        recent.push((epoch, samples.clone()));
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(order: &Order, epoch: u64) -> Vec<usize> {
        (0..order.len() as u64).map(|position| order.sample(Cursor { epoch, position })).collect()
    }

    #[test]
    fn an_epoch_shows_every_sample_once_in_an_order_of_its_own() {
        let order = Order::shuffled(7, 100);
        let (first, second) = (epoch(&order, 0), epoch(&order, 1));
        assert_ne!(first, second);
        assert_eq!(first, epoch(&Order::shuffled(7, 100), 0));
        assert_ne!(first, epoch(&Order::shuffled(8, 100), 0));
        for mut samples in [first, second] {
            samples.sort_unstable();
            assert_eq!(samples, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn delays_are_uniform_and_end_with_the_episode() {
        let order = Order::shuffled(7, 1);
        let mut counts = [0u32; 5];
        for epoch in 0..5000 {
            counts[order.delay(epoch, 3, 0, 100, 4)] += 1;
        }
        // 1000 expected each; five standard deviations are 141.
        assert!(counts.iter().all(|&count| count.abs_diff(1000) < 141), "{counts:?}");
        assert!((0..100).all(|epoch| order.delay(epoch, 3, 98, 100, 4) <= 1));
        assert_eq!(order.delay(0, 3, 99, 100, 4), 0);
    }

    #[test]
    fn cursors_and_numbers_are_inverse() {
        let order = Order::sequential(0, 10);
        for n in [0, 9, 10, 25] {
            assert_eq!(order.number(order.cursor(n)), n);
        }
        assert_eq!(order.cursor(25), Cursor { epoch: 2, position: 5 });
    }
}

//! Random numbers that are a pure function of what they are for.
//!
//! Every draw of the project (data order, delay offsets, noise, flow time, dropout, initial weights)
//! comes from a generator keyed by a seed, a purpose and counters. So a resumed run, another number of
//! loader threads or another sharding reproduces exactly the same numbers, and nothing has to be saved.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

/// Values that one stream of [`fill`] draws; part of what the numbers are a function of.
const BLOCK: usize = 1 << 16;

/// The generator for one draw: `seed` of the run, `purpose` of the draw, and its counters
/// (epoch, step, sample index, …).
pub fn stream(seed: u64, purpose: &str, counters: &[u64]) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update((purpose.len() as u64).to_le_bytes());
    hash.update(purpose.as_bytes());
    for counter in counters {
        hash.update(counter.to_le_bytes());
    }
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// `count` values by `one`, in parallel: each block of 65,536 from a stream of its own, whose counter is the block's
/// number. So nothing depends on the number of threads.
pub fn fill(seed: u64, purpose: &str, count: usize, one: impl Fn(&mut ChaCha8Rng) -> f32 + Sync) -> Vec<f32> {
    let mut values = vec![0.0; count];
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let mut random = stream(seed, purpose, &[block as u64]);
        values.fill_with(|| one(&mut random));
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngCore};

    #[test]
    fn blocks_have_streams_of_their_own_and_no_thread_changes_them() {
        let draw = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| fill(1, "noise", 2 * BLOCK + 3, |random| random.random_range(0.0..1.0)))
        };
        let one = draw(1);
        assert!(one == draw(3));
        for block in 0..3 {
            let mut alone = stream(1, "noise", &[block as u64]);
            let first: [f32; 3] = std::array::from_fn(|_| alone.random_range(0.0..1.0));
            assert_eq!(one[block * BLOCK..][..3], first);
        }
    }

    #[test]
    fn streams_repeat_and_differ_by_every_part_of_their_key() {
        let first = |s: u64, p: &str, c: &[u64]| stream(s, p, c).next_u64();
        assert_eq!(first(1, "noise", &[2, 3]), first(1, "noise", &[2, 3]));
        let others = [
            first(2, "noise", &[2, 3]),
            first(1, "time", &[2, 3]),
            first(1, "noise", &[3, 2]),
            first(1, "noise", &[2]),
        ];
        assert!(others.iter().all(|&o| o != first(1, "noise", &[2, 3])));
    }
}

//! Random numbers that are a pure function of what they are for.
//!
//! Every draw of the project (data order, delay offsets, noise, flow time, dropout, initial weights)
//! comes from a generator keyed by a seed, a purpose and counters. So a resumed run, another number of
//! loader threads or another sharding reproduces exactly the same numbers, and nothing has to be saved.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngCore;

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

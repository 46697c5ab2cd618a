//! Which token may attend to which, and at what position each stands.

use candle_core::{Device, Result, Tensor, bail};

use crate::ops::rope::Rotation;
use crate::policy::arch::Arch;
use crate::policy::batch::Batch;

/// `cumsum(real) − 1`: padding does not advance the position (and stands at its predecessor's, or at −1).
pub fn positions(real: &[bool]) -> Vec<i64> {
    real.iter()
        .scan(-1, |position, &real| {
            *position += i64::from(real);
            Some(*position)
        })
        .collect()
}

/// The mask by its definition, row-major `[n, n]`: i may attend to j iff `block(j) ≤ block(i)` and both are real,
/// with `block = cumsum(opens)`.
///
/// For π₀.₅'s layout (prefix in one block, actions in the next) every *real* row of a part sees the same keys:
/// the computation itself needs only [`Geometry`]'s key masks. This form serves comparison with references.
pub fn may_attend(real: &[bool], opens: &[bool]) -> Vec<bool> {
    let block: Vec<usize> = opens
        .iter()
        .scan(0, |block, &opens| {
            *block += usize::from(opens);
            Some(*block)
        })
        .collect();
    let pair = |i: usize, j: usize| block[j] <= block[i] && real[i] && real[j];
    (0..real.len().min(opens.len()))
        .flat_map(|i| (0..real.len().min(opens.len())).map(move |j| (i, j)))
        .map(|(i, j)| pair(i, j))
        .collect()
}

/// Real tokens of each sample's prefix: cameras in order, then the prompt.
pub fn prefix_real(arch: &Arch, batch: &Batch) -> Result<Vec<Vec<bool>>> {
    let (samples, length) = batch.tokens.dims2()?;
    if batch.token_lengths.len() != samples {
        bail!("{} token lengths for {samples} samples", batch.token_lengths.len())
    }
    if let Some(longer) = batch.token_lengths.iter().find(|&&l| l > length) {
        bail!("a prompt of {longer} tokens in rows of {length}")
    }
    if batch.images.len() != batch.image_masks.len() {
        bail!("{} images with {} masks", batch.images.len(), batch.image_masks.len())
    }
    if let Some(mask) = batch.image_masks.iter().find(|mask| mask.len() != samples) {
        bail!("an image mask of {} entries for {samples} samples", mask.len())
    }
    let patches = arch.vision.tokens();
    let row = |sample: usize| {
        let cameras = batch.image_masks.iter().flat_map(|mask| std::iter::repeat_n(mask[sample], patches));
        let prompt = (0..length).map(|i| i < batch.token_lengths[sample]);
        cameras.chain(prompt).collect()
    };
    Ok((0..samples).map(row).collect())
}

/// Key masks and rotations of a batch of B observations with K suffixes each.
#[derive(Debug, Clone)]
pub struct Geometry {
    /// u8 `[B, 1, P]`: real prefix tokens.
    pub prefix_mask: Tensor,
    pub prefix_rotation: Rotation,
    /// u8 `[B·K, 1, P + H]`: real prefix tokens and all of the suffix.
    pub suffix_mask: Tensor,
    /// Every suffix begins behind the real tokens of its own prefix, as if it were the only one.
    pub suffix_rotation: Rotation,
}

impl Geometry {
    /// From the real prefix tokens of each observation, `real[B][P]`, and its number of suffixes.
    pub fn new(arch: &Arch, real: &[Vec<bool>], branches: usize, device: &Device) -> Result<Self> {
        let (batch, prefix, suffix) = (real.len(), real.first().map_or(0, Vec::len), arch.chunk_size);
        let prefix_positions: Vec<i64> = real.iter().flat_map(|row| positions(row)).collect();
        // The observation of each suffix, in the order of the rows.
        let observed = || real.iter().flat_map(|row| std::iter::repeat_n(row, branches));
        let suffix_positions: Vec<i64> = observed()
            .flat_map(|row| {
                let first = row.iter().filter(|&&real| real).count() as i64;
                (0..suffix as i64).map(move |i| first + i)
            })
            .collect();
        let prefix_mask: Vec<u8> = real.iter().flatten().map(|&real| u8::from(real)).collect();
        let suffix_mask: Vec<u8> = observed()
            .flat_map(|row| row.iter().map(|&real| u8::from(real)).chain(std::iter::repeat_n(1, suffix)))
            .collect();
        let rotation = |positions: &[i64], rows: usize, head_dim: usize, theta: f64| {
            Rotation::new(positions, rows, head_dim, theta, device)
        };
        let suffixes = batch * branches;
        Ok(Self {
            prefix_mask: Tensor::from_vec(prefix_mask, (batch, 1, prefix), device)?,
            prefix_rotation: rotation(&prefix_positions, batch, arch.vlm.head_dim, arch.vlm.rope_theta)?,
            suffix_mask: Tensor::from_vec(suffix_mask, (suffixes, 1, prefix + suffix), device)?,
            suffix_rotation: rotation(&suffix_positions, suffixes, arch.expert.head_dim, arch.expert.rope_theta)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_takes_no_position() {
        assert_eq!(positions(&[true, true, false, true, false]), [0, 1, 1, 2, 2]);
        assert_eq!(positions(&[false, true]), [-1, 0]);
    }

    #[test]
    fn prefix_is_blind_to_the_suffix_which_sees_everything_real() {
        // Two prefix tokens (the second padded), two suffix tokens.
        let mask = may_attend(&[true, false, true, true], &[false, false, true, false]);
        let wanted = [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1].map(|v| v == 1);
        assert_eq!(mask, wanted);
    }
}

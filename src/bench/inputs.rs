//! Synthetic inputs, a pure function of the seed.

use candle_core::{DType, Device, Tensor};
use rand::Rng;

use super::error::BenchError;
use crate::plan::cost::Shape;
use crate::policy::arch::Arch;
use crate::policy::batch::{Batch, Branches, Targets};
use crate::random::{fill, stream};

/// Real action dimensions of the synthetic robot.
const ACTION_DIM: usize = 7;

/// Numbers between −1 and 1.
pub fn uniform(seed: u64, purpose: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, BenchError> {
    let values = fill(seed, purpose, shape.iter().product(), |random| random.random_range(-1.0..1.0));
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)?)
}

/// Observations on the host: every camera present, every prompt of the full length.
pub fn batch(arch: &Arch, shape: &Shape, seed: u64) -> Result<Batch, BenchError> {
    let host = &Device::Cpu;
    let (side, rows) = (arch.vision.image, shape.batch);
    let image =
        |camera: usize| uniform(seed, &format!("bench/image/{camera}"), &[rows, 3, side, side], DType::F32, host);
    let mut random = stream(seed, "bench/tokens", &[]);
    let vocabulary = u32::try_from(arch.vocab_size).unwrap_or(u32::MAX).max(2);
    let tokens: Vec<u32> = (0..rows * shape.prompt).map(|_| random.random_range(1..vocabulary)).collect();
    Ok(Batch {
        images: (0..shape.cameras).map(image).collect::<Result<_, _>>()?,
        image_masks: vec![vec![true; rows]; shape.cameras],
        tokens: Tensor::from_vec(tokens, (rows, shape.prompt), host)?,
        token_lengths: vec![shape.prompt; rows],
        state: uniform(seed, "bench/state", &[rows * shape.suffixes, arch.max_state_dim], DType::F32, host)?,
    })
}

/// What that batch should lead to, on the host.
pub fn targets(arch: &Arch, shape: &Shape, seed: u64) -> Result<Targets, BenchError> {
    let (rows, host) = (shape.batch * shape.suffixes, &Device::Cpu);
    let chunk = [rows, arch.chunk_size, arch.max_action_dim];
    Ok(Targets {
        actions: uniform(seed, "bench/actions", &chunk, DType::F32, host)?,
        is_pad: Tensor::zeros((rows, arch.chunk_size), DType::F32, host)?,
        action_dim: ACTION_DIM.min(arch.max_action_dim),
        branches: Branches::new(shape.suffixes, &vec![true; rows])?,
    })
}

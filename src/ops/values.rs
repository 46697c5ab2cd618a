//! Access to the numbers behind candle's tensors and storages, and the split of rows among threads.

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Layout, Result, Shape, Storage, StorageRef, Tensor, bail};
use rayon::prelude::*;

/// Elements below which a loop stays on the calling thread: waking another one costs some microseconds.
const SHARE_FROM: usize = 16 * 1024;

/// The contiguous f32 elements of an argument of a forward pass.
pub(super) fn of<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: the argument of shape {:?} is not contiguous", layout.shape())
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// The result of a forward pass on the CPU.
pub(super) fn output(values: Vec<f32>, shape: impl Into<Shape>) -> Result<(CpuStorage, Shape)> {
    Ok((CpuStorage::F32(values), shape.into()))
}

/// Read access to the f32 elements of a contiguous CPU tensor, for a backward pass.
pub(super) struct Values<'a> {
    storage: StorageRef<'a>,
    range: Range<usize>,
}

/// Opens `tensor` for reading; an error when it is on another device, not f32 or not contiguous.
pub(super) fn read<'a>(tensor: &'a Tensor, op: &str) -> Result<Values<'a>> {
    let (storage, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: the tensor of shape {:?} is not contiguous", layout.shape())
    };
    match &*storage {
        Storage::Cpu(CpuStorage::F32(_)) => {}
        Storage::Cpu(_) => bail!("{op}: f32 is wanted, the tensor of shape {:?} has another type", layout.shape()),
        _ => bail!("{op}: the tensor of shape {:?} is not on the CPU", layout.shape()),
    }
    Ok(Values { storage, range: start..end })
}

impl Deref for Values<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            // `read` lets no other kind in.
            _ => &[],
        }
    }
}

/// A tensor like `like` from freshly computed elements.
pub(super) fn tensor_like(values: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(values, like.shape(), like.device())
}

/// Elements per thread's piece, a whole number of rows of `width`; everything at once when that is little.
fn piece(elements: usize, width: usize) -> usize {
    let width = width.max(1);
    if elements < SHARE_FROM {
        return elements.max(width);
    }
    // Four pieces a thread even out neighbours that steal time.
    (elements / (4 * rayon::current_num_threads())).div_ceil(width).max(1) * width
}

/// Fills a new vector of `elements`, in pieces of whole rows of `width`; `fill(first element, piece)`.
pub(super) fn fill(elements: usize, width: usize, fill: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let mut out = vec![0.0; elements];
    let piece = piece(elements, width);
    if piece >= elements {
        fill(0, &mut out);
    } else {
        out.par_chunks_mut(piece).enumerate().for_each(|(i, out)| fill(i * piece, out));
    }
    out
}

/// Like [`fill`], for two results of the same shape.
pub(super) fn fill_two(
    elements: usize,
    width: usize,
    fill: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) -> (Vec<f32>, Vec<f32>) {
    let (mut first, mut second) = (vec![0.0; elements], vec![0.0; elements]);
    let piece = piece(elements, width);
    if piece >= elements {
        fill(0, &mut first, &mut second);
    } else {
        first
            .par_chunks_mut(piece)
            .zip(second.par_chunks_mut(piece))
            .enumerate()
            .for_each(|(i, (first, second))| fill(i * piece, first, second));
    }
    (first, second)
}

/// Sums rows of `width` elements over all `rows`: `out[j] = Σ_r term(r)[j]` as `add(row, out)` accumulates it.
///
/// The order of summation is fixed by the row count alone, so that the sum does not depend on the threads.
pub(super) fn sum_rows(rows: usize, width: usize, add: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    const BLOCK: usize = 128;
    let blocks = rows.div_ceil(BLOCK);
    let block = |b: usize| {
        let mut sum = vec![0.0; width];
        for row in b * BLOCK..rows.min((b + 1) * BLOCK) {
            add(row, &mut sum);
        }
        sum
    };
    let partial: Vec<Vec<f32>> = if rows * width < SHARE_FROM {
        (0..blocks).map(block).collect()
    } else {
        (0..blocks).into_par_iter().map(block).collect()
    };
    let mut total = vec![0.0; width];
    for sum in &partial {
        total.iter_mut().zip(sum).for_each(|(t, s)| *t += s);
    }
    total
}

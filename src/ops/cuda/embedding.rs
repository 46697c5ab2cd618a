//! Lookup of token embeddings.

use std::collections::BTreeMap;

use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CudaStorage, Layout, Result, Shape, Tensor};

use super::{Arg, Grid, View, hold, int, launch, output};

/// Rows `tokens` of the weight, times `scale`; `shape` `[B, L, C]`.
pub fn embedding(
    (weight, layout): (&CudaStorage, &Layout),
    tokens: &[u32],
    shape: (usize, usize, usize),
    scale: f32,
) -> Result<(CudaStorage, Shape)> {
    let device = &weight.device;
    let weight = View::of(weight, layout, "embedding")?;
    let width = shape.2;
    let n = tokens.len() * width;
    let ids = device.clone_htod(tokens)?;
    let ids = CudaStorage { slice: CudaStorageSlice::U32(ids), device: device.clone() };
    let places = View::of(&ids, &Layout::contiguous(tokens.len()), "embedding")?;
    let out = output(device, weight.dtype, n, |out| {
        let arguments = [weight.into(), places.into(), out.into(), Arg::Size(n as u64), int(width)?, Arg::Float(scale)];
        launch(device, "embedding", weight.dtype, Grid::elements(n)?, &arguments)
    })?;
    Ok((out, shape.into()))
}

/// The gradient of the whole table: zero but in the rows that were looked up.
///
/// Places are gathered by token on the host (they are few), so that every row is summed by one thread a column, in
/// order: no atomic addition, the same bits every time.
pub fn embedding_backward(weight: &Tensor, tokens: &[u32], g: &Tensor, scale: f32) -> Result<Tensor> {
    let (_, width) = weight.dims2()?;
    let out = weight.detach().zeros_like()?;
    if tokens.is_empty() {
        return Ok(out);
    }
    let mut places: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, &token) in tokens.iter().enumerate() {
        places.entry(token).or_default().push(place as u32);
    }
    let distinct: Vec<u32> = places.keys().copied().collect();
    let starts: Vec<u32> = std::iter::once(0)
        .chain(places.values().scan(0, |end, places| {
            *end += places.len() as u32;
            Some(*end)
        }))
        .collect();
    let places: Vec<u32> = places.into_values().flatten().collect();
    let upload = |values: Vec<u32>| {
        let count = values.len();
        Tensor::from_vec(values, count, weight.device())
    };
    let groups = distinct.len();
    let (ids, starts, places) = (upload(distinct)?, upload(starts)?, upload(places)?);
    let op = "embedding";
    {
        let (g, ids, starts, places) = (hold(g, op)?, hold(&ids, op)?, hold(&starts, op)?, hold(&places, op)?);
        let rows = hold(&out, op)?;
        let gradient = g.view.typed(rows.view.dtype, op)?;
        // The kernel writes into `out`, which nobody else has seen yet.
        let device = match weight.device() {
            candle_core::Device::Cuda(device) => device,
            _ => candle_core::bail!("embedding: the weight is not on the GPU"),
        };
        let arguments = [
            gradient.into(),
            ids.view.into(),
            starts.view.into(),
            places.view.into(),
            rows.view.into(),
            int(width)?,
            Arg::Float(scale),
        ];
        launch(device, "embedding_dw", gradient.dtype, Grid::table(width, groups)?, &arguments)?;
    }
    Ok(out)
}

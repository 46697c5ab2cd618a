//! Matrix products by cuBLAS, with a bias and only the gradients that are wanted.

use candle_core::backend::BackendStorage;
use candle_core::{CudaStorage, DType, Layout, Result, Shape, Tensor};

use super::norms::sum_rows;
use super::{Arg, Grid, View, filled, hold, int, launch};

type Storage<'a> = (&'a CudaStorage, &'a Layout);

/// `x·Wᵀ (+ bias)` with the leading axes of `x` folded into `rows`.
pub fn linear(
    (x, xl): Storage,
    (weight, wl): Storage,
    bias: Option<Storage>,
    [rows, inner, out]: [usize; 3],
) -> Result<(CudaStorage, Shape)> {
    let device = &x.device;
    let left = Layout::contiguous_with_offset((rows, inner), xl.start_offset());
    let right = Layout::contiguous_with_offset((out, inner), wl.start_offset()).transpose(0, 1)?;
    let y = x.matmul(weight, (1, rows, out, inner), &left, &right)?;
    if let Some((bias, bl)) = bias {
        let n = rows * out;
        let view = View::of(&y, &Layout::contiguous(n), "linear")?;
        let bias = View::of(bias, bl, "linear")?.typed(view.dtype, "linear")?;
        let arguments = [view.into(), bias.into(), Arg::Size(n as u64), int(out)?];
        launch(device, "add_bias", view.dtype, Grid::elements(n)?, &arguments)?;
    }
    let mut dims = xl.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = out;
    }
    Ok((y, dims.into()))
}

/// Gradients of input and weight, each only when it is tracked: the products of a frozen weight are never computed.
pub fn backward(
    x: &Tensor,
    weight: &Tensor,
    g: &Tensor,
    [rows, inner, out]: [usize; 3],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let g = g.reshape((rows, out))?;
    let x_gradient = x.track_op().then(|| g.matmul(&weight.detach())?.reshape(x.shape())).transpose()?;
    let weight_gradient = weight.track_op().then(|| g.t()?.matmul(&x.detach().reshape((rows, inner))?)).transpose()?;
    Ok((x_gradient, weight_gradient))
}

/// Gradient of the bias: the sum of the rows, accumulated in f32.
pub fn bias_gradient(bias: &Tensor, g: &Tensor) -> Result<Option<Tensor>> {
    if !bias.track_op() {
        return Ok(None);
    }
    let width = bias.elem_count();
    let rows = g.elem_count() / width.max(1);
    let g = hold(g, "linear")?;
    let sum = filled(bias, DType::F32, width, |device, out| sum_rows(device, g.view, out, rows, width))?;
    sum.to_dtype(bias.dtype()).map(Some)
}

//! Normalisations and their gradients.

use candle_core::cuda_backend::CudaDevice;
use candle_core::{CudaStorage, D, DType, Layout, Result, Shape, Tensor};

use super::{Arg, Grid, View, filled, hold, int, launch, output};

type Storage<'a> = (&'a CudaStorage, &'a Layout);

/// `[rows, width]` of a tensor whose last axis is normalised.
fn rows(x: &Tensor) -> Result<(usize, usize)> {
    let width = x.dim(D::Minus1)?;
    Ok((x.elem_count() / width.max(1), width))
}

pub fn rms_norm((x, xl): Storage, (w, wl): Storage, eps: f32) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("rms_norm", &x.device);
    let (x, weight) = (View::of(x, xl, op)?, View::of(w, wl, op)?.f32(op)?);
    let y = output(device, x.dtype, x.elements, |y| {
        let grid = Grid::rows(x.elements / weight.elements)?;
        let arguments = [x.into(), weight.into(), y.into(), int(weight.elements)?, Arg::Float(eps)];
        launch(device, op, x.dtype, grid, &arguments)
    })?;
    Ok((y, xl.shape().clone()))
}

pub fn rms_norm_backward(
    x: &Tensor,
    weight: &Tensor,
    g: &Tensor,
    eps: f32,
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let (rows, width) = rows(x)?;
    let x_gradient = x.track_op().then(|| rms_input_gradient(x, weight, g, (rows, 0), eps)).transpose()?;
    let weight_gradient = weight
        .track_op()
        .then(|| {
            let reciprocal = rms_statistics(x, rows, width, eps)?;
            let op = "rms_norm";
            let (x, g, r) = (hold(x, op)?, hold(g, op)?, hold(&reciprocal, op)?);
            let gradient = g.view.typed(x.view.dtype, op)?;
            filled(weight, DType::F32, width, |device, out| {
                let arguments = [x.view.into(), gradient.into(), r.view.into(), out.into(), int(rows)?, int(width)?];
                launch(device, "rms_norm_dw", x.view.dtype, Grid::columns(width, 1)?, &arguments)
            })
        })
        .transpose()?;
    Ok((x_gradient, weight_gradient))
}

/// `scale` belongs to `each` rows and is followed by the next after `stride` elements.
fn rms_input_gradient(
    x: &Tensor,
    scale: &Tensor,
    g: &Tensor,
    (each, stride): (usize, usize),
    eps: f32,
) -> Result<Tensor> {
    let op = "rms_norm";
    let (rows, width) = rows(x)?;
    let (held, scale, g) = (hold(x, op)?, hold(scale, op)?, hold(g, op)?);
    let (scale, gradient) = (scale.view.f32(op)?, g.view.typed(x.dtype(), op)?);
    filled(x, x.dtype(), x.shape(), |device, out| {
        let arguments = [
            held.view.into(),
            scale.into(),
            gradient.into(),
            out.into(),
            int(width)?,
            int(each.max(1))?,
            int(stride)?,
            Arg::Float(eps),
        ];
        launch(device, "rms_norm_dx", held.view.dtype, Grid::rows(rows)?, &arguments)
    })
}

fn rms_statistics(x: &Tensor, rows: usize, width: usize, eps: f32) -> Result<Tensor> {
    let held = hold(x, "rms_norm")?;
    filled(x, DType::F32, rows, |device, out| {
        let arguments = [held.view.into(), out.into(), int(width)?, Arg::Float(eps)];
        launch(device, "rms_statistics", held.view.dtype, Grid::rows(rows)?, &arguments)
    })
}

pub fn ada_rms((x, xl): Storage, (m, ml): Storage, eps: f32) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("ada_rms", &x.device);
    let (x, modulation) = (View::of(x, xl, op)?, View::of(m, ml, op)?.f32(op)?);
    let width = xl.dims().last().copied().unwrap_or(1);
    let rows = x.elements / width;
    let each = rows / (modulation.elements / (3 * width));
    let y = output(device, x.dtype, x.elements, |y| {
        let arguments = [x.into(), modulation.into(), y.into(), int(width)?, int(each)?, Arg::Float(eps)];
        launch(device, op, x.dtype, Grid::rows(rows)?, &arguments)
    })?;
    Ok((y, xl.shape().clone()))
}

pub fn ada_rms_backward(
    x: &Tensor,
    modulation: &Tensor,
    g: &Tensor,
    each: usize,
    eps: f32,
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let (rows, width) = rows(x)?;
    let x_gradient = x.track_op().then(|| rms_input_gradient(x, modulation, g, (each, 3 * width), eps)).transpose()?;
    let modulation_gradient = modulation
        .track_op()
        .then(|| {
            let op = "ada_rms";
            let reciprocal = rms_statistics(x, rows, width, eps)?;
            let (x, g, r) = (hold(x, op)?, hold(g, op)?, hold(&reciprocal, op)?);
            let gradient = g.view.typed(x.view.dtype, op)?;
            filled(modulation, DType::F32, modulation.shape(), |device, out| {
                let arguments = [x.view.into(), gradient.into(), r.view.into(), out.into(), int(each)?, int(width)?];
                launch(device, "ada_rms_dm", x.view.dtype, Grid::columns(width, rows / each.max(1))?, &arguments)
            })
        })
        .transpose()?;
    Ok((x_gradient, modulation_gradient))
}

pub fn layer_norm((x, xl): Storage, (w, wl): Storage, (b, bl): Storage, eps: f32) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("layer_norm", &x.device);
    let (x, weight, bias) = (View::of(x, xl, op)?, View::of(w, wl, op)?.f32(op)?, View::of(b, bl, op)?.f32(op)?);
    let y = output(device, x.dtype, x.elements, |y| {
        let grid = Grid::rows(x.elements / weight.elements)?;
        let arguments = [x.into(), weight.into(), bias.into(), y.into(), int(weight.elements)?, Arg::Float(eps)];
        launch(device, op, x.dtype, grid, &arguments)
    })?;
    Ok((y, xl.shape().clone()))
}

pub type Three = (Option<Tensor>, Option<Tensor>, Option<Tensor>);

pub fn layer_norm_backward(x: &Tensor, weight: &Tensor, bias: &Tensor, g: &Tensor, eps: f32) -> Result<Three> {
    let op = "layer_norm";
    let (rows, width) = rows(x)?;
    let (held, w, gradient) = (hold(x, op)?, hold(weight, op)?, hold(g, op)?);
    let (input, scale, g) = (held.view, w.view.f32(op)?, gradient.view.typed(x.dtype(), op)?);
    let x_gradient = x
        .track_op()
        .then(|| {
            filled(x, x.dtype(), x.shape(), |device, out| {
                let arguments = [input.into(), scale.into(), g.into(), out.into(), int(width)?, Arg::Float(eps)];
                launch(device, "layer_norm_dx", input.dtype, Grid::rows(rows)?, &arguments)
            })
        })
        .transpose()?;
    let weight_gradient = weight
        .track_op()
        .then(|| {
            let statistics = filled(x, DType::F32, (rows, 2), |device, out| {
                let arguments = [input.into(), out.into(), int(width)?, Arg::Float(eps)];
                launch(device, "layer_statistics", input.dtype, Grid::rows(rows)?, &arguments)
            })?;
            let s = hold(&statistics, op)?;
            filled(weight, DType::F32, width, |device, out| {
                let arguments = [input.into(), g.into(), s.view.into(), out.into(), int(rows)?, int(width)?];
                launch(device, "layer_norm_dw", input.dtype, Grid::columns(width, 1)?, &arguments)
            })
        })
        .transpose()?;
    let bias_gradient = bias
        .track_op()
        .then(|| filled(bias, DType::F32, width, |device, out| sum_rows(device, g, out, rows, width)))
        .transpose()?;
    Ok((x_gradient, weight_gradient, bias_gradient))
}

/// `out[j] = Σ_rows g[row, j]`, f32.
pub fn sum_rows(device: &CudaDevice, g: View, out: View, rows: usize, width: usize) -> Result<()> {
    launch(device, "sum_rows", g.dtype, Grid::columns(width, 1)?, &[g.into(), out.into(), int(rows)?, int(width)?])
}

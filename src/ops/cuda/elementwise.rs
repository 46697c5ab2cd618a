//! Activations, rotation, the gated residual, dropout.

use candle_core::{CudaStorage, D, DType, Layout, Result, Shape, Tensor};

use super::norms::Three;
use super::{Arg, Grid, View, filled, hold, int, launch, output};

type Storage<'a> = (&'a CudaStorage, &'a Layout);

fn size(n: usize) -> Arg {
    Arg::Size(n as u64)
}

pub fn gelu((x, layout): Storage) -> Result<(CudaStorage, Shape)> {
    let device = &x.device;
    let x = View::of(x, layout, "gelu")?;
    let y = output(device, x.dtype, x.elements, |y| {
        launch(device, "gelu", x.dtype, Grid::elements(x.elements)?, &[x.into(), y.into(), size(x.elements)])
    })?;
    Ok((y, layout.shape().clone()))
}

pub fn gelu_backward(x: &Tensor, g: &Tensor) -> Result<Tensor> {
    let (held, g) = (hold(x, "gelu")?, hold(g, "gelu")?);
    let gradient = g.view.typed(x.dtype(), "gelu")?;
    filled(x, x.dtype(), x.shape(), |device, out| {
        let n = out.elements;
        let arguments = [held.view.into(), gradient.into(), out.into(), size(n)];
        launch(device, "gelu_dx", held.view.dtype, Grid::elements(n)?, &arguments)
    })
}

pub fn gated_gelu((gate, gl): Storage, (up, ul): Storage) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("gated_gelu", &gate.device);
    let gate = View::of(gate, gl, op)?;
    let up = View::of(up, ul, op)?.typed(gate.dtype, op)?;
    let y = output(device, gate.dtype, gate.elements, |y| {
        let arguments = [gate.into(), up.into(), y.into(), size(gate.elements)];
        launch(device, op, gate.dtype, Grid::elements(gate.elements)?, &arguments)
    })?;
    Ok((y, gl.shape().clone()))
}

pub fn gated_gelu_backward(gate: &Tensor, up: &Tensor, g: &Tensor) -> Result<(Tensor, Tensor)> {
    let op = "gated_gelu";
    let (held, ups, g) = (hold(gate, op)?, hold(up, op)?, hold(g, op)?);
    let gradient = g.view.typed(gate.dtype(), op)?;
    let n = held.view.elements;
    let gate_gradient = filled(gate, gate.dtype(), gate.shape(), |device, out| {
        let arguments = [held.view.into(), ups.view.into(), gradient.into(), out.into(), size(n)];
        launch(device, "gated_gelu_dgate", held.view.dtype, Grid::elements(n)?, &arguments)
    })?;
    let up_gradient = filled(up, up.dtype(), up.shape(), |device, out| {
        let arguments = [held.view.into(), gradient.into(), out.into(), size(n)];
        launch(device, "gated_gelu_dup", held.view.dtype, Grid::elements(n)?, &arguments)
    })?;
    Ok((gate_gradient, up_gradient))
}

pub fn gated_residual((x, xl): Storage, (branch, bl): Storage, (m, ml): Storage) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("gated_residual", &x.device);
    let (x, modulation) = (View::of(x, xl, op)?, View::of(m, ml, op)?.f32(op)?);
    let branch = View::of(branch, bl, op)?.typed(x.dtype, op)?;
    let width = xl.dims().last().copied().unwrap_or(1);
    let each = (x.elements / width) / (modulation.elements / (3 * width));
    let y = output(device, x.dtype, x.elements, |y| {
        let arguments =
            [x.into(), branch.into(), modulation.into(), y.into(), size(x.elements), int(width)?, int(each)?];
        launch(device, op, x.dtype, Grid::elements(x.elements)?, &arguments)
    })?;
    Ok((y, xl.shape().clone()))
}

pub fn gated_residual_backward(
    x: &Tensor,
    branch: &Tensor,
    modulation: &Tensor,
    g: &Tensor,
    each: usize,
) -> Result<Three> {
    let op = "gated_residual";
    let width = x.dim(D::Minus1)?;
    let (branches, m, held) = (hold(branch, op)?, hold(modulation, op)?, hold(g, op)?);
    let gradient = held.view.typed(branch.dtype(), op)?;
    let n = gradient.elements;
    let branch_gradient = branch
        .track_op()
        .then(|| {
            filled(branch, branch.dtype(), branch.shape(), |device, out| {
                let arguments = [m.view.into(), gradient.into(), out.into(), size(n), int(width)?, int(each)?];
                launch(device, "gated_residual_dbranch", gradient.dtype, Grid::elements(n)?, &arguments)
            })
        })
        .transpose()?;
    let modulation_gradient = modulation
        .track_op()
        .then(|| {
            filled(modulation, DType::F32, modulation.shape(), |device, out| {
                let grid = Grid::columns(width, n / width / each.max(1))?;
                let arguments = [branches.view.into(), gradient.into(), out.into(), int(each)?, int(width)?];
                launch(device, "gated_residual_dm", gradient.dtype, grid, &arguments)
            })
        })
        .transpose()?;
    Ok((x.track_op().then(|| g.clone()), branch_gradient, modulation_gradient))
}

/// Rotates by the angles (`sign` 1) or back by them (−1).
fn rotate(x: View, cos: View, sin: View, y: View, [width, half]: [usize; 2], sign: f32) -> Result<[Arg; 8]> {
    let pairs = size(x.elements / 2);
    Ok([x.into(), cos.into(), sin.into(), y.into(), pairs, int(width)?, int(half)?, Arg::Float(sign)])
}

pub fn rope((x, xl): Storage, (cos, cl): Storage, (sin, sl): Storage) -> Result<(CudaStorage, Shape)> {
    let (op, device) = ("rope", &x.device);
    let sizes = [xl.shape().dims3()?.2, cl.shape().dims3()?.2];
    let x = View::of(x, xl, op)?;
    let (cos, sin) = (View::of(cos, cl, op)?.f32(op)?, View::of(sin, sl, op)?.f32(op)?);
    let y = output(device, x.dtype, x.elements, |y| {
        let arguments = rotate(x, cos, sin, y, sizes, 1.0)?;
        launch(device, op, x.dtype, Grid::elements(x.elements / 2)?, &arguments)
    })?;
    Ok((y, xl.shape().clone()))
}

pub fn rope_backward(x: &Tensor, cos: &Tensor, sin: &Tensor, g: &Tensor) -> Result<Tensor> {
    let op = "rope";
    let sizes = [x.dims3()?.2, cos.dims3()?.2];
    let (cos, sin, g) = (hold(cos, op)?, hold(sin, op)?, hold(g, op)?);
    let gradient = g.view.typed(x.dtype(), op)?;
    filled(x, x.dtype(), x.shape(), |device, out| {
        let arguments = rotate(gradient, cos.view, sin.view, out, sizes, -1.0)?;
        launch(device, op, gradient.dtype, Grid::elements(out.elements / 2)?, &arguments)
    })
}

/// How a mask is drawn: the key of its generator, the threshold below which an element goes, the factor of the rest.
#[derive(Debug, Clone, Copy)]
pub struct Mask {
    pub key: [u32; 2],
    pub threshold: u32,
    pub scale: f32,
}

impl Mask {
    fn arguments(&self, x: View, y: View) -> [Arg; 7] {
        let [key0, key1] = self.key.map(Arg::Word);
        [x.into(), y.into(), size(x.elements), key0, key1, Arg::Word(self.threshold), Arg::Float(self.scale)]
    }
}

pub fn dropout((x, layout): Storage, mask: Mask) -> Result<(CudaStorage, Shape)> {
    let device = &x.device;
    let x = View::of(x, layout, "dropout")?;
    let y = output(device, x.dtype, x.elements, |y| {
        launch(device, "dropout", x.dtype, Grid::elements(x.elements.div_ceil(4))?, &mask.arguments(x, y))
    })?;
    Ok((y, layout.shape().clone()))
}

pub fn dropout_backward(x: &Tensor, g: &Tensor, mask: Mask) -> Result<Tensor> {
    let g = hold(g, "dropout")?;
    let gradient = g.view.typed(x.dtype(), "dropout")?;
    filled(x, x.dtype(), x.shape(), |device, out| {
        let grid = Grid::elements(out.elements.div_ceil(4))?;
        launch(device, "dropout", gradient.dtype, grid, &mask.arguments(gradient, out))
    })
}

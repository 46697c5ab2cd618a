//! `y = x·Wᵀ (+ b)` on the last axis.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, D, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::matrix::{Matrix, Threads, Write, multiply};
use super::values;

/// Applies the weight `[out, in]` (and bias `[out]`) to `x` `[…, in]`, giving `[…, out]`.
///
/// All leading axes are folded into the rows of one matrix product. Gradients are computed only for those
/// arguments that a trained variable stands behind: for a frozen weight the backward pass is one product, not two.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (out, inner) = weight.dims2()?;
    if x.dim(D::Minus1)? != inner || bias.is_some_and(|b| b.dims() != [out]) {
        let bias = bias.map(Tensor::dims);
        bail!("linear: input {:?} does not fit weight {:?} and bias {bias:?}", x.dims(), weight.dims())
    }
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    match bias {
        Some(bias) => x.apply_op3(&weight, &bias.contiguous()?, Linear),
        None => x.apply_op2(&weight, Linear),
    }
}

struct Linear;

/// `[rows, inner]` of the folded input and the number of outputs.
struct Sizes {
    rows: usize,
    inner: usize,
    out: usize,
}

impl Sizes {
    fn of(x: &[usize], weight: &[usize]) -> Self {
        let inner = x.last().copied().unwrap_or(0);
        let rows = x.iter().rev().skip(1).product();
        Self { rows, inner, out: weight.first().copied().unwrap_or(0) }
    }
}

fn forward(
    (x, x_layout): (&CpuStorage, &Layout),
    (weight, weight_layout): (&CpuStorage, &Layout),
    bias: Option<(&CpuStorage, &Layout)>,
) -> Result<(CpuStorage, Shape)> {
    let sizes = Sizes::of(x_layout.dims(), weight_layout.dims());
    let x = values::of(x, x_layout, "linear")?;
    let weight = values::of(weight, weight_layout, "linear")?;
    let mut y = vec![0.0; sizes.rows * sizes.out];
    let write = match bias {
        Some((bias, layout)) => {
            let bias = values::of(bias, layout, "linear")?;
            y.chunks_exact_mut(sizes.out.max(1)).for_each(|row| row.copy_from_slice(bias));
            Write::Add
        }
        None => Write::Overwrite,
    };
    let (left, right) = (Matrix::new(x, sizes.rows, sizes.inner), Matrix::new(weight, sizes.out, sizes.inner).t());
    multiply(&mut y, sizes.out, left, right, write, Threads::All);
    let mut dims = x_layout.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = sizes.out;
    }
    values::output(y, dims)
}

#[cfg(feature = "cuda")]
fn cuda_forward(
    x: (&CudaStorage, &Layout),
    weight: (&CudaStorage, &Layout),
    bias: Option<(&CudaStorage, &Layout)>,
) -> Result<(CudaStorage, Shape)> {
    let Sizes { rows, inner, out } = Sizes::of(x.1.dims(), weight.1.dims());
    cuda::linear::linear(x, weight, bias, [rows, inner, out])
}

/// Gradients of input and weight, each only when it is tracked.
fn backward(x: &Tensor, weight: &Tensor, gradient: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let sizes = Sizes::of(x.dims(), weight.dims());
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return cuda::linear::backward(x, weight, gradient, [sizes.rows, sizes.inner, sizes.out]);
    }
    let gradient = values::read(gradient, "linear")?;
    let gradient = Matrix::new(&gradient, sizes.rows, sizes.out);
    let x_gradient = if x.track_op() {
        let weight = values::read(weight, "linear")?;
        let mut out = vec![0.0; sizes.rows * sizes.inner];
        let weight = Matrix::new(&weight, sizes.out, sizes.inner);
        multiply(&mut out, sizes.inner, gradient, weight, Write::Overwrite, Threads::All);
        Some(values::tensor_like(out, x)?)
    } else {
        None
    };
    let weight_gradient = if weight.track_op() {
        let input = values::read(x, "linear")?;
        let mut out = vec![0.0; sizes.out * sizes.inner];
        let input = Matrix::new(&input, sizes.rows, sizes.inner);
        multiply(&mut out, sizes.inner, gradient.t(), input, Write::Overwrite, Threads::All);
        Some(values::tensor_like(out, weight)?)
    } else {
        None
    };
    Ok((x_gradient, weight_gradient))
}

/// Gradient of the bias: the sum of the rows.
fn bias_gradient(bias: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
    if !bias.track_op() {
        return Ok(None);
    }
    #[cfg(feature = "cuda")]
    if bias.device().is_cuda() {
        return cuda::linear::bias_gradient(bias, gradient);
    }
    let out = bias.elem_count();
    let gradient = values::read(gradient, "linear")?;
    let sum = values::sum_rows(gradient.len() / out.max(1), out, |row, sum| {
        let row = &gradient[row * out..(row + 1) * out];
        sum.iter_mut().zip(row).for_each(|(s, g)| *s += g);
    });
    values::tensor_like(sum, bias).map(Some)
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, xl: &Layout, w: &CpuStorage, wl: &Layout) -> Result<(CpuStorage, Shape)> {
        forward((x, xl), (w, wl), None)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, xl: &Layout, w: &CudaStorage, wl: &Layout) -> Result<(CudaStorage, Shape)> {
        cuda_forward((x, xl), (w, wl), None)
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _y: &Tensor, g: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        backward(x, weight, &g.contiguous()?)
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        xl: &Layout,
        w: &CpuStorage,
        wl: &Layout,
        b: &CpuStorage,
        bl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        forward((x, xl), (w, wl), Some((b, bl)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        xl: &Layout,
        w: &CudaStorage,
        wl: &Layout,
        b: &CudaStorage,
        bl: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        cuda_forward((x, xl), (w, wl), Some((b, bl)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (x_gradient, weight_gradient) = backward(x, weight, &gradient)?;
        Ok((x_gradient, weight_gradient, bias_gradient(bias, &gradient)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;
    use candle_core::Var;

    #[test]
    fn equals_candles_product_and_has_the_gradients_of_finite_differences() -> Result<()> {
        let (x, w, b) = (numbers(1, (2, 3, 5))?, numbers(2, (4, 5))?, numbers(3, 4)?);
        let wanted = x.broadcast_matmul(&w.t()?)?.broadcast_add(&b)?;
        assert!(difference(&linear(&x, &w, Some(&b))?, &wanted)? < 1e-6);
        check(&[x.clone(), w.clone(), b], 1e-3, |a| linear(&a[0], &a[1], Some(&a[2])))?;
        check(&[x, w], 1e-3, |a| linear(&a[0], &a[1], None))
    }

    #[test]
    fn large_products_and_bias_sums_agree_with_candles() -> Result<()> {
        let (x, w, b) = (numbers(1, (300, 96))?, numbers(2, (80, 96))?, Var::from_tensor(&numbers(3, 80)?)?);
        let y = linear(&x, &w, Some(b.as_tensor()))?;
        assert!(difference(&y.detach(), &x.matmul(&w.t()?)?.broadcast_add(&b.detach())?)? < 1e-4);
        let g = numbers(4, (300, 80))?;
        let gradients = super::super::cotangent::cotangent(&y, &g)?.backward()?;
        let found = gradients.get(&b).expect("the bias has a gradient");
        assert!(difference(found, &g.sum(0)?)? < 1e-4);
        Ok(())
    }

    #[test]
    fn a_frozen_weight_gets_no_gradient() -> Result<()> {
        let (x, w) = (Var::from_tensor(&numbers(1, (2, 3, 5))?)?, numbers(2, (4, 5))?);
        let gradients = linear(x.as_tensor(), &w, None)?.sum_all()?.backward()?;
        assert!(gradients.get(&w).is_none());
        assert!(gradients.get(&x).is_some());
        Ok(())
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() -> Result<()> {
        assert!(linear(&numbers(1, (2, 3))?, &numbers(2, (4, 5))?, None).is_err());
        assert!(linear(&numbers(1, (2, 5))?, &numbers(2, (4, 5))?, Some(&numbers(3, 5)?)).is_err());
        Ok(())
    }
}

//! Comparison of a backward pass with finite differences, for the tests of this room.

use candle_core::{Device, Result, Tensor, Var};
use rand::Rng;

use crate::random::stream;

/// Numbers in [-1, 1) that depend on `seed` only.
pub(super) fn numbers(seed: u64, shape: impl Into<candle_core::Shape>) -> Result<Tensor> {
    let shape = shape.into();
    let mut random = stream(seed, "gradcheck", &[]);
    let values: Vec<f32> = (0..shape.elem_count()).map(|_| random.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Checks the gradient of every argument of `function`, element by element, against central differences of
/// `Σ function(arguments)·w` with fixed random w, summed in f64.
///
/// In f32 with a step of 1e-2 the rounding error of a difference is about 1e-5 a unit of the sum, and the
/// truncation error about 1e-4 for these smooth functions; `tolerance` is on |difference|/(1 + |gradient|).
pub(super) fn check(
    arguments: &[Tensor],
    tolerance: f64,
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    const STEP: f32 = 1e-2;
    let variables = arguments.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>()?;
    let tracked: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
    let output = function(&tracked)?;
    let weights = numbers(99, output.shape())?;
    let gradients = super::cotangent::cotangent(&output, &weights)?.backward()?;
    let weights = weights.flatten_all()?.to_vec1::<f32>()?;
    let value = |arguments: &[Tensor]| -> Result<f64> {
        let output = function(arguments)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(output.iter().zip(&weights).map(|(&o, &w)| f64::from(o) * f64::from(w)).sum())
    };
    for (index, argument) in arguments.iter().enumerate() {
        let gradient = gradients.get(&tracked[index]).unwrap_or_else(|| panic!("argument {index} has no gradient"));
        let gradient = gradient.flatten_all()?.to_vec1::<f32>()?;
        let base = argument.flatten_all()?.to_vec1::<f32>()?;
        for element in 0..base.len() {
            let moved = |by: f32| -> Result<f64> {
                let mut values = base.clone();
                values[element] += by;
                let mut arguments = arguments.to_vec();
                arguments[index] = Tensor::from_vec(values, argument.shape(), &Device::Cpu)?;
                value(&arguments)
            };
            let difference = (moved(STEP)? - moved(-STEP)?) / (2.0 * f64::from(STEP));
            let found = f64::from(gradient[element]);
            let error = (found - difference).abs() / (1.0 + difference.abs());
            assert!(error < tolerance, "argument {index} element {element}: {found}, by differences {difference}");
        }
    }
    Ok(())
}

/// Largest absolute difference of two tensors.
pub(super) fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}

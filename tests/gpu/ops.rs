//! Every operation of `vlash_forge::ops` on the device against the CPU in f32: values, the gradient of every
//! differentiable argument, and no gradient for a frozen one.

use candle_core::{DType, Device, Result, Tensor, Var, bail};
use rand::Rng;
use vlash_forge::ops::cotangent::cotangent;
use vlash_forge::random::stream;

use crate::cases::{Case, Kind};
use crate::parity::record::Record;
use crate::parity::values;
use crate::tolerance::{HALF_ATTENTION, HALF_OPERATION, HALF_OPERATION_GRADIENT, OPERATION};

/// Numbers in [-1, 1) times `scale`, by name.
fn numbers(seed: u64, name: &str, shape: &[usize], scale: f32) -> Result<Tensor> {
    let mut random = stream(seed, name, &[]);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.random_range(-scale..scale)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Output and the gradient of each argument, on the host, in f32.
struct Computed {
    output: Tensor,
    gradients: Vec<Option<Tensor>>,
}

/// Runs `case` on `arguments`, those of `tracked` as variables, and pulls `gradient` back.
fn compute(case: &Case, arguments: &[Tensor], tracked: &[bool], gradient: Option<&Tensor>) -> Result<Computed> {
    let mut given = Vec::new();
    for (argument, tracked) in arguments.iter().zip(tracked) {
        given.push(if *tracked { Var::from_tensor(argument)?.into_inner() } else { argument.clone() });
    }
    let host = |t: &Tensor| t.to_device(&Device::Cpu)?.to_dtype(DType::F32);
    let output = (case.run)(&given)?;
    let Some(gradient) = gradient else {
        return Ok(Computed { output: host(&output)?, gradients: Vec::new() });
    };
    let store = cotangent(&output, gradient)?.backward()?;
    let gradients = given.iter().map(|argument| store.get(argument).map(host).transpose()).collect::<Result<_>>()?;
    Ok(Computed { output: host(&output)?, gradients })
}

/// Largest difference over the largest magnitude; exact where everything is to be zero.
fn relative(found: &Tensor, wanted: &Tensor) -> Result<f64> {
    if found.dims() != wanted.dims() {
        bail!("shape {:?}, wanted {:?}", found.dims(), wanted.dims())
    }
    let (found, wanted) = (values(found)?, values(wanted)?);
    let largest = wanted.iter().fold(0f64, |largest, value| largest.max(value.abs()));
    let worst = found.iter().zip(&wanted).fold(0f64, |worst, (f, w)| {
        let off = (f - w).abs();
        if off.is_nan() { f64::INFINITY } else { worst.max(off) }
    });
    Ok(if largest > 0.0 { worst / largest } else { worst })
}

/// Holds `case` on `device` in `dtype` against the CPU in f32.
pub fn agrees(device: &Device, dtype: DType, seed: u64, case: &Case, record: &mut Record) -> Result<()> {
    // Inputs that both sides hold exactly. Of a dry run in bf16 on the CPU only that rounding is left.
    let computed_in = if device.is_cpu() { DType::F32 } else { dtype };
    let rounded = |tensor: Tensor, kind: Kind| match kind {
        Kind::Compute => tensor.to_dtype(dtype)?.to_dtype(DType::F32),
        Kind::Full => Ok(tensor),
    };
    let there = |tensor: &Tensor, kind: Kind| match kind {
        Kind::Compute => tensor.to_device(device)?.to_dtype(computed_in),
        Kind::Full => tensor.to_device(device),
    };
    let mut arguments = Vec::new();
    for (index, argument) in case.arguments.iter().enumerate() {
        let name = format!("{}/{index}", case.name);
        arguments.push(rounded(numbers(seed, &name, &argument.shape, argument.scale)?, argument.kind)?);
    }
    let moved = case.arguments.iter().zip(&arguments).map(|(argument, tensor)| there(tensor, argument.kind));
    let moved = moved.collect::<Result<Vec<_>>>()?;

    let all = vec![true; arguments.len()];
    let shape = (case.run)(&arguments)?.dims().to_vec();
    let gradient = rounded(numbers(seed, &format!("{}/gradient", case.name), &shape, 1.0)?, Kind::Compute)?;
    let wanted = compute(case, &arguments, &all, Some(&gradient))?;
    let gradient = there(&gradient, Kind::Compute)?;
    let found = compute(case, &moved, &all, Some(&gradient))?;
    let (forward, backward) = match dtype {
        DType::F32 => (OPERATION, OPERATION),
        _ if case.name.starts_with("attention") => (HALF_ATTENTION, HALF_ATTENTION),
        _ => (HALF_OPERATION, HALF_OPERATION_GRADIENT),
    };
    record.hold("output", &case.name, relative(&found.output, &wanted.output)?, forward);
    for (index, (found, wanted)) in found.gradients.iter().zip(&wanted.gradients).enumerate() {
        match (found, wanted) {
            (Some(found), Some(wanted)) => {
                record.hold("gradient", format_args!("{}/{index}", case.name), relative(found, wanted)?, backward);
            }
            (found, wanted) => bail!(
                "{}: argument {index} has {} gradient, on the CPU {}",
                case.name,
                word(found.is_some()),
                word(wanted.is_some())
            ),
        }
    }
    // Where nothing trains, nothing is kept for a backward pass; the output is to be the same.
    let evaluated = compute(case, &moved, &vec![false; moved.len()], None)?;
    record.hold("output without a graph", &case.name, relative(&evaluated.output, &wanted.output)?, forward);
    if case.together {
        return Ok(());
    }
    alone(case, &moved, &gradient, |index, found| match &wanted.gradients[index] {
        Some(wanted) => {
            record.hold("gradient alone", format_args!("{}/{index}", case.name), relative(found, wanted)?, backward);
            Ok(())
        }
        None => Ok(()),
    })
}

/// Each argument as the only one that trains: it gets its gradient, which `compare` sees; the frozen ones get none.
fn alone(
    case: &Case,
    arguments: &[Tensor],
    gradient: &Tensor,
    mut compare: impl FnMut(usize, &Tensor) -> Result<()>,
) -> Result<()> {
    for index in 0..arguments.len() {
        let tracked: Vec<bool> = (0..arguments.len()).map(|i| i == index).collect();
        let computed = compute(case, arguments, &tracked, Some(gradient))?;
        for (other, found) in computed.gradients.iter().enumerate() {
            match found {
                Some(found) if other == index => compare(index, found)?,
                None if other != index => {}
                Some(_) => bail!("{}: argument {other} is frozen and has a gradient", case.name),
                None => bail!("{}: argument {other} trains and has no gradient", case.name),
            }
        }
    }
    Ok(())
}

fn word(is_there: bool) -> &'static str {
    if is_there { "a" } else { "no" }
}

//! Clipping and AdamW on the device against the CPU, on tensors of more than one block and of odd sizes.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Error, Result, Tensor, Var};
use rand::Rng;
use vlash_forge::random::stream;
use vlash_forge::train::adamw::{AdamW, Settings};
use vlash_forge::train::clip::clip;

use crate::parity::difference;
use crate::parity::record::Record;
use crate::tolerance::{OPTIMIZER_NORM, OPTIMIZER_VALUE};

const STEPS: u64 = 10;
const SHAPES: [(&str, &[usize]); 5] =
    [("a", &[1]), ("b", &[3, 7]), ("c", &[1000, 1031]), ("d", &[16_384]), ("e", &[5, 16_385])];

fn numbers(name: &str, step: u64, shape: &[usize]) -> Result<Tensor> {
    let mut random = stream(4, name, &[step]);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Parameters and an optimizer over them, on one device.
struct Side {
    device: Device,
    optimizer: AdamW,
    variables: BTreeMap<String, Var>,
}

impl Side {
    fn new(device: &Device) -> Result<Side> {
        let variable = |(name, shape): &(&str, &[usize])| -> Result<(String, Var)> {
            Ok((name.to_string(), Var::from_tensor(&numbers(name, 0, shape)?.to_device(device)?)?))
        };
        let variables = SHAPES.iter().map(variable).collect::<Result<BTreeMap<_, _>>>()?;
        let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1 };
        let optimizer = AdamW::new(variables.clone(), settings).map_err(Error::wrap)?;
        Ok(Side { device: device.clone(), optimizer, variables })
    }

    /// One step at a large rate; the norm before clipping.
    fn step(&mut self, gradients: &BTreeMap<String, Tensor>) -> Result<f64> {
        let there = gradients.iter().map(|(name, gradient)| Ok((name.clone(), gradient.to_device(&self.device)?)));
        let gradients = there.collect::<Result<BTreeMap<_, _>>>()?;
        let clipped = clip(&gradients, 1.0).map_err(Error::wrap)?;
        self.optimizer.step(&gradients, 1e-2, clipped.coefficient).map_err(Error::wrap)?;
        Ok(clipped.norm)
    }
}

/// Norms, parameters and moments; a gradient that is not finite is found, and named as on the CPU.
pub fn equals_the_cpu(device: &Device, record: &mut Record) -> Result<()> {
    let (mut here, mut there) = (Side::new(&Device::Cpu)?, Side::new(device)?);
    for step in 1..=STEPS {
        let mut gradients = BTreeMap::new();
        for (name, shape) in SHAPES {
            gradients.insert(name.to_owned(), numbers(name, step, shape)?);
        }
        // A parameter that some steps do not reach keeps its count.
        if step.is_multiple_of(3) {
            gradients.remove("b");
        }
        let (wanted, found) = (here.step(&gradients)?, there.step(&gradients)?);
        record.hold("norm", format_args!("step {step}"), (found - wanted).abs() / wanted, OPTIMIZER_NORM);
    }
    for (name, wanted) in &here.variables {
        record.hold("parameters", name, difference(&there.variables[name], wanted)?, OPTIMIZER_VALUE);
    }
    let (wanted, found) = (here.optimizer.state().map_err(Error::wrap)?, there.optimizer.state().map_err(Error::wrap)?);
    assert!(wanted.keys().eq(found.keys()));
    for (name, wanted) in &wanted {
        let allowed = if wanted.dtype() == DType::F32 { OPTIMIZER_VALUE } else { 0.0 };
        record.hold("state", name, difference(&found[name], wanted)?, allowed);
    }
    for value in [f32::NAN, f32::INFINITY] {
        let broken = Tensor::new(&[0.0, value, 1.0], device)?;
        let sound = Tensor::ones(70_000, DType::F32, device)?;
        let gradients = BTreeMap::from([("broken".to_owned(), broken), ("sound".to_owned(), sound)]);
        let Err(error) = clip(&gradients, 1.0) else { panic!("{value} in a gradient was to be found") };
        assert_eq!(error.to_string(), "1 of 2 gradients are not finite (first: broken)");
    }
    Ok(())
}

//! The network in bf16 against f32.

use candle_core::{DType, Device, Error, Result, Tensor};
use vlash_forge::adapter::plan::{Everything, Frozen, TrainPlan};
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::batch::{Batch, Draw, Targets};
use vlash_forge::policy::{Policy, StepOptions};

use crate::parity::adapters::{ALL_LINEAR, adapter};
use crate::parity::record::Record;
use crate::parity::{arch, batch, difference, load, values, weights};
use crate::tolerance::{
    HALF_ACTIONS, HALF_GRADIENT_ANGLE, HALF_GRADIENT_LENGTH, HALF_GRADIENT_SMALL, HALF_LOSS, HALF_VELOCITY,
};

/// The reference's policy in bf16. The CPU computes in f32 only: a dry run there has rounded weights.
pub fn policy(plan: &dyn TrainPlan, device: &Device) -> Result<Policy> {
    let mut weights = weights()?;
    let mut dtype = DType::BF16;
    if device.is_cpu() {
        dtype = DType::F32;
        for weight in weights.values_mut() {
            *weight = weight.to_dtype(DType::BF16)?.to_dtype(DType::F32)?;
        }
    }
    Policy::build(&arch(), &weights, plan, device, dtype)
}

/// The inputs of a case, on `device`.
pub fn inputs(case: &str, device: &Device) -> Result<(Batch, Targets, Draw)> {
    let inputs = load(&format!("pi05-tiny/{case}/inputs.safetensors"))?;
    let (batch, targets) = batch(&inputs, "")?;
    let draw = Draw { noise: inputs["noise"].clone(), time: inputs["time"].clone() };
    Ok((batch.to_device(device)?, targets.to_device(device)?, draw.to_device(device)?))
}

/// Velocity, loss and sampled chunk.
pub fn forward(device: &Device, case: &str, record: &mut Record) -> Result<()> {
    let (batch, targets, draw) = inputs(case, device)?;
    let file = |name: &str| load(&format!("pi05-tiny/{case}/{name}.safetensors"));
    let (trained, inference) = (file("train_forward")?, file("inference")?);
    let policy = policy(&Frozen, device)?;
    let trace = policy.trace_training(&batch, &targets, &draw)?;
    record.hold("v_t", case, difference(&trace["v_t"], &trained["v_t"])?, HALF_VELOCITY);
    let loss = policy.losses(&batch, &targets, &draw, LossParity::Lerobot)?.loss;
    record.hold("loss", case, (loss - values(&trained["loss"])?[0]).abs(), HALF_LOSS);
    let chunk = policy.sample(&batch, &draw.noise, 10)?;
    record.hold("actions", case, difference(&chunk, &inference["actions_padded"])?, HALF_ACTIONS);
    // Rounded weights must show, or the network did not compute in bf16.
    assert!(difference(&trace["v_t"], &trained["v_t"])? > 1e-4, "this is not a run in bf16");
    Ok(())
}

/// Gradients of all parameters.
pub fn gradients(device: &Device, case: &str, record: &mut Record) -> Result<()> {
    let exact = crate::parity::policy(&Everything, device)?;
    compare(&exact, &policy(&Everything, device)?, case, record)
}

/// Gradients of adapters on a frozen bf16 base.
pub fn adapter_gradients(device: &Device, case: &str, record: &mut Record) -> Result<()> {
    let adapter = adapter(ALL_LINEAR)?;
    let plan = adapter.plan(0);
    let (exact, half) = (crate::parity::policy(&plan, device)?, policy(&plan, device)?);
    for policy in [&exact, &half] {
        adapter.assign(policy.trained().iter().map(|t| (t.name.as_str(), &t.var))).map_err(Error::wrap)?;
    }
    compare(&exact, &half, case, record)
}

fn compare(exact: &Policy, half: &Policy, case: &str, record: &mut Record) -> Result<()> {
    let (batch, targets, draw) = inputs(case, exact.device())?;
    let options = StepOptions { parity: LossParity::Lerobot, recompute: true, dropout_key: None, loss_scale: 1.0 };
    let wanted = exact.gradients(&batch, &targets, &draw, &options)?;
    let found = half.gradients(&batch, &targets, &draw, &options)?;
    record.hold("loss", case, (found.loss - wanted.loss).abs(), HALF_LOSS);
    assert!(found.gradients.keys().eq(wanted.gradients.keys()), "other parameters have a gradient in bf16");
    let squares = |gradient: &Tensor| -> Result<f64> { Ok(values(gradient)?.iter().map(|v| v * v).sum()) };
    let all = wanted.gradients.values().map(squares).sum::<Result<f64>>()?.sqrt();
    for (name, wanted) in &wanted.gradients {
        let found = &found.gradients[name];
        assert_eq!(found.dtype(), DType::F32, "{name}");
        let (f, w) = (values(found)?, values(wanted)?);
        let dot: f64 = f.iter().zip(&w).map(|(f, w)| f * w).sum();
        let (length, exact) = (squares(found)?.sqrt(), squares(wanted)?.sqrt());
        if exact < HALF_GRADIENT_SMALL * all {
            let off = f.iter().zip(&w).map(|(f, w)| (f - w) * (f - w)).sum::<f64>().sqrt();
            record.hold("small gradients", name, off / all, HALF_GRADIENT_SMALL);
        } else {
            record.hold("1 − cosine", name, 1.0 - dot / (length * exact), HALF_GRADIENT_ANGLE);
            record.hold("length", name, (length / exact - 1.0).abs(), HALF_GRADIENT_LENGTH);
        }
    }
    Ok(())
}

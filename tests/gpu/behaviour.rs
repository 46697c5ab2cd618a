//! What a device must do beside computing rightly: repeat itself, and survive its memory's end.

use candle_core::{DType, Device, Result, Tensor};
use vlash_forge::adapter::plan::{Everything, LoraSpec, TrainPlan};
use vlash_forge::config::train::LossParity;
use vlash_forge::device::{is_out_of_memory, memory};
use vlash_forge::ops::linear::linear;
use vlash_forge::policy::{Policy, StepOptions};

use crate::half::{self, inputs};
use crate::parity::record::Record;
use crate::parity::{difference, policy};

/// Adapters with dropout on every attention and MLP linear, on a frozen base.
struct Adapters;

impl TrainPlan for Adapters {
    fn lora(&self, module: &str) -> Option<LoraSpec> {
        module.ends_with("_proj").then_some(LoraSpec { rank: 4, scale: 2.0, dropout: 0.2 })
    }
    fn trains(&self, _parameter: &str) -> bool {
        false
    }
    fn seed(&self) -> u64 {
        3
    }
}

/// Loss and gradients of the same step, and a sampled chunk, twice: the same bits. With and without recomputation.
pub fn repeats_itself(device: &Device, dtype: DType, record: &mut Record) -> Result<()> {
    let build =
        |plan: &dyn TrainPlan| if dtype == DType::F32 { policy(plan, device) } else { half::policy(plan, device) };
    for (kind, policy) in [("full", build(&Everything)?), ("adapters", build(&Adapters)?)] {
        let (batch, targets, draw) = inputs("case-a", device)?;
        let options =
            StepOptions { parity: LossParity::Lerobot, recompute: true, dropout_key: Some(5), loss_scale: 1.0 };
        let first = policy.gradients(&batch, &targets, &draw, &options)?;
        for (what, recompute) in [("again", true), ("kept", false)] {
            let again = policy.gradients(&batch, &targets, &draw, &StepOptions { recompute, ..options })?;
            record.hold("loss", format_args!("{kind}, {what}"), (again.loss - first.loss).abs(), 0.0);
            assert!(again.gradients.keys().eq(first.gradients.keys()));
            for (name, gradient) in &first.gradients {
                let off = difference(&again.gradients[name], gradient)?;
                record.hold("gradients", format_args!("{kind}, {what}: {name}"), off, 0.0);
            }
        }
        let chunk = policy.sample(&batch, &draw.noise, 5)?;
        record.hold("actions", kind, difference(&policy.sample(&batch, &draw.noise, 5)?, &chunk)?, 0.0);
    }
    Ok(())
}

/// Bytes taken at a time until nothing is left.
const PIECES: [usize; 4] = [4 << 30, 256 << 20, 16 << 20, 1 << 20];

/// Takes all memory that there is.
fn exhaust(device: &Device, total: u64) -> Result<Vec<Tensor>> {
    let mut held = Vec::new();
    for bytes in PIECES {
        loop {
            match Tensor::zeros(bytes, DType::U8, device) {
                Ok(tensor) => held.push(tensor),
                Err(error) if is_out_of_memory(&error) => break,
                Err(error) => return Err(error),
            }
            let taken: usize = held.iter().map(Tensor::elem_count).sum();
            assert!(taken as u64 <= total, "{taken} bytes of {total} were given");
        }
    }
    Ok(held)
}

/// Out of memory is told from other failures, in an allocation and inside an operation, and computing goes on after.
pub fn survives_its_memorys_end(device: &Device, record: &mut Record) -> Result<()> {
    let Some(memory) = memory::read(device) else { candle_core::bail!("the memory of the device cannot be read") };
    record.number("memory of the device", memory.total as f64 / 1e9, "GB");
    let policy: Policy = policy(&Everything, device)?;
    let (batch, targets, draw) = inputs("case-b", device)?;
    let options = StepOptions { parity: LossParity::Lerobot, recompute: true, dropout_key: None, loss_scale: 1.0 };
    let before = policy.gradients(&batch, &targets, &draw, &options)?;

    let beyond = Tensor::zeros(2 * memory.total as usize, DType::U8, device).map(|_| ());
    assert!(beyond.is_err_and(|error| is_out_of_memory(&error)), "twice the memory was to be refused");
    // 256 MiB each, and as much for their product.
    let side = 8192;
    let (x, weight) =
        (Tensor::ones((side, side), DType::F32, device)?, Tensor::ones((side, side), DType::F32, device)?);
    let held = exhaust(device, memory.total)?;
    record.number(
        "taken until nothing was left",
        held.iter().map(Tensor::elem_count).sum::<usize>() as f64 / 1e9,
        "GB",
    );
    match linear(&x, &weight, None) {
        Ok(_) => panic!("a product of 256 MiB was to find no room"),
        Err(error) => assert!(is_out_of_memory(&error), "not recognised: {error:?}"),
    }
    drop(held);
    let other = candle_core::Error::Msg("shapes differ".into());
    assert!(!is_out_of_memory(&other));

    let after = policy.gradients(&batch, &targets, &draw, &options)?;
    record.hold("loss", "after the failure", (after.loss - before.loss).abs(), 0.0);
    for (name, gradient) in &before.gradients {
        record.hold("gradients", name, difference(&after.gradients[name], gradient)?, 0.0);
    }
    Ok(())
}

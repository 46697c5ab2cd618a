//! The network with PEFT's adapters active against the reference implementation, and merged against both.

use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Device, Error, Result, Tensor};
use vlash_forge::adapter::base::BaseIdentity;
use vlash_forge::adapter::merge::{BasePolicy, Merge};
use vlash_forge::adapter::peft::Adapter;
use vlash_forge::adapter::plan::Frozen;
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::Policy;
use vlash_forge::policy::batch::Draw;
use vlash_forge::policy::verify::Reference;

use super::network::agree;
use super::record::Record;
use super::{arch, batch, difference, fixture, load, policy, weights};

pub const ALL_LINEAR: &str = "adapter-all-linear";
pub const LEROBOT_DEFAULT: &str = "adapter-lerobot-default";

pub fn adapter(name: &str) -> Result<Adapter> {
    Adapter::read(&fixture(&format!("lora/{name}"))).map_err(Error::wrap)
}

/// The reference's policy with `adapter` active and trained.
pub fn adapted(adapter: &Adapter, device: &Device) -> Result<Policy> {
    let policy = policy(&adapter.plan(0), device)?;
    adapter.assign(policy.trained().iter().map(|t| (t.name.as_str(), &t.var))).map_err(Error::wrap)?;
    Ok(policy)
}

/// The reference and the adapter's gradients under the names of a whole case of the fixtures.
fn reference(name: &str) -> Result<BTreeMap<String, Tensor>> {
    let plain = |key: String| match key.as_str() {
        "infer.actions_padded" => "actions_padded.num_steps_10".to_owned(),
        key => key.trim_start_matches("input.").trim_start_matches("train.").to_owned(),
    };
    let mut all: BTreeMap<String, Tensor> =
        load(&format!("lora/{name}/reference.safetensors"))?.into_iter().map(|(k, t)| (plain(k), t)).collect();
    let gradients = load(&format!("lora/{name}/gradients.safetensors"))?;
    all.extend(gradients.into_iter().map(|(key, t)| (key.replacen("base_model.model.", "", 1), t)));
    Ok(all)
}

/// Hidden states, velocities, losses, the sampled chunk and the gradient of every factor.
pub fn every_tensor(device: &Device, name: &str, record: &mut Record) -> Result<()> {
    let gradients = if name == ALL_LINEAR { 88 } else { 16 };
    let mut tensors = reference(name)?;
    tensors.remove("base_loss_without_adapter");
    assert_eq!(tensors.keys().filter(|key| key.starts_with("model.")).count(), gradients);
    let policy = adapted(&adapter(name)?, device)?;
    let compared = agree(&policy, &[Reference { file: name.into(), tensors }], record)?;
    assert_eq!(compared, gradients + 13);
    Ok(())
}

pub fn without_the_adapter_it_is_the_base(device: &Device, name: &str, record: &mut Record) -> Result<()> {
    let inputs = load(&format!("lora/{name}/reference.safetensors"))?;
    let (batch, targets) = batch(&inputs, "input.")?;
    let draw = Draw { noise: inputs["input.noise"].clone(), time: inputs["input.time"].clone() };
    let (batch, targets, draw) = (batch.to_device(device)?, targets.to_device(device)?, draw.to_device(device)?);
    let expected = f64::from(inputs["base_loss_without_adapter"].to_scalar::<f32>()?);
    let loss = |policy: &Policy| policy.losses(&batch, &targets, &draw, LossParity::Lerobot).map(|l| l.loss);
    record.hold("loss", "base", (loss(&policy(&Frozen, device)?)? - expected).abs(), 5e-6);
    let moved = (loss(&adapted(&adapter(name)?, device)?)? - expected).abs();
    assert!(moved > 1e-3, "the adapter was to change the loss");
    Ok(())
}

/// The reference's own merge moves the velocities by 4e-6.
pub fn merged_it_acts_alike(device: &Device, record: &mut Record) -> Result<()> {
    let adapter = adapter(ALL_LINEAR)?;
    let base = BaseIdentity { name: "pi05-tiny".into(), revision: None, sha256: String::new() };
    let mut merge = Merge::onto(&adapter, &base, BasePolicy::Same).map_err(Error::wrap)?;
    let mut merged = HashMap::new();
    for (name, weight) in weights()? {
        let weight = merge.tensor(&name, &weight).map_err(Error::wrap)?;
        merged.insert(name, weight);
    }
    merge.finish().map_err(Error::wrap)?;
    let merged = Policy::build(&arch(), &merged, &Frozen, device, DType::F32)?;
    let inputs = load(&format!("lora/{ALL_LINEAR}/reference.safetensors"))?;
    let batch = batch(&inputs, "input.")?.0.to_device(device)?;
    let noise = inputs["input.noise"].to_device(device)?;
    let actions = merged.sample(&batch, &noise, 10)?;
    record.hold("actions", "merged", difference(&actions, &inputs["infer.actions_padded"])?, 5e-5);
    let active = adapted(&adapter, device)?.sample(&batch, &noise, 10)?;
    record.hold("actions", "merged against active", difference(&actions, &active)?, 5e-5);
    Ok(())
}

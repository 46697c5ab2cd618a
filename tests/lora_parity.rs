//! The network with PEFT's adapters active against the reference implementation, and merged against both.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod parity;

use std::collections::{BTreeMap, HashMap};

use candle_core::{DType, Device, Result, Tensor};
use parity::{CAMERAS, arch, batch, difference, fixture, load, pixels, policy, weights};
use rstest::rstest;
use vlash_forge::adapter::base::BaseIdentity;
use vlash_forge::adapter::merge::{BasePolicy, Merge};
use vlash_forge::adapter::peft::Adapter;
use vlash_forge::adapter::plan::Frozen;
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::Policy;
use vlash_forge::policy::batch::Draw;
use vlash_forge::policy::verify::{Reference, Verdict, verify};

fn adapter(name: &str) -> Adapter {
    Adapter::read(&fixture(&format!("lora/{name}"))).unwrap()
}

fn adapted(adapter: &Adapter) -> Result<Policy> {
    let policy = policy(&adapter.plan(0))?;
    adapter.assign(policy.trained().iter().map(|t| (t.name.as_str(), &t.var))).unwrap();
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
#[rstest]
#[case("adapter-all-linear", 88)]
#[case("adapter-lerobot-default", 16)]
fn the_network_with_an_adapter_agrees_in_every_tensor(#[case] name: &str, #[case] gradients: usize) -> Result<()> {
    let policy = adapted(&adapter(name))?;
    let mut reference = reference(name)?;
    reference.remove("base_loss_without_adapter");
    assert_eq!(reference.keys().filter(|key| key.starts_with("model.")).count(), gradients);
    let report = verify(
        &policy,
        &[Reference { file: name.into(), tensors: reference }],
        &CAMERAS.map(str::to_owned),
        |_, raw| pixels(raw),
    )?;
    let bad: Vec<_> = report.rows.iter().filter(|row| row.verdict != Verdict::Pass).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(report.compared, gradients + 13);
    Ok(())
}

#[rstest]
#[case("adapter-all-linear")]
#[case("adapter-lerobot-default")]
fn without_the_adapter_it_is_the_base(#[case] name: &str) -> Result<()> {
    let inputs = load(&format!("lora/{name}/reference.safetensors"))?;
    let (batch, targets) = batch(&inputs, "input.")?;
    let draw = Draw { noise: inputs["input.noise"].clone(), time: inputs["input.time"].clone() };
    let expected = f64::from(inputs["base_loss_without_adapter"].to_scalar::<f32>()?);
    let loss = |policy: &Policy| policy.losses(&batch, &targets, &draw, LossParity::Lerobot).map(|l| l.loss);
    assert!((loss(&policy(&Frozen)?)? - expected).abs() <= 5e-6);
    assert!((loss(&adapted(&adapter(name))?)? - expected).abs() > 1e-3, "the adapter was to change the loss");
    Ok(())
}

/// The reference's own merge moves the velocities by 4e-6.
#[test]
fn a_merged_network_acts_as_the_one_with_the_adapter() -> Result<()> {
    let name = "adapter-all-linear";
    let adapter = adapter(name);
    let base = BaseIdentity { name: "pi05-tiny".into(), revision: None, sha256: String::new() };
    let mut merge = Merge::onto(&adapter, &base, BasePolicy::Same).unwrap();
    let merged: HashMap<String, Tensor> =
        weights()?.into_iter().map(|(name, weight)| (name.clone(), merge.tensor(&name, &weight).unwrap())).collect();
    merge.finish().unwrap();
    let merged = Policy::build(&arch(), &merged, &Frozen, &Device::Cpu, DType::F32)?;
    let inputs = load(&format!("lora/{name}/reference.safetensors"))?;
    let (batch, _) = batch(&inputs, "input.")?;
    let noise = &inputs["input.noise"];
    let actions = merged.sample(&batch, noise, 10)?;
    assert!(difference(&actions, &inputs["infer.actions_padded"])? <= 5e-5);
    assert!(difference(&actions, &adapted(&adapter)?.sample(&batch, noise, 10)?)? <= 5e-5);
    Ok(())
}

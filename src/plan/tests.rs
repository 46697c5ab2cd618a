//! The planner against the network itself, the published counts, and its own printed form.

use candle_core::{DType, Device, Result, Tensor};
use rstest::rstest;

use super::cards::{CARDS, detected, named};
use super::fit::Fit;
use super::memory::estimate;
use super::network::Sizes;
use super::report::On;
use super::walk::walk;
use super::{Report, Subject};
use crate::adapter::plan::{Everything, TrainPlan};
use crate::adapter::select::{Plan, plan_for};
use crate::config::train::{AdapterConfig, Freeze, Preset, TrainConfig};
use crate::config::{self, Source};
use crate::error::Explain;
use crate::plan::subject::Target;
use crate::policy::arch::Arch;
use crate::policy::batch::{Batch, Draw, Targets};
use crate::policy::parameters::{linears, parameters};
use crate::policy::{Policy, RandomInit, flow};

/// A configuration of the repository with settings on top; the network's preset full or tiny.
fn config(file: &str, preset: Preset, settings: &[&str]) -> TrainConfig {
    let settings: Vec<String> = ["runtime.device=auto"].iter().chain(settings).map(ToString::to_string).collect();
    let environment = |name: &str| Some(format!("/nowhere/{name}"));
    config::load_with(&Source::File(file.into()), Some(preset), &settings, &environment).unwrap().value
}

fn lora(settings: &[&str]) -> TrainConfig {
    config("configs/train/pi05_lora.toml", Preset::Full, settings)
}

fn cloud(settings: &[&str]) -> TrainConfig {
    config("tests/fixtures/config/pi05/cloud.yaml", Preset::Full, settings)
}

fn subject(config: &TrainConfig, cameras: usize) -> Subject {
    Subject::new(config, Some((0..cameras).map(|n| format!("observation.images.{n}")).collect())).unwrap()
}

fn plan(adapter: &AdapterConfig, freeze: &[Freeze], arch: &Arch) -> Plan {
    let names: Vec<String> = parameters(arch).into_iter().map(|p| p.name).collect();
    plan_for(adapter, freeze, 0, &linears(arch), &names).unwrap()
}

/// What the network keeps for one batch of noise.
fn kept(arch: &Arch, plan: &dyn TrainPlan, [batch, cameras, prompt]: [usize; 3], recompute: bool) -> Result<usize> {
    let device = Device::Cpu;
    let policy = Policy::build(arch, &RandomInit { seed: 1 }, plan, &device, DType::F32)?;
    let image = Tensor::zeros((batch, 3, arch.vision.image, arch.vision.image), DType::F32, &device)?;
    let inputs = Batch {
        images: vec![image; cameras],
        image_masks: vec![vec![true; batch]; cameras],
        tokens: Tensor::ones((batch, prompt), DType::U32, &device)?,
        token_lengths: vec![prompt; batch],
        state: Tensor::zeros((batch, arch.max_state_dim), DType::F32, &device)?,
    };
    let chunk = [batch, arch.chunk_size, arch.max_action_dim];
    let targets = Targets {
        actions: Tensor::zeros(&chunk[..], DType::F32, &device)?,
        is_pad: Tensor::zeros((batch, arch.chunk_size), DType::F32, &device)?,
        action_dim: 7,
    };
    let draw: Draw = flow::draw(1, [0, 0], chunk, &flow::TimeSampling::default(), &device)?;
    policy.kept_bytes(&inputs, &targets, &draw, recompute)
}

/// The description of every segment is the network's: whatever trains, however large the batch, both keep the same
/// bytes, to the byte.
#[rstest]
#[case::everything("full", &[])]
#[case::everything_but_the_tower("full", &[Freeze::Vision])]
#[case::the_expert("full", &[Freeze::Vlm])]
#[case::adapters("lora", &[])]
#[case::adapters_in_the_expert("lora", &[Freeze::Vlm])]
#[case::adapters_and_more("cloud", &[])]
fn the_planner_keeps_what_the_network_keeps(
    #[case] kind: &str,
    #[case] freeze: &[Freeze],
    #[values([1, 1, 8], [3, 2, 5], [2, 3, 12], [1, 0, 4])] shape: [usize; 3],
    #[values(true, false)] recompute: bool,
) -> Result<()> {
    let config = match kind {
        "full" => config("configs/train/pi05_full.toml", Preset::Tiny, &[]),
        "lora" => config("configs/train/pi05_lora.toml", Preset::Tiny, &["adapter.also_train=[]"]),
        _ => config("tests/fixtures/config/pi05/cloud.yaml", Preset::Tiny, &[]),
    };
    let arch = Arch { state_cond: config.model.state_cond, ..Arch::tiny(32) };
    let plan = match kind {
        // Entries of the list that freezing leaves nothing of are refused: the expert's alone then.
        "cloud" | "lora" | "full" => plan(&config.adapter, freeze, &arch),
        other => panic!("no configuration {other}"),
    };
    let [batch, cameras, prompt] = shape;
    let sizes = Sizes { arch: &arch, plan: &plan, batch, cameras, prompt, branches: 1, each: 4, gpu: false };
    assert_eq!(walk(sizes, recompute).tape_bytes, kept(&arch, &plan, shape, recompute)? as u64);
    Ok(())
}

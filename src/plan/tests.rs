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
use crate::adapter::plan::TrainPlan;
use crate::adapter::select::{Plan, plan_for};
use crate::config::train::{AdapterConfig, Freeze, Preset, TrainConfig};
use crate::config::{self, Source};
use crate::error::Explain;
use crate::plan::subject::Target;
use crate::policy::arch::Arch;
use crate::policy::batch::{Batch, Branches, Draw, Targets};
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
fn kept(
    arch: &Arch,
    plan: &dyn TrainPlan,
    [batch, cameras, prompt, branches]: [usize; 4],
    recompute: bool,
    given: usize,
) -> Result<usize> {
    let rows = batch * branches;
    let device = Device::Cpu;
    let policy = Policy::build(arch, &RandomInit { seed: 1 }, plan, &device, DType::F32)?;
    let image = Tensor::zeros((batch, 3, arch.vision.image, arch.vision.image), DType::F32, &device)?;
    let inputs = Batch {
        images: vec![image; cameras],
        image_masks: vec![vec![true; batch]; cameras],
        tokens: Tensor::ones((batch, prompt), DType::U32, &device)?,
        token_lengths: vec![prompt; batch],
        state: Tensor::zeros((rows, arch.max_state_dim), DType::F32, &device)?,
    };
    let chunk = [rows, arch.chunk_size, arch.max_action_dim];
    let targets = Targets {
        actions: Tensor::zeros(&chunk[..], DType::F32, &device)?,
        is_pad: Tensor::zeros((rows, arch.chunk_size), DType::F32, &device)?,
        action_dim: 7,
        branches: Branches::new(branches, &vec![true; rows])?,
    };
    let draw: Draw = flow::draw(1, [0, 0], chunk, &flow::TimeSampling::default(), &device)?;
    let draw = flow::give_prefix(draw, 1, [0, 0], given)?;
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
    #[values([1, 1, 8, 1], [3, 2, 5, 1], [2, 3, 12, 4], [1, 0, 4, 2])] shape: [usize; 4],
    #[values(true, false)] recompute: bool,
    #[values(0, 3)] given: usize,
) -> Result<()> {
    let config = match kind {
        "full" => config("configs/train/pi05_full.toml", Preset::Tiny, &[]),
        "lora" => config("configs/train/pi05_lora.toml", Preset::Tiny, &["adapter.also_train=[]"]),
        _ => config("tests/fixtures/config/pi05/cloud.yaml", Preset::Tiny, &[]),
    };
    let arch = Arch { state_cond: config.model.state_cond, ..Arch::tiny(32) };
    let plan = plan(&config.adapter, freeze, &arch);
    let [batch, cameras, prompt, branches] = shape;
    let time_per_step = given > 0;
    let sizes =
        Sizes { arch: &arch, plan: &plan, batch, cameras, prompt, branches, time_per_step, each: 4, gpu: false };
    assert_eq!(walk(sizes, recompute).tape_bytes, kept(&arch, &plan, shape, recompute, given)? as u64);
    Ok(())
}

/// `model.md` in numbers: published sizes, and what adapters and the predecessors' list of modules add.
#[rstest]
#[case::adapters_without_the_tower(lora(&["adapter.also_train=[]", "model.freeze=[\"vision\"]"]), 26_542_080)]
#[case::adapters_and_the_list(cloud(&[]), 153_940_128)]
#[case::everything(config("configs/train/pi05_full.toml", Preset::Full, &[]), 3_353_433_872)]
fn exactly_the_published_parameters_train(#[case] config: TrainConfig, #[case] trained: u64) {
    let estimate = estimate(&subject(&config, 3), Target::Gpu).unwrap();
    assert_eq!(estimate.trained, trained);
    assert_eq!(estimate.memory.masters, 4 * trained);
    assert_eq!(estimate.memory.moments, 8 * trained);
    // Frozen or with a master: every parameter is there once. State conditioning adds its branch, adapters theirs.
    let network = 3_353_433_872 + if config.model.state_cond { 2_132_992 } else { 0 };
    let factors: u64 = if config.adapter.enabled {
        let plan = subject(&config, 3).plan().unwrap();
        super::weights::count(&Arch::from_model(&config.model).unwrap(), &plan, 2).factors
    } else {
        0
    };
    assert_eq!(estimate.parameters, network + factors);
}

/// With recomputation the memory that a step needs grows with the batch by little, without it by much; each rung of
/// the ladder gives something back, and what the ladder says after a rung is what the planner says of that run.
#[test]
fn every_rung_gives_memory_back_and_is_planned_as_it_is_typed() {
    let settings = ["train.batch_size=8", "train.grad_accum=1", "train.activation_checkpointing=false"];
    let big = subject(&cloud(&settings), 3);
    let report = Report::of(&big, On::GPU).unwrap();
    let numbers: Vec<u64> = report.ladder.rungs.iter().filter_map(|rung| rung.bytes).collect();
    assert_eq!(numbers.len(), 4, "batch, recomputation, cameras, adapters: {:#?}", report.ladder);
    assert!(numbers.iter().zip(&numbers[1..]).all(|(more, less)| less < more), "{numbers:?}");
    assert!(report.total_bytes > numbers[0]);
    // The second rung, typed.
    let typed = report.ladder.settings(2);
    let typed: Vec<&str> = settings.into_iter().chain(typed.split(' ')).collect();
    let below = estimate(&subject(&cloud(&typed), 3), Target::Gpu).unwrap();
    assert_eq!(below.memory.total(), numbers[1]);
}

/// Full fine-tuning with one micro-step: two of half the size hold the gradients twice, which is more.
#[test]
fn a_rung_that_gives_nothing_back_is_none() {
    let settings = ["train.batch_size=2", "train.grad_accum=1", "model.state_cond=true", "train.delay.shared=true"];
    let full = config("configs/train/pi05_full.toml", Preset::Full, &[&settings[..], &["train.delay.max=1"]].concat());
    let report = Report::of(&subject(&full, 3), On::GPU).unwrap();
    let mut before = report.total_bytes;
    for rung in report.ladder.rungs.iter().filter(|rung| rung.bytes.is_some()) {
        assert!(rung.bytes.unwrap() < before, "{rung:?}");
        before = rung.bytes.unwrap();
    }
    assert!(!report.ladder.settings(9).contains("train.batch_size=1"), "{:#?}", report.ladder);
}

/// Nobody can type the name of a camera that was made up.
#[test]
fn assumed_cameras_are_not_offered() {
    let report = Report::of(&Subject::new(&lora(&[]), None).unwrap(), On::GPU).unwrap();
    assert!(!report.ladder.settings(9).contains("data.cameras"), "{:#?}", report.ladder);
}

/// What a configuration may say one by one and nobody can compute together.
#[test]
fn a_step_of_absurd_size_is_refused() {
    let settings = ["train.batch_size=1048576", "model.tokenizer_max_length=8192", "train.delay.max=1024"];
    let shared = ["train.grad_accum=1", "model.state_cond=true", "train.delay.shared=true", "adapter.rank=4096"];
    let subject = subject(&lora(&[&settings[..], &shared].concat()), 16);
    let error = Report::of(&subject, On::GPU).unwrap_err();
    assert!(error.to_string().contains("1048576 samples × 1025 suffixes"), "{error}");
    assert!(error.hint().unwrap().starts_with("train.batch_size=1"));
}

/// What is promised to a person: the text and the JSON of runs of every kind.
#[rstest]
#[case::lora("lora", lora(&[]), 3, None)]
#[case::cloud("cloud", cloud(&[]), 3, Some("H200"))]
#[case::full("full", config("configs/train/pi05_full.toml", Preset::Full, &[]), 3, Some("A100 80GB"))]
#[case::tiny("tiny", config("configs/train/tiny.toml", Preset::Tiny, &[]), 1, Some("RTX 3090"))]
#[case::t4("t4", lora(&["train.batch_size=1"]), 2, Some("T4"))]
fn the_plan_reads_well(
    #[case] name: &str,
    #[case] config: TrainConfig,
    #[case] cameras: usize,
    #[case] card: Option<&str>,
) {
    let on = card.map_or(On::GPU, |card| On::card(named(card).unwrap()));
    let report = Report::of(&subject(&config, cameras), on).unwrap();
    let lines: u64 = report.memory.lines().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(lines, report.total_bytes);
    insta::assert_snapshot!(format!("{name}_text"), report.text());
    insta::assert_snapshot!(format!("{name}_json"), serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn a_base_that_is_not_here_and_a_dataset_that_is_not_here_are_notes() {
    let subject = Subject::new(&lora(&[]), None).unwrap();
    assert_eq!(subject.cameras.len(), 3);
    assert!(subject.notes.iter().any(|note| note.contains("model.base")), "{:?}", subject.notes);
    assert!(subject.notes.iter().any(|note| note.contains("3 cameras are assumed")), "{:?}", subject.notes);
}

/// The sizes of a base come from its `config.json` alone: no weights lie beside it.
#[test]
fn a_base_is_planned_from_its_configuration() {
    let place = tempfile::tempdir().unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi05-tiny/config_with_tiny_dims.json");
    std::fs::copy(fixture, place.path().join("config.json")).unwrap();
    let base = format!("model.base={}", place.path().display());
    let subject = Subject::new(&lora(&[&base]), None).unwrap();
    assert_eq!(subject.arch.vlm.width, 64);
    assert!(subject.notes.is_empty(), "{:?}", subject.notes);
}

/// As training, which could not read its weights.
#[test]
fn a_base_that_is_here_and_no_checkpoint_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let base = format!("model.base={}", place.path().display());
    let error = Subject::new(&lora(&[&base]), None).unwrap_err();
    assert!(error.to_string().contains("it has no config.json"), "{error}");
}

#[test]
fn cards_are_found_by_what_people_and_drivers_call_them() {
    for (asked, name) in [("h200", "H200"), ("rtx4090", "RTX 4090"), ("4090", "RTX 4090"), ("A100-80GB", "A100 80GB")] {
        assert_eq!(named(asked).unwrap().name, name);
    }
    let error = named("H20O").unwrap_err();
    assert!(error.to_string().contains("did you mean \"H200\"?"), "{error}");
    assert!(error.hint().unwrap().contains("GH200"));
    // An A100 of which size? It is not for us to guess.
    let error = named("A100").unwrap_err();
    assert!(error.to_string().ends_with("did you mean \"A100 40GB\" or \"A100 80GB\"?"), "{error}");
    for (driver, name) in [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA L40S", "L40S"),
    ] {
        assert_eq!(named(driver).unwrap().name, name);
    }
    for unknown in ["", "-", "NVIDIA RTX A4000", "NVIDIA H100 80GB HBM3"] {
        assert!(named(unknown).is_err(), "{unknown:?}");
    }
    let gib = 1u64 << 30;
    for (driver, bytes, name) in [
        ("NVIDIA H200", 140 * gib, "H200"),
        ("NVIDIA A100-SXM4-40GB", 39 * gib, "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", 79 * gib, "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", 79 * gib, "H100 SXM"),
        ("NVIDIA H100 PCIe", 79 * gib, "H100 PCIe"),
        ("NVIDIA L40S", 44 * gib, "L40S"),
        ("NVIDIA L4", 22 * gib, "L4"),
        ("NVIDIA GeForce RTX 4090", 24 * gib, "RTX 4090"),
        ("NVIDIA GH200 480GB", 95 * gib, "GH200"),
        ("Tesla T4", 15 * gib, "T4"),
        ("Tesla V100-SXM2-32GB", 32 * gib, "V100 32GB"),
        ("Orin", 30 * gib, "AGX Orin 32GB"),
        ("Orin", 61 * gib, "AGX Orin 64GB"),
    ] {
        assert_eq!(detected(driver, bytes).map(|card| card.name), Some(name), "{driver}");
    }
    // Others, whose names hold one of the table or that share it: a laptop's, an Orin NX.
    for (driver, size) in [
        ("NVIDIA GeForce GTX 1080", 8),
        ("NVIDIA L40", 45),
        ("NVIDIA RTX A4000", 16),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("Orin", 15),
    ] {
        assert_eq!(detected(driver, size * gib), None, "{driver}");
    }
}

/// Whatever fits a card fits a larger one; what lacks bf16 fits nothing.
#[test]
fn verdicts_follow_memory() {
    let report = Report::of(&subject(&lora(&[]), 3), On::GPU).unwrap();
    assert_eq!(report.cards.len(), CARDS.len());
    for verdict in &report.cards {
        let too_large = report.total_bytes > verdict.memory_bytes || verdict.refused.is_some();
        assert_eq!(verdict.fit == Fit::TooLarge, too_large, "{verdict:?}");
    }
    let refused: Vec<&str> = report.cards.iter().filter(|v| v.refused.is_some()).map(|v| v.card).collect();
    assert_eq!(refused, ["T4", "V100 16GB", "V100 32GB"]);
}

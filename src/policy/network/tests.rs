//! The whole network against itself; against the reference implementation: `tests/parity`.

use candle_core::{DType, Device, Result, Tensor};
use rstest::rstest;

use super::fixture::{CAMERAS, case, difference, inputs, pixels, policy, tiny, weights};
use super::init::RandomInit;
use crate::adapter::plan::FirstGradient;
use crate::adapter::plan::{Everything, Frozen, LoraSpec, TrainPlan};
use crate::config::train::LossParity;
use crate::policy::batch::{Batch, Branches, Draw, Targets};
use crate::policy::verify::{Verdict, verify};
use crate::policy::{Policy, StepOptions};

const OPTIONS: StepOptions =
    StepOptions { parity: LossParity::Lerobot, recompute: false, dropout_key: None, loss_scale: 1.0 };

#[test]
fn a_reference_tensor_without_a_counterpart_and_a_changed_one_are_failures() -> Result<()> {
    let mut reference = case("case-b", &["inputs", "train_forward"])?;
    let pixels = pixels(&reference.clone());
    let tensors = &mut reference[1].tensors;
    tensors.insert("layer.7.prefix_hidden".into(), tensors["layer.0.prefix_hidden"].clone());
    tensors.insert("v_t".into(), (&tensors["v_t"] + 1e-3)?);
    tensors.insert("position_ids".into(), (&tensors["position_ids"] + 1.0)?);
    tensors.insert("loss".into(), Tensor::new(f32::NAN, &Device::Cpu)?);
    let cameras = CAMERAS.map(str::to_owned);
    let report = verify(&policy(&Frozen)?, &reference, &cameras, pixels)?;
    let bad: Vec<_> = report.rows.iter().filter(|r| r.verdict != Verdict::Pass).map(|r| r.name.as_str()).collect();
    assert_eq!(bad, ["layer.7.prefix_hidden", "loss", "position_ids", "v_t"]);
    assert_eq!((report.failed, report.passed()), (4, false));
    Ok(())
}

#[rstest]
#[case("case-a")]
#[case("case-b")]
fn recomputation_changes_no_bit_of_the_gradients(#[case] name: &str) -> Result<()> {
    let (batch, targets, draw) = inputs(name)?;
    let policy = policy(&Everything)?;
    let kept = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    let again = policy.gradients(&batch, &targets, &draw, &StepOptions { recompute: true, ..OPTIONS })?;
    assert_eq!(kept.gradients.len(), again.gradients.len());
    for (name, gradient) in &kept.gradients {
        assert_eq!(difference(gradient, &again.gradients[name])?, 0.0, "{name}");
    }
    assert_eq!(kept.loss, again.loss);
    Ok(())
}

#[test]
fn masked_cameras_and_padded_tokens_change_nothing() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&Everything)?;
    let mut padded = batch.clone();
    padded.images.insert(1, batch.images[0].ones_like()?);
    padded.image_masks.insert(1, vec![false; 2]);
    padded.tokens = batch.tokens.pad_with_zeros(1, 0, 9)?;
    let (plain, with) =
        (policy.gradients(&batch, &targets, &draw, &OPTIONS)?, policy.gradients(&padded, &targets, &draw, &OPTIONS)?);
    assert_eq!(plain.loss, with.loss, "trimming leaves the same computation");
    // A camera that one sample has and the other lacks stays in, masked for one: the same as that sample alone.
    padded.image_masks[1] = vec![true, false];
    let losses = policy.losses(&padded, &targets, &draw, LossParity::Valid)?;
    let alone = policy.losses(&batch, &targets, &draw, LossParity::Valid)?;
    assert!((losses.per_sample[1] - alone.per_sample[1]).abs() < 1e-5);
    assert!((losses.per_sample[0] - alone.per_sample[0]).abs() > 1e-3);
    Ok(())
}

#[test]
fn padded_steps_and_dimensions_get_no_gradient() -> Result<()> {
    let (batch, mut targets, draw) = inputs("case-a")?;
    let policy = policy(&Everything)?;
    targets.is_pad = Tensor::ones((2, 10), DType::F32, &Device::Cpu)?;
    let options = StepOptions { parity: LossParity::Valid, ..OPTIONS };
    let step = policy.gradients(&batch, &targets, &draw, &options)?;
    assert_eq!((step.loss, step.loss_valid), (0.0, 0.0));
    for (name, gradient) in &step.gradients {
        assert_eq!(difference(gradient, &gradient.zeros_like()?)?, 0.0, "{name}");
    }
    targets.is_pad = Tensor::zeros((2, 10), DType::F32, &Device::Cpu)?;
    let step = policy.gradients(&batch, &targets, &draw, &options)?;
    let out = step.gradients["action_out_proj.weight"].to_vec2::<f32>()?;
    assert!(out[6].iter().any(|&g| g != 0.0) && out[7..].iter().flatten().all(|&g| g == 0.0));
    Ok(())
}

#[test]
fn half_the_scale_is_half_the_gradient() -> Result<()> {
    let (batch, targets, draw) = inputs("case-b")?;
    let policy = policy(&Everything)?;
    let whole = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    let half = policy.gradients(&batch, &targets, &draw, &StepOptions { loss_scale: 0.5, ..OPTIONS })?;
    assert_eq!(whole.loss, half.loss);
    for (name, gradient) in &half.gradients {
        assert!(difference(&(gradient * 2.0)?, &whole.gradients[name])? < 1e-6, "{name}");
    }
    Ok(())
}

/// Adapters on linears whose module ends so; nothing else trains.
struct Adapters(&'static [&'static str], f64);

impl TrainPlan for Adapters {
    fn lora(&self, module: &str) -> Option<LoraSpec> {
        let hit = self.0.iter().any(|target| module == *target || module.ends_with(&format!(".{target}")));
        hit.then_some(LoraSpec { rank: 4, scale: 2.0, dropout: self.1 })
    }
    fn trains(&self, _parameter: &str) -> bool {
        false
    }
    fn seed(&self) -> u64 {
        3
    }
}

const EVERY_LINEAR: [&str; 18] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "out_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "fc1",
    "fc2",
    "linear",
    "dense",
    "action_in_proj",
    "action_out_proj",
    "time_mlp_in",
    "time_mlp_out",
    "state_proj",
    "state_mlp_in",
];

/// Gives every B a value, so that every A has a gradient.
fn open_adapters(policy: &Policy) -> Result<()> {
    for (index, trained) in policy.trained().iter().filter(|t| t.name.ends_with("lora_B.weight")).enumerate() {
        let values = Tensor::arange(0f32, trained.var.elem_count() as f32, &Device::Cpu)?;
        let values = ((values + index as f64)?.sin()? * 0.05)?.reshape(trained.var.shape())?;
        trained.var.set(&values)?;
    }
    Ok(())
}

#[rstest]
#[case::plain(0.0, None)]
#[case::dropout(0.3, Some(11))]
fn adapters_on_every_linear_have_the_gradients_of_finite_differences(
    #[case] dropout: f64,
    #[case] dropout_key: Option<u64>,
) -> Result<()> {
    static TARGETS: [&str; 18] = EVERY_LINEAR;
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&Adapters(&TARGETS, dropout))?;
    open_adapters(&policy)?;
    let options = StepOptions { dropout_key, recompute: true, ..OPTIONS };
    let step = policy.gradients(&batch, &targets, &draw, &options)?;
    let same = policy.gradients(&batch, &targets, &draw, &StepOptions { recompute: false, ..options })?;
    for trained in policy.trained() {
        let found = step.gradients.get(&trained.name);
        match policy.expectation(&trained.name) {
            FirstGradient::Never(_) => assert!(found.is_none(), "{} is behind the cache", trained.name),
            _ => {
                let found = found.unwrap_or_else(|| panic!("{} has no gradient", trained.name));
                assert_eq!(difference(found, &same.gradients[&trained.name])?, 0.0, "{}", trained.name);
                let last_query = trained.name.contains("language_model.layers.2.self_attn.q_proj");
                assert_eq!(difference(found, &found.zeros_like()?)? == 0.0, last_query, "{}", trained.name);
            }
        }
    }
    // Along the gradient of one tensor a part, the loss falls by its squared length.
    for part in [
        "layers.1.self_attn.q_proj.lora_A",
        "layers.1.mlp.fc2.lora_B",
        "layers.0.mlp.down_proj.lora_A",
        "time_mlp_in.lora_B",
        "linear.lora_A",
        "input_layernorm.dense.lora_A",
    ] {
        let trained = policy.trained().iter().find(|t| t.name.contains(part)).expect("the part is adapted");
        let gradient = &step.gradients[&trained.name];
        let length = f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt();
        let (start, direction) = (trained.var.copy()?, (gradient / length)?);
        let loss_at = |by: f64| -> Result<f64> {
            trained.var.set(&(&start + (&direction * by)?)?)?;
            Ok(policy.gradients(&batch, &targets, &draw, &options)?.loss)
        };
        let difference = (loss_at(2e-2)? - loss_at(-2e-2)?) / 4e-2;
        trained.var.set(&start)?;
        assert!((difference - length).abs() < 0.02 * length + 2e-5, "{part}: {length}, by differences {difference}");
    }
    Ok(())
}

#[test]
fn fresh_adapters_change_nothing_and_their_expectations_hold() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let (base, adapted) = (policy(&Frozen)?, policy(&Adapters(&["q_proj", "down_proj"], 0.1))?);
    let noise = &draw.noise;
    assert_eq!(difference(&base.sample(&batch, noise, 3)?, &adapted.sample(&batch, noise, 3)?)?, 0.0);
    let step = adapted.gradients(&batch, &targets, &draw, &OPTIONS)?;
    for trained in adapted.trained() {
        let largest = step.gradients.get(&trained.name).map(|g| difference(g, &g.zeros_like()?)).transpose()?;
        match adapted.expectation(&trained.name) {
            FirstGradient::Never(_) => assert_eq!(largest, None, "{}", trained.name),
            FirstGradient::ZeroAtFirst(_) => assert_eq!(largest, Some(0.0), "{}", trained.name),
            FirstGradient::NonZero => assert!(largest.is_some_and(|l| l > 0.0), "{}", trained.name),
        }
    }
    assert_eq!(adapted.adapter_factors().count(), adapted.trained().len());
    Ok(())
}

/// Only what the expert's heads hold trains: nothing in front of it may be recorded.
struct HeadsOnly;

impl TrainPlan for HeadsOnly {
    fn lora(&self, _: &str) -> Option<LoraSpec> {
        None
    }
    fn trains(&self, parameter: &str) -> bool {
        parameter.starts_with("action_out_proj")
    }
    fn seed(&self) -> u64 {
        0
    }
}

#[test]
fn frozen_segments_in_front_keep_nothing() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&HeadsOnly)?;
    // The head's inputs: hidden [2, 10, 32] and condition [2, 32], f32.
    assert_eq!(policy.kept_bytes(&batch, &targets, &draw, true)?, 4 * (2 * 10 * 32 + 2 * 32));
    let step = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    assert_eq!(step.gradients.keys().collect::<Vec<_>>(), ["action_out_proj.bias", "action_out_proj.weight"]);
    Ok(())
}

#[test]
fn memory_grows_with_depth_by_the_kept_inputs_only() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let kept = |depth: usize, recompute: bool| {
        let mut arch = tiny();
        (arch.vlm.depth, arch.expert.depth) = (depth, depth);
        let policy = Policy::build(&arch, &RandomInit { seed: 1 }, &Everything, &Device::Cpu, DType::F32)?;
        policy.kept_bytes(&batch, &targets, &draw, recompute)
    };
    let prefix = 2 * 16 + batch.token_lengths.iter().max().expect("two samples");
    // A layer keeps its two hidden states, and the keys and values that join it to the other.
    let inputs = 4 * 2 * (prefix * 64 + 10 * 32 + 2 * prefix * 16);
    let (three, six, twelve) = (kept(3, true)?, kept(6, true)?, kept(12, true)?);
    assert_eq!((six - three, twelve - six), (3 * inputs, 6 * inputs));
    let (three, six) = (kept(3, false)?, kept(6, false)?);
    assert!(six - three > 10 * 3 * inputs, "a recorded layer keeps {} bytes, its inputs {inputs}", (six - three) / 3);
    Ok(())
}

/// The same targets and draws as `count` branches of every observation.
fn repeated(targets: &Targets, draw: &Draw, count: usize) -> Result<(Targets, Draw)> {
    let rows: Vec<u32> = (0..targets.actions.dim(0)? as u32).flat_map(|row| std::iter::repeat_n(row, count)).collect();
    let rows = Tensor::new(&rows[..], &Device::Cpu)?;
    let valid = vec![true; rows.elem_count()];
    let targets = Targets {
        actions: targets.actions.index_select(&rows, 0)?,
        is_pad: targets.is_pad.index_select(&rows, 0)?,
        action_dim: targets.action_dim,
        branches: Branches::new(count, &valid)?,
    };
    Ok((targets, Draw { noise: draw.noise.index_select(&rows, 0)?, time: draw.time.index_select(&rows, 0)? }))
}

#[test]
fn a_branch_adds_its_suffix_to_what_is_kept_and_no_prefix() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&Everything)?;
    let kept = |count: usize| {
        let (targets, draw) = repeated(&targets, &draw, count)?;
        policy.kept_bytes(&batch, &targets, &draw, true)
    };
    // Of each suffix: x_t, hidden states (three layers and the head), time, condition, rotation and mask.
    let prefix = 2 * 16 + batch.token_lengths.iter().max().expect("two samples");
    let floats = 10 * 32 + 4 * 10 * 32 + 32 + 32 + 2 * 10 * 8;
    let branch = 2 * (4 * floats + prefix + 10);
    let (one, two, nine) = (kept(1)?, kept(2)?, kept(9)?);
    assert_eq!((two - one, nine - one), (branch, 8 * branch));
    Ok(())
}

#[test]
fn equal_branches_have_the_loss_and_gradients_of_one() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&Everything)?;
    let one = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    let (targets, draw) = repeated(&targets, &draw, 3)?;
    let three = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    assert!((one.loss - three.loss).abs() < 1e-6 && three.rows.len() == 6);
    for (name, gradient) in &one.gradients {
        assert!(difference(gradient, &three.gradients[name])? < 2e-6, "{name}");
    }
    Ok(())
}

#[test]
fn random_weights_give_every_parameter_the_gradient_that_is_expected() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = Policy::build(&tiny(), &RandomInit { seed: 4 }, &Everything, &Device::Cpu, DType::F32)?;
    let step = policy.gradients(&batch, &targets, &draw, &OPTIONS)?;
    for trained in policy.trained() {
        let largest = step.gradients.get(&trained.name).map(|g| difference(g, &g.zeros_like()?)).transpose()?;
        assert!(largest.is_none_or(f32::is_finite), "{}", trained.name);
        match policy.expectation(&trained.name) {
            FirstGradient::Never(_) => assert_eq!(largest, None, "{}", trained.name),
            FirstGradient::ZeroAtFirst(_) => assert!(largest.is_some(), "{}", trained.name),
            FirstGradient::NonZero => assert!(largest.is_some_and(|l| l > 0.0), "{}", trained.name),
        }
    }
    assert_eq!(policy.parameters().count(), policy.trained().len());
    assert_eq!(policy.parameters().count(), weights()?.len() - 1, "all of the reference but the expert's head");
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_are_errors() -> Result<()> {
    let (batch, targets, draw) = inputs("case-a")?;
    let policy = policy(&Frozen)?;
    let message = |batch: &Batch, targets: &Targets, draw: &Draw| {
        policy.losses(batch, targets, draw, LossParity::Valid).map(|_| ()).unwrap_err().to_string()
    };
    let beyond = Batch { tokens: (batch.tokens.ones_like()? * 5000.0)?, ..batch.clone() };
    assert!(message(&beyond, &targets, &draw).contains("token 5000 does not exist in a vocabulary of 1024"));
    let long = Batch { token_lengths: vec![3, 99], ..batch.clone() };
    assert!(message(&long, &targets, &draw).contains("99"));
    let masks = Batch { image_masks: vec![vec![true; 2]], ..batch.clone() };
    assert!(message(&masks, &targets, &draw).contains("masks"));
    let wide = Targets { action_dim: 33, ..targets.clone() };
    assert!(message(&batch, &wide, &draw).contains("33 real action dimensions of 32"));
    let short = Draw { noise: draw.noise.narrow(1, 0, 9)?, ..draw.clone() };
    assert!(message(&batch, &targets, &short).contains("noise"));
    assert!(policy.sample(&batch, &draw.noise, 0).is_err());
    let half = Policy::build(&tiny(), &weights()?, &Frozen, &Device::Cpu, DType::BF16).map(|_| ()).unwrap_err();
    assert!(half.to_string().contains("the CPU computes in f32"));
    Ok(())
}

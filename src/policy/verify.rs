//! Comparison of a policy with reference tensors of another implementation, name by name.
//!
//! Reference files follow the naming of the golden fixtures: a case's inputs, `train_forward`, `gradients`,
//! `inference` and `inference_other_step_counts`. A reference tensor that nothing was computed for is a failure:
//! silence must not pass for agreement. A file of a run in half precision is compared within what that precision
//! costs.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, bail};
use serde::Serialize;

use super::batch::{Batch, Branches, Draw, Targets};
use super::model::{Policy, StepOptions};
use super::network::geometry::{may_attend, positions, prefix_real};
use crate::config::train::LossParity;
use crate::ops::attention::MASKED;

const STATE: &str = "observation.state";
const TOKENS: &str = "observation.language.tokens";
const TOKEN_MASK: &str = "observation.language.attention_mask";

/// Most Euler steps that a reference may ask for.
const MOST_STEPS: usize = 1000;

/// The tensors of one reference file.
#[derive(Debug, Clone)]
pub struct Reference {
    pub file: String,
    pub tensors: BTreeMap<String, Tensor>,
}

/// Outcome for one reference tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub file: String,
    pub name: String,
    /// Largest absolute difference where both are defined.
    pub max_abs: f64,
    /// The same over the largest magnitude of the reference.
    pub max_rel: f64,
    /// On `max_abs`.
    pub tolerance: f64,
    #[serde(flatten)]
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    Pass,
    /// Beyond the tolerance, or not finite.
    Differs,
    /// Nothing to compare with, and why.
    NotCompared(String),
}

/// All rows, file by file, sorted by name.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub compared: usize,
    pub failed: usize,
    pub rows: Vec<Row>,
}

impl Report {
    fn new(rows: Vec<Row>) -> Self {
        let failed = rows.iter().filter(|row| row.verdict != Verdict::Pass).count();
        let compared = rows.iter().filter(|row| !matches!(row.verdict, Verdict::NotCompared(_))).count();
        Self { compared, failed, rows }
    }

    /// Whether there was something to compare and all of it agreed.
    pub fn passed(&self) -> bool {
        self.failed == 0 && self.compared > 0
    }
}

/// Computes everything that the files of one case hold and compares. A name that two files hold is compared twice.
///
/// `cameras` are the configured camera features in order; one without an image in the reference is absent (masked).
/// `pixels(feature, raw image [B, 3, H, W] in [0, 1])` makes what the vision tower sees. Gradients are compared
/// when `policy` trains the parameters. The references lie on the CPU, the policy computes where it was built.
pub fn verify(
    policy: &Policy,
    references: &[Reference],
    cameras: &[String],
    pixels: impl Fn(&str, &Tensor) -> Result<Tensor>,
) -> Result<Report> {
    let case = Case::new(policy, references, cameras, pixels)?;
    let mut computed = case.geometry(policy)?;
    computed.extend(case.training(policy)?);
    computed.extend(case.sampling(policy, references)?);
    let mut rows = Vec::new();
    for Reference { file, tensors } in references {
        let half = is_half_precision(tensors);
        for (name, wanted) in tensors {
            let given = find(references, name).filter(|_| is_input(name, cameras));
            if given.is_some_and(|given| std::ptr::eq(given, wanted)) {
                continue;
            }
            // An input that a second file repeats must be the same there.
            let found = given.or_else(|| computed.get(name));
            let Comparison { max_abs, max_rel, verdict } = compare(name, wanted, found, &case.real)?;
            let tolerance = match given {
                Some(_) => 0.0,
                None if half => half_precision_tolerance(name),
                None => tolerance(name, wanted.dtype()),
            };
            let verdict = match verdict {
                Verdict::Pass if max_abs > tolerance => Verdict::Differs,
                other => other,
            };
            rows.push(Row { file: file.clone(), name: name.clone(), max_abs, max_rel, tolerance, verdict });
        }
    }
    Ok(Report::new(rows))
}

/// The tensor of this name in the first file that holds it.
fn find<'r>(references: &'r [Reference], name: &str) -> Option<&'r Tensor> {
    references.iter().find_map(|reference| reference.tensors.get(name))
}

/// What [`Case::new`] reads. A camera that is not configured is no input: nothing would look at it.
fn is_input(name: &str, cameras: &[String]) -> bool {
    let fixed = ["action", "noise", "time", "action_is_pad", STATE, TOKENS, TOKEN_MASK];
    fixed.contains(&name) || cameras.iter().any(|camera| camera == name)
}

/// A reference's inputs, as the network takes them.
struct Case {
    batch: Batch,
    targets: Targets,
    draw: Draw,
    /// Real tokens of each sample's prefix.
    real: Vec<Vec<bool>>,
}

impl Case {
    fn new(
        policy: &Policy,
        references: &[Reference],
        cameras: &[String],
        pixels: impl Fn(&str, &Tensor) -> Result<Tensor>,
    ) -> Result<Self> {
        let arch = policy.arch();
        let input = |name: &str| match find(references, name) {
            Some(tensor) => Ok(tensor),
            None => bail!("the reference holds no input {name:?}: give the case's inputs file too"),
        };
        let tokens = input(TOKENS)?.to_dtype(DType::U32)?;
        let samples = tokens.dim(0)?;
        let lengths = input(TOKEN_MASK)?.to_dtype(DType::U32)?.to_vec2::<u32>()?;
        let token_lengths = lengths.iter().map(|row| row.iter().filter(|&&m| m != 0).count()).collect();
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for camera in cameras {
            match find(references, camera) {
                Some(raw) => present.push((pixels(camera, raw)?, vec![true; samples])),
                None => absent.push((black(samples, arch.vision.image)?, vec![false; samples])),
            }
        }
        let (images, image_masks) = present.into_iter().chain(absent).unzip();
        let state = widen(&input(STATE)?.to_dtype(DType::F32)?, arch.max_state_dim)?;
        let actions = input("action")?.to_dtype(DType::F32)?;
        let action_dim = actions.dim(2)?;
        let (noise, time) = (input("noise")?.to_dtype(DType::F32)?, input("time")?.to_dtype(DType::F32)?);
        let is_pad = match find(references, "action_is_pad") {
            Some(is_pad) => is_pad.to_dtype(DType::F32)?,
            None => Tensor::zeros((samples, arch.chunk_size), DType::F32, &Device::Cpu)?,
        };
        let batch = Batch { images, image_masks, tokens, token_lengths, state };
        let real = prefix_real(arch, &batch)?;
        let targets =
            Targets { actions: widen(&actions, arch.max_action_dim)?, is_pad, action_dim, branches: Branches::ONE };
        let draw = Draw { noise, time };
        let device = policy.device();
        Ok(Self {
            batch: batch.to_device(device)?,
            targets: targets.to_device(device)?,
            draw: draw.to_device(device)?,
            real,
        })
    }

    /// Masks and positions.
    fn geometry(&self, policy: &Policy) -> Result<BTreeMap<String, Tensor>> {
        let (samples, suffix) = (self.real.len(), policy.arch().chunk_size);
        let prefix = self.real.first().map_or(0, Vec::len);
        let total = prefix + suffix;
        let full: Vec<Vec<bool>> = self.real.iter().map(|row| [&row[..], &vec![true; suffix]].concat()).collect();
        let opens: Vec<bool> = (0..total).map(|i| i == prefix).collect();
        let allowed: Vec<Vec<bool>> = full.iter().map(|row| may_attend(row, &opens)).collect();
        let positions: Vec<i64> = full.iter().flat_map(|row| positions(row)).collect();
        let device = &Device::Cpu;
        let mask = allowed.concat().iter().map(|&a| if a { 0.0 } else { MASKED }).collect::<Vec<f32>>();
        let mask = Tensor::from_vec(mask, (samples, 1, total, total), device)?;
        let positions = Tensor::from_vec(positions, (samples, total), device)?;
        let bytes = |rows: &[Vec<bool>]| -> Result<Tensor> {
            let values: Vec<u8> = rows.iter().flatten().map(|&v| u8::from(v)).collect();
            Tensor::from_vec(values, (rows.len(), rows.first().map_or(0, Vec::len)), device)
        };
        let opening: Vec<f32> = (0..samples * suffix).map(|i| if i % suffix == 0 { 1.0 } else { 0.0 }).collect();
        let mut tensors = BTreeMap::new();
        let mut put = |name: &str, tensor: Tensor| tensors.insert(name.to_owned(), tensor);
        put("prefix_pad_mask", bytes(&self.real)?);
        put("suffix_pad_mask", bytes(&vec![vec![true; suffix]; samples])?);
        put("prefix_att_mask", Tensor::zeros((samples, prefix), DType::F32, device)?);
        put("suffix_att_mask", Tensor::from_vec(opening, (samples, suffix), device)?);
        put("prefix_attention_mask_additive", mask.narrow(2, 0, prefix)?.narrow(3, 0, prefix)?);
        put("step.0.attention_mask_additive", mask.narrow(2, prefix, suffix)?);
        put("attention_mask_additive", mask);
        put("prefix_position_ids", positions.narrow(1, 0, prefix)?);
        put("step.0.position_ids", positions.narrow(1, prefix, suffix)?);
        put("position_ids", positions);
        for (index, (image, mask)) in self.batch.images.iter().zip(&self.batch.image_masks).enumerate() {
            put(&format!("image.{index}.pixels"), image.clone());
            put(&format!("image.{index}.mask"), bytes(std::slice::from_ref(mask))?.squeeze(0)?);
        }
        Ok(tensors)
    }

    /// Boundary tensors, losses and gradients of one training step.
    fn training(&self, policy: &Policy) -> Result<BTreeMap<String, Tensor>> {
        let mut tensors = policy.trace_training(&self.batch, &self.targets, &self.draw)?;
        let (Some(wanted), Some(found)) = (tensors.get("u_t"), tensors.get("v_t")) else {
            bail!("the trace holds no velocity")
        };
        let squared = (wanted - found)?.sqr()?;
        let real = squared.narrow(2, 0, self.targets.action_dim)?;
        tensors.insert("loss_per_dim".into(), real.mean((0, 1))?);
        tensors.insert("loss_per_element".into(), squared);
        let options = StepOptions { parity: LossParity::Lerobot, recompute: true, dropout_key: None, loss_scale: 1.0 };
        let step = policy.gradients(&self.batch, &self.targets, &self.draw, &options)?;
        tensors.insert("loss".into(), Tensor::new(step.loss as f32, &Device::Cpu)?);
        tensors.extend(step.gradients.into_iter().map(|(name, gradient)| (format!("model.{name}"), gradient)));
        Ok(tensors)
    }

    /// The sampled chunk and its steps, for every step count that the reference holds.
    fn sampling(&self, policy: &Policy, references: &[Reference]) -> Result<BTreeMap<String, Tensor>> {
        const OTHER: &str = "actions_padded.num_steps_";
        let mut tensors = BTreeMap::new();
        let has = |name: String| find(references, &name).is_some();
        let step = |k: &usize| has(format!("step.{k}.x_t")) || has(format!("step.{k}.v_t"));
        let steps = (0..=MOST_STEPS).take_while(step).count();
        if (1..=MOST_STEPS).contains(&steps) {
            let sampled = policy.sample_traced(&self.batch, &self.draw.noise, steps)?;
            tensors.extend(
                sampled
                    .trace
                    .into_iter()
                    .map(|(name, tensor)| inference_name(name, tensor))
                    .collect::<Result<Vec<_>>>()?,
            );
            tensors.insert("actions".into(), sampled.actions.narrow(2, 0, self.targets.action_dim)?);
            tensors.insert("actions_padded".into(), sampled.actions);
        }
        for name in references.iter().flat_map(|reference| reference.tensors.keys()) {
            let count = name.strip_prefix(OTHER).and_then(|count| count.parse::<usize>().ok());
            if let Some(count) = count.filter(|count| (1..=MOST_STEPS).contains(count)) {
                // Through the trimmed batch, as a robot runs it.
                tensors.insert(name.clone(), policy.sample(&self.batch, &self.draw.noise, count)?);
            }
        }
        Ok(tensors)
    }
}

/// The inference files' names and shapes for what the trace of a prefix records.
fn inference_name(name: String, tensor: Tensor) -> Result<(String, Tensor)> {
    if let Some(layer) = name.strip_prefix("layer.").and_then(|rest| rest.strip_suffix(".prefix_hidden")) {
        return Ok((format!("prefix_layer.{layer}.hidden"), tensor));
    }
    if name.starts_with("prefix_kv.") {
        // One key/value head: [B, P, D] is the reference's [B, 1, P, D].
        return Ok((name, tensor.unsqueeze(1)?));
    }
    Ok((name, tensor))
}

/// An absent camera's image.
fn black(samples: usize, side: usize) -> Result<Tensor> {
    Tensor::full(-1f32, (samples, 3, side, side), &Device::Cpu)
}

/// Pads the last axis with zeros.
fn widen(tensor: &Tensor, width: usize) -> Result<Tensor> {
    let last = tensor.dims().last().copied().unwrap_or(0);
    if last > width {
        bail!("{last} dimensions do not fit into {width}")
    }
    tensor.pad_with_zeros(candle_core::D::Minus1, 0, width - last)
}

/// What agreement means for a tensor: about ten times what perturbing all weights by 1e-7 moves it (the fixtures'
/// README).
fn tolerance(name: &str, dtype: DType) -> f64 {
    if dtype.is_int() || name.ends_with("attention_mask_additive") || name.ends_with("_att_mask") {
        return 0.0;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    match last {
        _ if name.starts_with("model.") => 1e-5,
        "loss" => 5e-6,
        // Single squared errors, up to about 20, move by 1.4e-5; a mean over few of them by less.
        "loss_per_element" => 1.4e-4,
        "loss_per_dim" => 2e-5,
        "time_sinusoidal_f64" => 1e-10,
        "time" => 0.0,
        "pixels" | "u_t" => 1e-6,
        "x_t" if !name.starts_with("step.") => 1e-6,
        "v_t" | "x_t" | "actions" | "actions_padded" => 5e-5,
        _ if name.starts_with("actions_padded.") => 5e-5,
        "embedding" | "siglip_embeddings" | "siglip_post_layernorm" | "language_embedding" => 3e-5,
        _ if name.contains("siglip_layer") => 3e-5,
        _ => 7e-5,
    }
}

/// Whether a file comes from a run in mixed half precision: it then holds tensors of that type.
fn is_half_precision(tensors: &BTreeMap<String, Tensor>) -> bool {
    tensors.values().any(|tensor| matches!(tensor.dtype(), DType::BF16 | DType::F16))
}

/// What agreement of f32 with a bfloat16 run means: about twice the differences that the fixtures' README names (0.05
/// in velocities, 0.006 in the loss; three times its 0.025 in actions, since a vision tower in bfloat16 adds to it), and
/// as much for what else was measured there (8e-3 in embeddings, 0.05 in hidden states, 0.16 in squared errors of up
/// to 20).
fn half_precision_tolerance(name: &str) -> f64 {
    match name.rsplit('.').next().unwrap_or(name) {
        "loss" => 0.012,
        "v_t" => 0.1,
        "actions" | "actions_padded" => 0.075,
        _ if name.starts_with("actions_padded.") => 0.075,
        "loss_per_element" => 0.4,
        _ if name.ends_with("embedding") => 0.02,
        _ => 0.1,
    }
}

struct Comparison {
    max_abs: f64,
    max_rel: f64,
    /// Pass here means: comparable.
    verdict: Verdict,
}

fn compare(name: &str, wanted: &Tensor, found: Option<&Tensor>, real: &[Vec<bool>]) -> Result<Comparison> {
    let missing = |why: String| Comparison { max_abs: f64::NAN, max_rel: f64::NAN, verdict: Verdict::NotCompared(why) };
    let Some(found) = found else { return Ok(missing("nothing of this name was computed".into())) };
    if found.dims() != wanted.dims() {
        return Ok(missing(format!("shape {:?}, computed {:?}", wanted.dims(), found.dims())));
    }
    let values = |t: &Tensor| t.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    let (wanted, found, counts) = (values(wanted)?, values(found)?, defined(name, wanted.dims(), real));
    let (mut max_abs, mut largest) = (0f64, 0f64);
    for ((wanted, found), _) in wanted.iter().zip(&found).zip(&counts).filter(|(_, counts)| **counts) {
        let difference = (wanted - found).abs();
        // `max` would drop a NaN.
        max_abs = if difference.is_nan() { f64::INFINITY } else { max_abs.max(difference) };
        largest = largest.max(wanted.abs());
    }
    let max_rel = if largest > 0.0 { max_abs / largest } else { max_abs };
    Ok(Comparison { max_abs, max_rel, verdict: Verdict::Pass })
}

/// Which elements have a defined value: hidden states, keys and values of padded prefix tokens have none.
fn defined(name: &str, dims: &[usize], real: &[Vec<bool>]) -> Vec<bool> {
    let hidden = name.starts_with("prefix_layer.")
        || name.starts_with("prefix_kv.")
        || name == "prefix_final_norm"
        || name.ends_with(".prefix_hidden");
    let per_token = dims.last().copied().unwrap_or(1);
    let count = dims.iter().product();
    let tokens: Vec<bool> = real.concat();
    if hidden && tokens.len() * per_token == count {
        return tokens.iter().flat_map(|&real| std::iter::repeat_n(real, per_token)).collect();
    }
    vec![true; count]
}

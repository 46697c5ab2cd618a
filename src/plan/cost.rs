//! Arithmetic and memory traffic of the network, and the least time they take on a device.
//!
//! A product of `[m, k]` by `[k, n]` is 2·m·k·n floating-point operations. Bytes are the fewest that must pass through
//! device memory: each weight once a pass, keys and values of the prefix, gradients, masters and moments. Activations
//! are left out, since how many of them are written depends on how much is fused. So [`Work::seconds`] is a floor: what
//! is measured is compared with it, never predicted by it.
//!
//! Layers whose result nobody reads are not counted (the language model's last one behind its keys and values), nor
//! gradients that nobody wants: of a frozen weight, and of anything in front of the first trained parameter.

use std::iter::Sum;
use std::ops::{Add, Mul};

use crate::adapter::plan::{Frozen, TrainPlan};
use crate::config::train::Dtype;
use crate::policy::arch::{Arch, GemmaArch};
use crate::policy::parameters::path;

/// Bytes of an f32.
const FULL: f64 = 4.0;
/// Bytes that the global norm moves per element: the gradient in.
pub(super) const CLIP_BYTES: u64 = 4;
/// Bytes that one update of AdamW moves per element: gradient, master and two moments in, master and moments out.
pub(super) const UPDATE_BYTES: u64 = 7 * 4;

/// What a device can do at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// Floating-point operations a second of matrix products in the dtype of the weights.
    pub flops_per_s: f64,
    /// Bytes a second through device memory, read plus written.
    pub bytes_per_s: f64,
}

/// Work of a part of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Operations in products with weights.
    pub linear: f64,
    /// Operations in products of attention (queries with keys, probabilities with values).
    pub attention: f64,
    /// Fewest bytes through device memory.
    pub bytes: f64,
}

impl Work {
    /// All floating-point operations.
    pub fn flops(&self) -> f64 {
        self.linear + self.attention
    }

    /// The least time on a device: the longer of arithmetic and traffic.
    pub fn seconds(&self, peak: &Peak) -> f64 {
        (self.flops() / peak.flops_per_s).max(self.bytes / peak.bytes_per_s)
    }

    fn moving(bytes: f64) -> Work {
        Work { bytes, ..Work::default() }
    }
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            linear: self.linear + other.linear,
            attention: self.attention + other.attention,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Mul<f64> for Work {
    type Output = Work;

    fn mul(self, times: f64) -> Work {
        Work { linear: self.linear * times, attention: self.attention * times, bytes: self.bytes * times }
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), Add::add)
    }
}

/// Sizes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Observations B.
    pub batch: usize,
    pub cameras: usize,
    /// Prompt tokens.
    pub prompt: usize,
    /// Suffixes over each observation: 1, or D + 1 delays that share their prefix.
    pub suffixes: usize,
}

impl Shape {
    /// Prefix tokens P of an observation.
    pub fn prefix(&self, arch: &Arch) -> usize {
        self.cameras * arch.vision.tokens() + self.prompt
    }
}

/// An action chunk, by its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inference {
    /// Vision tower and projector.
    pub vision: Work,
    /// Language model.
    pub prefix: Work,
    /// All denoising steps.
    pub denoise: Work,
}

impl Inference {
    /// The least time: the parts run one after the other.
    pub fn seconds(&self, peak: &Peak) -> f64 {
        [self.vision, self.prefix, self.denoise].iter().map(|work| work.seconds(peak)).sum()
    }
}

/// A training step (of one micro-batch), by its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    pub forward: Work,
    /// With recomputation its second forward is part of it.
    pub backward: Work,
    /// The global norm.
    pub clip: Work,
    pub optimizer: Work,
    /// Elements that are updated.
    pub updated: f64,
}

impl Training {
    /// The least time: the parts run one after the other.
    pub fn seconds(&self, peak: &Peak) -> f64 {
        [self.forward, self.backward, self.clip, self.optimizer].iter().map(|work| work.seconds(peak)).sum()
    }
}

/// Work of sampling one chunk for each observation in `steps` Euler steps, weights of the transformers in `dtype`.
///
/// The matrices of AdaRMS and of the time's MLP are read once, not once a step: the times of all steps are known before
/// the first, so one product serves them all.
pub fn inference(arch: &Arch, shape: &Shape, steps: usize, dtype: Dtype) -> Inference {
    let chain = Chain::new(arch, shape, dtype);
    let whole = |layers: &[Layer]| layers.iter().map(|layer| layer.forward(&Frozen)).sum::<Work>();
    let denoise = chain.suffix.iter().map(|layer| layer.denoise(steps as f64)).sum();
    Inference { vision: whole(&chain.vision), prefix: whole(&chain.prefix), denoise }
}

/// Work of one training step of what `plan` trains.
pub fn training(arch: &Arch, shape: &Shape, plan: &dyn TrainPlan, recompute: bool, dtype: Dtype) -> Training {
    let chain = Chain::new(arch, shape, dtype);
    let mut wanted = false;
    let (mut forward, mut backward, mut updated) = (Work::default(), Work::default(), 0.0);
    for layer in chain.vision.iter().chain(&chain.prefix).chain(&chain.suffix) {
        let once = layer.forward(plan);
        let trained = layer.trained(plan);
        wanted |= trained > 0.0;
        updated += trained;
        forward = forward + once;
        if wanted {
            backward = backward + layer.backward(plan) + once * f64::from(u8::from(recompute));
        }
    }
    Training {
        forward,
        backward,
        clip: Work::moving(CLIP_BYTES as f64 * updated),
        optimizer: Work::moving(UPDATE_BYTES as f64 * updated),
        updated,
    }
}

/// One linear, `rows` rows of `inner` to `out`.
struct Linear {
    module: String,
    inner: f64,
    out: f64,
    rows: f64,
    /// Bytes of an element of its weight when frozen.
    width: f64,
    /// It reads the condition (one row a suffix), not the tokens.
    condition: bool,
}

impl Linear {
    fn elements(&self) -> f64 {
        self.inner * self.out
    }

    fn flops(&self) -> f64 {
        2.0 * self.rows * self.elements()
    }

    fn trains(&self, plan: &dyn TrainPlan) -> bool {
        plan.trains(&format!("{}.weight", self.module))
    }

    /// Elements of both factors; 0 without an adapter.
    fn factors(&self, plan: &dyn TrainPlan) -> f64 {
        plan.lora(&self.module).map_or(0.0, |spec| spec.rank as f64 * (self.inner + self.out))
    }

    fn weight_bytes(&self, plan: &dyn TrainPlan) -> f64 {
        let width = if self.trains(plan) { FULL } else { self.width };
        width * self.elements() + FULL * self.factors(plan)
    }

    fn forward(&self, plan: &dyn TrainPlan) -> Work {
        let adapter = 2.0 * self.rows * self.factors(plan);
        Work { linear: self.flops() + adapter, attention: 0.0, bytes: self.weight_bytes(plan) }
    }

    /// The gradient of the input is one product with the weight, that of a trained weight another; both factors of an
    /// adapter get both. A gradient is written once, in f32.
    fn backward(&self, plan: &dyn TrainPlan) -> Work {
        let products = 1.0 + f64::from(u8::from(self.trains(plan)));
        let factors = self.factors(plan);
        let gradients = factors + if self.trains(plan) { self.elements() } else { 0.0 };
        Work {
            linear: products * self.flops() + 4.0 * self.rows * factors,
            attention: 0.0,
            bytes: self.weight_bytes(plan) + FULL * gradients,
        }
    }

    /// Elements that are updated.
    fn trained(&self, plan: &dyn TrainPlan) -> f64 {
        self.factors(plan) + if self.trains(plan) { self.elements() } else { 0.0 }
    }
}

/// A piece of the chain that gradients pass through as a whole.
#[derive(Default)]
struct Layer {
    linears: Vec<Linear>,
    /// Operations of one forward.
    attention: f64,
    /// Keys and values of the prefix that are written (by its layers) or read (by the suffix's), in bytes.
    cached: f64,
    /// Everything else that may train (norms, biases, embeddings): names with their elements.
    others: Vec<(String, f64)>,
}

impl Layer {
    fn forward(&self, plan: &dyn TrainPlan) -> Work {
        let linears: Work = self.linears.iter().map(|linear| linear.forward(plan)).sum();
        linears + Work { linear: 0.0, attention: self.attention, bytes: self.cached }
    }

    /// Attention's backward is four products where the forward is two.
    fn backward(&self, plan: &dyn TrainPlan) -> Work {
        let linears: Work = self.linears.iter().map(|linear| linear.backward(plan)).sum();
        linears + Work { linear: 0.0, attention: 2.0 * self.attention, bytes: self.cached }
    }

    /// `steps` forwards, of which those of the condition read their weights once.
    fn denoise(&self, steps: f64) -> Work {
        let of = |linear: &Linear| {
            let once = linear.forward(&Frozen);
            let reads = if linear.condition { 1.0 } else { steps };
            Work { bytes: once.bytes * reads, ..once * steps }
        };
        let linears: Work = self.linears.iter().map(of).sum();
        linears + Work { linear: 0.0, attention: self.attention, bytes: self.cached } * steps
    }

    fn trained(&self, plan: &dyn TrainPlan) -> f64 {
        let linears: f64 = self.linears.iter().map(|linear| linear.trained(plan)).sum();
        linears + self.others.iter().filter(|(name, _)| plan.trains(name)).map(|(_, elements)| elements).sum::<f64>()
    }
}

/// The network in the order of computation.
struct Chain {
    vision: Vec<Layer>,
    prefix: Vec<Layer>,
    suffix: Vec<Layer>,
}

/// What the layers of a chain have in common.
struct Sizes<'a> {
    arch: &'a Arch,
    /// Bytes of a weight of the transformers.
    width: f64,
    batch: f64,
    images: f64,
    prefix: f64,
    /// Suffixes of the whole batch.
    suffixes: f64,
}

impl Chain {
    fn new(arch: &Arch, shape: &Shape, dtype: Dtype) -> Chain {
        let sizes = Sizes {
            arch,
            width: match dtype {
                Dtype::Bfloat16 => 2.0,
                Dtype::Float32 => FULL,
            },
            batch: shape.batch as f64,
            images: (shape.batch * shape.cameras) as f64,
            prefix: shape.prefix(arch) as f64,
            suffixes: (shape.batch * shape.suffixes) as f64,
        };
        Chain { vision: sizes.vision(), prefix: sizes.prefix(), suffix: sizes.suffix() }
    }
}

impl Sizes<'_> {
    fn linear(&self, module: String, [inner, out]: [usize; 2], rows: f64) -> Linear {
        Linear { module, inner: inner as f64, out: out as f64, rows, width: self.width, condition: false }
    }

    /// In f32, of the condition.
    fn condition(&self, module: String, [inner, out]: [usize; 2]) -> Linear {
        Linear { width: FULL, condition: true, ..self.linear(module, [inner, out], self.suffixes) }
    }

    fn vision(&self) -> Vec<Layer> {
        let v = &self.arch.vision;
        if self.images == 0.0 {
            return Vec::new();
        }
        let (tokens, width) = (v.tokens() as f64, v.width as f64);
        let rows = self.images * tokens;
        let embeddings = format!("{}.embeddings", path::VISION);
        let patches = [3 * v.patch * v.patch, v.width];
        let embedding = Layer {
            linears: vec![Linear {
                width: FULL,
                ..self.linear(format!("{embeddings}.patch_embedding"), patches, rows)
            }],
            others: vec![
                (format!("{embeddings}.patch_embedding.bias"), width),
                (format!("{embeddings}.position_embedding.weight"), tokens * width),
            ],
            ..Layer::default()
        };
        let layers = (0..v.depth).map(|index| {
            let layer = format!("{}.encoder.layers.{index}", path::VISION);
            let attention = ["q_proj", "k_proj", "v_proj", "out_proj"]
                .map(|name| (format!("{layer}.self_attn.{name}"), [v.width, v.width]));
            let mlp = [(format!("{layer}.mlp.fc1"), [v.width, v.mlp]), (format!("{layer}.mlp.fc2"), [v.mlp, v.width])];
            let linears: Vec<Linear> =
                attention.into_iter().chain(mlp).map(|(module, sides)| self.linear(module, sides, rows)).collect();
            let biases = linears.iter().map(|linear| (format!("{}.bias", linear.module), linear.out));
            let norms = both_of(&layer, ["layer_norm1", "layer_norm2"], width);
            let others = biases.chain(norms).collect();
            Layer { attention: 4.0 * rows * tokens * width, others, linears, cached: 0.0 }
        });
        let projector = Layer {
            linears: vec![self.linear(path::PROJECTOR.into(), [v.width, self.arch.vlm.width], rows)],
            others: both_of(path::VISION, ["post_layernorm"], width)
                .chain([(format!("{}.bias", path::PROJECTOR), self.arch.vlm.width as f64)])
                .collect(),
            ..Layer::default()
        };
        std::iter::once(embedding).chain(layers).chain([projector]).collect()
    }

    fn prefix(&self) -> Vec<Layer> {
        let g = &self.arch.vlm;
        let rows = self.batch * self.prefix;
        let elements = (self.arch.vocab_size * g.width) as f64;
        let embedding = Layer { others: vec![(path::EMBED_TOKENS.to_owned(), elements)], ..Layer::default() };
        let layers = (0..g.depth).map(|index| {
            let layer = format!("{}.layers.{index}", path::VLM);
            let norm = |name: &str| (format!("{layer}.{name}.weight"), g.width as f64);
            let kept = 2.0 * rows * (g.kv_heads * g.head_dim) as f64 * self.width;
            if index + 1 == g.depth {
                let linears = self.gemma(&layer, g, rows, &["k_proj", "v_proj"]);
                return Layer { linears, others: vec![norm("input_layernorm")], attention: 0.0, cached: kept };
            }
            Layer {
                linears: self.gemma(&layer, g, rows, &GEMMA),
                others: vec![norm("input_layernorm"), norm("post_attention_layernorm")],
                attention: 4.0 * rows * self.prefix * (g.heads * g.head_dim) as f64,
                cached: kept,
            }
        });
        std::iter::once(embedding).chain(layers).collect()
    }

    fn suffix(&self) -> Vec<Layer> {
        let (arch, g) = (self.arch, &self.arch.expert);
        let chunk = arch.chunk_size as f64;
        let (rows, keys) = (self.suffixes * chunk, self.prefix + chunk);
        let square = [g.width, g.width];
        let bias = |linear: &Linear| (format!("{}.bias", linear.module), linear.out);
        let head = |module: &str, sides| Linear { width: FULL, ..self.linear(module.to_owned(), sides, rows) };
        let modulation = |module: String| self.condition(format!("{module}.dense"), [g.width, 3 * g.width]);

        let mut linears = vec![head("action_in_proj", [arch.max_action_dim, g.width])];
        linears.extend(["time_mlp_in", "time_mlp_out"].map(|name| self.condition(name.to_owned(), square)));
        if arch.state_cond {
            linears.push(self.condition("state_proj".to_owned(), [arch.max_state_dim, g.width]));
            linears.extend(["state_mlp_in", "state_mlp_out"].map(|name| self.condition(name.to_owned(), square)));
        }
        let others = linears.iter().map(bias).collect();
        let embedding = Layer { linears, others, ..Layer::default() };
        let layers = (0..g.depth).map(|index| {
            let layer = format!("{}.layers.{index}", path::EXPERT);
            let norms = ["input_layernorm", "post_attention_layernorm"].map(|n| modulation(format!("{layer}.{n}")));
            let others = norms.iter().map(bias).collect();
            let linears = self.gemma(&layer, g, rows, &GEMMA).into_iter().chain(norms).collect();
            let cached = 2.0 * self.batch * self.prefix * (g.kv_heads * g.head_dim) as f64 * self.width;
            Layer { linears, others, attention: 4.0 * rows * keys * (g.heads * g.head_dim) as f64, cached }
        });
        let linears =
            vec![modulation(format!("{}.norm", path::EXPERT)), head("action_out_proj", [g.width, arch.max_action_dim])];
        let others = linears.iter().map(bias).collect();
        let end = Layer { linears, others, ..Layer::default() };
        std::iter::once(embedding).chain(layers).chain([end]).collect()
    }

    /// Those linears of a Gemma layer that `names` holds.
    fn gemma(&self, layer: &str, g: &GemmaArch, rows: f64, names: &[&str]) -> Vec<Linear> {
        let (queries, keys) = (g.heads * g.head_dim, g.kv_heads * g.head_dim);
        names
            .iter()
            .map(|&name| {
                let (block, sides) = match name {
                    "q_proj" => ("self_attn", [g.width, queries]),
                    "k_proj" | "v_proj" => ("self_attn", [g.width, keys]),
                    "o_proj" => ("self_attn", [queries, g.width]),
                    "down_proj" => ("mlp", [g.mlp, g.width]),
                    _ => ("mlp", [g.width, g.mlp]),
                };
                self.linear(format!("{layer}.{block}.{name}"), sides, rows)
            })
            .collect()
    }
}

/// The linears of a Gemma layer.
const GEMMA: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// Weight and bias of norms.
fn both_of<const N: usize>(module: &str, norms: [&str; N], width: f64) -> impl Iterator<Item = (String, f64)> {
    norms.map(|norm| ["weight", "bias"].map(|part| (format!("{module}.{norm}.{part}"), width))).into_iter().flatten()
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;

//! The segments of the network as sizes: what `policy/network/` computes, with a [`Graph`] for tensors.
//!
//! Kept in step with the network by the tests: for every kind of training the bytes that these segments keep must be
//! those that `Policy::kept_bytes` finds on a small policy.

use super::graph::{Graph, Id, Op, Size};
use crate::adapter::plan::TrainPlan;
use crate::policy::arch::{Arch, GemmaArch};
use crate::policy::parameters::path;

/// Bytes of an f32.
pub(super) const F32: u64 = 4;

/// What decides the size of every tensor.
#[derive(Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub arch: &'a Arch,
    pub plan: &'a dyn TrainPlan,
    /// Samples of a micro-batch.
    pub batch: usize,
    pub cameras: usize,
    /// Tokens of the longest prompt.
    pub prompt: usize,
    /// Suffixes over one prefix: D + 1 with shared observations, else 1.
    pub branches: usize,
    /// Every step of a chunk has a flow time, and so a condition, of its own (training-time RTC).
    pub time_per_step: bool,
    /// Bytes of a number in the dtype that computes.
    pub each: u64,
    /// The kernels of GPUs: attention with many key/value heads moves them outside first.
    pub gpu: bool,
}

impl Sizes<'_> {
    /// Tokens of the prefix, P.
    pub fn prefix(&self) -> usize {
        self.cameras * self.arch.vision.tokens() + self.prompt
    }

    /// Rows of the suffix: samples times branches.
    pub fn suffixes(&self) -> usize {
        self.batch * self.branches
    }

    fn compute(&self, shape: &[usize]) -> Size {
        Size::new(shape, self.each)
    }
}

/// A piece of the network that is differentiated as a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment {
    Patches,
    VisionLayer(usize),
    VisionHead,
    PrefixEmbedding,
    PrefixLayer(usize),
    SuffixEmbedding,
    SuffixLayer(usize),
    SuffixHead,
}

impl Segment {
    /// Writes its operations into `graph` and gives its outputs. The inputs are the network's, in its order.
    pub fn compute(self, graph: &mut Graph, sizes: &Sizes<'_>, inputs: &[Id]) -> Vec<Id> {
        let mut s = Scope { graph, sizes };
        match (self, inputs) {
            (Segment::Patches, [pixels]) => vec![s.patches(*pixels)],
            (Segment::VisionLayer(index), [x]) => vec![s.vision_layer(index, *x)],
            (Segment::VisionHead, [x]) => vec![s.vision_head(*x)],
            (Segment::PrefixEmbedding, [rest @ .., tokens]) => vec![s.prefix_embedding(rest.first().copied(), *tokens)],
            (Segment::PrefixLayer(index), [x, cos, sin, _mask]) => s.prefix_layer(index, *x, [*cos, *sin]),
            (Segment::SuffixEmbedding, [x_t, sinusoid, state @ ..]) => {
                s.suffix_embedding(*x_t, *sinusoid, state.first().copied())
            }
            (Segment::SuffixLayer(index), [x, condition, k, v, cos, sin, _mask]) => {
                vec![s.suffix_layer(index, *x, *condition, [*k, *v], [*cos, *sin])]
            }
            (Segment::SuffixHead, [x, condition]) => vec![s.suffix_head(*x, *condition)],
            // The walk gives every segment its inputs; anything else would be a defect of it.
            (segment, inputs) => unreachable!("{segment:?} with {} inputs", inputs.len()),
        }
    }
}

/// Where a segment's operations are written.
struct Scope<'g, 'a> {
    graph: &'g mut Graph,
    sizes: &'a Sizes<'a>,
}

impl Scope<'_, '_> {
    /// The parameter `name`: its f32 master when it trains, else in `each` bytes a number.
    fn weight(&mut self, name: &str, shape: &[usize], each: u64) -> Id {
        let trained = self.sizes.plan.trains(name);
        self.graph.weight(Size::new(shape, if trained { F32 } else { each }), trained)
    }

    /// A linear in `each` bytes a number, with its adapter.
    fn linear(&mut self, module: &str, x: Id, [inner, out]: [usize; 2], bias: bool, each: u64) -> Id {
        let x = self.graph.cast(x, each);
        let rows = self.graph.size(x).elements / inner as u64;
        let mut args = vec![x];
        for (name, shape) in [("weight", &[out, inner][..]), ("bias", &[out])].into_iter().take(1 + usize::from(bias)) {
            let weight = self.weight(&format!("{module}.{name}"), shape, each);
            args.push(self.graph.cast_weight(weight, each));
        }
        let size = |width: usize| Size { elements: rows * width as u64, each };
        let y = self.graph.apply(&args, size(out), Op::product(rows, inner as u64, out as u64));
        let Some(spec) = self.sizes.plan.lora(module) else { return y };
        let x = if spec.dropout > 0.0 { self.graph.apply(&[x], size(inner), Op::OWN) } else { x };
        let low = self.factor(x, spec.rank, inner);
        let scaled = self.graph.apply(&[low], size(spec.rank), Op::CANDLE);
        let up = self.factor(scaled, out, spec.rank);
        self.graph.apply(&[y, up], size(out), Op::CANDLE)
    }

    /// The product with an adapter's factor `[out, inner]`.
    fn factor(&mut self, x: Id, out: usize, inner: usize) -> Id {
        let Size { elements, each } = self.graph.size(x);
        let rows = elements / inner as u64;
        let weight = self.graph.weight(Size::new(&[out, inner], F32), true);
        let weight = self.graph.cast_weight(weight, each);
        let size = Size { elements: rows * out as u64, each };
        self.graph.apply(&[x, weight], size, Op::product(rows, inner as u64, out as u64))
    }

    /// An operation whose result is as large as `x`.
    fn like(&mut self, x: Id, others: &[Id], op: Op) -> Id {
        let args: Vec<Id> = std::iter::once(x).chain(others.iter().copied()).collect();
        self.graph.apply(&args, self.graph.size(x), op)
    }

    /// Gemma's or SigLIP's norm: f32 inside, the dtype of `x` outside.
    fn norm(&mut self, module: &str, x: Id, width: usize, parts: &[&str]) -> Id {
        let weights: Vec<Id> =
            parts.iter().map(|part| self.weight(&format!("{module}.{part}"), &[width], F32)).collect();
        self.like(x, &weights, Op::OWN)
    }

    fn layer_norm(&mut self, module: &str, x: Id) -> Id {
        self.norm(module, x, self.sizes.arch.vision.width, &["weight", "bias"])
    }

    fn add(&mut self, x: Id, branch: Id) -> Id {
        self.like(x, &[branch], Op::CANDLE)
    }

    /// `[B, S, …]` over `[B, K, …]`.
    fn attention(&mut self, qkv: [Id; 3], [batch, queries, keys]: [usize; 3], heads: [usize; 2], dim: usize) -> Id {
        let [heads, key_value] = heads;
        let scores = (batch * heads * queries * keys) as u64;
        let op = Op::attention(scores, self.sizes.each, dim as u64);
        let moves = self.sizes.gpu && key_value > 1;
        let [q, k, v] = if moves { qkv.map(|tensor| self.moved(tensor)) } else { qkv };
        let out = self.like(q, &[k, v], op);
        if moves { self.moved(out) } else { out }
    }

    /// A copy with the axes in another order.
    fn moved(&mut self, tensor: Id) -> Id {
        let view = self.like(tensor, &[], Op::VIEW);
        self.like(view, &[], Op::CANDLE)
    }

    fn patches(&mut self, pixels: Id) -> Id {
        let vision = &self.sizes.arch.vision;
        let (width, inner, tokens) = (vision.width, 3 * vision.patch * vision.patch, vision.tokens());
        let rows = self.graph.size(pixels).elements / inner as u64;
        let embeddings = format!("{}.embeddings", path::VISION);
        let folded = self.like(pixels, &[], Op::CANDLE);
        let weight = self.weight(&format!("{embeddings}.patch_embedding.weight"), &[width, inner], F32);
        let weight = self.like(weight, &[], Op::VIEW);
        let bias = self.weight(&format!("{embeddings}.patch_embedding.bias"), &[width], F32);
        let size = Size { elements: rows * width as u64, each: F32 };
        let x = self.graph.apply(&[folded, weight, bias], size, Op::product(rows, inner as u64, width as u64));
        let position = self.weight(&format!("{embeddings}.position_embedding.weight"), &[tokens, width], F32);
        let position = self.graph.apply(&[position], size, Op::VIEW);
        let x = self.add(x, position);
        self.graph.cast(x, self.sizes.each)
    }

    fn vision_layer(&mut self, index: usize, x: Id) -> Id {
        let vision = &self.sizes.arch.vision;
        let (width, tokens, each) = (vision.width, vision.tokens(), self.sizes.each);
        let images = (self.graph.size(x).elements / (tokens * width) as u64) as usize;
        let layer = format!("{}.encoder.layers.{index}", path::VISION);
        let h = self.layer_norm(&format!("{layer}.layer_norm1"), x);
        let square = |s: &mut Self, name: &str, x: Id| {
            s.linear(&format!("{layer}.self_attn.{name}"), x, [width, width], true, each)
        };
        let qkv = ["q_proj", "k_proj", "v_proj"].map(|name| square(self, name, h));
        let a = self.attention(qkv, [images, tokens, tokens], [vision.heads; 2], width / vision.heads);
        let a = square(self, "out_proj", a);
        let x = self.add(x, a);
        let h = self.layer_norm(&format!("{layer}.layer_norm2"), x);
        let h = self.linear(&format!("{layer}.mlp.fc1"), h, [width, vision.mlp], true, each);
        let h = self.like(h, &[], Op::OWN);
        let h = self.linear(&format!("{layer}.mlp.fc2"), h, [vision.mlp, width], true, each);
        self.add(x, h)
    }

    fn vision_head(&mut self, x: Id) -> Id {
        let h = self.layer_norm(&format!("{}.post_layernorm", path::VISION), x);
        let (width, out) = (self.sizes.arch.vision.width, self.sizes.arch.vlm.width);
        self.linear(path::PROJECTOR, h, [width, out], true, self.sizes.each)
    }

    fn prefix_embedding(&mut self, images: Option<Id>, tokens: Id) -> Id {
        let (arch, sizes) = (self.sizes.arch, self.sizes);
        let table = self.weight(path::EMBED_TOKENS, &[arch.vocab_size, arch.vlm.width], sizes.each);
        let table = self.graph.cast_weight(table, sizes.each);
        // Of the table only the rows of the prompt are read; the tokens themselves are integers without a gradient.
        let _ = tokens;
        let language = sizes.compute(&[sizes.batch, sizes.prompt, arch.vlm.width]);
        let language = self.graph.apply(&[table], language, Op::OWN);
        let Some(images) = images else { return language };
        // By camera, then by sample: a view, turned around, and put in order.
        let split = self.like(images, &[], Op::VIEW);
        let turned = self.like(split, &[], Op::VIEW);
        let ordered = self.like(turned, &[], if sizes.cameras > 1 && sizes.batch > 1 { Op::CANDLE } else { Op::VIEW });
        let prefix = sizes.compute(&[sizes.batch, sizes.prefix(), arch.vlm.width]);
        self.graph.apply(&[ordered, language], prefix, Op::CANDLE)
    }

    fn mlp(&mut self, module: &str, arch: &GemmaArch, x: Id) -> Id {
        let (width, mlp, each) = (arch.width, arch.mlp, self.sizes.each);
        let [gate, up] =
            ["gate_proj", "up_proj"].map(|name| self.linear(&format!("{module}.{name}"), x, [width, mlp], false, each));
        let product = self.like(gate, &[up], Op::OWN);
        self.linear(&format!("{module}.down_proj"), product, [mlp, width], false, each)
    }

    fn prefix_layer(&mut self, index: usize, x: Id, angles: [Id; 2]) -> Vec<Id> {
        let (arch, each, prefix) = (&self.sizes.arch.vlm, self.sizes.each, self.sizes.prefix());
        let (width, queries, keys) = (arch.width, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let layer = format!("{}.layers.{index}", path::VLM);
        let h = self.norm(&format!("{layer}.input_layernorm"), x, width, &["weight"]);
        let project = |s: &mut Self, name: &str, x: Id, sizes: [usize; 2]| {
            s.linear(&format!("{layer}.self_attn.{name}"), x, sizes, false, each)
        };
        let k = project(self, "k_proj", h, [width, keys]);
        let k = self.like(k, &angles, Op::OWN);
        let v = project(self, "v_proj", h, [width, keys]);
        if index + 1 == arch.depth {
            return vec![k, v];
        }
        let q = project(self, "q_proj", h, [width, queries]);
        let q = self.like(q, &angles, Op::OWN);
        let a =
            self.attention([q, k, v], [self.sizes.batch, prefix, prefix], [arch.heads, arch.kv_heads], arch.head_dim);
        let a = project(self, "o_proj", a, [queries, width]);
        let x = self.add(x, a);
        let h = self.norm(&format!("{layer}.post_attention_layernorm"), x, width, &["weight"]);
        let h = self.mlp(&format!("{layer}.mlp"), arch, h);
        vec![self.add(x, h), k, v]
    }

    /// Two linears with SiLU behind each.
    fn condition(&mut self, name: &str, x: Id) -> Id {
        let width = self.sizes.arch.expert.width;
        ["in", "out"].into_iter().fold(x, |x, part| {
            let y = self.linear(&format!("{name}_{part}"), x, [width, width], true, F32);
            self.like(y, &[], Op::CANDLE)
        })
    }

    fn suffix_embedding(&mut self, x_t: Id, sinusoid: Id, state: Option<Id>) -> Vec<Id> {
        let arch = self.sizes.arch;
        let tokens = self.linear("action_in_proj", x_t, [arch.max_action_dim, arch.expert.width], true, F32);
        let tokens = self.graph.cast(tokens, self.sizes.each);
        let time = self.condition("time_mlp", sinusoid);
        let Some(state) = state else { return vec![tokens, time] };
        let state = self.linear("state_proj", state, [arch.max_state_dim, arch.expert.width], true, F32);
        let state = self.condition("state_mlp", state);
        if !self.sizes.time_per_step {
            return vec![tokens, self.add(time, state)];
        }
        let row = self.like(state, &[], Op::VIEW);
        let each_step = self.graph.apply(&[row], self.graph.size(time), Op::VIEW);
        vec![tokens, self.add(time, each_step)]
    }

    /// The normalised x and the modulation.
    fn ada_rms(&mut self, module: &str, x: Id, condition: Id) -> (Id, Id) {
        let width = self.sizes.arch.expert.width;
        let modulation = self.linear(&format!("{module}.dense"), condition, [width, 3 * width], true, F32);
        (self.like(x, &[modulation], Op::OWN), modulation)
    }

    fn suffix_layer(&mut self, index: usize, x: Id, condition: Id, cache: [Id; 2], angles: [Id; 2]) -> Id {
        let (sizes, arch) = (self.sizes, &self.sizes.arch.expert);
        let (batch, chunk, all) = (sizes.suffixes(), sizes.arch.chunk_size, sizes.prefix() + sizes.arch.chunk_size);
        let (width, queries, keys) = (arch.width, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let layer = format!("{}.layers.{index}", path::EXPERT);
        let (h, modulation) = self.ada_rms(&format!("{layer}.input_layernorm"), x, condition);
        let project = |s: &mut Self, name: &str, x: Id, shape: [usize; 2]| {
            s.linear(&format!("{layer}.self_attn.{name}"), x, shape, false, sizes.each)
        };
        let q = project(self, "q_proj", h, [width, queries]);
        let q = self.like(q, &angles, Op::OWN);
        let k = project(self, "k_proj", h, [width, keys]);
        let k = self.like(k, &angles, Op::OWN);
        let v = project(self, "v_proj", h, [width, keys]);
        let joined = sizes.compute(&[batch, all, keys]);
        let [k, v] = [(cache[0], k), (cache[1], v)].map(|(prefix, own)| {
            let prefix = self.repeated(prefix);
            self.graph.apply(&[prefix, own], joined, Op::CANDLE)
        });
        let a = self.attention([q, k, v], [batch, chunk, all], [arch.heads, arch.kv_heads], arch.head_dim);
        let a = project(self, "o_proj", a, [queries, width]);
        let x = self.like(x, &[a, modulation], Op::OWN);
        let (h, modulation) = self.ada_rms(&format!("{layer}.post_attention_layernorm"), x, condition);
        let h = self.mlp(&format!("{layer}.mlp"), arch, h);
        self.like(x, &[h, modulation], Op::OWN)
    }

    /// The keys or values of the prefix for each of its branches; their gradients are summed in f32.
    fn repeated(&mut self, prefix: Id) -> Id {
        let sizes = self.sizes;
        if sizes.branches == 1 {
            return prefix;
        }
        let wide = self.graph.cast(prefix, F32);
        let row = self.like(wide, &[], Op::VIEW);
        let Size { elements, .. } = self.graph.size(row);
        let all = Size { elements: elements * sizes.branches as u64, each: F32 };
        let expanded = self.graph.apply(&[row], all, Op::VIEW);
        if sizes.each == F32 {
            return self.like(expanded, &[], Op::CANDLE);
        }
        let narrow = self.graph.cast(expanded, sizes.each);
        self.like(narrow, &[], Op::VIEW)
    }

    fn suffix_head(&mut self, x: Id, condition: Id) -> Id {
        let (arch, width) = (self.sizes.arch, self.sizes.arch.expert.width);
        let (h, _) = self.ada_rms(&format!("{}.norm", path::EXPERT), x, condition);
        self.linear("action_out_proj", h, [width, arch.max_action_dim], true, F32)
    }
}

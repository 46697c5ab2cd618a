//! Initial weights of a network that starts from nothing.

use candle_core::{Device, Result, Tensor};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::policy::weights::WeightSource;
use crate::random::{fill, stream};

/// Tensors of more elements are drawn in parallel, block by block: the full size has 3.35 billion numbers.
const LARGE: usize = 1 << 22;

/// Random weights, each tensor a pure function of (seed, name), whatever the number of threads.
///
/// * Gemma linears and the projector: normal with variance 1/in (openpi's `lecun_normal`); SigLIP linears: Xavier
///   uniform, zero bias; action, time and state projections: PyTorch's default U(±1/√in), bias included.
/// * Token embedding: variance 1/width, so that tokens enter with variance one after their factor √width; position
///   embedding: the same.
/// * Norms start as plain normalisation. AdaRMS: the projection of the condition is zero as in openpi and LeRobot;
///   its bias gives scale 0, shift 0 and gate 1, so that the expert starts as an ordinary pre-norm transformer
///   (with gate 0 nothing but the heads would have a gradient at first).
/// * `state_mlp_out` is zero: the state's branch starts without influence.
#[derive(Debug, Clone, Copy)]
pub struct RandomInit {
    pub seed: u64,
}

enum Law {
    Constant(f32),
    Normal {
        deviation: f32,
    },
    Uniform {
        bound: f32,
    },
    /// Scale and shift 0, gate 1.
    GateOpen,
}

/// The law of the tensor `name`.
fn law(name: &str, shape: &[usize]) -> Law {
    let inner = shape.iter().skip(1).product::<usize>().max(1) as f32;
    let out = shape.first().copied().unwrap_or(1) as f32;
    let (module, kind) = name.rsplit_once('.').unwrap_or(("", name));
    let (weight, vision) = (kind == "weight", name.contains("vision_tower"));
    if module == "state_mlp_out" {
        return Law::Constant(0.0);
    }
    if module.ends_with(".dense") {
        return if weight { Law::Constant(0.0) } else { Law::GateOpen };
    }
    if shape.len() == 1 && weight {
        // LayerNorm's weight is the factor, RMSNorm's the offset from one.
        return Law::Constant(if vision { 1.0 } else { 0.0 });
    }
    let head = !name.contains("paligemma_with_expert");
    match (vision, weight) {
        _ if name.ends_with("embed_tokens.weight") || name.ends_with("position_embedding.weight") => {
            Law::Normal { deviation: 1.0 / inner.sqrt() }
        }
        _ if name.ends_with("patch_embedding.weight") => Law::Normal { deviation: 1.0 / inner.sqrt() },
        (true, true) => Law::Uniform { bound: (6.0 / (inner + out)).sqrt() },
        (false, true) if !head => Law::Normal { deviation: 1.0 / inner.sqrt() },
        (false, true) => Law::Uniform { bound: 1.0 / inner.sqrt() },
        (false, false) if head => Law::Uniform { bound: 1.0 / head_inputs(module, out).sqrt() },
        _ => Law::Constant(0.0),
    }
}

/// Inputs of a head's linear, which a bias alone does not tell: all are square but the two action projections and
/// `state_proj`, whose 32 padded inputs or the expert's width are near enough for a bias.
fn head_inputs(module: &str, out: f32) -> f32 {
    if module == "action_in_proj" || module == "state_proj" { 32.0 } else { out }
}

impl WeightSource for RandomInit {
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        let count = shape.iter().product();
        let values: Vec<f32> = match law(name, shape) {
            Law::Constant(value) => vec![value; count],
            Law::Normal { deviation } => self.draw(name, count, |random| {
                let z: f32 = StandardNormal.sample(random);
                z * deviation
            }),
            Law::Uniform { bound } => self.draw(name, count, |random| random.random_range(-bound..bound)),
            Law::GateOpen => (0..count).map(|i| if 3 * i >= 2 * count { 1.0 } else { 0.0 }).collect(),
        };
        Tensor::from_vec(values, shape, device)
    }
}

impl RandomInit {
    /// `count` numbers by `one`: from one stream, or of a large tensor each block from its own.
    fn draw(&self, name: &str, count: usize, one: impl Fn(&mut ChaCha8Rng) -> f32 + Sync) -> Vec<f32> {
        let purpose = format!("init/{name}");
        if count <= LARGE {
            let mut random = stream(self.seed, &purpose, &[]);
            return (0..count).map(|_| one(&mut random)).collect();
        }
        fill(self.seed, &purpose, count, one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize]) -> Vec<f32> {
        let tensor = RandomInit { seed: 1 }.tensor(name, shape, &Device::Cpu).and_then(|t| t.flatten_all()?.to_vec1());
        tensor.expect("random tensors can be made")
    }

    #[test]
    fn each_tensor_follows_the_law_of_its_name() {
        let square = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>() / v.len() as f32;
        let q = tensor("paligemma_with_expert.gemma_expert.model.layers.0.self_attn.q_proj.weight", &[128, 64]);
        assert!((square(&q) - 1.0 / 64.0).abs() < 2e-3);
        let out = tensor("action_out_proj.weight", &[32, 64]);
        assert!(out.iter().all(|v| v.abs() <= 0.125) && square(&out) > 0.003);
        let gate = tensor("paligemma_with_expert.gemma_expert.model.norm.dense.bias", &[6]);
        assert_eq!(gate, [0., 0., 0., 0., 1., 1.]);
        let dense = tensor("paligemma_with_expert.gemma_expert.model.norm.dense.weight", &[6, 2]);
        assert!(dense.iter().chain(&tensor("state_mlp_out.weight", &[2, 2])).all(|&v| v == 0.0));
        let tower = "paligemma_with_expert.paligemma.model.vision_tower.vision_model";
        assert_eq!(tensor(&format!("{tower}.post_layernorm.weight"), &[2]), [1., 1.]);
        assert_eq!(tensor(&format!("{tower}.post_layernorm.bias"), &[2]), [0., 0.]);
        assert_eq!(tensor("paligemma_with_expert.paligemma.model.language_model.norm.weight", &[2]), [0., 0.]);
    }

    #[test]
    fn tensors_repeat_by_name_and_differ_between_names() {
        let a = tensor("time_mlp_in.weight", &[4, 4]);
        assert_eq!(a, tensor("time_mlp_in.weight", &[4, 4]));
        assert_ne!(a, tensor("time_mlp_out.weight", &[4, 4]));
    }

    /// Numbers of a small tensor, which the results of the built-in example follow from, and of a large one.
    #[test]
    fn the_numbers_stay() {
        let small = tensor("time_mlp_in.weight", &[64, 64]);
        let mut random = stream(1, "init/time_mlp_in.weight", &[]);
        assert!(small.iter().all(|&v| v == random.random_range(-0.125..0.125)), "one stream");
        let name = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight";
        let large = tensor(name, &[4097, 1024]);
        // The second block of 65,536 has a stream of its own; the deviation is 1/√1024.
        let mut random = stream(1, &format!("init/{name}"), &[1]);
        for value in &large[1 << 16..][..8] {
            let z: f32 = StandardNormal.sample(&mut random);
            assert_eq!(*value, z * (1.0 / 32.0));
        }
        let square = large.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / large.len() as f64;
        assert!((square * 1024.0 - 1.0).abs() < 3e-3, "{square}");
    }
}

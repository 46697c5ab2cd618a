//! Initial weights of a network that starts from nothing.

use candle_core::{Device, Result, Tensor};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::policy::weights::WeightSource;
use crate::random::stream;

/// Random weights, each tensor a pure function of (seed, name).
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
        let mut random = stream(self.seed, &format!("init/{name}"), &[]);
        let values: Vec<f32> = match law(name, shape) {
            Law::Constant(value) => vec![value; count],
            Law::Normal { deviation } => (0..count)
                .map(|_| {
                    let z: f32 = StandardNormal.sample(&mut random);
                    z * deviation
                })
                .collect(),
            Law::Uniform { bound } => (0..count).map(|_| random.random_range(-bound..bound)).collect(),
            Law::GateOpen => (0..count).map(|i| if 3 * i >= 2 * count { 1.0 } else { 0.0 }).collect(),
        };
        Tensor::from_vec(values, shape, device)
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
}

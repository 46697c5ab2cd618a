//! What the mathematics says about the gradient of each trained parameter, so that one that goes missing is told
//! from one that is rightly absent or zero.

use std::collections::BTreeMap;

use candle_core::{DType, Tensor};

use super::model::Policy;
use crate::adapter::plan::FirstGradient;

impl Policy {
    /// [`Policy::expectation`] of everything that trains.
    pub fn first_gradients(&self) -> BTreeMap<String, FirstGradient> {
        self.trained().iter().map(|t| (t.name.clone(), self.expectation(&t.name))).collect()
    }

    /// What to expect of the gradient of a trained parameter, by name, with the parameters as they stand.
    pub fn expectation(&self, parameter: &str) -> FirstGradient {
        use FirstGradient::{Never, NonZero, ZeroAtFirst};
        if self.is_last_query(parameter) {
            return ZeroAtFirst(
                "the language model's last queries are read by nobody; zero, so that it decays as in LeRobot",
            );
        }
        if self.is_behind_the_cache(parameter) {
            return Never("nothing reads the language model's last hidden state: only its keys and values count");
        }
        let zero = |name: &str| self.trained_or_frozen(name).is_some_and(|t| is_zero(&t));
        if let Some(module) = parameter.strip_suffix(".lora_A.weight")
            && zero(&format!("{module}.lora_B.weight"))
        {
            return ZeroAtFirst("the adapter's other factor starts at zero");
        }
        if parameter.ends_with(".self_attn.k_proj.bias") {
            return ZeroAtFirst("a key bias moves all logits of a row alike: its gradient is rounding noise");
        }
        let state_inner = ["state_proj.", "state_mlp_in."].iter().any(|module| parameter.starts_with(module));
        if state_inner && zero("state_mlp_out.weight") {
            return ZeroAtFirst("state_mlp_out starts at zero");
        }
        let condition = ["time_mlp_", "state_mlp_", "state_proj."].iter().any(|module| parameter.starts_with(module));
        if condition && self.condition_is_unread() {
            return ZeroAtFirst("the AdaRMS projections of the condition start at zero");
        }
        NonZero
    }

    /// The last layer's output, MLP and second norm, and the language model's final norm.
    fn is_behind_the_cache(&self, parameter: &str) -> bool {
        let unread = ["self_attn.o_proj.", "post_attention_layernorm.", "mlp."];
        let last = self.in_last_layer(parameter).is_some_and(|rest| unread.iter().any(|m| rest.starts_with(m)));
        last || parameter.contains("language_model.norm.")
    }

    /// The last layer's queries are read by nobody either. But the reference computes them together with the
    /// expert's, so that its autograd gives their weights a gradient of exactly zero where it gives the others
    /// none; AdamW then decays them. Ours reports the same zero without the computation.
    pub(super) fn is_last_query(&self, parameter: &str) -> bool {
        self.in_last_layer(parameter).is_some_and(|rest| rest.starts_with("self_attn.q_proj."))
    }

    /// The name within the language model's last layer.
    fn in_last_layer<'n>(&self, parameter: &'n str) -> Option<&'n str> {
        let (_, rest) = parameter.split_once("language_model.layers.")?;
        let (layer, rest) = rest.split_once('.')?;
        (layer.parse() == Ok(self.arch().vlm.depth - 1)).then_some(rest)
    }

    /// Whether every AdaRMS projection ignores the condition.
    fn condition_is_unread(&self) -> bool {
        let mut weights = self.parameters.iter().filter(|(name, _)| name.ends_with(".dense.weight"));
        let factors = self.trained().iter().filter(|t| t.name.ends_with(".dense.lora_B.weight"));
        weights.all(|(_, weight)| is_zero(&weight.value())) && factors.map(|t| t.var.as_tensor()).all(is_zero)
    }

    fn trained_or_frozen(&self, name: &str) -> Option<Tensor> {
        let trained = self.trained().iter().find(|t| t.name == name).map(|t| t.var.as_detached_tensor());
        trained.or_else(|| self.parameters.iter().find(|(n, _)| n == name).map(|(_, weight)| weight.value()))
    }
}

fn is_zero(tensor: &Tensor) -> bool {
    let largest = tensor.abs().and_then(|t| t.flatten_all()?.max(0)?.to_dtype(DType::F32)?.to_scalar::<f32>());
    largest.is_ok_and(|largest| largest == 0.0)
}

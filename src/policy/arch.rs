//! Sizes of the network.

use candle_transformers::models::{gemma, paligemma, siglip};
use serde::{Deserialize, Serialize};

use crate::config::train::{ModelConfig, PolicyKind, Preset};
use crate::error::{Explain, Kind};

/// All sizes of a policy network. Source: openpi's `gemma.py` and `siglip.py` variants, LeRobot's `modeling_pi05.py`.
#[derive(Debug, Clone, PartialEq)]
pub struct Arch {
    pub kind: PolicyKind,
    pub vision: VisionArch,
    /// The language model (Gemma-2B in the full size).
    pub vlm: GemmaArch,
    /// The action expert (Gemma-300M in the full size).
    pub expert: GemmaArch,
    pub vocab_size: usize,
    pub chunk_size: usize,
    pub max_state_dim: usize,
    pub max_action_dim: usize,
    /// Condition the action expert on the state (VLASH's addition to π₀.₅) instead of writing it into the prompt.
    pub state_cond: bool,
    /// Shortest and longest period of the time embedding.
    pub min_period: f64,
    pub max_period: f64,
}

/// SigLIP.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionArch {
    pub width: usize,
    pub depth: usize,
    pub heads: usize,
    pub mlp: usize,
    pub patch: usize,
    /// Side of the square input in pixels.
    pub image: usize,
    pub layer_norm_eps: f64,
}

/// One Gemma stream.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmaArch {
    pub width: usize,
    pub depth: usize,
    pub mlp: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f64,
    pub rope_theta: f64,
}

impl VisionArch {
    /// Tokens per image.
    pub fn tokens(&self) -> usize {
        (self.image / self.patch).pow(2)
    }
}

impl From<&siglip::VisionConfig> for VisionArch {
    fn from(config: &siglip::VisionConfig) -> VisionArch {
        VisionArch {
            width: config.hidden_size,
            depth: config.num_hidden_layers,
            heads: config.num_attention_heads,
            mlp: config.intermediate_size,
            patch: config.patch_size,
            image: config.image_size,
            layer_norm_eps: config.layer_norm_eps,
        }
    }
}

impl From<&gemma::Config> for GemmaArch {
    fn from(config: &gemma::Config) -> GemmaArch {
        GemmaArch {
            width: config.hidden_size,
            depth: config.num_hidden_layers,
            mlp: config.intermediate_size,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            rms_norm_eps: config.rms_norm_eps,
            rope_theta: config.rope_theta,
        }
    }
}

impl Arch {
    /// π₀.₅ at its published size: SigLIP So400m/14, Gemma-2B, Gemma-300M, chunks of 50, 32 padded dimensions.
    ///
    /// Vision tower and language model are PaliGemma's, whose sizes candle knows.
    pub fn full_pi05() -> Arch {
        let paligemma = paligemma::Config::paligemma_3b_224();
        let vlm = GemmaArch::from(&paligemma.text_config);
        Arch {
            kind: PolicyKind::Pi05,
            vision: VisionArch::from(&paligemma.vision_config),
            expert: GemmaArch { width: 1024, mlp: 4096, ..vlm.clone() },
            // Hugging Face pads PaliGemma's table by 64 rows for its image token; openpi and LeRobot do not.
            vocab_size: paligemma.text_config.vocab_size - 64,
            vlm,
            chunk_size: 50,
            max_state_dim: 32,
            max_action_dim: 32,
            state_cond: false,
            min_period: 4e-3,
            max_period: 4.0,
        }
    }

    /// π₀.₅ small enough for tests and for a laptop's CPU: 56 × 56 pixel images (16 tokens), two vision layers,
    /// three joint layers, a vocabulary of 1024, chunks of 10. `expert_width` is free (its MLP is twice as wide).
    pub fn tiny(expert_width: usize) -> Arch {
        let gemma = |width: usize| GemmaArch {
            width,
            depth: 3,
            mlp: 2 * width,
            // Eight heads as in the full size: LeRobot's joint layer has that number built in.
            heads: 8,
            kv_heads: 1,
            head_dim: 16,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
        };
        Arch {
            vision: VisionArch { width: 64, depth: 2, heads: 4, mlp: 108, patch: 14, image: 56, layer_norm_eps: 1e-6 },
            vlm: gemma(64),
            expert: gemma(expert_width),
            vocab_size: 1024,
            chunk_size: 10,
            ..Arch::full_pi05()
        }
    }

    /// π₀.₅ of 3.2 million parameters, which learns the simulated task and computes a chunk on a laptop's core in tens of
    /// milliseconds: 112 × 112 pixel images (64 tokens), four layers of width 128 in each part, the built-in
    /// tokenizer's vocabulary, chunks of 32 (a second at 30 Hz). In bfloat16 its weights take 6.4 MB.
    pub fn small() -> Arch {
        let gemma = GemmaArch {
            width: 128,
            depth: 4,
            mlp: 384,
            heads: 8,
            kv_heads: 1,
            head_dim: 32,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
        };
        Arch {
            vision: VisionArch {
                width: 128,
                depth: 4,
                heads: 4,
                mlp: 384,
                patch: 14,
                image: 112,
                layer_norm_eps: 1e-6,
            },
            vlm: gemma.clone(),
            expert: gemma,
            vocab_size: 1024,
            chunk_size: 32,
            ..Arch::full_pi05()
        }
    }

    /// The network that a training configuration asks for.
    ///
    /// The `tiny` preset takes an expert of width 64. Fails when `model.image_resolution` does not fit the vision tower.
    pub fn from_model(model: &ModelConfig) -> Result<Arch, ArchError> {
        let mut arch = match model.preset {
            Preset::Full => Arch::full_pi05(),
            Preset::Small => Arch::small(),
            Preset::Tiny => Arch::tiny(TINY_EXPERT_WIDTH),
        };
        arch.kind = model.kind;
        arch.chunk_size = model.chunk_size;
        arch.max_state_dim = model.max_state_dim;
        arch.max_action_dim = model.max_action_dim;
        arch.state_cond = model.state_cond;
        arch.min_period = model.min_period;
        arch.max_period = model.max_period;
        arch.check_resolution(model.image_resolution)?;
        arch.check()?;
        Ok(arch)
    }

    /// The network that is trained: `base`'s sizes with what a configuration may change about them, or those of
    /// [`Arch::from_model`] without a base.
    pub fn for_training(model: &ModelConfig, base: Option<&Arch>) -> Result<Arch, ArchError> {
        let Some(base) = base else { return Arch::from_model(model) };
        Ok(Arch {
            chunk_size: model.chunk_size,
            state_cond: model.state_cond,
            min_period: model.min_period,
            max_period: model.max_period,
            ..base.clone()
        })
    }

    /// The vision tower's position embedding has one row a patch, so the resolution is not free.
    pub(crate) fn check_resolution(&self, resolution: [usize; 2]) -> Result<(), ArchError> {
        let side = self.vision.image;
        if resolution != [side, side] {
            return Err(ArchError::Resolution { found: resolution, side });
        }
        Ok(())
    }

    /// What the mathematics needs of the sizes, whatever their source.
    pub(crate) fn check(&self) -> Result<(), ArchError> {
        let broken = |rule: &'static str, found: String| Err(ArchError::Impossible { rule, found });
        let (vision, vlm, expert) = (&self.vision, &self.vlm, &self.expert);
        // The limits keep every product of sizes within 64 bits and the list of parameters short, whatever a file says.
        let (layers, side, any) = (1 << 10, 1 << 12, 1 << 20);
        let sizes = [
            ("vision width", vision.width, any),
            ("vision depth", vision.depth, layers),
            ("vision heads", vision.heads, layers),
            ("vision mlp", vision.mlp, any),
            ("patch", vision.patch, side),
            ("image", vision.image, side),
            ("vlm width", vlm.width, any),
            ("vlm mlp", vlm.mlp, any),
            ("vlm depth", vlm.depth, layers),
            ("heads", vlm.heads, layers),
            ("key/value heads", vlm.kv_heads, layers),
            ("head dimension", vlm.head_dim, side),
            ("expert width", expert.width, any),
            ("expert mlp", expert.mlp, any),
            ("vocabulary", self.vocab_size, any),
            ("chunk_size", self.chunk_size, any),
            ("max_state_dim", self.max_state_dim, any),
            ("max_action_dim", self.max_action_dim, any),
        ];
        if let Some((name, size, _)) = sizes.iter().find(|(_, size, limit)| *size == 0 || size > limit) {
            return broken("a size is at least 1 and not absurdly large", format!("{name} = {size}"));
        }
        if !vision.width.is_multiple_of(vision.heads) {
            return broken(
                "the vision width is a multiple of its heads",
                format!("{} / {}", vision.width, vision.heads),
            );
        }
        if !vision.image.is_multiple_of(vision.patch) {
            return broken("the image is a whole number of patches", format!("{} / {}", vision.image, vision.patch));
        }
        let attention = |g: &GemmaArch| (g.depth, g.heads, g.kv_heads, g.head_dim);
        if attention(vlm) != attention(expert) {
            return broken(
                "both streams share depth, heads, key/value heads and head dimension (their attention is joint)",
                format!("{:?} and {:?}", attention(vlm), attention(expert)),
            );
        }
        if !vlm.heads.is_multiple_of(vlm.kv_heads) || vlm.head_dim % 2 == 1 {
            return broken(
                "heads are a multiple of key/value heads and the head dimension is even",
                format!("{} heads, {} key/value heads, head dimension {}", vlm.heads, vlm.kv_heads, vlm.head_dim),
            );
        }
        if expert.width % 2 == 1 {
            return broken("the expert width is even (sines and cosines of the time)", expert.width.to_string());
        }
        let periods = self.min_period.is_finite() && self.max_period.is_finite();
        if !periods || self.min_period <= 0.0 || self.max_period <= self.min_period {
            return broken("0 < min_period < max_period", format!("{} and {}", self.min_period, self.max_period));
        }
        Ok(())
    }
}

/// Width of the action expert in the `tiny` preset.
pub const TINY_EXPERT_WIDTH: usize = 64;

/// Sizes that differ from the named variants, as they lie in `config.json` under `tiny_dims`.
///
/// The shape is the one of the golden fixtures; LeRobot itself knows the two named variants only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TinyDims {
    pub vocab_size: usize,
    pub vision: VisionDims,
    pub vlm: GemmaDims,
    pub expert: GemmaDims,
}

/// Sizes of the vision tower, by the names of Hugging Face.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisionDims {
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub patch_size: usize,
    pub image_size: usize,
    /// Width of the language model, which the projector maps to.
    pub projection_dim: usize,
    #[serde(default = "norm_eps")]
    pub layer_norm_eps: f64,
    #[serde(default = "hidden_act")]
    pub hidden_act: String,
}

/// Sizes of a Gemma, by the names of openpi.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GemmaDims {
    pub width: usize,
    pub depth: usize,
    pub mlp_dim: usize,
    pub num_heads: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    #[serde(default = "norm_eps")]
    pub rms_norm_eps: f64,
    #[serde(default = "rope_theta")]
    pub rope_theta: f64,
    #[serde(default = "hidden_act")]
    pub hidden_act: String,
}

fn norm_eps() -> f64 {
    1e-6
}

fn rope_theta() -> f64 {
    10_000.0
}

/// The only activation that these networks have.
fn hidden_act() -> String {
    "gelu_pytorch_tanh".to_owned()
}

impl TinyDims {
    /// The sizes of `arch` in the form that is stored.
    pub fn of(arch: &Arch) -> TinyDims {
        let gemma = |g: &GemmaArch| GemmaDims {
            width: g.width,
            depth: g.depth,
            mlp_dim: g.mlp,
            num_heads: g.heads,
            num_kv_heads: g.kv_heads,
            head_dim: g.head_dim,
            rms_norm_eps: g.rms_norm_eps,
            rope_theta: g.rope_theta,
            hidden_act: hidden_act(),
        };
        TinyDims {
            vocab_size: arch.vocab_size,
            vision: VisionDims {
                hidden_size: arch.vision.width,
                num_hidden_layers: arch.vision.depth,
                num_attention_heads: arch.vision.heads,
                intermediate_size: arch.vision.mlp,
                patch_size: arch.vision.patch,
                image_size: arch.vision.image,
                projection_dim: arch.vlm.width,
                layer_norm_eps: arch.vision.layer_norm_eps,
                hidden_act: hidden_act(),
            },
            vlm: gemma(&arch.vlm),
            expert: gemma(&arch.expert),
        }
    }

    /// Puts these sizes into `arch`.
    pub(crate) fn apply(&self, arch: &mut Arch) -> Result<(), ArchError> {
        let activations = [&self.vision.hidden_act, &self.vlm.hidden_act, &self.expert.hidden_act];
        if let Some(other) = activations.into_iter().find(|a| **a != hidden_act()) {
            return Err(ArchError::Impossible { rule: "the activation is gelu_pytorch_tanh", found: other.clone() });
        }
        if self.vision.projection_dim != self.vlm.width {
            return Err(ArchError::Impossible {
                rule: "vision.projection_dim equals vlm.width",
                found: format!("{} and {}", self.vision.projection_dim, self.vlm.width),
            });
        }
        let gemma = |g: &GemmaDims| GemmaArch {
            width: g.width,
            depth: g.depth,
            mlp: g.mlp_dim,
            heads: g.num_heads,
            kv_heads: g.num_kv_heads,
            head_dim: g.head_dim,
            rms_norm_eps: g.rms_norm_eps,
            rope_theta: g.rope_theta,
        };
        arch.vocab_size = self.vocab_size;
        arch.vision = VisionArch {
            width: self.vision.hidden_size,
            depth: self.vision.num_hidden_layers,
            heads: self.vision.num_attention_heads,
            mlp: self.vision.intermediate_size,
            patch: self.vision.patch_size,
            image: self.vision.image_size,
            layer_norm_eps: self.vision.layer_norm_eps,
        };
        arch.vlm = gemma(&self.vlm);
        arch.expert = gemma(&self.expert);
        Ok(())
    }
}

/// Sizes that make no network.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArchError {
    #[error("image_resolution is {found:?}, but the vision tower of this policy sees {side} × {side} pixels")]
    Resolution { found: [usize; 2], side: usize },
    #[error("sizes of the network: {found}, but {rule}")]
    Impossible { rule: &'static str, found: String },
    #[error("{key} is {found:?}; this project knows {known} only")]
    Variant { key: &'static str, found: String, known: &'static str },
}

impl Explain for ArchError {
    fn kind(&self) -> Kind {
        Kind::Input
    }
    fn hint(&self) -> Option<String> {
        match self {
            ArchError::Resolution { side, .. } => Some(format!("model.image_resolution=[{side}, {side}]")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parameters::{ParameterSpec, parameters};

    /// The published sizes (openpi's `gemma.py` and `siglip.py`), written out against candle's.
    #[test]
    fn the_full_size_is_the_published_one() {
        let arch = Arch::full_pi05();
        let gemma = |width, mlp| GemmaArch {
            width,
            depth: 18,
            mlp,
            heads: 8,
            kv_heads: 1,
            head_dim: 256,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
        };
        let vision =
            VisionArch { width: 1152, depth: 27, heads: 16, mlp: 4304, patch: 14, image: 224, layer_norm_eps: 1e-6 };
        assert_eq!(arch.vision, vision);
        assert_eq!(arch.vision.tokens(), 256);
        assert_eq!((arch.vlm, arch.expert), (gemma(2048, 16_384), gemma(1024, 4096)));
        assert_eq!(arch.vocab_size, 257_152);
    }

    #[test]
    fn the_tiny_size_is_the_fixtures() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pi05-tiny/tiny_dims.json"));
        let dims: TinyDims = serde_json::from_str(text).unwrap();
        assert_eq!(TinyDims::of(&Arch::tiny(32)), dims);
        let mut arch = Arch { chunk_size: 10, ..Arch::full_pi05() };
        dims.apply(&mut arch).unwrap();
        assert_eq!(arch, Arch::tiny(32));
        arch.check().unwrap();
    }

    /// The policy in the box travels in the executable: its size is a promise.
    #[test]
    fn the_small_size_stays_below_eight_megabytes_in_bfloat16() {
        let arch = Arch { state_cond: true, ..Arch::small() };
        arch.check().unwrap();
        let elements: usize = parameters(&arch).iter().map(ParameterSpec::elements).sum();
        assert!((3_100_000..3_300_000).contains(&elements), "{elements}");
        assert!(2 * elements <= 8_000_000);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let refused = |change: fn(&mut Arch)| {
            let mut arch = Arch::tiny(32);
            change(&mut arch);
            assert!(arch.check().is_err(), "{arch:?}");
        };
        refused(|a| a.vision.heads = 3);
        refused(|a| a.vision.image = 57);
        refused(|a| a.vision.patch = 0);
        refused(|a| a.expert.head_dim = 8);
        refused(|a| a.expert.depth = 2);
        refused(|a| a.vlm.width = usize::MAX);
        refused(|a| a.vision.depth = 100_000);
        refused(|a| a.expert.width = 33);
        refused(|a| a.max_period = f64::NAN);
        refused(|a| a.min_period = 4.0);
    }
}

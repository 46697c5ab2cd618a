//! SigLIP and the projector into the language model's space. All cameras of a batch run stacked, as one batch.

use candle_core::{DType, Result, Tensor, bail};

use super::linear::{LayerNorm, Linear};
use super::weight::{Builder, Precision, Weight};
use crate::ops::attention::{Heads, attention};
use crate::ops::gelu::gelu;
use crate::ops::linear::linear;
use crate::policy::arch::VisionArch;
use crate::policy::segment::{Pass, Segment, Trained};

const TOWER: &str = "paligemma_with_expert.paligemma.model.vision_tower.vision_model";
const PROJECTOR: &str = "paligemma_with_expert.paligemma.model.multi_modal_projector.linear";

/// Patches to tokens: `[N, 3, R, R]` in [-1, 1] → `[N, T, width]`.
#[derive(Debug)]
pub struct Patches {
    weight: Weight,
    bias: Weight,
    position: Weight,
    arch: VisionArch,
    dtype: DType,
    trained: Vec<Trained>,
}

impl Patches {
    pub fn build(builder: &mut Builder, arch: &VisionArch) -> Result<Self> {
        let VisionArch { width, patch, .. } = *arch;
        let dtype = builder.dtype(Precision::Compute);
        let ((weight, bias, position), trained) = builder.part(|b| {
            let module = format!("{TOWER}.embeddings");
            Ok((
                b.weight(&format!("{module}.patch_embedding.weight"), &[width, 3, patch, patch], Precision::Full)?,
                b.weight(&format!("{module}.patch_embedding.bias"), &[width], Precision::Full)?,
                b.weight(&format!("{module}.position_embedding.weight"), &[arch.tokens(), width], Precision::Full)?,
            ))
        })?;
        Ok(Self { weight, bias, position, arch: arch.clone(), dtype, trained })
    }
}

impl Segment for Patches {
    fn name(&self) -> &str {
        "vision.embeddings"
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    /// The convolution without overlap as one product: pixels of a patch in a row, channel by channel.
    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [pixels] = inputs else { bail!("{}: one input is wanted", self.name()) };
        let (images, channels, height, width) = pixels.dims4()?;
        let (patch, side) = (self.arch.patch, self.arch.image / self.arch.patch);
        if (channels, height, width) != (3, self.arch.image, self.arch.image) {
            bail!("pixels {:?}, wanted 3×{1}×{1}", pixels.dims(), self.arch.image)
        }
        let rows = pixels
            .reshape(&[images, 3, side, patch, side, patch][..])?
            .permute([0, 2, 4, 1, 3, 5])?
            .reshape((images, side * side, 3 * patch * patch))?;
        let weight = self.weight.tensor(pass, DType::F32)?.reshape((self.arch.width, 3 * patch * patch))?;
        let tokens = linear(&rows, &weight, Some(&self.bias.tensor(pass, DType::F32)?))?;
        Ok(vec![tokens.broadcast_add(&self.position.tensor(pass, DType::F32)?)?.to_dtype(self.dtype)?])
    }
}

/// One encoder layer, `[N, T, width]` → the same.
#[derive(Debug)]
pub struct VisionLayer {
    name: String,
    norm_1: LayerNorm,
    norm_2: LayerNorm,
    /// q, k, v, out.
    attention: [Linear; 4],
    fc1: Linear,
    fc2: Linear,
    heads: Heads,
    trained: Vec<Trained>,
}

impl VisionLayer {
    pub fn build(builder: &mut Builder, arch: &VisionArch, index: usize) -> Result<Self> {
        let (module, width) = (format!("{TOWER}.encoder.layers.{index}"), arch.width);
        let (layer, trained) = builder.part(|b| {
            let mut square =
                |name: &str| b.linear(&format!("{module}.self_attn.{name}"), [width, width], true, Precision::Compute);
            let attention = [square("q_proj")?, square("k_proj")?, square("v_proj")?, square("out_proj")?];
            Ok(Self {
                name: format!("vision.layer.{index}"),
                attention,
                norm_1: LayerNorm::build(b, &format!("{module}.layer_norm1"), width, arch.layer_norm_eps)?,
                norm_2: LayerNorm::build(b, &format!("{module}.layer_norm2"), width, arch.layer_norm_eps)?,
                fc1: b.linear(&format!("{module}.mlp.fc1"), [width, arch.mlp], true, Precision::Compute)?,
                fc2: b.linear(&format!("{module}.mlp.fc2"), [arch.mlp, width], true, Precision::Compute)?,
                heads: Heads { query: arch.heads, key_value: arch.heads },
                trained: Vec::new(),
            })
        })?;
        Ok(Self { trained, ..layer })
    }
}

impl Segment for VisionLayer {
    fn name(&self) -> &str {
        &self.name
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [x] = inputs else { bail!("{}: one input is wanted", self.name) };
        let [q, k, v, out] = &self.attention;
        let h = self.norm_1.forward(x, pass)?;
        let (q, k, v) = (q.forward(&h, pass)?, k.forward(&h, pass)?, v.forward(&h, pass)?);
        let x = (x + out.forward(&attention(&q, &k, &v, None, self.heads)?, pass)?)?;
        let h = self.norm_2.forward(&x, pass)?;
        let h = self.fc2.forward(&gelu(&self.fc1.forward(&h, pass)?)?, pass)?;
        Ok(vec![(x + h)?])
    }
}

/// Final norm and projector: `[N, T, width]` → `[N, T, language width]`.
#[derive(Debug)]
pub struct VisionHead {
    norm: LayerNorm,
    projector: Linear,
    trained: Vec<Trained>,
}

impl VisionHead {
    pub fn build(builder: &mut Builder, arch: &VisionArch, language_width: usize) -> Result<Self> {
        let ((norm, projector), trained) = builder.part(|b| {
            let norm = LayerNorm::build(b, &format!("{TOWER}.post_layernorm"), arch.width, arch.layer_norm_eps)?;
            Ok((norm, b.linear(PROJECTOR, [arch.width, language_width], true, Precision::Compute)?))
        })?;
        Ok(Self { norm, projector, trained })
    }

    /// The tower's output in front of the projector.
    pub fn normalise(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.norm.forward(x, pass)
    }
}

impl Segment for VisionHead {
    fn name(&self) -> &str {
        "vision.head"
    }

    fn trained(&self) -> &[Trained] {
        &self.trained
    }

    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
        let [x] = inputs else { bail!("{}: one input is wanted", self.name()) };
        Ok(vec![self.projector.forward(&self.normalise(x, pass)?, pass)?])
    }
}

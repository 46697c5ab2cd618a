//! Lookup of token embeddings.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

#[cfg(feature = "cuda")]
use super::cuda;
use super::values;

/// Rows `tokens` (u32 `[B, L]`) of `weight` `[V, C]` times `scale`: `[B, L, C]`. A token beyond the vocabulary is
/// an error.
pub fn embedding(weight: &Tensor, tokens: &Tensor, scale: f64) -> Result<Tensor> {
    let (batch, length) = tokens.dims2()?;
    let vocabulary = weight.dim(0)?;
    let tokens: Vec<u32> = tokens.flatten_all()?.to_vec1()?;
    if let Some(token) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
        bail!("token {token} does not exist in a vocabulary of {vocabulary}")
    }
    weight.contiguous()?.apply_op1(Embedding { tokens, batch, length, scale: scale as f32 })
}

struct Embedding {
    tokens: Vec<u32>,
    batch: usize,
    length: usize,
    scale: f32,
}

impl CustomOp1 for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu_fwd(&self, weight: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let weight = values::of(weight, layout, "embedding")?;
        let mut out = Vec::with_capacity(self.tokens.len() * width);
        for &token in &self.tokens {
            out.extend(weight[token as usize * width..][..width].iter().map(|w| w * self.scale));
        }
        values::output(out, (self.batch, self.length, width))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, weight: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        cuda::embedding::embedding((weight, layout), &self.tokens, (self.batch, self.length, width), self.scale)
    }

    fn bwd(&self, weight: &Tensor, _y: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        #[cfg(feature = "cuda")]
        if weight.device().is_cuda() {
            return cuda::embedding::embedding_backward(weight, &self.tokens, &gradient, self.scale).map(Some);
        }
        let (_, width) = weight.dims2()?;
        let gradient = values::read(&gradient, "embedding")?;
        let mut out = vec![0.0; weight.elem_count()];
        for (&token, row) in self.tokens.iter().zip(gradient.chunks_exact(width.max(1))) {
            let out = &mut out[token as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(o, g)| *o += g * self.scale);
        }
        values::tensor_like(out, weight).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;
    use candle_core::Device;

    #[test]
    fn equals_candles_lookup_and_sums_the_gradients_of_repeated_tokens() -> Result<()> {
        let weight = numbers(1, (5, 3))?;
        let tokens = Tensor::new(&[[4u32, 0, 4], [1, 1, 1]], &Device::Cpu)?;
        let wanted = (weight.index_select(&tokens.flatten_all()?, 0)?.reshape((2, 3, 3))? * 8.0)?;
        assert!(difference(&embedding(&weight, &tokens, 8.0)?, &wanted)? < 1e-6);
        check(&[weight], 2e-3, |a| embedding(&a[0], &tokens, 8.0))
    }

    #[test]
    fn a_token_beyond_the_vocabulary_is_an_error() -> Result<()> {
        let message = embedding(&numbers(1, (5, 3))?, &Tensor::new(&[[5u32]], &Device::Cpu)?, 1.0).unwrap_err();
        assert!(message.to_string().contains("token 5 does not exist in a vocabulary of 5"));
        Ok(())
    }
}

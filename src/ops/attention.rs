//! Masked attention with grouped key/value heads.

use std::sync::Mutex;

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::math;
use super::matrix::{Matrix, Threads, Write, multiply};
use super::values;

/// What is added to a masked logit: openpi's constant. Finite, so that a row without any permitted key averages
/// uniformly instead of turning into NaN.
pub const MASKED: f32 = -2.381_976_3e38;

/// How heads lie in the last axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub query: usize,
    /// Divides `query`; each serves `query / key_value` query heads.
    pub key_value: usize,
}

/// `softmax(q·kᵀ/√D + mask)·v` for every head.
///
/// `q` `[B, S, heads·D]`, `k` and `v` `[B, K, kv_heads·D]`, result `[B, S, heads·D]`: heads stay where a projection
/// puts them, nothing is transposed. `mask` u8 `[B, 1, K]` (the same keys for every query) or `[B, S, K]`: 1 where
/// the query may attend to the key. Logits and softmax are f32.
///
/// When a gradient is wanted the probabilities are kept until the backward pass has used them.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, heads: Heads) -> Result<Tensor> {
    let sizes = Sizes::new(q, k, v, heads)?;
    if let Some(mask) = mask {
        sizes.check(mask)?;
    }
    #[cfg(feature = "cuda")]
    if q.device().is_cuda() {
        return super::cuda::attention::attention(q, k, v, mask, &sizes);
    }
    let mask = mask.map(Mask::new).transpose()?;
    let keep = q.track_op() || k.track_op() || v.track_op();
    let op = Attention { sizes, mask, kept: keep.then(Mutex::default) };
    q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, op)
}

/// The shapes of one attention.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// Query rows that share one product: all heads at once when there is one key/value head, else one head.
struct Block {
    rows: usize,
    /// First element and row stride in `[S, heads·D]`.
    query: usize,
    query_stride: usize,
    /// First element in `[K, kv_heads·D]`.
    key: usize,
    /// First row in the scores of the sample.
    score: usize,
    /// Rows of one query, for the mask.
    rows_per_query: usize,
}

impl Sizes {
    fn new(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Self> {
        let ((batch, queries, width), (k_batch, keys, k_width)) = (q.dims3()?, k.dims3()?);
        let grouped = heads.query > 0 && heads.key_value > 0 && heads.query.is_multiple_of(heads.key_value);
        if !grouped
            || k_batch != batch
            || v.dims() != k.dims()
            || width % heads.query != 0
            || k_width != width / heads.query * heads.key_value
        {
            bail!("attention: q {:?}, k {:?}, v {:?} with {heads:?}", q.dims(), k.dims(), v.dims())
        }
        let head_dim = width / heads.query;
        Ok(Self { batch, queries, keys, heads: heads.query, kv_heads: heads.key_value, head_dim })
    }

    /// Checks the mask's shape and type.
    fn check(&self, mask: &Tensor) -> Result<()> {
        let (batch, rows, keys) = mask.dims3()?;
        if batch != self.batch || keys != self.keys || (rows != 1 && rows != self.queries) {
            bail!("attention: mask {:?} for {} queries and {} keys", mask.dims(), self.queries, self.keys)
        }
        if mask.dtype() != DType::U8 {
            bail!("attention: the mask must be u8, it is {:?}", mask.dtype())
        }
        Ok(())
    }

    fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn scores(&self) -> usize {
        self.heads * self.queries * self.keys
    }

    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn blocks(&self) -> Vec<Block> {
        if self.kv_heads == 1 {
            let (rows, query_stride) = (self.queries * self.heads, self.head_dim);
            return vec![Block { rows, query: 0, query_stride, key: 0, score: 0, rows_per_query: self.heads }];
        }
        (0..self.heads)
            .map(|head| Block {
                rows: self.queries,
                query: head * self.head_dim,
                query_stride: self.query_width(),
                key: head / (self.heads / self.kv_heads) * self.head_dim,
                score: head * self.queries,
                rows_per_query: 1,
            })
            .collect()
    }

    /// One sample among many keeps its products on its own thread.
    fn threads(&self) -> Threads {
        if self.batch >= rayon::current_num_threads() { Threads::One } else { Threads::All }
    }

    fn queries_of<'a>(&self, block: &Block, values: &'a [f32]) -> Matrix<'a> {
        Matrix::strided(&values[block.query..], block.rows, self.head_dim, block.query_stride)
    }

    fn keys_of<'a>(&self, block: &Block, values: &'a [f32]) -> Matrix<'a> {
        Matrix::strided(&values[block.key..], self.keys, self.head_dim, self.key_width())
    }
}

struct Mask {
    per_query: bool,
    allowed: Vec<u8>,
}

impl Mask {
    /// Takes the bytes of a mask `[B, 1 or S, K]`.
    fn new(mask: &Tensor) -> Result<Self> {
        Ok(Mask { per_query: mask.dim(1)? != 1, allowed: mask.flatten_all()?.to_vec1()? })
    }

    /// The permitted keys of a query.
    fn row(&self, sizes: &Sizes, sample: usize, query: usize) -> &[u8] {
        let row = if self.per_query { sample * sizes.queries + query } else { sample };
        &self.allowed[row * sizes.keys..(row + 1) * sizes.keys]
    }
}

struct Attention {
    sizes: Sizes,
    mask: Option<Mask>,
    /// Probabilities `[B, heads·S, K]` between forward and backward; none: nobody will ask.
    kept: Option<Mutex<Vec<f32>>>,
}

impl Attention {
    /// Probabilities and output of one sample.
    fn sample(&self, sample: usize, q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let sizes = &self.sizes;
        for block in sizes.blocks() {
            let scores = &mut scores[block.score * sizes.keys..][..block.rows * sizes.keys];
            let (q, k) = (sizes.queries_of(&block, q), sizes.keys_of(&block, k));
            multiply(scores, sizes.keys, q, k.t(), Write::Overwrite, sizes.threads());
            for (row, scores) in scores.chunks_exact_mut(sizes.keys.max(1)).enumerate() {
                let mask = self.mask.as_ref().map(|m| m.row(sizes, sample, row / block.rows_per_query));
                softmax(scores, sizes.scale(), mask);
            }
            let scores = Matrix::new(scores, block.rows, sizes.keys);
            let out = &mut out[block.query..];
            multiply(out, block.query_stride, scores, sizes.keys_of(&block, v), Write::Overwrite, sizes.threads());
        }
    }

    /// Gradients of one sample; `p` its probabilities.
    #[expect(clippy::too_many_arguments, reason = "the operands of one formula")]
    fn sample_gradients(
        &self,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        p: &[f32],
        gradient: &[f32],
        dq: &mut [f32],
        dk: &mut [f32],
        dv: &mut [f32],
    ) {
        let (sizes, threads) = (&self.sizes, self.sizes.threads());
        let width = sizes.key_width();
        for block in sizes.blocks() {
            let p = &p[block.score * sizes.keys..][..block.rows * sizes.keys];
            let (g, probabilities) = (sizes.queries_of(&block, gradient), Matrix::new(p, block.rows, sizes.keys));
            multiply(&mut dv[block.key..], width, probabilities.t(), g, Write::Add, threads);
            let mut dp = vec![0.0; p.len()];
            multiply(&mut dp, sizes.keys, g, sizes.keys_of(&block, v).t(), Write::Overwrite, threads);
            for (dp, p) in dp.chunks_exact_mut(sizes.keys.max(1)).zip(p.chunks_exact(sizes.keys.max(1))) {
                let along = math::dot(dp, p);
                dp.iter_mut().zip(p).for_each(|(dp, p)| *dp = p * (*dp - along) * sizes.scale());
            }
            let dp = Matrix::new(&dp, block.rows, sizes.keys);
            let dq = &mut dq[block.query..];
            multiply(dq, block.query_stride, dp, sizes.keys_of(&block, k), Write::Overwrite, threads);
            multiply(&mut dk[block.key..], width, dp.t(), sizes.queries_of(&block, q), Write::Add, threads);
        }
    }
}

/// Turns logits into probabilities, in place.
fn softmax(scores: &mut [f32], scale: f32, mask: Option<&[u8]>) {
    match mask {
        Some(mask) => scores.iter_mut().zip(mask).for_each(|(score, &allowed)| {
            *score = if allowed == 0 { MASKED } else { *score * scale };
        }),
        None => scores.iter_mut().for_each(|score| *score *= scale),
    }
    let highest = math::highest(scores);
    // What lies 80 below the highest is nothing in f32; a masked logit must come out as exactly nothing.
    scores.iter_mut().for_each(|score| {
        let below = *score - highest;
        *score = if below < -80.0 { 0.0 } else { math::exp(below) };
    });
    let inverse = 1.0 / math::sum(scores);
    scores.iter_mut().for_each(|score| *score *= inverse);
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        ql: &Layout,
        k: &CpuStorage,
        kl: &Layout,
        v: &CpuStorage,
        vl: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = "attention";
        let (q, k, v) = (values::of(q, ql, name)?, values::of(k, kl, name)?, values::of(v, vl, name)?);
        let sizes = &self.sizes;
        let (query, key) = (sizes.queries * sizes.query_width(), sizes.keys * sizes.key_width());
        let mut out = vec![0.0; q.len()];
        let mut scores = vec![0.0; if self.kept.is_some() { sizes.batch * sizes.scores() } else { 0 }];
        let one = |sample: usize, out: &mut [f32], scores: &mut [f32]| {
            let (q, keys) = (&q[sample * query..][..query], sample * key..(sample + 1) * key);
            self.sample(sample, q, &k[keys.clone()], &v[keys], scores, out);
        };
        let samples = out.par_chunks_mut(query.max(1)).enumerate();
        match &self.kept {
            Some(kept) => {
                samples
                    .zip(scores.par_chunks_mut(sizes.scores().max(1)))
                    .for_each(|((sample, out), scores)| one(sample, out, scores));
                if let Ok(mut kept) = kept.lock() {
                    *kept = scores;
                }
            }
            None => samples.for_each(|(sample, out)| one(sample, out, &mut vec![0.0; sizes.scores()])),
        }
        values::output(out, ql.shape())
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _y: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (name, sizes) = ("attention", &self.sizes);
        let gradient = gradient.contiguous()?;
        let (qs, ks, vs) = (values::read(q, name)?, values::read(k, name)?, values::read(v, name)?);
        let gs = values::read(&gradient, name)?;
        let Some(kept) = self.kept.as_ref().and_then(|kept| kept.lock().ok()) else {
            bail!("attention: no probabilities were kept for the backward pass")
        };
        let (query, key) = (sizes.queries * sizes.query_width(), sizes.keys * sizes.key_width());
        let (mut dq, mut dk, mut dv) = (vec![0.0; qs.len()], vec![0.0; ks.len()], vec![0.0; vs.len()]);
        dq.par_chunks_mut(query.max(1))
            .zip(dk.par_chunks_mut(key.max(1)))
            .zip(dv.par_chunks_mut(key.max(1)))
            .enumerate()
            .for_each(|(sample, ((dq, dk), dv))| {
                let (queries, keys) = (sample * query..(sample + 1) * query, sample * key..(sample + 1) * key);
                let p = &kept[sample * sizes.scores()..(sample + 1) * sizes.scores()];
                let (q, g) = (&qs[queries.clone()], &gs[queries]);
                self.sample_gradients(q, &ks[keys.clone()], &vs[keys], p, g, dq, dk, dv);
            });
        let gradient_of = |tensor: &Tensor, values| tensor.track_op().then(|| values::tensor_like(values, tensor));
        Ok((gradient_of(q, dq).transpose()?, gradient_of(k, dk).transpose()?, gradient_of(v, dv).transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradcheck::{check, difference, numbers};
    use super::*;
    use candle_core::{D, Device};
    use rstest::rstest;

    /// The same from candle's own operations, head by head.
    fn composite(q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor, heads: Heads) -> Result<Tensor> {
        let (b, s, width) = q.dims3()?;
        let (d, keys, each) = (width / heads.query, k.dim(1)?, heads.query / heads.key_value);
        let spread = |t: &Tensor| -> Result<Tensor> {
            let t = t.reshape((b, keys, heads.key_value, 1, d))?.broadcast_as((b, keys, heads.key_value, each, d))?;
            t.reshape((b, keys, heads.query, d))?.transpose(1, 2)?.contiguous()
        };
        let q = q.reshape((b, s, heads.query, d))?.transpose(1, 2)?.contiguous()?;
        let logits = (q.matmul(&spread(k)?.t()?)? / (d as f64).sqrt())?;
        let mask = mask.broadcast_as((b, s, keys))?.unsqueeze(1)?.broadcast_as(logits.shape())?;
        let masked = Tensor::full(MASKED, logits.shape(), &Device::Cpu)?;
        let p = candle_nn::ops::softmax(&mask.where_cond(&logits, &masked)?, D::Minus1)?;
        p.matmul(&spread(v)?)?.transpose(1, 2)?.reshape((b, s, width))
    }

    #[rstest]
    #[case::one_key_value_head(Heads { query: 4, key_value: 1 })]
    #[case::grouped(Heads { query: 4, key_value: 2 })]
    #[case::as_many(Heads { query: 3, key_value: 3 })]
    fn equals_the_composite_and_has_the_gradients_of_finite_differences(#[case] heads: Heads) -> Result<()> {
        let (d, keys) = (2, 5);
        let q = numbers(1, (2, 3, heads.query * d))?;
        let (k, v) = (numbers(2, (2, keys, heads.key_value * d))?, numbers(3, (2, keys, heads.key_value * d))?);
        let by_key = Tensor::new(&[[[1u8, 1, 0, 1, 1]], [[0, 1, 1, 0, 0]]], &Device::Cpu)?;
        let by_query = Tensor::cat(&[&by_key, &Tensor::ones((2, 2, keys), DType::U8, &Device::Cpu)?], 1)?;
        for mask in [by_key, by_query] {
            let found = attention(&q, &k, &v, Some(&mask), heads)?;
            assert!(difference(&found, &composite(&q, &k, &v, &mask, heads)?)? < 1e-6);
            check(&[q.clone(), k.clone(), v.clone()], 1e-3, |a| attention(&a[0], &a[1], &a[2], Some(&mask), heads))?;
        }
        let all = Tensor::ones((2, 1, keys), DType::U8, &Device::Cpu)?;
        assert!(difference(&attention(&q, &k, &v, None, heads)?, &composite(&q, &k, &v, &all, heads)?)? < 1e-6);
        Ok(())
    }

    #[test]
    fn a_row_without_a_key_averages_and_a_masked_key_has_no_influence() -> Result<()> {
        let heads = Heads { query: 1, key_value: 1 };
        let (q, k, v) = (numbers(1, (1, 1, 2))?, numbers(2, (1, 3, 2))?, numbers(3, (1, 3, 2))?);
        let none = Tensor::zeros((1, 1, 3), DType::U8, &Device::Cpu)?;
        let found = attention(&q, &k, &v, Some(&none), heads)?;
        assert!(difference(&found, &v.mean_keepdim(1)?)? < 1e-6);
        let mask = Tensor::new(&[[[1u8, 1, 0]]], &Device::Cpu)?;
        let other = Tensor::cat(&[&v.narrow(1, 0, 2)?, &numbers(9, (1, 1, 2))?], 1)?;
        let (with, without) =
            (attention(&q, &k, &v, Some(&mask), heads)?, attention(&q, &k, &other, Some(&mask), heads)?);
        assert_eq!(difference(&with, &without)?, 0.0);
        Ok(())
    }
}

//! Attention from two batched products and a masked softmax between them.

use candle_core::{CpuStorage, CudaStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::{Arg, Grid, filled, hold, int, launch};
use crate::ops::attention::Sizes;

/// `softmax(q·kᵀ/√D + mask)·v`; shapes as in [`crate::ops::attention::attention`], `mask` u8 on the device.
///
/// Heads that share keys and values are folded into the rows of one product. With one key/value head that is how the
/// projections lie already; else heads are moved outside first.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, sizes: &Sizes) -> Result<Tensor> {
    let Sizes { batch, queries, keys, heads, kv_heads, head_dim } = *sizes;
    let each = heads / kv_heads;
    if kv_heads == 1 {
        let order = Order { divide: heads, rows_each: queries * heads };
        let q = q.contiguous()?.reshape((batch, queries * heads, head_dim))?;
        let out = core(&q, &k.contiguous()?, &v.contiguous()?, mask, sizes, order)?;
        return out.reshape((batch, queries, heads * head_dim));
    }
    let order = Order { divide: 1, rows_each: heads * queries };
    let groups = batch * kv_heads;
    let q = q.reshape((batch, queries, kv_heads, each, head_dim))?.permute([0, 2, 3, 1, 4])?;
    let q = q.contiguous()?.reshape((groups, each * queries, head_dim))?;
    let outside = |t: &Tensor| {
        t.reshape((batch, keys, kv_heads, head_dim))?.transpose(1, 2)?.contiguous()?.reshape((groups, keys, head_dim))
    };
    let out = core(&q, &outside(k)?, &outside(v)?, mask, sizes, order)?;
    let out = out.reshape((batch, kv_heads, each, queries, head_dim))?.permute([0, 3, 1, 2, 4])?;
    out.contiguous()?.reshape((batch, queries, heads * head_dim))
}

/// Where the query of a row of scores is found: rows of a sample, and rows that share a query.
#[derive(Debug, Clone, Copy)]
struct Order {
    divide: usize,
    rows_each: usize,
}

/// `q` `[G, R, D]`, `k`, `v` `[G, K, D]` → `[G, R, D]`.
fn core(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, sizes: &Sizes, order: Order) -> Result<Tensor> {
    let scores = q.detach().matmul(&k.detach().t()?)?;
    let probabilities = softmax(&scores, mask, sizes, order)?;
    drop(scores);
    q.apply_op3(k, v, Core { probabilities, scale: sizes.scale() })
}

/// Probabilities of the type of the scores.
fn softmax(scores: &Tensor, mask: Option<&Tensor>, sizes: &Sizes, order: Order) -> Result<Tensor> {
    let op = "attention";
    let rows = scores.elem_count() / sizes.keys.max(1);
    let mask = mask.map(Tensor::contiguous).transpose()?;
    let per_query = mask.as_ref().is_some_and(|mask| mask.dims().get(1) != Some(&1));
    let (scores_held, mask) = (hold(scores, op)?, mask.as_ref().map(|mask| hold(mask, op)).transpose()?);
    filled(scores, scores.dtype(), scores.shape(), |device, out| {
        let arguments = [
            scores_held.view.into(),
            Arg::Pointer(mask.as_ref().map_or(0, |mask| mask.view.pointer)),
            out.into(),
            int(sizes.keys)?,
            Arg::Float(sizes.scale()),
            int(order.rows_each)?,
            Arg::Int(i32::from(per_query)),
            int(order.divide)?,
            int(sizes.queries)?,
        ];
        launch(device, "softmax", out.dtype, Grid::rows(rows)?, &arguments)
    })
}

/// The second product, whose backward pass goes through both and the softmax.
struct Core {
    /// `[G, R, K]`, kept for the backward pass as long as the graph is.
    probabilities: Tensor,
    scale: f32,
}

impl CustomOp3 for Core {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        bail!("attention: this form runs on GPUs only")
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        ql: &Layout,
        _: &CudaStorage,
        _: &Layout,
        v: &CudaStorage,
        vl: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        use candle_core::backend::BackendStorage;
        let (groups, rows, keys) = self.probabilities.dims3()?;
        let (_, _, width) = vl.shape().dims3()?;
        let (p, pl) = self.probabilities.storage_and_layout();
        let candle_core::Storage::Cuda(p) = &*p else { bail!("attention: the probabilities left the GPU") };
        Ok((p.matmul(v, (groups, rows, width, keys), pl, vl)?, ql.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _y: &Tensor,
        g: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (p, g) = (&self.probabilities, g.contiguous()?);
        let (q_detached, k_detached, v_detached) = (q.detach(), k.detach(), v.detach());
        let v_gradient = v.track_op().then(|| p.t()?.matmul(&g)).transpose()?;
        if !q.track_op() && !k.track_op() {
            return Ok((None, None, v_gradient));
        }
        let scores = self.score_gradient(&g.matmul(&v_detached.t()?)?)?;
        let q_gradient = q.track_op().then(|| scores.matmul(&k_detached)).transpose()?;
        let k_gradient = k.track_op().then(|| scores.t()?.matmul(&q_detached)).transpose()?;
        Ok((q_gradient, k_gradient, v_gradient))
    }
}

impl Core {
    /// From the gradient of the probabilities to that of the products q·kᵀ.
    fn score_gradient(&self, g: &Tensor) -> Result<Tensor> {
        let op = "attention";
        let (_, _, keys) = g.dims3()?;
        let (p, held) = (hold(&self.probabilities, op)?, hold(g, op)?);
        filled(g, g.dtype(), g.shape(), |device, out| {
            let rows = out.elements / keys.max(1);
            let arguments = [p.view.into(), held.view.into(), out.into(), int(keys)?, Arg::Float(self.scale)];
            launch(device, "softmax_dx", out.dtype, Grid::rows(rows)?, &arguments)
        })
    }
}

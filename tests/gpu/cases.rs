//! The operations with the shapes that they are tried in: those of the network, odd ones, and views.

use candle_core::{DType, Result, Tensor};
use rand::Rng;
use vlash_forge::ops::ada_rms::ada_rms;
use vlash_forge::ops::attention::{Heads, attention};
use vlash_forge::ops::cotangent::cotangent;
use vlash_forge::ops::dropout::dropout;
use vlash_forge::ops::embedding::embedding;
use vlash_forge::ops::gated_gelu::gated_gelu;
use vlash_forge::ops::gated_residual::gated_residual;
use vlash_forge::ops::gelu::gelu;
use vlash_forge::ops::layer_norm::layer_norm;
use vlash_forge::ops::linear::linear;
use vlash_forge::ops::rms_norm::rms_norm;
use vlash_forge::ops::rope::{Rotation, rope};
use vlash_forge::random::stream;

/// The dtype of an argument when the operation computes in bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// bf16.
    Compute,
    /// f32 always: norm weights, modulations.
    Full,
}

/// A differentiable argument.
pub struct Argument {
    pub shape: Vec<usize>,
    pub scale: f32,
    pub kind: Kind,
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync>;

pub struct Case {
    pub name: String,
    pub arguments: Vec<Argument>,
    pub run: Function,
    /// Either all arguments train or none: they are projections of one input.
    pub together: bool,
}

impl Case {
    fn new(
        name: impl Into<String>,
        arguments: Vec<Argument>,
        run: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Case {
        Case { name: name.into(), arguments, run: Box::new(run), together: false }
    }
}

fn x(shape: &[usize]) -> Argument {
    Argument { shape: shape.to_vec(), scale: 1.0, kind: Kind::Compute }
}

fn scaled(shape: &[usize], scale: f32) -> Argument {
    Argument { scale, ..x(shape) }
}

fn full(shape: &[usize]) -> Argument {
    Argument { kind: Kind::Full, ..x(shape) }
}

/// An operation's name with its cases.
pub type Group = (&'static str, fn() -> Vec<Case>);

pub const GROUPS: [Group; 12] = [
    ("linear", linears),
    ("gelu", gelus),
    ("gated_gelu", gated_gelus),
    ("layer_norm", layer_norms),
    ("rms_norm", rms_norms),
    ("ada_rms", ada_rms_norms),
    ("gated_residual", gated_residuals),
    ("rope", ropes),
    ("embedding", embeddings),
    ("dropout", dropouts),
    ("cotangent", cotangents),
    ("attention", attentions),
];

fn linears() -> Vec<Case> {
    let shapes: [(&[usize], usize); 7] = [
        (&[2, 3, 5], 4),
        (&[1, 1], 1),
        (&[3, 17, 65], 33),
        (&[50, 32], 1024),
        (&[2, 256, 1152], 72),
        (&[7, 4304], 129),
        (&[968, 256], 512),
    ];
    let mut cases = Vec::new();
    for (shape, out) in shapes {
        let inner = shape[shape.len() - 1];
        let arguments = || vec![x(shape), x(&[out, inner])];
        cases.push(Case::new(format!("linear {shape:?}→{out}"), arguments(), |a| linear(&a[0], &a[1], None)));
        let with_bias = arguments().into_iter().chain([x(&[out])]).collect();
        cases.push(Case::new(format!("linear {shape:?}→{out}, bias"), with_bias, |a| {
            linear(&a[0], &a[1], Some(&a[2]))
        }));
    }
    cases.push(Case::new("linear of views", vec![x(&[7, 3, 2]), x(&[5, 9])], |a| {
        linear(&a[0].transpose(0, 2)?, &a[1].narrow(1, 1, 7)?, None)
    }));
    cases
}

fn gelus() -> Vec<Case> {
    let shapes: [&[usize]; 4] = [&[1], &[3, 20], &[5, 1, 4304], &[50_001]];
    let case = |shape: &[usize]| Case::new(format!("gelu {shape:?}"), vec![scaled(shape, 6.0)], |a| gelu(&a[0]));
    let view = Case::new("gelu of a view", vec![scaled(&[6, 10], 6.0)], |a| gelu(&a[0].t()?.narrow(0, 1, 7)?));
    shapes.into_iter().map(case).chain([view]).collect()
}

fn gated_gelus() -> Vec<Case> {
    let shapes: [&[usize]; 3] = [&[3, 20], &[33, 4097], &[50_001]];
    let case = |shape: &[usize]| Case {
        together: true,
        ..Case::new(format!("gated_gelu {shape:?}"), vec![scaled(shape, 6.0), x(shape)], |a| gated_gelu(&a[0], &a[1]))
    };
    shapes.into_iter().map(case).collect()
}

fn layer_norms() -> Vec<Case> {
    let shapes: [&[usize]; 4] = [&[2, 3, 7], &[1, 33], &[256, 1152], &[1000, 65]];
    let case = |shape: &[usize]| {
        let width = shape[shape.len() - 1];
        let arguments = vec![scaled(shape, 3.0), full(&[width]), full(&[width])];
        Case::new(format!("layer_norm {shape:?}"), arguments, |a| layer_norm(&a[0], &a[1], &a[2], 1e-6))
    };
    shapes.into_iter().map(case).collect()
}

fn rms_norms() -> Vec<Case> {
    let shapes: [&[usize]; 4] = [&[2, 3, 7], &[1, 33], &[968, 2048], &[3, 1025]];
    let case = |shape: &[usize]| {
        let arguments = vec![scaled(shape, 3.0), full(&[shape[shape.len() - 1]])];
        Case::new(format!("rms_norm {shape:?}"), arguments, |a| rms_norm(&a[0], &a[1], 1e-6))
    };
    shapes.into_iter().map(case).collect()
}

/// Input, and the modulation of each sample or of each token.
const MODULATED: [(&[usize], &[usize]); 5] = [
    (&[2, 3, 4], &[2, 12]),
    (&[1, 50, 1024], &[1, 3072]),
    (&[2, 5, 9], &[2, 5, 27]),
    (&[9, 10, 32], &[9, 96]),
    (&[2, 7, 33], &[1, 99]),
];

fn ada_rms_norms() -> Vec<Case> {
    let case = |(shape, modulation): (&[usize], &[usize])| {
        Case::new(format!("ada_rms {shape:?} by {modulation:?}"), vec![scaled(shape, 3.0), full(modulation)], |a| {
            ada_rms(&a[0], &a[1], 1e-6)
        })
    };
    MODULATED.into_iter().map(case).collect()
}

fn gated_residuals() -> Vec<Case> {
    let case = |(shape, modulation): (&[usize], &[usize])| {
        let arguments = vec![x(shape), x(shape), full(modulation)];
        Case::new(format!("gated_residual {shape:?} by {modulation:?}"), arguments, |a| {
            gated_residual(&a[0], &a[1], &a[2])
        })
    };
    MODULATED.into_iter().map(case).collect()
}

fn ropes() -> Vec<Case> {
    // Batch, tokens, heads, head_dim.
    let shapes = [(2, 4, 2, 6), (1, 50, 8, 256), (2, 33, 16, 72), (3, 1, 1, 2)];
    let case = |(batch, tokens, heads, head_dim): (usize, usize, usize, usize)| {
        let name = format!("rope {batch}×{tokens}, {heads} heads of {head_dim}");
        Case::new(name, vec![x(&[batch, tokens, heads * head_dim])], move |a| {
            let positions: Vec<i64> = (0..batch * tokens).map(|i| (i * 7 % 1013) as i64 - 1).collect();
            rope(&a[0], &Rotation::new(&positions, batch, head_dim, 10_000.0, a[0].device())?)
        })
    };
    shapes.into_iter().map(case).collect()
}

fn embeddings() -> Vec<Case> {
    // Vocabulary, width, batch, length.
    let shapes = [(5, 3, 2, 3), (1024, 64, 2, 10), (257, 33, 1, 200)];
    let case = |(vocabulary, width, batch, length): (usize, usize, usize, usize)| {
        let name = format!("embedding of {batch}×{length} in {vocabulary}×{width}");
        Case::new(name, vec![x(&[vocabulary, width])], move |a| {
            // Every third token is the last one: rows that repeat sum their gradients.
            let token = |i: usize| if i.is_multiple_of(3) { vocabulary - 1 } else { i * 31 % vocabulary };
            let tokens: Vec<u32> = (0..batch * length).map(|i| token(i) as u32).collect();
            let tokens = Tensor::from_vec(tokens, (batch, length), a[0].device())?;
            embedding(&a[0], &tokens, (width as f64).sqrt())
        })
    };
    shapes.into_iter().map(case).collect()
}

fn dropouts() -> Vec<Case> {
    let shapes: [(&[usize], f64); 4] = [(&[40, 50], 0.25), (&[3, 17, 65], 0.1), (&[100_003], 0.9), (&[5], 0.0)];
    let case = |(shape, probability): (&[usize], f64)| {
        Case::new(format!("dropout {shape:?} at {probability}"), vec![x(shape)], move |a| {
            // Without a draw the input itself comes back; one more factor makes it a node.
            dropout(&(&a[0] * 2.0)?, probability, 7, "a.q_proj")
        })
    };
    shapes.into_iter().map(case).collect()
}

fn cotangents() -> Vec<Case> {
    let shapes: [&[usize]; 3] = [&[3], &[2, 5, 7], &[40_001]];
    let case = |shape: &[usize]| {
        Case::new(format!("cotangent {shape:?}"), vec![x(shape)], |a| {
            // A scalar of value zero whose gradient is the input itself; f32 on a GPU whatever the input is.
            cotangent(&a[0], &(a[0].detach() * 0.5)?)?.to_dtype(a[0].dtype())
        })
    };
    shapes.into_iter().map(case).collect()
}

#[derive(Debug, Clone, Copy)]
enum Mask {
    None,
    /// The same keys for every query; the last sample has none.
    Keys,
    /// Each query its own; some have none.
    Queries,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: Heads,
    head_dim: usize,
}

fn attentions() -> Vec<Case> {
    let shape = |batch, [queries, keys]: [usize; 2], [query, key_value]: [usize; 2], head_dim| Shape {
        batch,
        queries,
        keys,
        heads: Heads { query, key_value },
        head_dim,
    };
    let shapes = [
        shape(2, [3, 5], [4, 2], 2),
        shape(1, [1, 1], [1, 1], 4),
        // The network: language model, action expert, vision tower; then the tiny one.
        shape(1, [130, 130], [8, 1], 256),
        shape(2, [50, 1018], [8, 1], 256),
        shape(2, [256, 256], [16, 16], 72),
        shape(2, [10, 58], [8, 1], 16),
        shape(3, [17, 33], [6, 3], 40),
        shape(1, [5, 1025], [3, 3], 24),
    ];
    let masks = [Mask::None, Mask::Keys, Mask::Queries];
    shapes.into_iter().flat_map(|shape| masks.into_iter().map(move |mask| attend(shape, mask))).collect()
}

fn attend(shape: Shape, mask: Mask) -> Case {
    let Shape { batch, queries, keys, heads, head_dim } = shape;
    let name = format!(
        "attention {batch}×{queries}×{keys}, {}/{} heads of {head_dim}, mask {mask:?}",
        heads.query, heads.key_value
    );
    let kv = [batch, keys, heads.key_value * head_dim];
    // Logits of some size, so that the softmax is far from uniform.
    let arguments = vec![scaled(&[batch, queries, heads.query * head_dim], 3.0), scaled(&kv, 2.0), x(&kv)];
    Case::new(name, arguments, move |a| {
        let mask = allowed(shape, mask)
            .map(|(rows, allowed)| Tensor::from_vec(allowed, (batch, rows, keys), a[0].device())?.to_dtype(DType::U8));
        attention(&a[0], &a[1], &a[2], mask.transpose()?.as_ref(), heads)
    })
}

/// Rows a sample and the bytes of a mask.
fn allowed(shape: Shape, mask: Mask) -> Option<(usize, Vec<u8>)> {
    let mut random = stream(1, "attention-mask", &[shape.keys as u64]);
    let rows = match mask {
        Mask::None => return None,
        Mask::Keys => 1,
        Mask::Queries => shape.queries,
    };
    let mut allowed = Vec::with_capacity(shape.batch * rows * shape.keys);
    for row in 0..shape.batch * rows {
        let empty = match mask {
            Mask::Keys => shape.batch > 1 && row + 1 == shape.batch,
            _ => row % 5 == 2,
        };
        allowed.extend((0..shape.keys).map(|_| u8::from(!empty && random.random_range(0..4) != 0)));
    }
    Some((rows, allowed))
}

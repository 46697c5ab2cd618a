//! Every operation of [`crate::ops`] at the sizes that the network has, forward and backward, against the roofline.
//!
//! One time is that of a pass over several sets of inputs, divided by their number, so that no result is read out of a
//! cache that the network would find cold. Backward means: gradients of the leading inputs, weights frozen.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::{D, DType, Device, Result as Tensors, Tensor, Var};
use serde_json::json;

use super::ceilings::repeat;
use super::error::BenchError;
use super::infer::sizes;
use super::inputs::uniform;
use super::place::{Place, Wanted};
use super::report::{Kind, Measure, Report, SCHEMA};
use crate::config::train::Preset;
use crate::ops::ada_rms::ada_rms;
use crate::ops::attention::{Heads, attention};
use crate::ops::cotangent::cotangent;
use crate::ops::dropout::dropout;
use crate::ops::embedding::embedding;
use crate::ops::gated_gelu::gated_gelu;
use crate::ops::gated_residual::gated_residual;
use crate::ops::gelu::gelu;
use crate::ops::layer_norm::layer_norm;
use crate::ops::linear::linear;
use crate::ops::rms_norm::rms_norm;
use crate::ops::rope::{Rotation, rope};
use crate::plan::cost::{Shape, Work};
use crate::policy::arch::Arch;

/// Bytes that the sets of inputs of an operation exceed together (a GPU's cache holds some ten million), and how many
/// sets there are at most.
const COLD: usize = 256 << 20;
const MOST_SETS: usize = 8;
const EPS: f64 = 1e-6;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    pub place: Wanted,
    /// None: `full` on a GPU, else `tiny`.
    pub preset: Option<Preset>,
    pub batch: usize,
    pub cameras: usize,
    /// Prompt tokens.
    pub prompt: usize,
    /// Passes that count, and passes before them.
    pub calls: usize,
    pub warmup: usize,
    /// Only operations whose name contains this.
    pub only: Option<String>,
}

/// Measures each operation.
pub fn run(settings: &Settings) -> Result<Report, BenchError> {
    let place = Place::open(settings.place, Instant::now())?;
    let preset = place.preset(settings.preset);
    let arch = sizes(preset);
    let shape = Shape { batch: settings.batch, cameras: settings.cameras, prompt: settings.prompt, suffixes: 1 };
    let mut measures = Vec::new();
    let mut notes = place.notes();
    notes.push("backward: gradients of activations; weights are frozen".into());
    let mut cases = cases(&arch, &shape, &place.device)?;
    if let Some(part) = &settings.only {
        let all: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        cases.retain(|case| case.name.contains(part.as_str()));
        if cases.is_empty() {
            let problem = format!("--only: no operation has {part:?} in its name; there are {}", all.join(", "));
            return Err(BenchError::Setting { problem, hint: "vlash bench ops --only attention" });
        }
    }
    for case in cases {
        match case.measure(&place, settings) {
            Ok(found) => measures.extend(found),
            // One operation that cannot run says so in the table instead of ending it.
            Err(BenchError::Compute(error)) => notes.push(format!("{}: failed: {error}", case.name)),
            Err(error) => return Err(error),
        }
    }
    let pairs = [
        ("preset", json!(preset)),
        ("dtype", json!(place.dtype)),
        ("batch", json!(settings.batch)),
        ("cameras", json!(settings.cameras)),
        ("prompt", json!(settings.prompt)),
        ("calls", json!(settings.calls)),
        ("warmup", json!(settings.warmup)),
    ];
    Ok(Report {
        schema: SCHEMA,
        kind: Kind::Ops,
        origin: place.origin(),
        settings: pairs.map(|(name, value)| (name.to_string(), value)).into_iter().collect(),
        memory: place.memory(None),
        ceilings: Some(place.ceilings),
        measures,
        rates: BTreeMap::new(),
        notes,
    })
}

/// An input of an operation.
#[derive(Debug, Clone)]
struct Input {
    shape: Vec<usize>,
    /// f32 whatever the activations are: weights of norms, modulations.
    full: bool,
    /// Its gradient is wanted.
    wanted: bool,
}

type Run = Box<dyn Fn(&[Tensor]) -> Tensors<Tensor>>;

struct Case {
    name: String,
    inputs: Vec<Input>,
    /// Operations of the forward; of the backward, which for a frozen weight is one product again.
    flops: [f64; 2],
    run: Run,
}

fn activation(shape: &[usize]) -> Input {
    Input { shape: shape.to_vec(), full: false, wanted: true }
}

fn weight(shape: &[usize]) -> Input {
    Input { shape: shape.to_vec(), full: false, wanted: false }
}

fn full(shape: &[usize], wanted: bool) -> Input {
    Input { shape: shape.to_vec(), full: true, wanted }
}

/// The operations of one layer of each kind.
fn cases(arch: &Arch, shape: &Shape, device: &Device) -> Tensors<Vec<Case>> {
    let mut cases = linears(arch, shape);
    cases.extend(norms(arch, shape));
    cases.extend(elementwise(arch, shape));
    cases.extend(attentions(arch, shape));
    cases.extend(ropes(arch, shape, device)?);
    cases.push(prompt(arch, shape, device)?);
    Ok(cases)
}

fn case(
    name: String,
    inputs: Vec<Input>,
    flops: [f64; 2],
    run: impl Fn(&[Tensor]) -> Tensors<Tensor> + 'static,
) -> Case {
    Case { name, inputs, flops, run: Box::new(run) }
}

/// Rows of the vision tower, the prefix and the suffix.
fn rows(arch: &Arch, shape: &Shape) -> [[usize; 2]; 3] {
    [
        [shape.batch * shape.cameras, arch.vision.tokens()],
        [shape.batch, shape.prefix(arch)],
        [shape.batch * shape.suffixes, arch.chunk_size],
    ]
}

fn linears(arch: &Arch, shape: &Shape) -> Vec<Case> {
    let [tower, prefix, suffix] = rows(arch, shape);
    let (v, g, e) = (&arch.vision, &arch.vlm, &arch.expert);
    let queries = g.heads * g.head_dim;
    let sizes = [
        ("vision q", tower, v.width, v.width),
        ("vision fc1", tower, v.width, v.mlp),
        ("vision fc2", tower, v.mlp, v.width),
        ("prefix q", prefix, g.width, queries),
        ("prefix k", prefix, g.width, g.kv_heads * g.head_dim),
        ("prefix gate", prefix, g.width, g.mlp),
        ("prefix down", prefix, g.mlp, g.width),
        ("suffix q", suffix, e.width, queries),
        ("suffix gate", suffix, e.width, e.mlp),
        ("suffix down", suffix, e.mlp, e.width),
    ];
    let of = |(name, [batch, tokens], inner, out): (&str, [usize; 2], usize, usize)| {
        let flops = 2.0 * (batch * tokens * inner * out) as f64;
        case(
            format!("linear {name} [{batch}, {tokens}, {inner}] to {out}"),
            vec![activation(&[batch, tokens, inner]), weight(&[out, inner])],
            [flops, flops],
            |t| linear(&t[0], &t[1], None),
        )
    };
    sizes.into_iter().map(of).collect()
}

fn norms(arch: &Arch, shape: &Shape) -> Vec<Case> {
    let [[images, tokens], [batch, prefix], [suffixes, chunk]] = rows(arch, shape);
    let (v, g, e) = (arch.vision.width, arch.vlm.width, arch.expert.width);
    vec![
        case(
            format!("layer_norm [{images}, {tokens}, {v}]"),
            vec![activation(&[images, tokens, v]), full(&[v], false), full(&[v], false)],
            [0.0; 2],
            |t| layer_norm(&t[0], &t[1], &t[2], EPS),
        ),
        case(
            format!("rms_norm [{batch}, {prefix}, {g}]"),
            vec![activation(&[batch, prefix, g]), full(&[g], false)],
            [0.0; 2],
            |t| rms_norm(&t[0], &t[1], EPS),
        ),
        case(
            format!("ada_rms [{suffixes}, {chunk}, {e}]"),
            vec![activation(&[suffixes, chunk, e]), full(&[suffixes, 3 * e], true)],
            [0.0; 2],
            |t| ada_rms(&t[0], &t[1], EPS),
        ),
        case(
            format!("gated_residual [{suffixes}, {chunk}, {e}]"),
            vec![activation(&[suffixes, chunk, e]), activation(&[suffixes, chunk, e]), full(&[suffixes, 3 * e], true)],
            [0.0; 2],
            |t| gated_residual(&t[0], &t[1], &t[2]),
        ),
    ]
}

fn elementwise(arch: &Arch, shape: &Shape) -> Vec<Case> {
    let [[images, tokens], [batch, prefix], [suffixes, chunk]] = rows(arch, shape);
    let (v, g, e) = (arch.vision.mlp, arch.vlm.mlp, arch.expert.mlp);
    let gated = |name: &str, sides: [usize; 3]| {
        let inputs = vec![activation(&sides), activation(&sides)];
        case(format!("gated_gelu {name} {sides:?}"), inputs, [0.0; 2], |t| gated_gelu(&t[0], &t[1]))
    };
    vec![
        case(format!("gelu [{images}, {tokens}, {v}]"), vec![activation(&[images, tokens, v])], [0.0; 2], |t| {
            gelu(&t[0])
        }),
        gated("prefix", [batch, prefix, g]),
        gated("suffix", [suffixes, chunk, e]),
        case(
            format!("dropout [{batch}, {prefix}, {}]", arch.vlm.width),
            vec![activation(&[batch, prefix, arch.vlm.width])],
            [0.0; 2],
            |t| dropout(&t[0], 0.1, 1, "bench"),
        ),
    ]
}

fn attentions(arch: &Arch, shape: &Shape) -> Vec<Case> {
    let [[images, tokens], [batch, prefix], [suffixes, chunk]] = rows(arch, shape);
    let (v, g) = (&arch.vision, &arch.vlm);
    let tower = Heads { query: v.heads, key_value: v.heads };
    let joint = Heads { query: g.heads, key_value: g.kv_heads };
    let (queries, keys) = (g.heads * g.head_dim, g.kv_heads * g.head_dim);
    let of = |name: &str, [batch, q, k]: [usize; 3], [width, kv]: [usize; 2], heads: Heads| {
        let flops = 4.0 * (batch * q * k * width) as f64;
        case(
            format!("attention {name} [{batch}, {q}, {width}] over {k}"),
            vec![activation(&[batch, q, width]), activation(&[batch, k, kv]), activation(&[batch, k, kv])],
            [flops, 2.0 * flops],
            move |t| attention(&t[0], &t[1], &t[2], None, heads),
        )
    };
    vec![
        of("vision", [images, tokens, tokens], [v.width, v.width], tower),
        of("prefix", [batch, prefix, prefix], [queries, keys], joint),
        of("suffix", [suffixes, chunk, prefix + chunk], [queries, keys], joint),
    ]
}

fn ropes(arch: &Arch, shape: &Shape, device: &Device) -> Tensors<Vec<Case>> {
    let [_, [batch, prefix], _] = rows(arch, shape);
    let g = &arch.vlm;
    let positions: Vec<i64> = (0..batch).flat_map(|_| 0..prefix as i64).collect();
    let of = |(name, heads): (&str, usize)| {
        let rotation = Rotation::new(&positions, batch, g.head_dim, g.rope_theta, device)?;
        let shape = [batch, prefix, heads * g.head_dim];
        Ok(case(format!("rope {name} {shape:?}"), vec![activation(&shape)], [0.0; 2], move |t| rope(&t[0], &rotation)))
    };
    [("queries", g.heads), ("keys", g.kv_heads)].into_iter().map(of).collect()
}

fn prompt(arch: &Arch, shape: &Shape, device: &Device) -> Tensors<Case> {
    let (batch, length, width) = (shape.batch, shape.prompt, arch.vlm.width);
    // The table itself would be 1 GB of which a prompt reads some rows; so many rows are enough.
    let vocabulary = arch.vocab_size.min(16 * batch * length.max(1));
    let ids = (0..batch * length).map(|i| ((i * 7919) % vocabulary) as u32).collect();
    let tokens = Tensor::from_vec::<_, u32>(ids, (batch, length), device)?;
    Ok(case(
        format!("embedding [{batch}, {length}] of {width}"),
        vec![Input { wanted: false, ..activation(&[vocabulary, width]) }],
        [0.0; 2],
        move |t| embedding(&t[0], &tokens, 1.0),
    ))
}

impl Case {
    fn measure(&self, place: &Place, settings: &Settings) -> Result<Vec<Measure>, BenchError> {
        let (device, dtype) = (&place.device, place.tensor_dtype());
        let sets = self.sets(device, dtype)?;
        let each = |times: Vec<f64>| times.into_iter().map(|t| t / sets.len() as f64).collect::<Vec<f64>>();
        let (warmup, calls) = (settings.warmup, settings.calls);
        let times = repeat(device, warmup, calls, || Ok(sets.iter().try_for_each(|t| (self.run)(t).map(drop))?))?;
        let output = self.output(&sets)?;
        let traffic = self.traffic(&output, dtype);
        let row = |pass: &str, times: &[f64], work: Work| {
            Measure::of(format!("{} {pass}", self.name), times).work(&work, &place.ceilings)
        };
        let work = |index: usize| Work { linear: self.flops[index], attention: 0.0, bytes: traffic[index] };
        let mut rows = vec![row("forward", &each(times), work(0))];
        if self.inputs.iter().any(|input| input.wanted) {
            let times = self.backward(&sets, &output, device, settings)?;
            rows.push(row("backward", &each(times), work(1)));
        }
        Ok(rows)
    }

    fn sets(&self, device: &Device, dtype: DType) -> Result<Vec<Vec<Tensor>>, BenchError> {
        let elements: usize = self.inputs.iter().map(|input| input.shape.iter().product::<usize>()).sum();
        let count = (COLD / (elements * dtype.size_in_bytes()).max(1)).clamp(1, MOST_SETS);
        let of = |set: usize| {
            let one = |(index, input): (usize, &Input)| {
                let dtype = if input.full { DType::F32 } else { dtype };
                uniform(set as u64, &format!("bench/{}/{index}", self.name), &input.shape, dtype, device)
            };
            self.inputs.iter().enumerate().map(one).collect()
        };
        (0..count).map(of).collect()
    }

    fn output(&self, sets: &[Vec<Tensor>]) -> Result<Tensor, BenchError> {
        let first = sets.first().map(Vec::as_slice).unwrap_or_default();
        let output = (self.run)(first)?;
        let total = output.to_dtype(DType::F32)?.abs()?.flatten_all()?.max(D::Minus1)?.to_scalar::<f32>()?;
        if total.is_finite() { Ok(output) } else { Err(BenchError::NotFinite { what: "the output of an operation" }) }
    }

    /// Fewest bytes: every input read and the output written; backward: the output's gradient and all inputs read, the
    /// wanted gradients written. Of a table, the rows that are taken.
    fn traffic(&self, output: &Tensor, dtype: DType) -> [f64; 2] {
        let bytes = |input: &Input| {
            let width = if input.full { 4 } else { dtype.size_in_bytes() };
            (input.shape.iter().product::<usize>() * width) as f64
        };
        let written = (output.elem_count() * output.dtype().size_in_bytes()) as f64;
        if self.inputs.len() == 1 && self.inputs.iter().all(|input| !input.wanted) {
            return [2.0 * written; 2];
        }
        let read: f64 = self.inputs.iter().map(bytes).sum();
        let wanted: f64 = self.inputs.iter().filter(|input| input.wanted).map(bytes).sum();
        // A frozen product needs the weight, not the activation.
        let needed = if self.name.starts_with("linear") { read - wanted } else { read };
        [read + written, written + needed + wanted]
    }

    /// Seconds of the backward alone; graphs are recorded outside of the time.
    fn backward(
        &self,
        sets: &[Vec<Tensor>],
        output: &Tensor,
        device: &Device,
        settings: &Settings,
    ) -> Result<Vec<f64>, BenchError> {
        let gradient = uniform(1, "bench/gradient", output.dims(), output.dtype(), device)?;
        let leaves: Vec<Vec<Tensor>> = sets.iter().map(|set| self.leaves(set)).collect::<Tensors<_>>()?;
        let mut times = Vec::with_capacity(settings.calls);
        for pass in 0..settings.warmup + settings.calls {
            let recorded = |set: &Vec<Tensor>| cotangent(&(self.run)(set)?, &gradient);
            let seeds: Vec<Tensor> = leaves.iter().map(recorded).collect::<Tensors<_>>()?;
            device.synchronize()?;
            let begun = Instant::now();
            for seed in &seeds {
                seed.backward()?;
            }
            device.synchronize()?;
            if pass >= settings.warmup {
                times.push(begun.elapsed().as_secs_f64());
            }
        }
        Ok(times)
    }

    /// Inputs as variables where a gradient is wanted.
    fn leaves(&self, set: &[Tensor]) -> Tensors<Vec<Tensor>> {
        let leaf = |(tensor, input): (&Tensor, &Input)| match input.wanted {
            true => Ok(Var::from_tensor(tensor)?.into_inner()),
            false => Ok(tensor.clone()),
        };
        set.iter().zip(&self.inputs).map(leaf).collect()
    }
}

//! Training by segments: forward and backward of a piece of the network at a time.
//!
//! A network trains as a chain of [`Segment`]s joined by a [`Tape`]. One boundary serves three purposes: activation
//! checkpointing (with recomputation only the *inputs* of each segment are kept, and one segment's graph is alive
//! at a time), the end of candle's graph (what no trained parameter or wanted gradient stands behind runs without
//! one), and the moment when a parameter's gradient is finished (a sink receives it while the walk goes on).
//!
//! The default [`Segment::forward`] and [`Segment::backward`] wrap candle's autograd over the operations of
//! [`crate::ops`]; a segment may bring its own pair instead.

use std::collections::{HashMap, HashSet};

use candle_core::{Result, Tensor, Var, bail};

use crate::ops::cotangent::cotangent;

/// A trained tensor: an f32 master copy under its canonical name.
#[derive(Debug, Clone)]
pub struct Trained {
    pub name: String,
    pub var: Var,
}

/// How a segment is computed this time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pass {
    /// Whether trained parameters enter as variables, so that candle records the graph.
    pub graph: bool,
    /// Key of this step's dropout masks; none: no dropout.
    pub dropout_key: Option<u64>,
}

/// An input of a segment.
#[derive(Debug, Clone)]
pub struct Input {
    pub tensor: Tensor,
    /// Whether its gradient is wanted.
    pub wanted: bool,
}

/// What a segment keeps between its forward and its backward.
pub enum Saved {
    /// Its inputs; the backward computes again.
    Inputs(Vec<Input>),
    /// The recorded graph: the variables that stand for wanted inputs, and the outputs.
    Graph { leaves: Vec<Option<Var>>, outputs: Vec<Tensor> },
}

/// Gradients of one segment.
pub struct Gradients {
    /// In the order of the inputs; none where none was wanted or none arrives.
    pub inputs: Vec<Option<Tensor>>,
    /// f32, of those trained parameters that a gradient reached.
    pub parameters: Vec<(String, Tensor)>,
}

/// A piece of network that is differentiated as a unit.
pub trait Segment {
    /// For error messages.
    fn name(&self) -> &str;

    /// The trained parameters that its outputs depend on.
    fn trained(&self) -> &[Trained];

    /// The outputs, a pure function of inputs, parameters and pass.
    fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>>;

    /// Computes the outputs, detached, and what the backward needs.
    fn forward(&self, inputs: Vec<Input>, recompute: bool, dropout_key: Option<u64>) -> Result<(Vec<Tensor>, Saved)> {
        if recompute {
            let tensors: Vec<Tensor> = inputs.iter().map(|input| input.tensor.clone()).collect();
            let outputs = self.compute(&tensors, &Pass { graph: false, dropout_key })?;
            return Ok((outputs, Saved::Inputs(inputs)));
        }
        let (leaves, outputs) = record(self, &inputs, dropout_key)?;
        let detached = outputs.iter().map(Tensor::detach).collect();
        Ok((detached, Saved::Graph { leaves, outputs }))
    }

    /// Pulls the output gradients back to inputs and parameters; consumes (frees) what was saved.
    fn backward(&self, saved: Saved, gradients: &[Option<Tensor>], dropout_key: Option<u64>) -> Result<Gradients> {
        let (leaves, outputs) = match saved {
            Saved::Graph { leaves, outputs } => (leaves, outputs),
            Saved::Inputs(inputs) => record(self, &inputs, dropout_key)?,
        };
        pull(self, &leaves, outputs, gradients)
    }
}

type Recorded = (Vec<Option<Var>>, Vec<Tensor>);

/// Computes the segment with its graph; wanted inputs become variables of their own, which ends the graph there.
fn record<S: Segment + ?Sized>(segment: &S, inputs: &[Input], dropout_key: Option<u64>) -> Result<Recorded> {
    let leaves = inputs
        .iter()
        .map(|input| input.wanted.then(|| Var::from_tensor(&input.tensor)).transpose())
        .collect::<Result<Vec<_>>>()?;
    let tensors: Vec<Tensor> = leaves
        .iter()
        .zip(inputs)
        .map(|(leaf, input)| leaf.as_ref().map_or(&input.tensor, |leaf| leaf.as_tensor()).clone())
        .collect();
    let outputs = segment.compute(&tensors, &Pass { graph: true, dropout_key })?;
    Ok((leaves, outputs))
}

fn pull<S: Segment + ?Sized>(
    segment: &S,
    leaves: &[Option<Var>],
    outputs: Vec<Tensor>,
    gradients: &[Option<Tensor>],
) -> Result<Gradients> {
    let mut seed: Option<Tensor> = None;
    for (output, gradient) in outputs.iter().zip(gradients) {
        if let Some(gradient) = gradient
            && output.track_op()
        {
            let one = cotangent(output, gradient)?;
            seed = Some(seed.map(|seed| &seed + &one).transpose()?.unwrap_or(one));
        }
    }
    let Some(seed) = seed else {
        bail!("segment {}: no output with a gradient depends on what trains", segment.name())
    };
    let mut store = seed.backward()?;
    let inputs = leaves.iter().map(|leaf| leaf.as_ref().and_then(|leaf| store.remove(leaf))).collect();
    let parameters =
        segment.trained().iter().filter_map(|t| Some((t.name.clone(), store.remove(t.var.as_tensor())?))).collect();
    Ok(Gradients { inputs, parameters })
}

/// A tensor on its way through the chain.
#[derive(Debug, Clone)]
pub struct Value {
    pub tensor: Tensor,
    /// Where its gradient accumulates; none: nothing trained stands behind it.
    slot: Option<usize>,
}

impl Value {
    /// A tensor that gets no gradient.
    pub fn constant(tensor: Tensor) -> Self {
        Self { tensor, slot: None }
    }
}

/// How a chain is walked.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// Whether a backward pass will follow.
    pub record: bool,
    /// Keep only inputs and compute again in the backward pass.
    pub recompute: bool,
    pub dropout_key: Option<u64>,
}

impl Walk {
    /// Forward only, without dropout.
    pub const EVALUATE: Walk = Walk { record: false, recompute: false, dropout_key: None };
}

struct Step<'s> {
    segment: &'s dyn Segment,
    inputs: Vec<Option<usize>>,
    outputs: Vec<usize>,
    saved: Saved,
}

/// The segments that have run, in order, with what they keep.
pub struct Tape<'s> {
    walk: Walk,
    steps: Vec<Step<'s>>,
    slots: usize,
}

impl<'s> Tape<'s> {
    /// An empty tape.
    pub fn new(walk: Walk) -> Self {
        Self { walk, steps: Vec::new(), slots: 0 }
    }

    /// A tensor whose gradient [`Tape::pull`] will be asked for.
    pub fn input(&mut self, tensor: Tensor) -> Value {
        self.slots += 1;
        Value { tensor, slot: Some(self.slots - 1) }
    }

    /// Runs a segment. It is recorded only when something of it trains or an input wants a gradient.
    pub fn run(&mut self, segment: &'s dyn Segment, inputs: &[&Value]) -> Result<Vec<Value>> {
        let Walk { record, recompute, dropout_key } = self.walk;
        let wanted = inputs.iter().any(|input| input.slot.is_some()) || !segment.trained().is_empty();
        if !(record && wanted) {
            let tensors: Vec<Tensor> = inputs.iter().map(|input| input.tensor.clone()).collect();
            let outputs = segment.compute(&tensors, &Pass { graph: false, dropout_key })?;
            return Ok(outputs.into_iter().map(Value::constant).collect());
        }
        let slots = inputs.iter().map(|input| input.slot).collect();
        let inputs = inputs.iter().map(|i| Input { tensor: i.tensor.clone(), wanted: i.slot.is_some() }).collect();
        let (outputs, saved) = segment.forward(inputs, recompute, dropout_key)?;
        let first = self.slots;
        self.slots += outputs.len();
        self.steps.push(Step { segment, inputs: slots, outputs: (first..self.slots).collect(), saved });
        Ok(outputs.into_iter().zip(first..).map(|(tensor, slot)| Value { tensor, slot: Some(slot) }).collect())
    }

    /// Bytes of all tensors that the recorded segments keep for the backward pass; a tensor that several keep counts once.
    pub fn kept_bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        let mut count = |tensor: &Tensor| {
            if seen.insert(tensor.id()) {
                bytes += tensor.elem_count() * tensor.dtype().size_in_bytes();
            }
        };
        for step in &self.steps {
            match &step.saved {
                Saved::Inputs(inputs) => inputs.iter().for_each(|input| count(&input.tensor)),
                Saved::Graph { outputs, .. } => {
                    outputs
                        .iter()
                        .flat_map(Tensor::sorted_nodes)
                        .filter(|node| !is_parameter(step.segment, node))
                        .for_each(&mut count);
                }
            }
        }
        bytes
    }

    /// Walks back from `value` with the given gradient; `sink` receives each parameter's gradient, f32, as soon as
    /// it is finished. A value that nothing trained stands behind gives nothing.
    pub fn backward(
        self,
        value: &Value,
        gradient: Tensor,
        sink: &mut dyn FnMut(String, Tensor) -> Result<()>,
    ) -> Result<()> {
        self.walk_back(value, gradient, sink).map(|_| ())
    }

    /// The vector–Jacobian product of `value` with `gradient`, at an [`Tape::input`]; none when `value` does not depend
    /// on it. Parameters' gradients are dropped.
    pub fn pull(self, value: &Value, gradient: Tensor, input: &Value) -> Result<Option<Tensor>> {
        let mut left = self.walk_back(value, gradient, &mut |_, _| Ok(()))?;
        Ok(input.slot.and_then(|slot| left.remove(&slot)))
    }

    /// Gives the gradients of the slots that no segment wrote: those of inputs.
    fn walk_back(
        mut self,
        value: &Value,
        gradient: Tensor,
        sink: &mut dyn FnMut(String, Tensor) -> Result<()>,
    ) -> Result<HashMap<usize, Tensor>> {
        let mut pending: HashMap<usize, Tensor> = HashMap::new();
        if let Some(slot) = value.slot {
            pending.insert(slot, gradient);
        }
        while let Some(step) = self.steps.pop() {
            let gradients: Vec<Option<Tensor>> = step.outputs.iter().map(|slot| pending.remove(slot)).collect();
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            let found = step.segment.backward(step.saved, &gradients, self.walk.dropout_key)?;
            for (slot, gradient) in step.inputs.into_iter().zip(found.inputs) {
                let (Some(slot), Some(gradient)) = (slot, gradient) else { continue };
                let sum = pending.remove(&slot).map(|so_far| &so_far + &gradient).transpose()?.unwrap_or(gradient);
                pending.insert(slot, sum);
            }
            for (name, gradient) in found.parameters {
                sink(name, gradient)?;
            }
        }
        Ok(pending)
    }
}

/// Parameters live as long as the policy: a graph that refers to them keeps nothing.
fn is_parameter(segment: &dyn Segment, tensor: &Tensor) -> bool {
    segment.trained().iter().any(|t| t.var.as_tensor().id() == tensor.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor};

    /// `y = sin(w·x)`, twice: as y and as 2y.
    struct Sine {
        trained: Vec<Trained>,
        frozen: Tensor,
    }

    impl Segment for Sine {
        fn name(&self) -> &str {
            "sine"
        }
        fn trained(&self) -> &[Trained] {
            &self.trained
        }
        fn compute(&self, inputs: &[Tensor], pass: &Pass) -> Result<Vec<Tensor>> {
            let weight = match self.trained.first() {
                Some(t) if pass.graph => t.var.as_tensor().clone(),
                Some(t) => t.var.as_detached_tensor(),
                None => self.frozen.clone(),
            };
            let y = (&inputs[0] * weight)?.sin()?;
            Ok(vec![y.clone(), (y * 2.0)?])
        }
    }

    fn sine(name: Option<&str>, weight: f32) -> Result<Sine> {
        let frozen = Tensor::new(&[weight, weight], &Device::Cpu)?;
        let trained =
            name.map(|n| Ok::<_, candle_core::Error>(Trained { name: n.into(), var: Var::from_tensor(&frozen)? }));
        Ok(Sine { trained: trained.into_iter().collect::<Result<_>>()?, frozen })
    }

    fn walk(chain: &[Sine], recompute: bool) -> Result<(HashMap<String, Vec<f32>>, usize)> {
        let mut tape = Tape::new(Walk { record: true, recompute, dropout_key: None });
        let mut x = Value::constant(Tensor::new(&[0.3f32, 0.7], &Device::Cpu)?);
        for segment in chain {
            let outputs = tape.run(segment, &[&x])?;
            x = outputs[1].clone();
        }
        let recorded = tape.steps.len();
        let mut found = HashMap::new();
        let seed = x.tensor.ones_like()?;
        tape.backward(&x, seed, &mut |name, gradient| {
            found.insert(name, gradient.to_vec1::<f32>()?);
            Ok(())
        })?;
        Ok((found, recorded))
    }

    #[test]
    fn gradients_pass_through_frozen_links_and_equal_with_and_without_recomputation() -> Result<()> {
        let chain = [sine(None, 1.1)?, sine(Some("a"), 0.4)?, sine(None, 0.9)?, sine(Some("b"), 1.3)?];
        let (kept, recorded) = walk(&chain, false)?;
        assert_eq!(recorded, 3, "the frozen link in front runs without a graph");
        assert_eq!(kept, walk(&chain, true)?.0);
        // The chain rule by hand, for the first element.
        let f = |w: f32, x: f32| 2.0 * (w * x).sin();
        let (x1, w) = (f(1.1, 0.3), [0.4f32, 0.9, 1.3]);
        let x2 = f(w[0], x1);
        let x3 = f(w[1], x2);
        let d_x3 = 2.0 * (w[2] * x3).cos() * w[2];
        let wanted = d_x3 * 2.0 * (w[1] * x2).cos() * w[1] * 2.0 * (w[0] * x1).cos() * x1;
        assert!((kept["a"][0] - wanted).abs() < 1e-6, "{} against {wanted}", kept["a"][0]);
        assert!((kept["b"][0] - 2.0 * (w[2] * x3).cos() * x3).abs() < 1e-6);
        Ok(())
    }

    #[test]
    fn nothing_trained_means_no_gradient_and_nothing_kept() -> Result<()> {
        let (found, recorded) = walk(&[sine(None, 1.1)?, sine(None, 0.4)?], true)?;
        assert!(found.is_empty() && recorded == 0);
        Ok(())
    }
}

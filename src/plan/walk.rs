//! The forward and the backward pass of a training step over the segments, as `policy/segment.rs` walks them.

use std::collections::BTreeMap;

use super::graph::{Amount, Graph, Id, Kernel, Size};
use super::network::{F32, Segment, Sizes};

/// What a step needs in memory beyond weights and optimizer, at its highest point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Peak {
    /// Kept for the backward pass of other segments.
    pub kept: Amount,
    /// Of the segment that is being computed.
    pub live: Amount,
    /// Gradients of activations, and transient ones of parameters.
    pub activation_gradients: u64,
    /// Finished gradients of parameters, f32, of this micro-batch.
    pub parameter_gradients: u64,
}

impl Peak {
    pub fn total(&self) -> u64 {
        self.kept.total() + self.live.total() + self.activation_gradients + self.parameter_gradients
    }
}

/// A micro-step, walked.
#[derive(Debug)]
pub(super) struct Walked {
    pub peak: Peak,
    /// What `Tape::kept_bytes` would count between forward and backward.
    #[cfg(test)]
    pub tape_bytes: u64,
    /// Every operation of the micro-step, forward and backward.
    pub kernels: Vec<Kernel>,
    /// Bytes of the gradients of all trained parameters that a gradient reaches, f32.
    pub parameter_gradients: u64,
}

/// A tensor between segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    id: usize,
    wanted: bool,
}

struct Step {
    segment: Segment,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// Values that it holds.
    held: Vec<usize>,
    /// Its graph, without recomputation.
    graph: Amount,
}

struct Walker<'a> {
    sizes: Sizes<'a>,
    recompute: bool,
    values: Vec<Size>,
    /// How many hold a value; absent: it lives in the graph of a segment, or nowhere.
    holders: BTreeMap<usize, usize>,
    steps: Vec<Step>,
    /// Of all recorded graphs.
    graphs: Amount,
    /// What `Tape::kept_bytes` counts of them.
    #[cfg(test)]
    tracked: u64,
    peak: Peak,
    kernels: Vec<Kernel>,
}

/// Walks one micro-step.
pub(super) fn walk(sizes: Sizes<'_>, recompute: bool) -> Walked {
    let mut walker = Walker {
        sizes,
        recompute,
        values: Vec::new(),
        holders: BTreeMap::new(),
        steps: Vec::new(),
        graphs: Amount::default(),
        #[cfg(test)]
        tracked: 0,
        peak: Peak::default(),
        kernels: Vec::new(),
    };
    let velocity = walker.forward();
    #[cfg(test)]
    let tape_bytes = if recompute { walker.kept().total() } else { walker.tracked };
    let parameter_gradients = walker.backward(velocity);
    Walked {
        peak: walker.peak,
        #[cfg(test)]
        tape_bytes,
        kernels: walker.kernels,
        parameter_gradients,
    }
}

impl Walker<'_> {
    fn value(&mut self, size: Size, wanted: bool) -> Value {
        self.values.push(size);
        Value { id: self.values.len() - 1, wanted }
    }

    fn constant(&mut self, shape: &[usize], each: u64) -> Value {
        self.value(Size::new(shape, each), false)
    }

    fn hold(&mut self, id: usize) {
        *self.holders.entry(id).or_default() += 1;
    }

    fn release(&mut self, id: usize) {
        if let Some(count) = self.holders.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&id);
            }
        }
    }

    fn kept(&self) -> Amount {
        let held: u64 = self.holders.keys().map(|&id| self.values[id].bytes()).sum();
        Amount { activations: held, ..Amount::default() } + self.graphs
    }

    fn reach(&mut self, peak: Peak) {
        if peak.total() > self.peak.total() {
            self.peak = peak;
        }
    }

    /// The whole chain; gives the velocity.
    fn forward(&mut self) -> Value {
        let Sizes { arch, batch, cameras, prompt, .. } = self.sizes;
        let (vision, prefix, suffixes) = (&arch.vision, self.sizes.prefix(), self.sizes.suffixes());
        let tokens = self.constant(&[batch, prompt], 4);
        let mut embedded = vec![tokens];
        if cameras > 0 {
            let pixels = self.constant(&[cameras * batch, 3, vision.image, vision.image], F32);
            let mut x = self.one(Segment::Patches, &[pixels]);
            for index in 0..vision.depth {
                x = self.one(Segment::VisionLayer(index), &[x]);
            }
            embedded.insert(0, self.one(Segment::VisionHead, &[x]));
        }
        let mut x = self.one(Segment::PrefixEmbedding, &embedded);
        let half = arch.vlm.head_dim / 2;
        let [cos, sin] = [(); 2].map(|()| self.constant(&[batch, prefix, half], F32));
        let mask = self.constant(&[batch, 1, prefix], 1);
        let mut cache = Vec::new();
        for index in 0..arch.vlm.depth {
            let mut outputs = self.run(Segment::PrefixLayer(index), &[x, cos, sin, mask]);
            let keys_values = outputs.split_off(outputs.len() - 2);
            if let Some(&hidden) = outputs.first() {
                x = hidden;
            }
            for value in &keys_values {
                // In a recorded graph they lie already.
                if self.recompute || !value.wanted {
                    self.hold(value.id);
                }
            }
            cache.push(keys_values);
        }
        let x_t = self.constant(&[suffixes, arch.chunk_size, arch.max_action_dim], F32);
        let times = if self.sizes.time_per_step { suffixes * arch.chunk_size } else { suffixes };
        let sinusoid = self.constant(&[times, arch.expert.width], F32);
        let mut inputs = vec![x_t, sinusoid];
        if arch.state_cond {
            inputs.push(self.constant(&[suffixes, arch.max_state_dim], F32));
        }
        let outputs = self.run(Segment::SuffixEmbedding, &inputs);
        let (mut x, condition) = (outputs[0], outputs[1]);
        let [cos, sin] = [(); 2].map(|()| self.constant(&[suffixes, arch.chunk_size, half], F32));
        let mask = self.constant(&[suffixes, 1, prefix + arch.chunk_size], 1);
        for (index, kv) in cache.iter().enumerate() {
            x = self.one(Segment::SuffixLayer(index), &[x, condition, kv[0], kv[1], cos, sin, mask]);
        }
        let velocity = self.one(Segment::SuffixHead, &[x, condition]);
        for value in cache.into_iter().flatten() {
            if self.recompute || !value.wanted {
                self.release(value.id);
            }
        }
        velocity
    }

    fn one(&mut self, segment: Segment, inputs: &[Value]) -> Value {
        self.run(segment, inputs)[0]
    }

    /// A segment with its inputs as leaves, and its outputs.
    fn record(&self, segment: Segment, inputs: &[Value]) -> (Graph, Vec<Id>) {
        let mut graph = Graph::default();
        let leaves: Vec<Id> = inputs
            .iter()
            .enumerate()
            .map(|(index, value)| graph.input(index, self.values[value.id], value.wanted))
            .collect();
        let outputs = segment.compute(&mut graph, &self.sizes, &leaves);
        (graph, outputs)
    }

    fn run(&mut self, segment: Segment, inputs: &[Value]) -> Vec<Value> {
        let (graph, outputs) = self.record(segment, inputs);
        let (retained, shared) = graph.retained(&outputs);
        let wanted = graph.tracked_bytes() > 0 || graph.trains();
        self.kernels.extend(&graph.kernels);
        // What is computed now, over what is kept: inputs that nobody holds are alive, too.
        let loose: u64 =
            inputs.iter().filter(|v| !self.holders.contains_key(&v.id)).map(|v| self.values[v.id].bytes()).sum();
        let live = graph.everything() + Amount { activations: loose, ..Amount::default() };
        self.reach(Peak { kept: self.kept(), live, ..Peak::default() });
        // Every output of a recorded segment is wanted, whether anything trained stands behind it or not.
        let outputs: Vec<Value> = outputs.iter().map(|&output| self.value(graph.size(output), wanted)).collect();
        if !wanted {
            return outputs;
        }
        let held: Vec<usize> = if self.recompute {
            inputs.iter().map(|value| value.id).collect()
        } else {
            shared.into_iter().filter_map(|index| inputs.get(index)).map(|value| value.id).collect()
        };
        held.iter().for_each(|&id| self.hold(id));
        let kept = if self.recompute { Amount::default() } else { retained };
        self.graphs += kept;
        #[cfg(test)]
        {
            self.tracked += graph.tracked_bytes();
        }
        self.steps.push(Step { segment, inputs: inputs.to_vec(), outputs: outputs.clone(), held, graph: kept });
        outputs
    }

    /// Back from the velocity; gives the bytes of all gradients of parameters.
    fn backward(&mut self, velocity: Value) -> u64 {
        let mut pending: BTreeMap<usize, u64> = BTreeMap::new();
        pending.insert(velocity.id, self.values[velocity.id].bytes());
        let mut parameters = 0;
        while let Some(step) = self.steps.pop() {
            let (graph, outputs) = self.record(step.segment, &step.inputs);
            if self.recompute {
                self.kernels.extend(&graph.kernels);
            }
            step.held.iter().for_each(|&id| self.release(id));
            self.graphs = self.graphs - step.graph;
            let given: Vec<(usize, Id)> = step
                .outputs
                .iter()
                .zip(&outputs)
                .filter(|(value, id)| pending.contains_key(&value.id) && graph.is_tracked(**id))
                .map(|(value, &id)| (value.id, id))
                .collect();
            if given.is_empty() {
                continue;
            }
            let pulled = graph.backward(&given.iter().map(|(_, id)| *id).collect::<Vec<_>>());
            self.kernels.extend(&pulled.kernels);
            let live = graph.retained(&outputs).0;
            let waiting: u64 = pending.values().sum();
            self.reach(Peak {
                kept: self.kept(),
                live,
                activation_gradients: waiting + pulled.peak,
                parameter_gradients: parameters,
            });
            pending.retain(|id, _| step.outputs.iter().all(|value| value.id != *id));
            for value in step.inputs.iter().filter(|value| value.wanted) {
                pending.insert(value.id, self.values[value.id].bytes());
            }
            parameters += pulled.parameters;
        }
        self.reach(Peak { parameter_gradients: parameters, ..Peak::default() });
        parameters
    }
}

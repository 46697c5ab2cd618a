//! Sizes of tensors on a graph that is never computed.
//!
//! It follows candle's rules: an operation remembers its arguments exactly when one of them is tracked; a result that
//! remembers keeps all of its arguments alive, tracked or not; a gradient is accumulated by making zeros and adding.

use super::calibration::CALIBRATION;

/// A tensor on a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(usize);

/// Number of elements, and bytes of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub elements: u64,
    pub each: u64,
}

impl Size {
    pub fn new(shape: &[usize], each: u64) -> Size {
        Size { elements: shape.iter().map(|&n| n as u64).product(), each }
    }

    pub fn bytes(self) -> u64 {
        self.elements * self.each
    }
}

/// Bytes, by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub activations: u64,
    /// Probabilities that attention keeps.
    pub attention: u64,
    /// Copies of trained weights in the dtype that computes.
    pub casts: u64,
}

impl Amount {
    pub fn total(self) -> u64 {
        self.activations + self.attention + self.casts
    }
}

impl std::ops::Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount {
            activations: self.activations + other.activations,
            attention: self.attention + other.attention,
            casts: self.casts + other.casts,
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl std::ops::Sub for Amount {
    type Output = Amount;

    fn sub(self, other: Amount) -> Amount {
        Amount {
            activations: self.activations - other.activations,
            attention: self.attention - other.attention,
            casts: self.casts - other.casts,
        }
    }
}

/// One kernel: floating-point operations, and bytes read and written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kernel {
    pub flops: u64,
    pub bytes: u64,
}

/// What the backward pass of an operation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backward {
    /// One of ours: a gradient only for tracked arguments, as many operations as the forward pass for each.
    OwnEach,
    /// One of ours, whose gradients are computed together.
    Own { flops: u64, scratch: u64 },
    /// candle's: a gradient for every argument.
    Candle,
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    flops: u64,
    backward: Backward,
    /// A view: no memory of its own, no kernel.
    view: bool,
    /// The result is a copy of a weight in another dtype.
    cast: bool,
    /// Bytes that the operation itself keeps for its backward pass, and needs in its forward pass in any case.
    inside: u64,
}

impl Op {
    /// A custom operation of ours.
    pub const OWN: Op = Op { flops: 0, backward: Backward::OwnEach, view: false, cast: false, inside: 0 };
    /// An operation of candle.
    pub const CANDLE: Op = Op { backward: Backward::Candle, ..Op::OWN };
    /// A view of its argument.
    pub const VIEW: Op = Op { view: true, ..Op::CANDLE };

    /// A product of `rows × inner` and `inner × out`.
    pub fn product(rows: u64, inner: u64, out: u64) -> Op {
        Op { flops: 2 * rows * inner * out, ..Op::OWN }
    }

    /// Attention whose probabilities have `scores` elements of `each` bytes, over heads of `head_dim`.
    pub fn attention(scores: u64, each: u64, head_dim: u64) -> Op {
        let product = 2 * scores * head_dim;
        let bytes = (scores * each) as f64;
        let backward =
            Backward::Own { flops: 4 * product, scratch: (bytes * CALIBRATION.attention_backward_scratch) as u64 };
        let inside = (bytes * CALIBRATION.attention_kept) as u64;
        Op { flops: 2 * product, backward, inside, ..Op::OWN }
    }
}

#[derive(Debug)]
struct Node {
    size: Size,
    op: Op,
    /// Remembered arguments: none when nothing tracked stands behind.
    args: Vec<Id>,
    tracked: bool,
    /// A weight: its memory belongs to the policy.
    weight: bool,
    /// The input of the segment that it stands for; a tracked one is a copy of its own.
    input: Option<usize>,
}

/// The operations of one segment in the order of computation; trained weights and wanted inputs are tracked.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    pub kernels: Vec<Kernel>,
}

/// What a backward pass over a segment needs and leaves.
#[derive(Debug)]
pub(super) struct Pulled {
    /// Most bytes of gradients alive at once, without those that were given.
    pub peak: u64,
    /// Bytes of the gradients of trained parameters, f32.
    pub parameters: u64,
    pub kernels: Vec<Kernel>,
}

impl Graph {
    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        Id(self.nodes.len() - 1)
    }

    fn leaf(&mut self, size: Size, tracked: bool, weight: bool, input: Option<usize>) -> Id {
        self.push(Node { size, op: Op::VIEW, args: Vec::new(), tracked, weight, input })
    }

    /// The `index`-th input; a wanted one is copied into a variable.
    pub fn input(&mut self, index: usize, size: Size, wanted: bool) -> Id {
        self.leaf(size, wanted, false, Some(index))
    }

    /// A parameter: its memory belongs to the policy.
    pub fn weight(&mut self, size: Size, trained: bool) -> Id {
        self.leaf(size, trained, true, None)
    }

    /// Whether a trained weight takes part.
    pub fn trains(&self) -> bool {
        self.nodes.iter().any(|node| node.weight && node.tracked)
    }

    pub fn is_tracked(&self, id: Id) -> bool {
        self.nodes[id.0].tracked
    }

    pub fn size(&self, id: Id) -> Size {
        self.nodes[id.0].size
    }

    /// A trained weight in another dtype.
    pub fn cast_weight(&mut self, weight: Id, each: u64) -> Id {
        let size = self.size(weight);
        if size.each == each {
            return weight;
        }
        self.apply(&[weight], Size { each, ..size }, Op { cast: true, ..Op::CANDLE })
    }

    /// `tensor` in another dtype, itself when it has it.
    pub fn cast(&mut self, tensor: Id, each: u64) -> Id {
        let size = self.size(tensor);
        if size.each == each { tensor } else { self.apply(&[tensor], Size { each, ..size }, Op::CANDLE) }
    }

    pub fn apply(&mut self, args: &[Id], size: Size, op: Op) -> Id {
        let tracked = args.iter().any(|arg| self.nodes[arg.0].tracked);
        if !op.view {
            let read: u64 = args.iter().map(|&arg| self.size(arg).bytes()).sum();
            self.kernels.push(Kernel { flops: op.flops, bytes: read + size.bytes() + 2 * op.inside });
        }
        let args = if tracked { args.to_vec() } else { Vec::new() };
        self.push(Node { size, op, args, tracked, weight: false, input: None })
    }

    /// A tensor and what its operation keeps, with the bytes that are its own.
    fn own(&self, id: usize) -> Amount {
        let node = &self.nodes[id];
        let is_shared =
            node.weight || (node.op.view && node.input.is_none()) || (node.input.is_some() && !node.tracked);
        let bytes = if is_shared { 0 } else { node.size.bytes() };
        let (activations, casts) = if node.op.cast { (0, bytes) } else { (bytes, 0) };
        Amount { activations, casts, attention: node.op.inside }
    }

    /// Everything that is computed, as if nothing were dropped before the end.
    pub fn everything(&self) -> Amount {
        (0..self.nodes.len()).fold(Amount::default(), |sum, id| sum + self.own(id))
    }

    /// What tracked results keep alive: their own bytes, their arguments, and the indices of untracked inputs.
    pub fn retained(&self, outputs: &[Id]) -> (Amount, Vec<usize>) {
        let mut kept = vec![false; self.nodes.len()];
        let mut stack: Vec<Id> = outputs.to_vec();
        while let Some(Id(id)) = stack.pop() {
            if !std::mem::replace(&mut kept[id], true) {
                stack.extend(&self.nodes[id].args);
            }
        }
        let amount = |id: usize| {
            let own = self.own(id);
            // Without a backward pass to come, attention drops its probabilities.
            if self.nodes[id].tracked { own } else { Amount { attention: 0, ..own } }
        };
        let ids = || (0..kept.len()).filter(|&id| kept[id]);
        let inputs = ids().filter(|&id| !self.nodes[id].tracked).filter_map(|id| self.nodes[id].input).collect();
        (ids().fold(Amount::default(), |sum, id| sum + amount(id)), inputs)
    }

    /// What `Tape::kept_bytes` counts: the tracked nodes that are no weights, each by its shape.
    pub fn tracked_bytes(&self) -> u64 {
        let counted = self.nodes.iter().filter(|node| node.tracked && !node.weight);
        counted.map(|node| node.size.bytes()).sum()
    }

    /// Walks back from those outputs that a gradient was given for.
    pub fn backward(&self, given: &[Id]) -> Pulled {
        let mut store = vec![0; self.nodes.len()];
        let mut walk = Store { live: 0, peak: 0, kernels: Vec::new() };
        for &Id(id) in given {
            walk.accumulate(&mut store[id], self.nodes[id].size.bytes(), 0);
        }
        for (id, node) in self.nodes.iter().enumerate().rev() {
            if node.args.is_empty() || store[id] == 0 {
                continue;
            }
            let gradients: Vec<(usize, u64)> = node
                .args
                .iter()
                .filter(|arg| node.op.backward == Backward::Candle || self.nodes[arg.0].tracked)
                .map(|arg| (arg.0, self.nodes[arg.0].size.bytes()))
                .collect();
            walk.kernels.extend(self.backward_kernel(node, gradients.len() as u64));
            // Ours hand over all gradients at once; candle's make and add one after the other.
            let mut fresh: u64 = if node.op.view || node.op.backward == Backward::Candle {
                0
            } else {
                gradients.iter().map(|(_, bytes)| bytes).sum()
            };
            let scratch = if let Backward::Own { scratch, .. } = node.op.backward { scratch } else { 0 };
            walk.touch(fresh + scratch);
            for (arg, bytes) in gradients {
                walk.accumulate(&mut store[arg], bytes, fresh);
                fresh = fresh.saturating_sub(bytes);
            }
            walk.live -= std::mem::take(&mut store[id]);
        }
        let parameters = |node: &&Node| node.weight && node.tracked;
        let parameters = self.nodes.iter().filter(parameters).map(|node| node.size.bytes()).sum();
        Pulled { peak: walk.peak, parameters, kernels: walk.kernels }
    }

    fn backward_kernel(&self, node: &Node, gradients: u64) -> Option<Kernel> {
        let flops = match node.op.backward {
            Backward::Own { flops, .. } => flops,
            Backward::OwnEach => node.op.flops * gradients.min(2),
            Backward::Candle => 0,
        };
        let read: u64 = node.args.iter().map(|&arg| self.size(arg).bytes()).sum();
        (!node.op.view).then_some(Kernel { flops, bytes: 2 * read + node.size.bytes() + 3 * node.op.inside })
    }
}

/// Gradients on the way back.
struct Store {
    live: u64,
    peak: u64,
    kernels: Vec<Kernel>,
}

impl Store {
    fn touch(&mut self, more: u64) {
        self.peak = self.peak.max(self.live + more);
    }

    /// `zeros + gradient` for a first gradient, `sum + gradient` for another; `fresh` is alive beside.
    fn accumulate(&mut self, slot: &mut u64, bytes: u64, fresh: u64) {
        let first = *slot == 0;
        self.touch(fresh + if first { 2 * bytes } else { bytes });
        // Zeros are written once; the sum reads two and writes one.
        let traffic = if first { 4 } else { 3 };
        self.kernels.push(Kernel { flops: 0, bytes: traffic * bytes });
        if first {
            self.live += bytes;
            *slot = bytes;
        }
    }
}

//! What a measurement says, for people (Markdown) and programs (JSON).
//!
//! The JSON form is stable: fields are added, never renamed, and `schema` counts changes of meaning. Times are seconds,
//! sizes bytes, rates per second.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ceilings::Ceilings;
use super::place::Origin;
use super::stats::Summary;
use crate::plan::cost::Work;

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// Which measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Sampling action chunks.
    Infer,
    /// Optimizer steps.
    Train,
    /// The dataset loader.
    Load,
    /// Single operations.
    Ops,
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub kind: Kind,
    pub origin: Origin,
    /// What was asked for, by the names of the command's options.
    pub settings: BTreeMap<String, Value>,
    /// Measured in the same process; none where nothing is computed.
    pub ceilings: Option<Ceilings>,
    pub measures: Vec<Measure>,
    /// Derived from the medians: `samples_per_s`, `tokens_per_s`, … and counts that belong to them.
    pub rates: BTreeMap<String, f64>,
    pub memory: Memory,
    /// What a reader should know beside the numbers.
    pub notes: Vec<String>,
}

/// Times of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub name: String,
    pub seconds: Summary,
    /// The least time that the ceilings allow; none where there is no cost model.
    pub floor_s: Option<f64>,
    /// Floating-point operations that are needed.
    pub flops: Option<f64>,
    /// Fewest bytes through device memory.
    pub bytes: Option<f64>,
}

impl Measure {
    /// Times alone.
    pub fn of(name: impl Into<String>, times: &[f64]) -> Measure {
        Measure { name: name.into(), seconds: Summary::of(times), floor_s: None, flops: None, bytes: None }
    }

    /// With the work of one pass, whose floor is the longer of arithmetic and traffic.
    pub fn work(self, work: &Work, ceilings: &Ceilings) -> Measure {
        Measure { floor_s: Some(work.seconds(&ceilings.peak())), ..self.counted(work) }
    }

    /// With the work of several parts one after the other, whose floors add up.
    pub fn works(self, works: &[Work], ceilings: &Ceilings) -> Measure {
        let floor = works.iter().map(|work| work.seconds(&ceilings.peak())).sum();
        let work: Work = works.iter().copied().sum();
        Measure { floor_s: Some(floor), ..self.counted(&work) }
    }

    fn counted(self, work: &Work) -> Measure {
        Measure { flops: Some(work.flops()), bytes: Some(work.bytes), ..self }
    }
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Used on the whole device once the weights were there, as its driver counts.
    pub device_loaded: Option<u64>,
    /// Used on the whole device at the end.
    pub device_used: Option<u64>,
    /// The most that tensors held of the device, with everything on it that is none (context, libraries, other
    /// processes): [`crate::device::memory::Memory::peak`].
    pub device_peak: Option<u64>,
    pub device_total: Option<u64>,
    /// The most that this process held of the host's memory.
    pub host_peak: u64,
}

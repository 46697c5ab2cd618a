//! Where the policies of an evaluation come from: the checkpoint in the box, or one in a directory.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::campaign::Policies;
use super::error::EvalError;
use super::report::PolicyFacet;
use crate::config::paths::cache_dir;
use crate::config::train::DeviceKind;
use crate::error::Explain;
use crate::realtime::boxed;
use crate::realtime::loaded::{LoadError, LoadOptions, LoadedPolicy};
use crate::realtime::policy::{ChunkPolicy, PolicyFacts};

/// What decides a policy's chunks, besides its observations.
const DECISIVE: [&str; 4] = [
    "config.json",
    "vlash_forge.json",
    "model.safetensors",
    "policy_preprocessor_step_3_normalizer_processor.safetensors",
];

/// An opened policy with its name and digest.
#[derive(Debug)]
pub struct Source {
    policy: LoadedPolicy,
    name: String,
    digest: String,
}

impl Source {
    /// The policy of `checkpoint` (none: that in the box), which denoises in `steps` steps (none: its own number). It
    /// computes on the CPU: rollouts are parallel, and the same numbers come out on every machine.
    ///
    /// # Errors
    /// A checkpoint that cannot be run.
    pub fn open(checkpoint: Option<&Path>, steps: Option<usize>) -> Result<Source, EvalError> {
        let options = LoadOptions { device: DeviceKind::Cpu, steps, ..LoadOptions::default() };
        let name = checkpoint.map_or_else(|| "the policy in the box".into(), |path| path.display().to_string());
        let refuse = |error: LoadError| EvalError::Policy {
            policy: name.clone(),
            hint: error.hint().unwrap_or_else(|| "vlash policy info CHECKPOINT tells what it is".into()),
            kind: error.kind(),
            found: error.to_string(),
        };
        let directory: PathBuf = match checkpoint {
            Some(path) => path.to_path_buf(),
            None => boxed::ensure(&cache_dir()).map_err(refuse)?,
        };
        let policy = LoadedPolicy::open(&directory, &options).map_err(refuse)?;
        let digest = digest(policy.directory(), policy.steps())?;
        Ok(Source { policy, name, digest })
    }
}

/// Of the files that decide and the number of denoising steps.
fn digest(directory: &Path, steps: usize) -> Result<String, EvalError> {
    let mut hash = Sha256::new();
    hash.update(steps.to_le_bytes());
    for name in DECISIVE {
        let path = directory.join(name);
        if path.is_file() {
            hash.update(name.as_bytes());
            hash.update(std::fs::read(&path).map_err(|source| EvalError::io("read", &path, source))?);
        }
    }
    Ok(format!("{:x}", hash.finalize()).chars().take(16).collect())
}

impl Policies for Source {
    fn facts(&self) -> &PolicyFacts {
        self.policy.facts()
    }

    fn facet(&self) -> PolicyFacet {
        let facts = self.policy.facts();
        PolicyFacet {
            name: self.name.clone(),
            digest: self.digest.clone(),
            horizon: facts.horizon,
            trained_delay: facts.trained_delay,
            rtc_trained_delay: facts.rtc_trained_delay,
        }
    }

    fn fork(&self, _seed: u64) -> Result<Box<dyn ChunkPolicy>, EvalError> {
        Ok(Box::new(self.policy.fork()))
    }
}

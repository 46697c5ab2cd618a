//! Where the policies of an evaluation come from: the checkpoint in the box, or one in a directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::campaign::Policies;
use super::error::EvalError;
use super::report::PolicyFacet;
use crate::config::paths::cache_dir;
use crate::config::train::DeviceKind;
use crate::error::{Explain, Kind};
use crate::realtime::boxed;
use crate::realtime::loaded::{LoadError, LoadOptions, LoadedPolicy};
use crate::realtime::policy::{ChunkPolicy, PolicyFacts};
use crate::robot::sim::render::Camera;

/// An opened policy with its name and digest.
#[derive(Debug)]
pub struct Source {
    policy: LoadedPolicy,
    name: String,
    digest: String,
}

impl Source {
    /// The policy of `checkpoint` (none: that in the box), which denoises in `steps` steps (none: its own number) on
    /// `device`: the CPU where rollouts are parallel and the same numbers are to come out on every machine, the best that
    /// the machine has where its latency is measured.
    ///
    /// # Errors
    /// A checkpoint that cannot be run.
    pub fn open(checkpoint: Option<&Path>, steps: Option<usize>, device: DeviceKind) -> Result<Source, EvalError> {
        let options = LoadOptions { device, steps, ..LoadOptions::default() };
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
        let known = |camera: &String| Camera::ALL.iter().any(|known| known.name() == camera);
        if let Some(camera) = policy.facts().cameras.iter().find(|camera| !known(camera)) {
            return Err(EvalError::Policy {
                policy: name,
                found: format!("it looks through a camera {camera}, which the simulated arm does not have"),
                hint: "its cameras are front and wrist; train on what vlash collect records".into(),
                kind: Kind::Input,
            });
        }
        let digest = digest(policy.directory(), policy.steps())?;
        Ok(Source { policy, name, digest })
    }

    /// What computes, in words.
    pub fn device(&self) -> &str {
        self.policy.device()
    }
}

/// What says how a policy came about; two policies of the same weights are the same.
const ACCOUNTS: [&str; 2] = ["recipe.json", "train_config.json"];

/// Of the number of denoising steps and of every weight, statistic and configuration in `directory`, shards too.
fn digest(directory: &Path, steps: usize) -> Result<String, EvalError> {
    let entries = std::fs::read_dir(directory).map_err(|source| EvalError::io("list", directory, source))?;
    let decides = |path: &PathBuf| {
        let is_account = path.file_name().is_some_and(|name| ACCOUNTS.iter().any(|account| name == *account));
        path.is_file()
            && !is_account
            && path.extension().is_some_and(|ending| ending == "json" || ending == "safetensors")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(decides).collect();
    files.sort();
    let mut hash = Sha256::new();
    hash.update(steps.to_le_bytes());
    for path in files {
        hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        let mut file = File::open(&path).map_err(|source| EvalError::io("read", &path, source))?;
        io::copy(&mut file, &mut hash).map_err(|source| EvalError::io("read", &path, source))?;
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

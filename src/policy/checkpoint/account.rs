//! Every tensor accounted for: loaded, tied, ignored for a stated reason, or new by declaration. Anything else is an
//! error, if only one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use candle_core::{Device, Tensor};
use serde::Serialize;

use super::error::{CheckpointError, Reshaped, Unfit};
use super::names::{self, Recognised};
use super::store::{Store, float_type};
use crate::config::train::PolicyKind;
use crate::policy::arch::Arch;
use crate::policy::parameters::{ParameterSpec, parameters, path};
use crate::policy::weights::WeightSource;

/// What became of the tensors of a checkpoint. Its `Display` is the one sentence for screen and log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    pub checkpoint: String,
    pub layout: &'static str,
    /// Wrapper's prefix on the stored names, with how many of `stored` had it.
    pub prefix: String,
    pub prefixed: usize,
    /// Tensors in the checkpoint.
    pub stored: usize,
    /// Parameters taken as they are stored, tied and split ones included.
    pub loaded: usize,
    /// Parameter ← stored name that it shares.
    pub tied: Vec<(String, String)>,
    /// How many parameters were split out of fused tensors.
    pub split: usize,
    /// Stored name, reason.
    pub ignored: Vec<(String, &'static str)>,
    /// Parameter, reason why it may start anew.
    pub fresh: Vec<(String, &'static str)>,
    pub notes: Vec<String>,
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoint {}: recognised {} layout", self.checkpoint, self.layout)?;
        if !self.prefix.is_empty() {
            write!(f, " (prefix {:?} on {} of {} keys)", self.prefix, self.prefixed, self.stored)?;
        }
        write!(f, "; {} loaded", self.loaded)?;
        if self.split > 0 {
            write!(f, " ({} of them split out of fused tensors)", self.split)?;
        }
        write!(f, ", {} ignored, {} new", self.ignored.len(), self.fresh.len())?;
        let last =
            |name: &str| name.rsplit('.').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(".");
        for (name, from) in &self.tied {
            write!(f, ". {} absent, taken from {} (tied)", last(name), last(from))?;
        }
        for (name, reason) in &self.fresh {
            write!(f, ". {name} starts anew: {reason}")?;
        }
        for note in &self.notes {
            write!(f, ". {note}")?;
        }
        Ok(())
    }
}

/// Where a parameter comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// Rows of a stored tensor from `start` on (0 for a whole one).
    Stored {
        name: String,
        start: usize,
    },
    Fresh,
}

/// The weights of a checkpoint under canonical names, read when asked for.
pub struct Weights {
    store: Arc<Store>,
    origins: HashMap<String, Origin>,
    fresh: Box<dyn WeightSource + Send + Sync>,
    account: Account,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Weights {
    /// Settles every tensor of `store` against the parameters of `arch`.
    ///
    /// `allow_new`: parameters (by canonical name) that may be missing; they and the state branch of a base without
    /// one are asked of `fresh`.
    ///
    /// # Errors
    /// [`Unfit`] with everything that is missing, of another shape, unexpected or contradictory.
    pub fn settle(
        checkpoint: &str,
        store: Arc<Store>,
        arch: &Arch,
        allow_new: &[String],
        fresh: Box<dyn WeightSource + Send + Sync>,
    ) -> Result<Weights, CheckpointError> {
        let parameters = parameters(arch);
        check_allowed(allow_new, &parameters)?;
        let unfit = |cause: Option<String>| Unfit {
            checkpoint: checkpoint.to_owned(),
            loaded: 0,
            missing: parameters.iter().map(|p| (p.name.clone(), p.shape.clone())).collect(),
            reshaped: Vec::new(),
            unexpected: Vec::new(),
            conflicting: Vec::new(),
            unreadable: Vec::new(),
            cause,
        };
        let stored = store.tensors().keys();
        let Some(recognised) = names::recognise(stored.clone(), arch.kind) else {
            let cause = names::likely_cause(stored, arch).or_else(|| Some("its names are no policy's".into()));
            return Err(CheckpointError::Unfit(Box::new(unfit(cause))));
        };
        if !recognised.layout.is_read() {
            let cause = format!("it has {}'s own layout, which this version does not read", recognised.layout.name);
            return Err(CheckpointError::Unfit(Box::new(unfit(Some(cause)))));
        }
        let mut settling = Settling::new(checkpoint, &store, recognised, arch);
        for parameter in &parameters {
            settling.place(parameter, &parameters, allow_new);
        }
        settling.leave_the_rest(arch);
        let (origins, account) = settling.finish(arch)?;
        Ok(Weights { store, origins, fresh, account })
    }

    /// What became of each tensor.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The tensors on disk, under their stored names.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl WeightSource for Weights {
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> candle_core::Result<Tensor> {
        match self.origins.get(name) {
            Some(Origin::Stored { name: stored, start }) => self.store.read(stored, *start, shape, device),
            Some(Origin::Fresh) => self.fresh.tensor(name, shape, device),
            None => candle_core::bail!("{name} {shape:?} is no parameter of this policy"),
        }
    }
}

/// Starts nothing anew: every parameter has to come from the checkpoint.
pub struct Nothing;

impl WeightSource for Nothing {
    fn tensor(&self, name: &str, _shape: &[usize], _device: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("{name} is not in the checkpoint")
    }
}

fn check_allowed(allow_new: &[String], parameters: &[ParameterSpec]) -> Result<(), CheckpointError> {
    for name in allow_new {
        if parameters.iter().any(|parameter| parameter.name == *name) {
            continue;
        }
        // The likely slips: another prefix, or only the end of the name.
        let end = |p: &&ParameterSpec| p.name.ends_with(name.as_str()) || name.ends_with(p.name.as_str());
        let nearest = parameters.iter().find(end).map(|p| p.name.clone());
        return Err(CheckpointError::AllowNew { name: name.clone(), nearest });
    }
    Ok(())
}

/// The account while it is being made.
struct Settling<'a> {
    store: &'a Store,
    names: BTreeMap<String, Vec<String>>,
    /// The state branch is switched on and the checkpoint has none: it may begin anew, as a whole.
    starts_state_branch: bool,
    /// Canonical names that found their place.
    used: BTreeSet<String>,
    origins: HashMap<String, Origin>,
    account: Account,
    unfit: Unfit,
}

impl<'a> Settling<'a> {
    fn new(checkpoint: &str, store: &'a Store, recognised: Recognised, arch: &Arch) -> Settling<'a> {
        let account = Account {
            checkpoint: checkpoint.to_owned(),
            layout: recognised.layout.name,
            prefix: recognised.prefix,
            prefixed: recognised.prefixed,
            stored: store.tensors().len(),
            loaded: 0,
            tied: Vec::new(),
            split: 0,
            ignored: Vec::new(),
            fresh: Vec::new(),
            notes: Vec::new(),
        };
        let unfit = Unfit {
            checkpoint: checkpoint.to_owned(),
            loaded: 0,
            missing: Vec::new(),
            reshaped: Vec::new(),
            unexpected: Vec::new(),
            conflicting: Vec::new(),
            unreadable: Vec::new(),
            cause: None,
        };
        // A lone `state_proj` is π₀'s: the branch is known by its two further layers.
        let branch = recognised.names.keys().any(|name| name.starts_with("state_mlp_"));
        let starts_state_branch = arch.kind == PolicyKind::Pi05 && arch.state_cond && !branch;
        Settling {
            store,
            names: recognised.names,
            starts_state_branch,
            used: BTreeSet::new(),
            origins: HashMap::new(),
            account,
            unfit,
        }
    }

    /// Finds the origin of one parameter: itself, its tie, a fused tensor, or nothing where that is allowed.
    fn place(&mut self, parameter: &ParameterSpec, all: &[ParameterSpec], allow_new: &[String]) {
        let name = &parameter.name;
        if self.starts_state_branch && in_state_branch(name) {
            self.begin(name, "the base has no state-conditioning branch");
        } else if self.names.contains_key(name) {
            self.take(parameter, name, 0, &parameter.shape);
        } else if name == path::EMBED_TOKENS && self.names.contains_key(path::LM_HEAD) {
            if let Some(stored) = self.take(parameter, path::LM_HEAD, 0, &parameter.shape) {
                self.account.tied.push((name.clone(), stored));
            }
        } else if self.take_fused(parameter, all) {
            self.account.split += 1;
        } else if allow_new.contains(name) {
            self.begin(name, "allowed by model.allow_new");
        } else {
            self.unfit.missing.push((name.clone(), parameter.shape.clone()));
        }
    }

    fn begin(&mut self, name: &str, reason: &'static str) {
        self.origins.insert(name.to_owned(), Origin::Fresh);
        self.account.fresh.push((name.to_owned(), reason));
    }

    /// Takes the rows from `start` on of the stored tensor that `canonical` means, which must be of shape `whole`.
    fn take(&mut self, parameter: &ParameterSpec, canonical: &str, start: usize, whole: &[usize]) -> Option<String> {
        self.used.insert(canonical.to_owned());
        let stored = self.only_name(canonical)?;
        let entry = self.store.tensors().get(&stored)?;
        if float_type(entry.dtype).is_none() {
            self.unfit.unreadable.push((stored, format!("{:?}", entry.dtype)));
            return None;
        }
        if entry.shape != whole {
            let reshaped = Reshaped { name: stored, expected: whole.to_vec(), found: entry.shape.clone() };
            if !self.unfit.reshaped.contains(&reshaped) {
                self.unfit.reshaped.push(reshaped);
            }
            return None;
        }
        self.origins.insert(parameter.name.clone(), Origin::Stored { name: stored.clone(), start });
        self.account.loaded += 1;
        Some(stored)
    }

    /// The one stored name of `canonical`; a tensor that is stored twice must be the same twice.
    fn only_name(&mut self, canonical: &str) -> Option<String> {
        let stored = self.names.get(canonical)?;
        let (first, rest) = stored.split_first()?;
        for other in rest {
            if !self.store.same(first, other) {
                self.unfit.conflicting.push(format!("{first} and {other}"));
                return None;
            }
            self.account.ignored.push((other.clone(), "stored twice, equal"));
        }
        Some(first.clone())
    }

    fn take_fused(&mut self, parameter: &ParameterSpec, all: &[ParameterSpec]) -> bool {
        let Some((whole, parts)) = names::fused(&parameter.name) else { return false };
        if !self.names.contains_key(&whole) {
            return false;
        }
        let rows = |name: &String| all.iter().find(|p| p.name == *name).and_then(|p| p.shape.first().copied());
        let start: usize = parts.iter().take_while(|name| **name != parameter.name).filter_map(rows).sum();
        let mut shape = parameter.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = parts.iter().filter_map(rows).sum();
        }
        self.take(parameter, &whole, start, &shape);
        true
    }

    /// Sorts what no parameter asked for into ignored and unexpected.
    fn leave_the_rest(&mut self, arch: &Arch) {
        for (canonical, stored) in &self.names {
            if self.used.contains(canonical) {
                continue;
            }
            for name in stored {
                match names::ignorable(canonical, arch) {
                    Some(reason) => self.account.ignored.push((name.clone(), reason)),
                    None => {
                        let shape = self.store.tensors().get(name).map(|t| t.shape.clone()).unwrap_or_default();
                        self.unfit.unexpected.push((name.clone(), shape));
                    }
                }
            }
        }
        let (embed, head) = (self.names.get(path::EMBED_TOKENS), self.names.get(path::LM_HEAD));
        if let (Some([embed, ..]), Some([head, ..])) = (embed.map(Vec::as_slice), head.map(Vec::as_slice))
            && !self.store.same(embed, head)
        {
            let note = "embed_tokens.weight and lm_head.weight differ: the former is used (LeRobot leaves the latter \
                        behind in full fine-tunes)";
            self.account.notes.push(note.into());
        }
    }

    fn finish(mut self, arch: &Arch) -> Result<(HashMap<String, Origin>, Account), CheckpointError> {
        let unfit = &self.unfit;
        let problems = unfit.missing.len()
            + unfit.reshaped.len()
            + unfit.unexpected.len()
            + unfit.conflicting.len()
            + unfit.unreadable.len();
        if problems == 0 {
            return Ok((self.origins, self.account));
        }
        self.unfit.loaded = self.account.loaded;
        self.unfit.cause = names::likely_cause(self.store.tensors().keys(), arch).or_else(|| self.other_variant());
        Err(CheckpointError::Unfit(Box::new(self.unfit)))
    }

    /// Many shapes differ: the sizes of the configuration are not the checkpoint's.
    fn other_variant(&self) -> Option<String> {
        let differ = self.unfit.reshaped.len();
        (differ > 3).then(|| {
            format!(
                "{differ} tensors have another shape: the checkpoint is of another variant (sizes) than its config.json \
                 or the preset says"
            )
        })
    }
}

fn in_state_branch(parameter: &str) -> bool {
    parameter.split('.').next().is_some_and(|module| path::STATE_MODULES.contains(&module))
}

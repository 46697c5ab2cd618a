//! The tables of every configuration key: its names in both vocabularies, type, defaults, effect, and what it does.
//!
//! Reading, printing, the reference files and the tests all run over these tables; a key exists by having a row.
//! Names and defaults of the predecessors: VLASH, VLASH-Forge and LeRobot 0.4 (`draccus` YAML).

use super::Vocabulary;

mod adapter;
mod data;
mod model;
mod optim;
mod rollout;
mod run;
mod step;

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Our name, which is also the path of the field in `TrainConfig` or `RunConfig`; empty: only the predecessors have this key.
    pub toml: &'static str,
    /// The predecessors' names; empty: a YAML file uses our name.
    pub yaml: &'static [Alias],
    pub kind: Kind,
    pub default: Default,
    /// Where a predecessor's file means another default.
    pub yaml_default: Option<Default>,
    pub effect: Effect,
    /// One line for the reference; empty for keys that only the predecessors have.
    pub doc: &'static str,
    /// What people write instead, for suggestions.
    pub also: &'static [&'static str],
}

/// A predecessor's name for a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    pub path: &'static str,
    pub meaning: Meaning,
    pub when: When,
}

/// How a predecessor's value translates into ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Same,
    /// A boolean there, a word here (an empty one: not set).
    Switch {
        on: &'static str,
        off: &'static str,
    },
    /// A boolean there, a member of a list here.
    Adds(&'static str),
}

/// LeRobot reads `policy.optimizer_*` with `use_policy_training_preset: true`, `optimizer.*` without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Preset,
    NoPreset,
}

/// What a value must look like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Switch,
    /// A whole number of at least `min`.
    Count {
        min: u64,
    },
    Real(Range),
    Text,
    Choice(&'static [&'static str]),
    /// As `Choice`, with other spellings that mean one of the choices.
    Spelled(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    Device,
    Texts,
    Choices(&'static [&'static str]),
    /// Episode numbers: a list, or half-open ranges such as `0:16,18:49`.
    Episodes,
    /// Two numbers.
    Reals2(Range),
    /// Two whole numbers of at least 1.
    Counts2,
    /// Name to name.
    Renames,
    /// A whole number, or this word.
    CountOr(&'static str),
    /// Not looked at.
    Anything,
}

/// Accepted numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub holds: fn(f64) -> bool,
    pub says: &'static str,
}

pub(crate) const POSITIVE: Range = Range { holds: |x| x > 0.0, says: "must be above 0" };
pub(crate) const NOT_NEGATIVE: Range = Range { holds: |x| x >= 0.0, says: "must be at least 0" };
pub(crate) const ANY: Range = Range { holds: |_| true, says: "must be a number" };
/// Probabilities of which 1 makes no sense, and Adam's betas.
pub(crate) const BELOW_ONE: Range =
    Range { holds: |x| (0.0..1.0).contains(&x), says: "must be at least 0 and below 1" };

/// The value of a key that nobody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// Not set.
    Absent,
    /// A TOML value.
    Is(&'static str),
    /// The value of another key.
    Follows(&'static str),
}

/// What setting a key does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// It changes the resolved configuration.
    Acts,
    /// Accepted, listed once, and why it changes nothing.
    Nothing(&'static str),
    /// Only these values describe what this program does; every other one is refused, and why.
    Only { values: &'static [&'static str], why: &'static str },
}

impl Key {
    /// A key that acts.
    const fn new(toml: &'static str, kind: Kind, default: Default, doc: &'static str) -> Self {
        Key { toml, yaml: &[], kind, default, yaml_default: None, effect: Effect::Acts, doc, also: &[] }
    }

    /// A predecessor's key without effect here.
    const fn ignored(yaml: &'static [Alias], why: &'static str) -> Self {
        Key {
            toml: "",
            yaml,
            kind: Kind::Anything,
            default: Default::Absent,
            yaml_default: None,
            effect: Effect::Nothing(why),
            doc: "",
            also: &[],
        }
    }

    /// A predecessor's key of which only some values describe what happens here.
    const fn only(yaml: &'static [Alias], values: &'static [&'static str], why: &'static str) -> Self {
        Key { effect: Effect::Only { values, why }, ..Key::ignored(yaml, "") }
    }

    const fn yaml(self, yaml: &'static [Alias]) -> Self {
        Key { yaml, ..self }
    }

    const fn yaml_default(self, default: Default) -> Self {
        Key { yaml_default: Some(default), ..self }
    }

    const fn effect(self, effect: Effect) -> Self {
        Key { effect, ..self }
    }

    const fn also(self, also: &'static [&'static str]) -> Self {
        Key { also, ..self }
    }

    /// The name that a message in this vocabulary uses.
    pub fn name(&self, vocabulary: Vocabulary) -> &'static str {
        match (vocabulary, self.yaml.first()) {
            (Vocabulary::Yaml, Some(alias)) => alias.path,
            (Vocabulary::Toml, Some(alias)) if self.toml.is_empty() => alias.path,
            _ => self.toml,
        }
    }

    /// All names that a file of this vocabulary may use.
    pub fn names(&self, vocabulary: Vocabulary) -> impl Iterator<Item = Alias> {
        let ours = match vocabulary {
            Vocabulary::Toml => !self.toml.is_empty(),
            Vocabulary::Yaml => self.yaml.is_empty(),
        };
        let theirs = if vocabulary == Vocabulary::Yaml { self.yaml } else { &[] };
        ours.then_some(same(self.toml)).into_iter().chain(theirs.iter().copied())
    }

    pub fn default_in(&self, vocabulary: Vocabulary) -> Default {
        match (vocabulary, self.yaml_default) {
            (Vocabulary::Yaml, Some(default)) => default,
            _ => self.default,
        }
    }

    /// Whether the key is a field of the resolved configuration.
    pub fn is_field(&self) -> bool {
        !self.toml.is_empty()
    }
}

/// The predecessors' name, with the same values.
const fn same(path: &'static str) -> Alias {
    Alias { path, meaning: Meaning::Same, when: When::Always }
}

const fn switch(path: &'static str, on: &'static str, off: &'static str) -> Alias {
    Alias { path, meaning: Meaning::Switch { on, off }, when: When::Always }
}

const fn adds(path: &'static str, member: &'static str) -> Alias {
    Alias { path, meaning: Meaning::Adds(member), when: When::Always }
}

const fn with_preset(path: &'static str) -> Alias {
    Alias { path, meaning: Meaning::Same, when: When::Preset }
}

const fn without_preset(path: &'static str) -> Alias {
    Alias { path, meaning: Meaning::Same, when: When::NoPreset }
}

/// The keys of one kind of configuration.
#[derive(Debug)]
pub(crate) struct Table {
    /// What the configuration is of, for the head of its reference.
    pub of: &'static str,
    /// A setting, to show how settings are written: a field, and a value.
    pub example: (&'static str, &'static str),
    sections: &'static [&'static [Key]],
}

/// What `vlash train` goes by.
pub(crate) static TRAIN: Table = Table {
    of: "training",
    example: ("train.steps", "500"),
    sections: &[model::KEYS, data::KEYS, run::KEYS, step::KEYS, optim::KEYS, adapter::KEYS, run::OUTPUT],
};

/// What `vlash run` goes by.
pub(crate) static RUN: Table = Table {
    of: "rollout",
    example: ("control.duration_s", "60"),
    sections: &[rollout::KEYS, rollout::CONTROL, rollout::OUTPUT],
};

impl Table {
    /// Every key, section by section.
    pub fn all(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.sections.iter().copied().flatten()
    }

    /// The key of that name in that vocabulary.
    pub fn find(&self, vocabulary: Vocabulary, path: &str) -> Option<(&'static Key, Alias)> {
        self.all().find_map(|key| Some((key, key.names(vocabulary).find(|name| name.path == path)?)))
    }

    /// The key whose value stands in this field of the configuration.
    pub fn field(&self, toml: &str) -> Option<&'static Key> {
        self.all().find(|key| key.toml == toml && key.is_field())
    }

    /// What a message in this vocabulary calls that field.
    pub fn name(&self, vocabulary: Vocabulary, toml: &str) -> &'static str {
        self.field(toml).map_or("", |key| key.name(vocabulary))
    }

    /// Whether keys of this vocabulary stand below `path`.
    pub fn is_section(&self, vocabulary: Vocabulary, path: &str) -> bool {
        let below = |name: Alias| name.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.all().any(|key| key.names(vocabulary).any(below))
    }
}

/// What a size of `model.preset` sets where nothing else does, beside its name.
pub(crate) fn preset(word: &str) -> Option<(&'static str, Settings)> {
    [("small", SMALL), ("tiny", TINY)].into_iter().find(|(name, _)| *name == word)
}

/// Keys with the literals that they get.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

pub(crate) const SMALL: Settings =
    &[("model.dtype", "\"float32\""), ("model.chunk_size", "32"), ("model.image_resolution", "[112, 112]")];

pub(crate) const TINY: Settings = &[
    ("model.dtype", "\"float32\""),
    ("model.chunk_size", "10"),
    ("model.image_resolution", "[56, 56]"),
    ("runtime.device", "\"cpu\""),
];

/// What `optim.preset = "none"` sets where nothing else does: LeRobot's plain AdamW and no schedule.
///
/// LeRobot clips at 10 here, DeepSpeed (the predecessors' default backend) at 1, and 1 wins there.
pub(crate) const NO_OPTIM_PRESET: Settings = &[
    ("optim.lr", "1e-3"),
    ("optim.betas", "[0.9, 0.999]"),
    ("optim.eps", "1e-8"),
    ("optim.weight_decay", "1e-2"),
    ("optim.grad_clip_norm", "1.0"),
    ("schedule.kind", "\"constant\""),
    ("schedule.warmup_steps", "0"),
];

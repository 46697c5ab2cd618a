//! What decides every byte of a recording, and how it is told again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::demonstration::RATE;
use super::error::CollectError;
use crate::dataset::write::{DatasetSpec, FeatureSpec, NumericType};
use crate::robot::sim::render::Camera;
use crate::robot::sim::{JOINT_NAMES, ROBOT_TYPE, Setup, Variant};

/// Which worlds are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worlds {
    Static,
    Moving,
    /// Even seeds static, odd ones moving.
    Mixed,
}

impl Worlds {
    /// By the words of the command line.
    pub const ALL: [(&str, Worlds); 3] =
        [("static", Worlds::Static), ("moving", Worlds::Moving), ("mixed", Worlds::Mixed)];

    /// The world of a seed.
    pub fn setup(self, seed: u64) -> Setup {
        let variant = match self {
            Worlds::Moving => Variant::Moving,
            Worlds::Mixed if seed % 2 == 1 => Variant::Moving,
            Worlds::Static | Worlds::Mixed => Variant::Static,
        };
        Setup { variant, seed }
    }
}

/// How pictures are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Images {
    /// Videos: small, nearly lossless.
    H264,
    /// Lossless, inside the tables.
    Png,
}

impl Images {
    /// By the words of the command line.
    pub const ALL: [(&str, Images); 2] = [("h264", Images::H264), ("png", Images::Png)];
}

/// The word of a value.
fn word<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, known)| known == value).map_or("", |(word, _)| *word)
}

/// Everything that decides what is recorded of a seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `expert`, `box`, or the path of a checkpoint.
    pub source: String,
    /// Present with a policy as source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySettings>,
    /// Of the first episode.
    pub seed: u64,
    pub variant: Worlds,
    /// Of the expert's way before the recording.
    pub noise: f32,
    /// Present when a policy leads the arm before the expert's recording begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<LeadSettings>,
    pub images: Images,
    /// Pixels of a picture's side.
    pub size: usize,
    /// Simulated seconds after which an episode has failed.
    pub time_limit_s: f64,
    /// Whether failed episodes are recorded, too.
    pub keep_failures: bool,
    /// Of the program: another one may simulate, draw or encode otherwise.
    pub version: String,
}

/// Who leads before the recording begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadSettings {
    /// `box`, or the path of a checkpoint.
    pub source: String,
    /// Of its weights and configuration.
    pub digest: String,
}

/// How a policy plays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySettings {
    /// Of its weights and configuration.
    pub digest: String,
    /// How its chunks follow one another, as `vlash eval --modes` has it.
    pub mode: String,
    /// Control ticks that an inference takes.
    pub delay: usize,
}

impl Settings {
    /// The dataset's features: both cameras, state and action.
    pub fn spec(&self) -> DatasetSpec {
        let picture = match self.images {
            Images::H264 => FeatureSpec::video,
            Images::Png => FeatureSpec::image,
        };
        let mut features: Vec<FeatureSpec> = Camera::ALL
            .iter()
            .map(|camera| picture(&format!("observation.images.{}", camera.name()), self.size, self.size))
            .collect();
        features.push(FeatureSpec::vector("observation.state", NumericType::Float32, &JOINT_NAMES));
        features.push(FeatureSpec::vector("action", NumericType::Float32, &JOINT_NAMES));
        DatasetSpec::new(RATE, Some(ROBOT_TYPE), features)
    }

    /// The command that records the same again; where to is left to say.
    pub fn command(&self, episodes: u64) -> String {
        let Settings { source, policy, seed, variant, noise, lead, images, size, time_limit_s, keep_failures, .. } =
            self;
        let mut command = format!(
            "vlash collect --episodes {episodes} --source {source} --seed {seed} --variant {} --images {} --size {size} \
             --time-limit {time_limit_s}",
            word(&Worlds::ALL, variant),
            word(&Images::ALL, images),
        );
        match policy {
            Some(policy) => command.push_str(&format!(" --mode {} --delay {}", policy.mode, policy.delay)),
            None => command.push_str(&format!(" --noise {noise}")),
        }
        if let Some(lead) = lead {
            command.push_str(&format!(" --lead {}", lead.source));
        }
        if *keep_failures {
            command.push_str(" --keep-failures");
        }
        command
    }

    /// As JSON.
    pub fn to_json(&self) -> Result<Value, CollectError> {
        serde_json::to_value(self).map_err(|error| CollectError::Setting {
            problem: format!("the settings cannot be written: {error}"),
            hint: "finite numbers".into(),
        })
    }
}

/// What is different between two settings, a phrase each: `noise: 1.5 there, 0 here`.
pub fn differences(there: &Value, here: &Value) -> Vec<String> {
    let empty = serde_json::Map::new();
    let (there, here) = (there.as_object().unwrap_or(&empty), here.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = there.keys().chain(here.keys()).collect();
    keys.sort();
    keys.dedup();
    let told = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let differs = keys.into_iter().filter(|key| there.get(*key) != here.get(*key));
    differs.map(|key| format!("{key}: {} there, {} here", told(there.get(key)), told(here.get(key)))).collect()
}

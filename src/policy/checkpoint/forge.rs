//! `vlash_forge.json`: what a policy of this project says beyond LeRobot's fields.
//!
//! It lies beside `config.json` and not inside it, since LeRobot's decoder (draccus) refuses a configuration with a
//! key that it does not know. A checkpoint without the file has LeRobot's behaviour in everything.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::CheckpointError;
use crate::dataset::finding::{Finding, Severity};
use crate::files;
use crate::policy::processor::{Pad, Resize};

pub const FORGE_FILE: &str = "vlash_forge.json";

/// What a checkpoint of this project says beyond LeRobot's fields.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Forge {
    pub resize: Resize,
    pub pad: Pad,
    /// Camera slots that may be without data. (LeRobot's `empty_cameras` would add slots.)
    pub empty_cameras: usize,
    pub state_cond: bool,
    /// Largest delay offset in frames that the policy was trained with; 0: none.
    pub trained_delay: usize,
    /// Most leading actions that the policy was trained to take as given (training-time RTC); 0: none.
    pub rtc_trained_delay: usize,
}

impl Forge {
    /// From the file in `directory`; none when there is none. Fields of later versions are reported.
    pub fn read(directory: &Path) -> Result<Option<(Forge, Option<Finding>)>, CheckpointError> {
        let path = directory.join(FORGE_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CheckpointError::Read { path, source }),
        };
        let problem = |problem: String| CheckpointError::Json { path: path.clone(), problem };
        let found: Map<String, Value> = serde_json::from_slice(&text).map_err(|e| problem(e.to_string()))?;
        let known = serde_json::to_value(Forge::default()).map_err(|e| problem(e.to_string()))?;
        let unknown: Vec<String> = found.keys().filter(|key| known.get(*key).is_none()).cloned().collect();
        let forge = serde_path_to_error::deserialize(Value::Object(found))
            .map_err(|e| problem(format!("{}: {}", e.path(), e.inner())))?;
        let finding = (!unknown.is_empty()).then(|| Finding {
            severity: Severity::Warning,
            code: "unknown-config-field",
            message: format!("{}: fields that are not known here, left aside: {}", path.display(), unknown.join(", ")),
            fix: None,
        });
        Ok(Some((forge, finding)))
    }

    /// Writes the file into `directory`.
    pub fn write(&self, directory: &Path) -> Result<(), CheckpointError> {
        let path = directory.join(FORGE_FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| CheckpointError::Json { path: path.clone(), problem: e.to_string() })?;
        files::write_atomic(&path, &text).map_err(|source| CheckpointError::Write { path, source })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::PolicyConfig;
    use super::*;
    use crate::config::train::{LongPrompts, Preset};
    use crate::config::{self, Source};
    use crate::policy::arch::Arch;
    use crate::policy::processor::{ImageSpec, ProcessorSpec};

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)).unwrap()
    }

    /// What a training of these sizes would write, with our switches set.
    fn trained(arch: &Arch) -> PolicyConfig {
        let model = config::load(&Source::Embedded, Some(Preset::Tiny), &[]).unwrap().value.model;
        let (height, width) = (arch.vision.image, arch.vision.image);
        let spec = ProcessorSpec {
            kind: arch.kind,
            cameras: vec!["observation.images.top".into()],
            empty_cameras: 1,
            rename: BTreeMap::new(),
            image: ImageSpec { height, width, resize: Resize::Bilinear, pad: Pad::TopLeft },
            state_mode: crate::config::train::NormMode::Quantiles,
            action_mode: crate::config::train::NormMode::Quantiles,
            state_dim: 8,
            action_dim: 7,
            max_state_dim: arch.max_state_dim,
            max_action_dim: arch.max_action_dim,
            chunk_size: arch.chunk_size,
            state_cond: arch.state_cond,
            tokenizer_max_length: 200,
            long_prompts: LongPrompts::Refuse,
            vocab_size: arch.vocab_size,
            tasks: Vec::new(),
        };
        PolicyConfig::for_training(None, &model, arch, &spec, &BTreeMap::new(), 8)
    }

    /// LeRobot's decoder refuses a configuration with any other key.
    #[test]
    fn a_full_size_policy_of_ours_has_lerobots_keys_and_no_other() {
        let keys = |text: &[u8]| serde_json::from_slice::<BTreeMap<String, Value>>(text).unwrap().into_keys();
        let theirs: BTreeSet<String> = keys(&fixture("pi05-tiny/config.json")).collect();
        let full = trained(&Arch { state_cond: true, ..Arch::full_pi05() });
        assert_eq!(keys(full.to_json().unwrap().as_bytes()).collect::<BTreeSet<_>>(), theirs);
        let forge = &full.vlash_forge;
        assert_eq!((forge.state_cond, forge.trained_delay, forge.pad, forge.empty_cameras), (true, 8, Pad::TopLeft, 1));
        // No stock LeRobot could build these sizes; who teaches it to, takes them from here.
        let tiny = keys(trained(&Arch::tiny(32)).to_json().unwrap().as_bytes()).filter(|key| !theirs.contains(key));
        assert_eq!(tiny.collect::<Vec<_>>(), ["tiny_dims"]);
    }

    #[test]
    fn what_earlier_versions_wrote_into_the_configuration_counts_until_the_file_says_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let mut config: Map<String, Value> =
            serde_json::from_slice(&fixture("pi05-tiny/config_with_tiny_dims.json")).unwrap();
        config.insert("vlash_forge".into(), serde_json::json!({"trained_delay": 5}));
        std::fs::write(place("config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        std::fs::write(place("model.safetensors"), fixture("pi05-tiny/model.safetensors")).unwrap();
        let open = || super::super::Checkpoint::open(directory.path()).unwrap();
        assert_eq!((open().config.vlash_forge.trained_delay, open().findings.len()), (5, 0));
        Forge { trained_delay: 8, ..Forge::default() }.write(directory.path()).unwrap();
        assert_eq!(open().config.vlash_forge.trained_delay, 8);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_unknown_or_broken_is_said() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Forge::read(directory.path()).unwrap().is_none());
        let forge = Forge { state_cond: true, trained_delay: 8, pad: Pad::TopLeft, ..Forge::default() };
        forge.write(directory.path()).unwrap();
        assert_eq!(Forge::read(directory.path()).unwrap(), Some((forge, None)));

        let path = directory.path().join(FORGE_FILE);
        std::fs::write(&path, r#"{"trained_delay": 3, "of_the_future": 1}"#).unwrap();
        let (forge, finding) = Forge::read(directory.path()).unwrap().unwrap();
        assert_eq!(forge, Forge { trained_delay: 3, ..Forge::default() });
        assert!(finding.unwrap().message.contains("of_the_future"));
        for broken in ["", "[]", r#"{"trained_delay": -1}"#, r#"{"pad": "left"}"#] {
            std::fs::write(&path, broken).unwrap();
            let error = Forge::read(directory.path()).unwrap_err();
            assert!(error.to_string().contains(FORGE_FILE), "{error}");
        }
    }
}

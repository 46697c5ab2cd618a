//! Cameras are matched by name, never by order.

use std::collections::BTreeMap;

use super::error::ProcessorError;
use crate::dataset::finding::{Finding, Severity};

/// Slots that a configuration itself declares empty (LeRobot's `empty_cameras`): `observation.images.empty_camera_0`, …
const DECLARED_EMPTY: &str = "observation.images.empty_camera_";

/// Which of the policy's camera slots the data fills.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraMatch {
    /// By slot: the position among the offered cameras, or none (masked).
    pub slots: Vec<Option<usize>>,
    /// Masked slots and unused cameras, for the report.
    pub findings: Vec<Finding>,
}

/// Matches the policy's `slots` with the cameras that a dataset (after `data.rename`) or a robot `offered`.
///
/// At most `empty_cameras` slots may stay empty (they are masked), besides those declared empty by name; at least one
/// must be filled, unless there are no slots at all.
///
/// # Errors
/// [`ProcessorError::Cameras`] with both lists; its hint is a rename map that works when pasted.
pub fn match_cameras(
    slots: &[String],
    offered: &[String],
    empty_cameras: usize,
) -> Result<CameraMatch, ProcessorError> {
    let matched: Vec<Option<usize>> = slots.iter().map(|slot| offered.iter().position(|name| name == slot)).collect();
    let missing: Vec<String> = slots
        .iter()
        .zip(&matched)
        .filter(|(slot, found)| found.is_none() && !slot.starts_with(DECLARED_EMPTY))
        .map(|(slot, _)| slot.clone())
        .collect();
    let nothing_seen = !slots.is_empty() && matched.iter().all(Option::is_none);
    let error = || ProcessorError::Cameras {
        slots: slots.to_vec(),
        offered: offered.to_vec(),
        missing: missing.clone(),
        allowed: empty_cameras,
    };
    if missing.len() > empty_cameras || nothing_seen {
        return Err(error());
    }
    let masked = missing.iter().map(|slot| Finding {
        severity: Severity::Note,
        code: "masked-camera",
        message: format!("camera {slot} of the policy has no data and is masked (model.empty_cameras={empty_cameras})"),
        fix: None,
    });
    let unused = offered.iter().filter(|name| !slots.contains(name)).map(|name| Finding {
        severity: Severity::Warning,
        code: "unused-camera",
        message: format!("camera {name} of the data is not among the policy's cameras {slots:?} and is not used"),
        fix: None,
    });
    Ok(CameraMatch { findings: masked.chain(unused).collect(), slots: matched })
}

/// The names of `offered` cameras after the rename map (`data.rename`, or a checkpoint's).
///
/// Entries for other features than cameras are none of its business.
///
/// # Errors
/// An entry for a camera that is not offered, or two cameras of one name afterwards.
pub fn rename_cameras(offered: &[String], rename: &BTreeMap<String, String>) -> Result<Vec<String>, ProcessorError> {
    let is_camera = |name: &str| name.starts_with("observation.image");
    if let Some(camera) = rename.keys().find(|name| is_camera(name) && !offered.contains(name)) {
        return Err(ProcessorError::RenamedCamera { camera: camera.clone(), offered: offered.to_vec() });
    }
    let renamed: Vec<String> = offered.iter().map(|name| rename.get(name).unwrap_or(name).clone()).collect();
    for slot in &renamed {
        let same = renamed.iter().zip(offered).filter(|(to, _)| *to == slot);
        let cameras: Vec<String> = same.map(|(_, from)| from.clone()).collect();
        if cameras.len() > 1 {
            return Err(ProcessorError::TwoCameras { slot: slot.clone(), cameras });
        }
    }
    Ok(renamed)
}

pub(super) fn describe(slots: &[String], offered: &[String], missing: &[String]) -> String {
    format!(
        "the policy expects the cameras [{}]; the data offers [{}]; unmatched: {}",
        slots.join(", "),
        offered.join(", "),
        if missing.is_empty() { "all".to_owned() } else { missing.join(", ") }
    )
}

/// Configuration lines that make the match: unused cameras renamed to missing slots, the remaining slots allowed empty.
pub(super) fn propose(slots: &[String], offered: &[String], missing: &[String], allowed: usize) -> String {
    let mut free: Vec<&String> = offered.iter().filter(|name| !slots.contains(name)).collect();
    let mut pairs = Vec::new();
    // Cameras whose name says the same first (wrist → left_wrist), then the rest in order.
    let mut open: Vec<&String> = missing.iter().collect();
    for alike in [true, false] {
        open.retain(|slot| match free.iter().position(|name| !alike || related(name, slot)) {
            Some(at) => {
                pairs.push((free.remove(at), *slot));
                false
            }
            None => true,
        });
    }
    let mut lines = Vec::new();
    if !pairs.is_empty() {
        let entries = |between: &str| {
            pairs.iter().map(|(from, to)| format!("{from:?}{between}{to:?}")).collect::<Vec<_>>().join(", ")
        };
        lines.push(format!("data.rename = {{ {} }}  # YAML: rename_map: {{{}}}", entries(" = "), entries(": ")));
    }
    if open.len() > allowed {
        lines.push(format!(
            "model.empty_cameras = {0}  # YAML: policy.empty_cameras: {0}; masks {1}",
            open.len(),
            open.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    if lines.is_empty() {
        return "give the policy at least one of its cameras".to_owned();
    }
    lines.join("\n")
}

fn related(camera: &str, slot: &str) -> bool {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let (camera, slot) = (last(camera), last(slot));
    slot.contains(&camera) || camera.contains(&slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explain;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| format!("observation.images.{name}")).collect()
    }

    #[test]
    fn order_does_not_matter_and_what_is_unused_is_said() {
        let found = match_cameras(&names(&["top", "wrist"]), &names(&["wrist", "side", "top"]), 0).unwrap();
        assert_eq!(found.slots, [Some(2), Some(0)]);
        assert_eq!(found.findings.len(), 1);
        assert!(found.findings[0].message.contains("observation.images.side"));
    }

    #[test]
    fn the_proposed_configuration_works_when_pasted() {
        let slots = names(&["base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"]);
        let offered = names(&["wrist", "front"]);
        let error = match_cameras(&slots, &offered, 0).unwrap_err();
        let text = error.to_string();
        assert!(slots.iter().chain(&offered).all(|name| text.contains(name)), "{text}");

        let pasted: toml::Table = error.hint().unwrap().parse().unwrap();
        let rename: BTreeMap<String, String> = pasted["data"]["rename"].clone().try_into().unwrap();
        let hint = error.hint().unwrap();
        let (_, yaml) = hint.lines().next().unwrap().split_once("# YAML: rename_map: ").unwrap();
        assert_eq!(serde_json::from_str::<BTreeMap<String, String>>(yaml).unwrap(), rename);
        let empty = pasted["model"]["empty_cameras"].as_integer().unwrap() as usize;
        assert_eq!(rename["observation.images.wrist"], "observation.images.left_wrist_0_rgb");
        let renamed = rename_cameras(&offered, &rename).unwrap();
        let found = match_cameras(&slots, &renamed, empty).unwrap();
        assert_eq!(found.slots.iter().flatten().count(), 2);
        assert_eq!(found.findings[0].code, "masked-camera");
    }

    #[test]
    fn slots_are_masked_only_when_allowed_or_declared() {
        let slots = names(&["top", "wrist", "empty_camera_0"]);
        assert!(match_cameras(&slots, &names(&["top"]), 0).is_err());
        assert_eq!(match_cameras(&slots, &names(&["top"]), 1).unwrap().slots, [Some(0), None, None]);
        assert_eq!(match_cameras(&slots, &names(&["top", "wrist"]), 0).unwrap().slots, [Some(0), Some(1), None]);
        assert!(match_cameras(&slots, &[], 3).is_err(), "a policy that sees nothing");
        assert!(match_cameras(&[], &[], 0).unwrap().slots.is_empty());
    }

    #[test]
    fn a_rename_of_nothing_and_two_cameras_of_one_name_are_refused() {
        let offered = names(&["front", "wrist"]);
        let rename = |from: &str, to: &str| BTreeMap::from([(from.to_owned(), to.to_owned())]);
        let error = rename_cameras(&offered, &rename("observation.images.side", "observation.images.top")).unwrap_err();
        let text = "the rename map names the camera \"observation.images.side\", but the data has \
                    [observation.images.front, observation.images.wrist]";
        assert_eq!(error.to_string(), text);
        let clash = rename("observation.images.front", "observation.images.wrist");
        assert!(matches!(rename_cameras(&offered, &clash), Err(ProcessorError::TwoCameras { .. })));
        assert_eq!(rename_cameras(&offered, &rename("observation.qpos", "observation.state")).unwrap(), offered);
    }
}

//! Whole datasets: the fixtures, and damaged copies of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use safetensors::SafeTensors;

use super::proxy::ProxyReport;
use super::sample::Sample;
use super::window::{StateRule, WindowSpec};
use super::*;
use crate::error::Explain;

mod stills;

pub(super) fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

/// A copy of a fixture that a test may damage.
fn copy(name: &str) -> tempfile::TempDir {
    fn copy_into(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy_into(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    copy_into(&fixture(name), dir.path());
    dir
}

fn edit_info(root: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = root.join("meta/info.json");
    let mut info = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut info);
    fs::write(path, info.to_string()).unwrap();
}

fn no_cameras(episodes: Option<Vec<usize>>) -> Selection {
    Selection { episodes, cameras: Some(Vec::new()), ..Selection::default() }
}

fn f32s(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let bytes = tensors.tensor(name).unwrap().data().to_vec();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Every frame and every delay of the reference's delay augmentation, to the last bit.
#[rstest]
#[case("delay-action-proxy", "dataset-equal-dims", StateRule::ActionProxy)]
#[case("delay-ground-truth", "dataset-equal-dims", StateRule::GroundTruth)]
#[case("delay-ground-truth-different-dims", "dataset-different-dims", StateRule::GroundTruth)]
fn windows_are_those_of_the_reference(#[case] golden: &str, #[case] dataset: &str, #[case] state: StateRule) {
    let bytes = fs::read(fixture(&format!("vlash/{golden}.safetensors"))).unwrap();
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    let dataset = Dataset::open(&fixture(&format!("vlash/{dataset}")), Selection::default()).unwrap();
    let shape = golden.tensor("action").unwrap().shape().to_vec();
    let [frames, delays, horizon, action_dim] = shape[..] else { panic!("{shape:?}") };
    assert_eq!((dataset.len(), dataset.action_dim()), (frames, action_dim));
    let (actions, states) = (f32s(&golden, "action"), f32s(&golden, "state"));
    let pads = golden.tensor("action_is_pad").unwrap().data().to_vec();
    let state_dim = dataset.state_dim();
    let spec = WindowSpec { horizon, state };
    let compare = |sample: &Sample, at: usize, rows: usize| {
        assert_eq!(sample.actions, actions[at * horizon * action_dim..][..rows * horizon * action_dim]);
        assert_eq!(sample.state, states[at * state_dim..][..rows * state_dim]);
        let is_pad: Vec<u8> = sample.action_is_pad.iter().map(|&pad| pad.into()).collect();
        assert_eq!(is_pad, pads[at * horizon..][..rows * horizon]);
        assert_eq!(sample.valid, vec![true; rows]);
    };
    for position in 0..frames {
        for delay in 0..delays {
            compare(&dataset.sample(position, &spec, delay).unwrap(), position * delays + delay, 1);
        }
        // All of them as branches of one sample.
        let all = dataset.branches(position, &spec, (0..delays).collect()).unwrap();
        compare(&all, position * delays, delays);
    }
}

#[test]
fn the_action_proxy_needs_equal_dimensions_and_positions() {
    let different = Dataset::open(&fixture("vlash/dataset-different-dims"), Selection::default()).unwrap();
    let spec = WindowSpec { horizon: 4, state: StateRule::ActionProxy };
    let error = different.sample(0, &spec, 1).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("set train.delay.ground_truth = true"));
    assert!(different.sample(0, &spec, 0).is_ok());

    let measure = |name: &str, episodes| {
        let dataset = Dataset::open(&fixture(name), no_cameras(episodes)).unwrap();
        let statistics = statistics::compute_all(&dataset).unwrap();
        let report = ProxyReport::measure(&dataset, &statistics[STATE]).unwrap();
        (report.check(dataset.action_feature()), report)
    };
    // Targets that the state follows, but for a constant and a gripper dimension.
    let (verdict, report) = measure("datasets/v21", None);
    assert_eq!(verdict, Ok(()));
    assert!(report.mean_ratio > 0.05 && report.mean_ratio < 0.12, "{report:?}");
    // Actions are 1000 above the state here.
    let (verdict, report) = measure("vlash/dataset-equal-dims", None);
    assert!(report.mean_ratio > 0.8, "{report:?}");
    assert!(verdict.unwrap_err().to_string().contains("of the joints' range (limit 0.15); worst: "));
}

#[rstest]
#[case("v21", 148, 7, 7)]
#[case("v30-av1", 143, 8, 7)]
#[case("v30-h264", 143, 6, 6)]
fn rows_are_those_of_the_reference(
    #[case] name: &str,
    #[case] frames: usize,
    #[case] state: usize,
    #[case] action: usize,
) {
    let bytes = fs::read(fixture(&format!("datasets/{name}.golden-frames.safetensors"))).unwrap();
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    let dataset = Dataset::open(&fixture(&format!("datasets/{name}")), Selection::default()).unwrap();
    assert_eq!((dataset.len(), dataset.state_dim(), dataset.action_dim()), (frames, state, action));
    assert_eq!(dataset.findings(), []);
    let all = |take: fn(&rows::EpisodeRows) -> &[f32]| -> Vec<f32> {
        dataset.episodes().iter().flat_map(|episode| take(&episode.rows).to_vec()).collect()
    };
    assert_eq!(all(|rows| &rows.state), f32s(&golden, "all.observation.state"));
    assert_eq!(all(|rows| &rows.action), f32s(&golden, "all.action"));
    assert_eq!(all(|rows| &rows.timestamp), f32s(&golden, "all.timestamp"));
}

#[rstest]
#[case("datasets/v21", 78)]
#[case("datasets/v30-av1", 77)]
fn episodes_may_be_chosen_in_any_order(#[case] name: &str, #[case] index: usize) {
    let dataset = Dataset::open(&fixture(name), no_cameras(Some(vec![2, 0]))).unwrap();
    let spec = WindowSpec { horizon: 10, state: StateRule::GroundTruth };
    let first = dataset.sample(0, &spec, 0).unwrap();
    assert_eq!((first.episode, first.frame, first.index), (2, 0, index));
    let length = dataset.episodes()[0].rows.length;
    // The window of the last frame of episode 2 does not run into episode 0.
    let last = dataset.sample(length - 1, &spec, 3).unwrap();
    assert!(last.action_is_pad.iter().all(|&pad| pad));
    let dim = dataset.action_dim();
    assert!(last.actions.chunks_exact(dim).all(|row| row == &dataset.episodes()[0].rows.action[(length - 1) * dim..]));
    let next = dataset.sample(length, &spec, 0).unwrap();
    assert_eq!((next.episode, next.frame, next.index), (0, 0, 0));
    assert!(matches!(dataset.sample(dataset.len(), &spec, 0), Err(DatasetError::OutOfRange { .. })));
}

#[test]
fn a_partial_download_loads_with_the_episodes_that_are_there() {
    let copy = copy("datasets/v21");
    for episode in [0, 1, 3] {
        fs::remove_file(copy.path().join(format!("data/chunk-000/episode_{episode:06}.parquet"))).unwrap();
    }
    assert_eq!(Dataset::open(copy.path(), no_cameras(Some(vec![2]))).unwrap().len(), 29);
    let error = Dataset::open(copy.path(), no_cameras(None)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "episode 0: data/chunk-000/episode_000000.parquet is missing; only episode 2 is present here"
    );
    assert_eq!(error.hint().as_deref(), Some("set data.episodes = [2], or download the missing files"));
    let error = Dataset::open(copy.path(), no_cameras(Some(vec![7]))).unwrap_err();
    assert_eq!(error.to_string(), "there is no episode 7: this dataset has [0, 1, 2, 3]");
}

#[test]
fn missing_videos_count_as_missing_files() {
    let copy = copy("datasets/v21");
    let video = "videos/chunk-000/observation.images.wrist/episode_000002.mp4";
    fs::remove_file(copy.path().join(video)).unwrap();
    let error = Dataset::open(copy.path(), Selection::default()).unwrap_err();
    assert!(error.to_string().contains(&format!("episode 2: {video} is missing")), "{error}");
    assert_eq!(error.hint().as_deref(), Some("set data.episodes = [0, 1, 3], or download the missing files"));
    let one = Selection { cameras: Some(vec!["observation.images.top".into()]), ..Selection::default() };
    assert!(Dataset::open(copy.path(), one).is_ok());
}

#[test]
fn layout_and_version_are_settled_before_anything_else_is_read() {
    let copy = copy("datasets/v21");
    edit_info(copy.path(), |info| info["codebase_version"] = "v3.0".into());
    let error = Metadata::read(copy.path()).unwrap_err();
    assert!(error.to_string().contains("info.json says v3.0 but the files are laid out as v2.1"), "{error}");
    edit_info(copy.path(), |info| drop(info.as_object_mut().unwrap().remove("codebase_version")));
    let findings = Metadata::read(copy.path()).unwrap().findings;
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["version-missing"]);
}

#[test]
fn rows_that_contradict_the_tables_are_refused() {
    let copy = copy("datasets/v21");
    let episodes = fs::read_to_string(copy.path().join("meta/episodes.jsonl")).unwrap();
    fs::write(copy.path().join("meta/episodes.jsonl"), episodes.replace("\"length\": 29", "\"length\": 30")).unwrap();
    let error = Dataset::open(copy.path(), no_cameras(None)).unwrap_err().to_string();
    assert!(error.starts_with("episode 2: 29 rows in ") && error.contains("30 expected"), "{error}");
    fs::write(copy.path().join("meta/episodes.jsonl"), &episodes).unwrap();

    let tasks = copy.path().join("meta/tasks.jsonl");
    fs::write(&tasks, "{\"task_index\": 0, \"task\": \"a\"}\n").unwrap();
    let error = Dataset::open(copy.path(), no_cameras(None)).unwrap_err().to_string();
    assert_eq!(error, "episode 1, frame 0: task_index 1 is not in the task table");
    fs::write(&tasks, "{\"task_index\": \"zero\"}\n").unwrap();
    assert!(Dataset::open(copy.path(), no_cameras(None)).unwrap_err().to_string().contains("line 1: expected"));
}

#[test]
fn git_lfs_pointers_are_recognised() {
    let copy = copy("datasets/v21");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 6686\n";
    fs::write(copy.path().join("data/chunk-000/episode_000001.parquet"), pointer).unwrap();
    let error = Dataset::open(copy.path(), no_cameras(None)).unwrap_err();
    assert!(error.to_string().ends_with("episode_000001.parquet is a Git-LFS pointer, not the file itself"));
    assert!(error.hint().unwrap().contains("git lfs pull"));
}

#[test]
fn cameras_are_matched_by_name() {
    let root = fixture("datasets/v21");
    let rename = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(from, to)| (format!("observation.images.{from}"), format!("observation.images.{to}")))
            .collect()
    };
    let names = |selection| -> Result<Vec<String>, String> {
        let dataset = Dataset::open(&root, selection).map_err(|error| error.to_string())?;
        Ok(dataset.cameras().iter().map(|camera| camera.name.clone()).collect())
    };
    let renamed = Selection { rename: rename(&[("top", "base_0_rgb")]), ..Selection::default() };
    assert_eq!(names(renamed).unwrap(), ["observation.images.base_0_rgb", "observation.images.wrist"]);
    let unknown = Selection { rename: rename(&[("front", "base_0_rgb")]), ..Selection::default() };
    assert!(names(unknown).unwrap_err().contains("data.rename names observation.images.front"));
    let collision = Selection { rename: rename(&[("top", "a"), ("wrist", "a")]), ..Selection::default() };
    assert!(names(collision).unwrap_err().contains("gives two cameras the name observation.images.a"));
    let absent = Selection { cameras: Some(vec!["observation.images.side".into()]), ..Selection::default() };
    let error = names(absent).unwrap_err();
    assert!(error.ends_with("the dataset's cameras are [observation.images.top, observation.images.wrist]"), "{error}");
}

#[test]
fn depth_maps_are_left_out_with_a_warning_unless_asked_for() {
    let copy = copy("datasets/v21");
    let wrist = "observation.images.wrist";
    edit_info(copy.path(), |info| info["features"][wrist]["info"]["is_depth_map"] = true.into());
    let dataset = Dataset::open(copy.path(), Selection::default()).unwrap();
    assert_eq!(dataset.cameras().len(), 1);
    assert_eq!(dataset.findings()[0].code, "depth-camera-excluded");
    assert_eq!(dataset.findings()[0].fix.as_deref(), Some("data.cameras = [\"observation.images.top\"]"));
    let asked = Selection { cameras: Some(vec![wrist.into()]), ..Selection::default() };
    assert_eq!(Dataset::open(copy.path(), asked).unwrap().cameras()[0].feature, wrist);
}

#[test]
fn not_finite_values_are_found_with_their_place() {
    let dataset = Dataset::open(&fixture("datasets/v21"), no_cameras(Some(vec![3, 1]))).unwrap();
    let mut broken = dataset;
    broken.episodes_mut()[1].rows.state[7 * 5 + 2] = f32::NAN;
    let error = statistics::compute_all(&broken).unwrap_err().to_string();
    assert_eq!(error, "observation.state[2] (joint_2.pos) is NaN at episode 1, frame 5");
}

#[test]
fn a_video_one_frame_short_is_counted_and_a_shorter_one_refused() {
    let copy = copy("datasets/v21");
    let top = copy.path().join("videos/chunk-000/observation.images.top");
    let replace = |of: usize, by: usize| {
        let from = fixture("datasets/v21/videos/chunk-000/observation.images.top").join(format!("episode_{by:06}.mp4"));
        fs::copy(from, top.join(format!("episode_{of:06}.mp4"))).unwrap();
    };
    let check = || Dataset::open(copy.path(), Selection::default()).unwrap().check_videos();
    assert_eq!(check().unwrap(), []);
    // Lengths are 38, 40, 29 and 41.
    replace(3, 1);
    let short = ShortVideo { episode: 3, camera: "observation.images.top".into() };
    assert_eq!(check().unwrap(), [short]);
    replace(1, 0);
    let error = check().unwrap_err().to_string();
    assert!(error.starts_with("episode 1, camera observation.images.top: 40 rows but 38 video frames ("), "{error}");
}

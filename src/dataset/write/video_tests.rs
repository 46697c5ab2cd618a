//! Videos of datasets: what is written is what our reader finds, directly and by way of parked episodes.

use std::collections::BTreeMap;

use super::data::Place;
use super::*;
use crate::dataset::check::{Options, check};
use crate::dataset::finding::Severity;
use crate::dataset::frame::RgbFrame;
use crate::dataset::video::encode_tests::{psnr, scene};
use crate::dataset::{Dataset, Selection};

const CAMERA: &str = "observation.images.top";

fn spec() -> DatasetSpec {
    let features = vec![
        FeatureSpec::video(CAMERA, 64, 96),
        FeatureSpec::image("observation.images.side", 20, 30),
        FeatureSpec::vector("observation.state", NumericType::Float32, &["x", "y"]),
        FeatureSpec::vector("action", NumericType::Float32, &["x", "y"]),
        FeatureSpec::vector("observation.time", NumericType::Float64, &["seconds"]),
        FeatureSpec::vector("next.reward", NumericType::Int64, &["reward"]),
    ];
    DatasetSpec::new(10, Some("arm"), features)
}

fn fill(episode: &mut Episode, from: usize, frames: usize) {
    for frame in from..from + frames {
        let state = [frame as f32 * 0.1, (frame as f32).sin()];
        let (top, side) = (scene(96, 64, frame), scene(30, 20, frame));
        let values = [Value::Image(&top), Value::Image(&side), Value::F32(&state), Value::F32(&state)];
        episode.push(&[&values[..], &[Value::F64(&[frame as f64]), Value::I64(&[frame as i64])]].concat()).unwrap();
    }
}

const LENGTHS: [usize; 3] = [5, 1, 4];

/// All files of a directory by their names.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = PathBuf::from(path.file_name().unwrap());
            found.extend(files(&path).into_iter().map(|(below, bytes)| (name.join(below), bytes)));
        } else {
            found.insert(path.file_name().unwrap().into(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn videos_stand_behind_one_another_and_are_read_frame_by_frame() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::create(&dir.path().join("set"), spec()).unwrap();
    let mut begun = 0;
    for frames in LENGTHS {
        let mut episode = writer.begin("look");
        fill(&mut episode, begun, frames);
        writer.save(episode).unwrap();
        begun += frames;
    }
    let root = writer.finish().unwrap();
    let report = check(&root, &Options { deep: true, horizon: 2, ..Options::default() });
    assert!(report.count(Severity::Error) == 0, "{:?}", report.findings);

    let dataset = Dataset::open(&root, Selection::default()).unwrap();
    let top = dataset.cameras().iter().find(|camera| camera.feature == CAMERA).unwrap();
    for (at, episode) in dataset.episodes().iter().enumerate() {
        let span = episode.meta.videos.iter().find(|span| *span.camera == *CAMERA).unwrap();
        let from: usize = LENGTHS.iter().take(at).sum();
        let seconds = |frames: usize| Some(frames as f64 / 10.0);
        assert_eq!((span.from_timestamp, span.to_timestamp), (seconds(from), seconds(from + LENGTHS[at])));
        for frame in 0..LENGTHS[at] {
            let found = dataset.image(episode, top, frame).unwrap();
            let right = psnr(&found, &scene(96, 64, from + frame));
            let wrong = psnr(&found, &scene(96, 64, from + frame + 1));
            assert!(right > 30.0 && right > wrong + 5.0, "episode {at}, frame {frame}: {right:.1} dB, next {wrong:.1}");
        }
    }
    let info: serde_json::Value = serde_json::from_slice(&fs::read(root.join("meta/info.json")).unwrap()).unwrap();
    let feature = &info["features"][CAMERA];
    assert_eq!(feature["dtype"], "video");
    assert_eq!(feature["info"]["video.codec"], "h264");
    assert_eq!(feature["info"]["video.fps"], 10);
    assert_eq!(info["video_path"], "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4");
    assert!(info["features"]["observation.state"].get("info").is_none());
    // Of the frames as they were, not as they come back.
    let mut histogram = statistics::ChannelHistogram::default();
    (0..10).for_each(|frame| histogram.add(&scene(96, 64, frame)));
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(root.join("meta/stats.json")).unwrap()).unwrap();
    let mean: Vec<f64> = (0..3).map(|c| stats[CAMERA]["mean"][c][0][0].as_f64().unwrap()).collect();
    assert_eq!(mean, histogram.statistics().mean);
    assert_eq!(stats[CAMERA]["count"], serde_json::json!([10]));
}

#[test]
fn parked_episodes_give_the_same_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let mut direct = DatasetWriter::create(&dir.path().join("direct"), spec()).unwrap();
    let mut parked = DatasetWriter::create(&dir.path().join("parked"), spec()).unwrap();
    let form = EpisodeForm::new(&spec()).unwrap();
    for (at, frames) in LENGTHS.into_iter().enumerate() {
        let (mut one, mut other) = (direct.begin("look"), form.begin("look"));
        fill(&mut one, at, frames);
        fill(&mut other, at, frames);
        direct.save(one).unwrap();
        let bytes = other.park(&format!("seed {at}")).unwrap();
        let (episode, note) = parked.unpark(&bytes).unwrap();
        assert_eq!((episode.len(), note), (frames, format!("seed {at}")));
        parked.save(episode).unwrap();
    }
    parked.attach("collect.json", &serde_json::json!({ "seed": 0 })).unwrap();
    assert!(matches!(parked.attach("info.json", &serde_json::Value::Null), Err(WriteError::Attachment { .. })));
    assert!(matches!(parked.attach("../a.json", &serde_json::Value::Null), Err(WriteError::Attachment { .. })));
    let (direct, mut parked) = (files(&direct.finish().unwrap()), files(&parked.finish().unwrap()));
    assert!(parked.remove(Path::new("meta/collect.json")).is_some());
    assert_eq!(direct.keys().collect::<Vec<_>>(), parked.keys().collect::<Vec<_>>());
    assert!(direct == parked, "the same bytes in every file");
}

#[test]
fn bytes_that_are_no_episode_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let writer = DatasetWriter::create(&dir.path().join("set"), spec()).unwrap();
    let mut episode = EpisodeForm::new(&spec()).unwrap().begin("look");
    fill(&mut episode, 0, 2);
    let bytes = episode.park("").unwrap();
    let message = |bytes: &[u8]| writer.unpark(bytes).unwrap_err().to_string();
    for length in [0, 7, 100, bytes.len() - 1] {
        assert!(message(&bytes[..length]).contains("not an episode"), "{length}");
    }
    let mut smaller = spec();
    smaller.features.truncate(3);
    smaller.features[2] = FeatureSpec::vector("observation.state", NumericType::Float32, &["x"]);
    let mut other = EpisodeForm::new(&smaller).unwrap().begin("look");
    other.push(&[Value::Image(&scene(96, 64, 0)), Value::Image(&scene(30, 20, 0)), Value::F32(&[0.0])]).unwrap();
    let refused = message(&other.park("").unwrap());
    assert!(refused.contains("observation.state/values has 1 values of F32, expected 2"), "{refused}");
}

#[test]
fn video_files_split_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let features = vec![FeatureSpec::video(CAMERA, 128, 128)];
    let spec = DatasetSpec { video_files_size_in_mb: 1, chunks_size: 2, ..DatasetSpec::new(10, None, features) };
    let mut writer = DatasetWriter::create(&dir.path().join("set"), spec).unwrap();
    let mut random = crate::random::stream(0, "noise", &[]);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let mut episode = writer.begin("look");
        for _ in 0..24 {
            let mut data = vec![0; 128 * 128 * 3];
            rand::RngCore::fill_bytes(&mut random, &mut data);
            episode.push(&[Value::Image(&RgbFrame { height: 128, width: 128, data })]).unwrap();
        }
        episode.close();
        sizes.extend(episode.clips().map(crate::dataset::video::Clip::bytes));
        writer.save(episode).unwrap();
    }
    let root = writer.finish().unwrap();
    let (mut expected, mut bytes) = (vec![vec![]], 0);
    for (at, size) in sizes.iter().enumerate() {
        if bytes > 0 && bytes + size >= 1 << 20 {
            expected.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        expected.last_mut().unwrap().push(at);
    }
    assert!(expected.len() > 2, "{sizes:?}");
    let meta = crate::dataset::meta::Metadata::read(&root).unwrap();
    for (number, episodes) in expected.iter().enumerate() {
        let path = Place { chunk: number / 2, file: number % 2 }.path(&root.join("videos").join(CAMERA), "mp4");
        assert!(path.is_file(), "{}", path.display());
        for (at, episode) in episodes.iter().enumerate() {
            let span = &meta.episodes[*episode].videos[0];
            assert_eq!(span.from_timestamp, Some(at as f64 * 2.4), "episode {episode}");
        }
    }
}

#[test]
fn odd_pictures_are_refused_before_a_file_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let spec = DatasetSpec::new(10, None, vec![FeatureSpec::video(CAMERA, 65, 96)]);
    let error = DatasetWriter::create(&dir.path().join("set"), spec).unwrap_err();
    assert!(error.to_string().contains("a video of 96x65 pixels"), "{error}");
    assert_eq!(error.hint().unwrap(), "pad the pictures to 96x66, or store them as PNG");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

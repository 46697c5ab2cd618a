//! A dataset with image features and an unnamed task index, written here.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Float32Type};
use image::{ImageFormat, Rgb, RgbImage};
use parquet::arrow::ArrowWriter;

use crate::dataset::window::{StateRule, WindowSpec};
use crate::dataset::{Dataset, Selection};

const CAMERA: &str = "observation.image";
const LENGTHS: [usize; 2] = [3, 4];

fn write(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn integers(values: impl IntoIterator<Item = usize>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.into_iter().map(|value| value as i64)))
}

/// A picture whose first pixel tells episode and frame.
fn png(episode: usize, frame: usize) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let picture = RgbImage::from_pixel(5, 4, Rgb([episode as u8, frame as u8, 200]));
    picture.write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// v3.0 with two episodes in one file; the last picture lies in a file of its own.
fn write_dataset(root: &Path) {
    let info = serde_json::json!({
        "codebase_version": "v3.0", "fps": 10, "robot_type": null,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "video_path": null,
        "features": {
            CAMERA: {"dtype": "image", "shape": [4, 5, 3], "names": ["height", "width", "channels"]},
            "observation.state": {"dtype": "float32", "shape": [1], "names": null},
            "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["a", "b"]}},
        },
    });
    fs::create_dir_all(root.join("meta")).unwrap();
    fs::write(root.join("meta/info.json"), info.to_string()).unwrap();
    let tasks = Arc::new(StringArray::from(vec!["lift", "drop"]));
    write(&root.join("meta/tasks.parquet"), vec![("task_index", integers([0, 1])), ("__index_level_0__", tasks)]);
    write(
        &root.join("meta/episodes/chunk-000/file-000.parquet"),
        vec![
            ("episode_index", integers([0, 1])),
            ("length", integers(LENGTHS)),
            ("dataset_from_index", integers([0, LENGTHS[0]])),
            ("data/chunk_index", integers([0, 0])),
            ("data/file_index", integers([0, 0])),
        ],
    );
    let frames: Vec<(usize, usize)> = (0..2).flat_map(|e| (0..LENGTHS[e]).map(move |frame| (e, frame))).collect();
    let last = frames.len() - 1;
    let encoded: Vec<Vec<u8>> = frames.iter().map(|&(episode, frame)| png(episode, frame)).collect();
    let bytes: BinaryArray = encoded.iter().enumerate().map(|(at, png)| (at != last).then_some(png)).collect();
    let paths: StringArray = (0..frames.len()).map(|at| (at == last).then_some("pictures/last.png")).collect();
    fs::create_dir(root.join("pictures")).unwrap();
    fs::write(root.join("pictures/last.png"), &encoded[last]).unwrap();
    let images = StructArray::from(vec![
        (Arc::new(Field::new("bytes", DataType::Binary, true)), Arc::new(bytes) as ArrayRef),
        (Arc::new(Field::new("path", DataType::Utf8, true)), Arc::new(paths) as ArrayRef),
    ]);
    let actions = frames.iter().map(|&(e, frame)| Some(vec![Some(e as f32), Some(frame as f32)]));
    let times = frames.iter().map(|&(_, frame)| frame as f32 / 10.0);
    write(
        &root.join("data/chunk-000/file-000.parquet"),
        vec![
            (CAMERA, Arc::new(images)),
            ("observation.state", Arc::new(times.clone().collect::<Float32Array>())),
            ("action", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(actions))),
            ("timestamp", Arc::new(times.collect::<Float32Array>())),
            ("frame_index", integers(frames.iter().map(|&(_, frame)| frame))),
            ("episode_index", integers(frames.iter().map(|&(episode, _)| episode))),
            ("index", integers(0..frames.len())),
            ("task_index", integers(frames.iter().map(|&(episode, _)| episode))),
        ],
    );
}

#[test]
fn stills_vectors_and_tasks_of_a_subset() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let dataset = Dataset::open(dir.path(), Selection { episodes: Some(vec![1, 0]), ..Selection::default() }).unwrap();
    assert_eq!(dataset.len(), 7);
    let window = WindowSpec { horizon: 2, state: StateRule::GroundTruth };
    for (position, (episode, frame)) in [(1, 0), (1, 1), (1, 2), (1, 3), (0, 0), (0, 1), (0, 2)].into_iter().enumerate()
    {
        let sample = dataset.sample(position, &window, 0).unwrap();
        assert_eq!((sample.episode, sample.frame, sample.index), (episode, frame, episode * 3 + frame));
        assert_eq!(sample.images[0].1.data[..3], [episode as u8, frame as u8, 200]);
        assert_eq!(sample.state, [frame as f32 / 10.0]);
        assert_eq!(sample.actions[..2], [episode as f32, frame as f32]);
        assert_eq!(sample.task, ["lift", "drop"][episode]);
    }
    assert_eq!(dataset.check_videos().unwrap(), []);
}

#[test]
fn a_missing_picture_is_named() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    fs::remove_file(dir.path().join("pictures/last.png")).unwrap();
    let dataset = Dataset::open(dir.path(), Selection::default()).unwrap();
    let window = WindowSpec { horizon: 2, state: StateRule::GroundTruth };
    let error = dataset.sample(6, &window, 0).unwrap_err().to_string();
    assert!(
        error.starts_with("episode 1, frame 3, camera observation.image: cannot read pictures/last.png"),
        "{error}"
    );
}

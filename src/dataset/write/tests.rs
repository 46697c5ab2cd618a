use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value as Json;

use super::*;
use crate::dataset::frame::RgbFrame;

fn spec() -> DatasetSpec {
    let features = vec![
        FeatureSpec::image("observation.images.top", 6, 4),
        FeatureSpec::vector("observation.state", NumericType::Float32, &["x", "y"]),
        FeatureSpec::vector("observation.capture_time", NumericType::Float64, &["seconds"]),
    ];
    DatasetSpec::new(10, Some("arm"), features)
}

fn frame(level: u8) -> RgbFrame {
    RgbFrame { height: 6, width: 4, data: (0..72).map(|i| level.wrapping_add(i)).collect() }
}

fn fill(writer: &mut DatasetWriter, task: &str, states: &[[f32; 2]]) {
    let mut episode = writer.begin(task);
    for (i, state) in states.iter().enumerate() {
        let image = frame(i as u8);
        episode.push(&[Value::Image(&image), Value::F32(state), Value::F64(&[i as f64 * 0.101])]).unwrap();
    }
    writer.save(episode).unwrap();
}

fn read(path: &Path) -> (Vec<usize>, RecordBatch) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let groups = builder.metadata().row_groups().iter().map(|g| g.num_rows() as usize).collect();
    let schema = builder.schema().clone();
    let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
    (groups, arrow::compute::concat_batches(&schema, &batches).unwrap())
}

fn json(path: PathBuf) -> Json {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn rows_come_back_as_they_were_pushed_one_row_group_an_episode() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let mut writer = DatasetWriter::create(&root, spec()).unwrap();
    fill(&mut writer, "push", &[[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]);
    fill(&mut writer, "pull", &[[0.5, 0.0], [0.25, 0.0]]);
    fill(&mut writer, "push", &[[7.0, 7.0]]);
    assert!(!root.exists(), "nothing shows before the dataset is whole");
    assert_eq!(writer.finish().unwrap(), root);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary directory stays");

    let (groups, rows) = read(&root.join("data/chunk-000/file-000.parquet"));
    assert_eq!(groups, [3, 2, 1]);
    let integers = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(integers("index"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(integers("frame_index"), [0, 1, 2, 0, 1, 0]);
    assert_eq!(integers("episode_index"), [0, 0, 0, 1, 1, 2]);
    assert_eq!(integers("task_index"), [0, 0, 0, 1, 1, 0]);
    let state = rows.column_by_name("observation.state").unwrap().as_fixed_size_list();
    assert_eq!(state.value_length(), 2);
    assert_eq!(
        state.values().as_primitive::<Float32Type>().values(),
        &[1., 2., 3., 4., 5., 9., 0.5, 0., 0.25, 0., 7., 7.]
    );
    let stamps = rows.column_by_name("timestamp").unwrap().as_primitive::<Float32Type>();
    assert_eq!(stamps.values(), &[0.0, 0.1, 0.2, 0.0, 0.1, 0.0]);
    let images = rows.column_by_name("observation.images.top").unwrap().as_struct();
    let png = images.column_by_name("bytes").unwrap().as_binary::<i32>().value(2);
    assert_eq!(image::load_from_memory(png).unwrap().into_rgb8().into_raw(), frame(2).data);
}

#[test]
fn meta_describes_the_episodes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let mut writer = DatasetWriter::create(&root, spec()).unwrap();
    fill(&mut writer, "push", &[[1.0, 2.0], [3.0, 4.0]]);
    fill(&mut writer, "pull", &[[5.0, 9.0]]);
    writer.finish().unwrap();

    let (_, episodes) = read(&root.join("meta/episodes/chunk-000/file-000.parquet"));
    let integers = |name: &str| episodes.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(integers("length"), [2, 1]);
    assert_eq!(integers("dataset_from_index"), [0, 2]);
    assert_eq!(integers("dataset_to_index"), [2, 3]);
    let tasks = episodes.column_by_name("tasks").unwrap().as_list::<i32>().values().clone();
    assert_eq!(tasks.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["push", "pull"]);
    let mean = episodes.column_by_name("stats/observation.state/mean").unwrap().as_list::<i32>().values().clone();
    assert_eq!(mean.as_primitive::<Float64Type>().values(), &[2.0, 3.0, 5.0, 9.0]);
    let image = episodes.column_by_name("stats/observation.images.top/q50").unwrap();
    assert_eq!(image.as_list::<i32>().value_length(0), 3, "[3, 1, 1]");
    assert!(matches!(image.data_type(), DataType::List(f) if matches!(f.data_type(), DataType::List(_))));

    // pyarrow takes the index column from the embedded Arrow schema.
    let tasks = ParquetRecordBatchReaderBuilder::try_new(File::open(root.join("meta/tasks.parquet")).unwrap()).unwrap();
    let pandas: Json = serde_json::from_str(&tasks.schema().metadata()["pandas"]).unwrap();
    assert_eq!(pandas["index_columns"], serde_json::json!(["task"]));

    let info = json(root.join("meta/info.json"));
    assert_eq!(info["total_frames"], 3);
    assert_eq!(info["splits"]["train"], "0:2");
    assert_eq!(info["features"]["observation.images.top"]["shape"], serde_json::json!([6, 4, 3]));
    let stats = json(root.join("meta/stats.json"));
    assert_eq!(stats["observation.state"]["count"], serde_json::json!([3]));
    assert_eq!(stats["observation.state"]["q50"], serde_json::json!([3.0, 4.0]));
}

#[test]
fn the_histogram_of_an_image_says_the_same_as_its_pixels() {
    let image = frame(17);
    let mut histogram = statistics::ChannelHistogram::default();
    histogram.add(&image);
    let channel = |c: usize| image.data.iter().skip(c).step_by(3).map(|&v| f64::from(v) / 255.0).collect();
    let pixels = crate::dataset::statistics::stats_of(3, channel);
    let found = histogram.statistics();
    assert_eq!(found.count, 1, "frames, not pixels");
    for ((name, a), (_, b)) in statistics::entries(&found).zip(statistics::entries(&pixels)) {
        assert_eq!(a.len(), 3);
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-12, "{name}: {a} {b}");
        }
    }
}

#[test]
fn files_split_by_size_and_chunks_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let features = vec![FeatureSpec::image("observation.images.top", 200, 200)];
    let spec = DatasetSpec { data_files_size_in_mb: 1, chunks_size: 2, ..DatasetSpec::new(10, None, features) };
    let mut writer = DatasetWriter::create(&dir.path().join("set"), spec).unwrap();
    let mut random = crate::random::stream(0, "noise", &[]);
    for _ in 0..6 {
        let mut episode = writer.begin("look");
        for _ in 0..4 {
            // Noise does not compress: about 120 KB an image, two episodes a file.
            let mut data = vec![0; 200 * 200 * 3];
            rand::RngCore::fill_bytes(&mut random, &mut data);
            episode.push(&[Value::Image(&RgbFrame { height: 200, width: 200, data })]).unwrap();
        }
        writer.save(episode).unwrap();
    }
    let root = writer.finish().unwrap();
    let rows = |name: &str| read(&root.join(name)).0;
    assert_eq!(rows("data/chunk-000/file-000.parquet"), [4, 4]);
    assert_eq!(rows("data/chunk-000/file-001.parquet"), [4, 4]);
    assert_eq!(rows("data/chunk-001/file-000.parquet"), [4, 4]);
    let (_, episodes) = read(&root.join("meta/episodes/chunk-000/file-000.parquet"));
    let integers = |name: &str| episodes.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(integers("data/chunk_index"), [0, 0, 0, 0, 1, 1]);
    assert_eq!(integers("data/file_index"), [0, 0, 1, 1, 0, 0]);
}

#[test]
fn wrong_values_and_places_are_refused_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("set");
    let mut writer = DatasetWriter::create(&root, spec()).unwrap();
    let mut episode = writer.begin("push");
    let image = frame(0);
    let error = episode.push(&[Value::Image(&image), Value::F32(&[1.0]), Value::F64(&[0.0])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "frame 0 of the episode, feature observation.state: found float32[1], expected float32[2]"
    );
    assert!(episode.push(&[Value::Image(&image)]).is_err());
    assert!(episode.is_empty());
    assert!(writer.save(episode).unwrap_err().to_string().contains("no frames"));
    assert!(writer.finish().unwrap_err().to_string().contains("no episode"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the temporary directory is gone");

    fs::create_dir(&root).unwrap();
    fs::write(root.join("mine.txt"), "keep").unwrap();
    assert!(matches!(DatasetWriter::create(&root, spec()), Err(WriteError::Exists { .. })));
    let twice = DatasetSpec::new(10, None, vec![FeatureSpec::vector("index", NumericType::Int64, &["i"])]);
    assert!(matches!(DatasetWriter::create(&dir.path().join("b"), twice), Err(WriteError::Spec { .. })));
}

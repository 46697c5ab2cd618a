//! `dataset::check` on datasets that are broken one way at a time (field failures FF-01 … FF-06), by snapshot.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Float32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;
use vlash_forge::dataset::check::{Options, Report, check};
use vlash_forge::dataset::reach;

const V21: &str = "v21";
const V30: &str = "v30-av1";

/// A copy of a fixture that a test may break.
struct Copy {
    _directory: TempDir,
    root: PathBuf,
}

impl Copy {
    fn of(fixture: &str) -> Copy {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("set");
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/datasets").join(fixture), &root);
        Copy { _directory: directory, root }
    }

    /// A few episodes of the bundled reaching task: stills instead of videos.
    fn of_stills() -> Copy {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("set");
        reach::generate(&root, 4).unwrap();
        Copy { _directory: directory, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn edit_info(&self, edit: impl FnOnce(&mut Value)) {
        edit_json(&self.path("meta/info.json"), edit);
    }

    /// Rewrites a parquet file.
    fn edit_rows(&self, name: &str, edit: impl FnOnce(RecordBatch) -> RecordBatch) {
        let path = self.path(name);
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        let schema = builder.schema().clone();
        let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
        let batch = edit(concat_batches(&schema, &batches).unwrap());
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn check(&self) -> Report {
        self.check_with(|_| {})
    }

    /// With the chunk of ten steps that short fixtures can fill.
    fn check_with(&self, set: impl FnOnce(&mut Options)) -> Report {
        let mut options = Options { horizon: 10, ..Options::default() };
        set(&mut options);
        check(&self.root, &options)
    }

    /// The report as it is printed, without the path of the copy.
    fn text(&self, report: &Report) -> String {
        report.to_string().replace(&self.root.display().to_string(), "[DATASET]")
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn with_column(batch: &RecordBatch, name: &str, column: ArrayRef) -> RecordBatch {
    let at = batch.schema().index_of(name).unwrap();
    let mut fields: Vec<_> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields[at] = fields[at].clone().with_data_type(column.data_type().clone());
    let mut columns = batch.columns().to_vec();
    columns[at] = column;
    RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns).unwrap()
}

fn floats(batch: &RecordBatch, name: &str, edit: impl FnOnce(&mut [f32])) -> RecordBatch {
    let mut values = batch.column_by_name(name).unwrap().as_primitive::<Float32Type>().values().to_vec();
    edit(&mut values);
    with_column(batch, name, Arc::new(Float32Array::from(values)))
}

fn integers(batch: &RecordBatch, name: &str, edit: impl FnOnce(&mut [i64])) -> RecordBatch {
    let mut values = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    edit(&mut values);
    with_column(batch, name, Arc::new(Int64Array::from(values)))
}

/// Edits a vector column, given as rows laid flat and the width of a row.
fn vectors(batch: &RecordBatch, name: &str, edit: impl FnOnce(&mut [f32], usize)) -> RecordBatch {
    let lists = batch.column_by_name(name).unwrap().as_fixed_size_list();
    let DataType::FixedSizeList(element, width) = lists.data_type().clone() else { unreachable!() };
    let mut values = lists.values().as_primitive::<Float32Type>().values().to_vec();
    edit(&mut values, width as usize);
    let values = Arc::new(Float32Array::from(values));
    with_column(batch, name, Arc::new(FixedSizeListArray::new(element, width, values, None)))
}

fn without_row(batch: RecordBatch, row: usize) -> RecordBatch {
    let keep = (0..batch.num_rows()).map(|i| Some(i != row)).collect();
    filter_record_batch(&batch, &keep).unwrap()
}

const V30_ROWS: &str = "data/chunk-000/file-000.parquet";
const V21_ROWS: &str = "data/chunk-000/episode_000001.parquet";
const V30_VIDEO: &str = "videos/observation.images.top/chunk-000/file-000.mp4";

fn v21_video(episode: usize) -> String {
    format!("videos/chunk-000/observation.images.top/episode_{episode:06}.mp4")
}

#[rstest]
#[case(V21)]
#[case(V30)]
#[case("v30-h264")]
fn a_sound_dataset_has_no_errors(#[case] fixture: &str) {
    let set = Copy::of(fixture);
    let report = set.check_with(|options| options.deep = true);
    assert!(report.can_train(), "{report}");
    insta::assert_snapshot!(format!("sound_{fixture}"), set.text(&report));
}

#[test]
fn the_bundled_dataset_is_clean() {
    let set = Copy::of_stills();
    let report = set.check_with(|options| options.deep = true);
    let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["padding-share"], "{report}");
}

// FF-01: versions and layouts.

#[rstest]
#[case("missing", V30, Value::Null)]
#[case("older", V21, json!("v2.0"))]
#[case("much_older", V30, json!("v1.6"))]
#[case("newer_minor", V30, json!("v3.7"))]
#[case("contradiction", V21, json!("v3.0"))]
fn versions(#[case] name: &str, #[case] fixture: &str, #[case] version: Value) {
    let set = Copy::of(fixture);
    set.edit_info(|info| match version {
        Value::Null => drop(info.as_object_mut().unwrap().remove("codebase_version")),
        version => info["codebase_version"] = version,
    });
    insta::assert_snapshot!(format!("version_{name}"), set.text(&set.check()));
}

#[rstest]
#[case(json!("3"))]
#[case(json!(3.0))]
fn versions_written_otherwise_are_understood(#[case] version: Value) {
    let set = Copy::of(V30);
    let before = set.check().findings;
    set.edit_info(|info| info["codebase_version"] = version);
    assert_eq!(set.check().findings, before);
}

#[test]
fn no_dataset_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let report = check(&directory.path().join("nothing"), &Options::default());
    assert!(!report.can_train());
    assert_eq!(report.findings[0].code, "not-a-dataset");
}

#[test]
fn a_template_with_a_foreign_placeholder() {
    let set = Copy::of(V30);
    set.edit_info(|info| info["data_path"] = json!("data/{shard:03d}.parquet"));
    insta::assert_snapshot!(set.text(&set.check()));
}

// What is here.

#[test]
fn a_missing_video_takes_its_episode_out() {
    let set = Copy::of(V21);
    fs::remove_file(set.path(&v21_video(1))).unwrap();
    insta::assert_snapshot!(set.text(&set.check()));
    let report = set.check_with(|options| options.selection.episodes = Some(vec![0, 2, 3]));
    assert!(report.can_train(), "the proposed selection works: {report}");
}

#[test]
fn a_partial_download_offers_what_is_here() {
    let set = Copy::of(V21);
    for episode in [0, 1, 3] {
        fs::remove_file(set.path(&format!("data/chunk-000/episode_{episode:06}.parquet"))).unwrap();
        fs::remove_file(set.path(&v21_video(episode))).unwrap();
    }
    insta::assert_snapshot!(set.text(&set.check()));
    assert!(set.check_with(|options| options.selection.episodes = Some(vec![2])).can_train());
}

#[rstest]
#[case("rows", V30_ROWS)]
#[case("video", V30_VIDEO)]
#[case("tasks", "meta/tasks.parquet")]
fn lfs_pointers(#[case] name: &str, #[case] file: &str) {
    let set = Copy::of(V30);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 20033\n";
    fs::write(set.path(file), pointer).unwrap();
    insta::assert_snapshot!(format!("lfs_{name}"), set.text(&set.check()));
}

#[test]
fn unknown_and_repeated_episodes_of_a_selection() {
    let set = Copy::of(V21);
    let report = set.check_with(|options| options.selection.episodes = Some(vec![2, 9, 2]));
    insta::assert_snapshot!(set.text(&report));
}

// Rows.

#[test]
fn a_dropped_row() {
    let set = Copy::of(V21);
    set.edit_rows(V21_ROWS, |rows| without_row(rows, 7));
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn frames_out_of_order() {
    let set = Copy::of(V30);
    set.edit_rows(V30_ROWS, |rows| {
        let rows = integers(&rows, "frame_index", |frames| frames.swap(45, 46));
        integers(&rows, "index", |index| index[100] += 1000)
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn columns_of_another_type_and_length() {
    let set = Copy::of(V30);
    set.edit_info(|info| {
        info["features"]["observation.state"]["shape"] = json!([9]);
        info["features"]["action"]["dtype"] = json!("float64");
        info["features"]["observation.force"] = json!({"dtype": "float32", "shape": [3], "names": null});
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn a_truncated_table() {
    let set = Copy::of(V21);
    let bytes = fs::read(set.path(V21_ROWS)).unwrap();
    fs::write(set.path(V21_ROWS), &bytes[..bytes.len() / 2]).unwrap();
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn unknown_and_empty_tasks() {
    let set = Copy::of(V21);
    set.edit_rows(V21_ROWS, |rows| integers(&rows, "task_index", |tasks| tasks[12] = 7));
    let tasks = fs::read_to_string(set.path("meta/tasks.jsonl")).unwrap();
    let mut lines: Vec<Value> = tasks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[0]["task"] = json!("  ");
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(set.path("meta/tasks.jsonl"), lines.join("\n")).unwrap();
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn totals_that_do_not_add_up() {
    let set = Copy::of(V30);
    set.edit_info(|info| info["total_frames"] = json!(150));
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn rows_of_an_unknown_episode_and_a_shifted_index() {
    let set = Copy::of(V30);
    set.edit_rows(V30_ROWS, |rows| {
        let rows = integers(&rows, "episode_index", |episodes| episodes[118..].fill(9));
        integers(&rows, "index", |index| index[40..77].iter_mut().for_each(|i| *i += 5))
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn a_state_under_another_name() {
    let set = Copy::of_stills();
    set.edit_info(|info| {
        let state = info["features"].as_object_mut().unwrap().remove("observation.state").unwrap();
        info["features"]["robot.joints"] = state;
    });
    set.edit_rows(V30_ROWS, |rows| {
        let schema = rows.schema();
        let names = schema.fields().iter().map(|field| match field.name().as_str() {
            "observation.state" => field.as_ref().clone().with_name("robot.joints"),
            _ => field.as_ref().clone(),
        });
        let schema = arrow::datatypes::Schema::new(names.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), rows.columns().to_vec()).unwrap()
    });
    let report = set.check();
    assert!(!report.can_train());
    assert_eq!(report.findings[0].code, "missing-feature");
    assert_eq!(report.findings[0].fix.as_deref(), Some("data.rename = { \"robot.joints\" = \"observation.state\" }"));
    let rename = |options: &mut Options| {
        options.selection.rename.insert("robot.joints".into(), "observation.state".into());
    };
    let report = set.check_with(rename);
    assert!(report.can_train(), "{report}");
    assert_eq!(report.facts.unwrap().state, Some(2));
}

// FF-02: clocks and videos.

#[test]
fn timestamps_of_a_wall_clock() {
    let set = Copy::of(V30);
    set.edit_rows(V30_ROWS, |rows| {
        floats(&rows, "timestamp", |stamps| {
            for (i, stamp) in stamps[40..77].iter_mut().enumerate() {
                *stamp = i as f32 * 0.0351 + 0.002 * (i % 3) as f32;
            }
        })
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn capture_jitter_below_half_a_frame_is_fine() {
    let set = Copy::of(V30);
    let before = set.check().findings;
    set.edit_rows(V30_ROWS, |rows| {
        floats(&rows, "timestamp", |stamps| {
            stamps.iter_mut().enumerate().for_each(|(i, s)| *s += 0.004 * (i % 3) as f32)
        })
    });
    assert_eq!(set.check().findings, before);
}

#[test]
fn videos_that_end_early() {
    let set = Copy::of(V21);
    // Episodes have 38, 40, 29 and 41 rows: episode 3 gets 40 frames, episode 0 gets 29.
    fs::copy(set.path(&v21_video(1)), set.path(&v21_video(3))).unwrap();
    fs::copy(set.path(&v21_video(2)), set.path(&v21_video(0))).unwrap();
    insta::assert_snapshot!(set.text(&set.check()));
    assert!(set.check_with(|options| options.selection.episodes = Some(vec![1, 2, 3])).can_train());
}

#[test]
fn a_cut_video() {
    let set = Copy::of(V30);
    let bytes = fs::read(set.path(V30_VIDEO)).unwrap();
    fs::write(set.path(V30_VIDEO), &bytes[..bytes.len() * 2 / 3]).unwrap();
    let report = set.check();
    assert!(!report.can_train());
    assert!(
        report.findings.iter().any(|f| f.code == "video" && f.message.contains("observation.images.top")),
        "{report}"
    );
}

#[test]
fn a_video_of_another_size_and_rate() {
    let set = Copy::of(V30);
    set.edit_info(|info| {
        info["fps"] = json!(15);
        info["features"]["observation.images.top"]["shape"] = json!([48, 64, 3]);
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

// FF-03: numbers.

#[test]
fn values_that_are_not_finite() {
    let set = Copy::of(V30);
    set.edit_rows(V30_ROWS, |rows| {
        vectors(&rows, "action", |values, width| {
            values[50 * width + 2] = f32::NAN;
            values[51 * width] = f32::INFINITY;
        })
    });
    insta::assert_snapshot!(set.text(&set.check()));
    assert!(set.check_with(|options| options.selection.episodes = Some(vec![0, 2, 3])).can_train());
}

#[test]
fn a_nearly_constant_joint_and_an_outlier() {
    let set = Copy::of(V30);
    set.edit_rows(V30_ROWS, |rows| {
        vectors(&rows, "action", |values, width| {
            for (row, values) in values.chunks_exact_mut(width).enumerate() {
                values[4] = 1.5686 + 0.001 * (row % 2) as f32;
            }
            values[90 * width + 1] = 500.0;
        })
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[test]
fn actions_that_are_differences() {
    let set = Copy::of_stills();
    set.edit_rows(V30_ROWS, |rows| {
        let states = rows.column_by_name("observation.state").unwrap().as_fixed_size_list().values().clone();
        let states = states.as_primitive::<Float32Type>().values().to_vec();
        vectors(&rows, "action", |values, _| values.iter_mut().zip(states).for_each(|(a, s)| *a -= s))
    });
    insta::assert_snapshot!(set.text(&set.check()));
}

#[rstest]
#[case("nan", "mean", json!([null]))]
#[case("negative", "std", json!([-0.1]))]
#[case("count", "count", json!([0]))]
fn impossible_statistics(#[case] name: &str, #[case] key: &str, #[case] value: Value) {
    let set = Copy::of(V30);
    edit_json(&set.path("meta/stats.json"), |stats| {
        let values = stats["action"][key].as_array_mut().unwrap();
        values[0] = value[0].clone();
    });
    let report = set.check();
    assert!(report.can_train(), "they are computed from the data: {report}");
    let found = report.findings.iter().find(|finding| finding.code.starts_with("statistics-")).unwrap();
    insta::assert_snapshot!(
        format!("statistics_{name}"),
        found.message.replace(&set.root.display().to_string(), "[DATASET]")
    );
}

// FF-04: windows.

#[test]
fn chunks_longer_than_the_episodes() {
    let set = Copy::of(V30);
    insta::assert_snapshot!(set.text(&set.check_with(|options| options.horizon = 50)));
}

// FF-05: cameras.

#[test]
fn a_depth_camera_is_left_out_and_the_cameras_are_listed() {
    let set = Copy::of(V30);
    set.edit_info(|info| info["features"]["observation.images.wrist"]["info"]["is_depth_map"] = json!(true));
    let report = set.check();
    insta::assert_snapshot!(set.text(&report));
    insta::assert_snapshot!("depth_camera_facts", format!("{:#}", report.to_json()["facts"]["cameras"]));
}

#[test]
fn a_camera_that_is_not_used_may_be_broken() {
    let set = Copy::of(V30);
    fs::remove_dir_all(set.path("videos/observation.images.wrist")).unwrap();
    assert!(!set.check().can_train());
    let top = |options: &mut Options| options.selection.cameras = Some(vec!["observation.images.top".into()]);
    assert!(set.check_with(top).can_train());
    let wrong = |options: &mut Options| options.selection.cameras = Some(vec!["front".into()]);
    insta::assert_snapshot!(set.text(&set.check_with(wrong)));
}

#[test]
fn a_broken_still() {
    let set = Copy::of_stills();
    set.edit_info(|info| info["features"]["observation.images.top"]["shape"] = json!([64, 56, 3]));
    insta::assert_snapshot!(set.text(&set.check()));
}

// All at once.

#[test]
fn everything_is_found_in_one_run() {
    let set = Copy::of(V21);
    set.edit_rows("data/chunk-000/episode_000000.parquet", |rows| without_row(rows, 3));
    set.edit_rows(V21_ROWS, |rows| vectors(&rows, "action", |values, _| values[0] = f32::NAN));
    fs::remove_file(set.path(&v21_video(2))).unwrap();
    let report = set.check();
    let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
    for code in ["row-count", "not-finite", "missing-file", "unusable-episodes"] {
        assert!(codes.contains(&code), "{code} is not among {codes:?}");
    }
    let last = report.findings.last().unwrap();
    assert_eq!(last.fix.as_deref(), Some("data.episodes = [3]"));
    let json = report.to_json();
    assert_eq!(json["can_train"], json!(false));
    assert_eq!(json["facts"]["unusable"], json!([0, 1, 2]));
}

#[rstest]
#[case("0,2,3", 0)]
#[case("0..=3", 64)]
fn the_command_exits_0_only_when_training_could_start(#[case] episodes: &str, #[case] code: i32) {
    let set = Copy::of(V21);
    fs::remove_file(set.path(&v21_video(1))).unwrap();
    let mut vlash = assert_cmd::Command::cargo_bin("vlash").unwrap();
    vlash.args(["data", "check", "--json", "--horizon", "10", "--episodes", episodes]).arg(&set.root);
    let output = vlash.assert().code(code).get_output().stdout.clone();
    let report: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(report["can_train"], json!(code == 0));
    assert_eq!(report["facts"]["episodes"], json!(4));
}

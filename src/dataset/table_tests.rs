use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{Float32Type, Int32Type};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;

use super::*;

fn write(columns: Vec<(&str, ArrayRef)>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    std::fs::write(&path, bytes(columns)).unwrap();
    (dir, path)
}

fn bytes(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn fixed(width: i32, values: Vec<f32>) -> ArrayRef {
    let item = Arc::new(arrow::datatypes::Field::new("element", DataType::Float32, true));
    Arc::new(FixedSizeListArray::new(item, width, Arc::new(Float32Array::from(values)), None))
}

fn small() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("state", fixed(2, (0..12).map(|i| i as f32).collect())),
        ("index", Arc::new(Int64Array::from_iter_values(0..6))),
        ("task", Arc::new(StringArray::from_iter_values(["a", "b", "c", "d", "e", "f"]))),
    ]
}

#[test]
fn vectors_come_as_scalars_lists_and_fixed_size_lists() {
    let lists = |rows: [&[f32]; 2]| -> ArrayRef {
        let rows = rows.map(|row| Some(row.iter().map(|&value| Some(value)).collect::<Vec<_>>()));
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
    };
    let (_dir, path) = write(vec![
        ("scalar", Arc::new(Float64Array::from(vec![0.5, 1.5]))),
        ("list", lists([&[1.0, 2.0], &[3.0, 4.0]])),
        ("ragged", lists([&[1.0, 2.0], &[3.0]])),
        ("fixed", fixed(2, vec![1.0, 2.0, 3.0, 4.0])),
    ]);
    let rows = Table::open(&path).unwrap().read(&["scalar", "list", "ragged", "fixed"], None).unwrap();
    assert_eq!(rows.matrix("scalar", 1).unwrap(), [0.5, 1.5]);
    assert_eq!(rows.matrix("list", 2).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(rows.matrix("fixed", 2).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let ragged = rows.matrix("ragged", 2).unwrap_err().to_string();
    assert!(ragged.ends_with("column ragged, row 1: 1 values, expected 2 (shape in info.json)"), "{ragged}");
    assert!(rows.matrix("fixed", 4).is_err());
    assert!(rows.matrix("list", 3).is_err());
    assert!(rows.matrix("scalar", 0).is_err());
}

#[test]
fn only_the_rows_asked_for_are_returned() {
    let (_dir, path) = write(small());
    let table = Table::open(&path).unwrap();
    let rows = table.read(&["index", "state"], Some(&[1..2, 4..6])).unwrap();
    assert_eq!(rows.integers("index").unwrap(), [1, 4, 5]);
    assert_eq!(rows.matrix("state", 2).unwrap(), [2.0, 3.0, 8.0, 9.0, 10.0, 11.0]);
    assert!(table.read(&["index"], Some(&[0..1, 5..7])).is_err());
    assert!(table.read(&["other"], None).unwrap_err().to_string().contains("found state, index, task"));
}

#[test]
fn nulls_and_wrong_types_are_named() {
    let (_dir, path) = write(vec![
        ("holes", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("words", Arc::new(StringArray::from(vec!["a", "b"]))),
    ]);
    let rows = Table::open(&path).unwrap().read(&["holes", "words"], None).unwrap();
    assert!(rows.integers("holes").unwrap_err().to_string().ends_with("column holes: no value in row 1"));
    assert!(rows.matrix("words", 1).unwrap_err().to_string().contains("expected numbers"));
    assert!(rows.integers("words").is_err());
}

#[test]
fn dictionary_texts_are_texts() {
    let words: arrow::array::DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
    let (_dir, path) = write(vec![("task", Arc::new(words))]);
    let rows = Table::open(&path).unwrap().read(&["task"], None).unwrap();
    assert_eq!(rows.texts("task").unwrap(), ["a", "b", "a"]);
}

/// Reads everything that can be read of these bytes as a file; no outcome but a panic is wrong.
fn read_all(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    std::fs::write(&path, bytes).unwrap();
    let Ok(table) = Table::open(&path) else { return };
    if let Ok(rows) = table.read(&["state", "index", "task"], None) {
        let _ = (rows.matrix("state", 2), rows.integers("index"), rows.texts("task"));
    }
    let _ = table.read(&["index"], Some(&[0..1, 2..4]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn truncated_files_are_refused(keep in 0.0f64..1.0) {
        let bytes = bytes(small());
        read_all(&bytes[..(bytes.len() as f64 * keep) as usize]);
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes(small());
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(&bytes);
    }
}

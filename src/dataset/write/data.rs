//! The data files: rows of all episodes, one row group each, split by size.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use serde_json::{Map, Value, json};

use super::episode::{Column, Episode};
use super::spec::{DatasetSpec, FeatureKind, FeatureSpec, NumericType};
use super::{WriteError, close_parquet, create_parquet, parquet_error, properties};

/// Where an episode's rows lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub chunk: usize,
    pub file: usize,
}

impl Place {
    pub(super) fn next(self, chunks_size: usize) -> Place {
        match self.file + 1 {
            file if file < chunks_size => Place { file, ..self },
            _ => Place { chunk: self.chunk + 1, file: 0 },
        }
    }

    /// `<below>/chunk-CCC/file-FFF.<ending>`
    pub(super) fn path(self, below: &Path, ending: &str) -> PathBuf {
        below.join(format!("chunk-{:03}/file-{:03}.{ending}", self.chunk, self.file))
    }
}

/// The data file that grows at present.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    writer: ArrowWriter<File>,
    frames: usize,
}

#[derive(Debug)]
pub(super) struct DataFiles {
    directory: PathBuf,
    schema: SchemaRef,
    properties: WriterPropertiesBuilder,
    limit_bytes: usize,
    chunks_size: usize,
    place: Place,
    open: Option<Open>,
}

impl DataFiles {
    pub(super) fn new(root: &Path, spec: &DatasetSpec) -> Self {
        let fields: Vec<Field> = spec.features.iter().filter_map(field).collect();
        DataFiles {
            directory: root.join("data"),
            schema: Arc::new(Schema::new(fields).with_metadata(hub_metadata(spec))),
            properties: data_properties(spec),
            limit_bytes: spec.data_files_size_in_mb << 20,
            chunks_size: spec.chunks_size,
            place: Place::default(),
            open: None,
        }
    }

    /// Writes the episode as one row group and says where.
    ///
    /// LeRobot's rule: a new file when the bytes so far and those expected of the episode (by the mean size
    /// of a frame so far) reach the limit.
    pub(super) fn append(&mut self, episode: &Episode) -> Result<Place, WriteError> {
        let is_full = self.open.as_ref().is_some_and(|open| {
            let bytes = open.writer.bytes_written();
            bytes + bytes * episode.len() / open.frames.max(1) >= self.limit_bytes
        });
        if is_full && let Some(full) = self.open.take() {
            close_parquet(&full.path, full.writer)?;
            self.place = self.place.next(self.chunks_size);
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let path = self.place.path(&self.directory, "parquet");
                let writer = create_parquet(&path, self.schema.clone(), self.properties.clone())?;
                Open { path, writer, frames: 0 }
            }
        };
        let columns = episode.spec.features.iter().zip(&episode.columns);
        let batch = columns
            .filter_map(|(feature, column)| array(feature, column).transpose())
            .collect::<Result<Vec<_>, _>>()
            .and_then(|arrays| RecordBatch::try_new(self.schema.clone(), arrays))
            .map_err(|source| WriteError::Arrow { table: "data", source })?;
        open.writer.write(&batch).map_err(parquet_error(&open.path))?;
        open.writer.flush().map_err(parquet_error(&open.path))?;
        open.frames += episode.len();
        self.open = Some(open);
        Ok(self.place)
    }

    pub(super) fn close(&mut self) -> Result<(), WriteError> {
        self.open.take().map_or(Ok(()), |open| close_parquet(&open.path, open.writer))
    }
}

/// Tells the `datasets` library that image columns are images.
fn hub_metadata(spec: &DatasetSpec) -> HashMap<String, String> {
    let types: Map<String, Value> =
        spec.features.iter().filter_map(|f| Some((f.name.clone(), f.hub_type()?))).collect();
    HashMap::from([("huggingface".to_owned(), json!({ "info": { "features": types } }).to_string())])
}

/// PNGs are neither repeated (dictionary) nor ordered (statistics).
fn data_properties(spec: &DatasetSpec) -> WriterPropertiesBuilder {
    let images = spec.features.iter().filter(|f| f.kind == FeatureKind::Image);
    images.fold(properties(), |properties, feature| {
        let column = ColumnPath::new(vec![feature.name.clone(), "bytes".to_owned()]);
        properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_statistics_enabled(column, EnabledStatistics::None)
    })
}

fn data_type(numeric: NumericType) -> DataType {
    match numeric {
        NumericType::Float32 => DataType::Float32,
        NumericType::Float64 => DataType::Float64,
        NumericType::Int64 => DataType::Int64,
    }
}

fn image_fields() -> Fields {
    [Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)].into_iter().collect()
}

fn element(numeric: NumericType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type(numeric), true))
}

/// The column of a feature; none for a video, which lies elsewhere.
fn field(feature: &FeatureSpec) -> Option<Field> {
    let data_type = match feature.kind {
        FeatureKind::Video => return None,
        FeatureKind::Image => DataType::Struct(image_fields()),
        FeatureKind::Numeric(numeric) if feature.dims() == 1 => data_type(numeric),
        FeatureKind::Numeric(numeric) => DataType::FixedSizeList(element(numeric), feature.dims() as i32),
    };
    Some(Field::new(&feature.name, data_type, true))
}

/// As [`field`].
fn array(feature: &FeatureSpec, column: &Column) -> Result<Option<ArrayRef>, arrow::error::ArrowError> {
    let flat: (ArrayRef, NumericType) = match column {
        Column::F32(values) => (Arc::new(Float32Array::from(values.clone())), NumericType::Float32),
        Column::F64(values) => (Arc::new(Float64Array::from(values.clone())), NumericType::Float64),
        Column::I64(values) => (Arc::new(Int64Array::from(values.clone())), NumericType::Int64),
        Column::Image { pngs, .. } => {
            let bytes = Arc::new(BinaryArray::from_iter_values(pngs));
            // LeRobot's recorder leaves the name of the image file here; readers use the bytes when there are any.
            let path = Arc::new(StringArray::new_null(pngs.len()));
            return Ok(Some(Arc::new(StructArray::try_new(image_fields(), vec![bytes, path], None)?)));
        }
        Column::Video { .. } => return Ok(None),
    };
    let (values, numeric) = flat;
    match feature.dims() {
        1 => Ok(Some(values)),
        dims => Ok(Some(Arc::new(FixedSizeListArray::try_new(element(numeric), dims as i32, values, None)?))),
    }
}

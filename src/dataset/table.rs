//! Parquet files: chosen columns of chosen rows, as plain vectors.
//!
//! Every failure, also of a file that was damaged on its way, is an error that names the file. The reader is
//! given no length that the file merely claims: vectors grow with what was decoded.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, RecordBatchReader};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};

use super::error::DatasetError;
use super::files::is_lfs_pointer;

/// An open parquet file: its footer is read, its pages are not.
#[derive(Debug, Clone)]
pub struct Table {
    path: PathBuf,
    footer: ArrowReaderMetadata,
}

impl Table {
    /// Opens the file at `path` and reads its footer.
    pub fn open(path: &Path) -> Result<Table, DatasetError> {
        let file = File::open(path).map_err(|source| DatasetError::read(path, source))?;
        if is_lfs_pointer(path).map_err(|source| DatasetError::read(path, source))? {
            return Err(DatasetError::LfsPointer { path: path.to_path_buf() });
        }
        let footer = guarded(path, || {
            ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(|error| error.to_string())
        })?;
        Ok(Table { path: path.to_path_buf(), footer })
    }

    /// Rows, as the footer declares them.
    pub fn row_count(&self) -> usize {
        usize::try_from(self.footer.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// The columns and their types.
    pub fn schema(&self) -> &Arc<Schema> {
        self.footer.schema()
    }

    /// Names of all columns.
    pub fn columns(&self) -> Vec<&str> {
        self.schema().fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Whether the table has that column.
    pub fn has(&self, column: &str) -> bool {
        self.schema().fields().iter().any(|field| field.name() == column)
    }

    /// Reads `columns` of the rows in `ranges` (ascending, not overlapping; none: all rows).
    pub fn read(&self, columns: &[&str], ranges: Option<&[Range<usize>]>) -> Result<Rows, DatasetError> {
        let position = |name: &&str| {
            self.schema().fields().iter().position(|field| field.name() == name).ok_or_else(|| {
                let found = self.columns().join(", ");
                DatasetError::table(&self.path, format!("column {name} is missing; found {found}"))
            })
        };
        let roots: Vec<usize> = columns.iter().map(position).collect::<Result<_, _>>()?;
        let file = File::open(&self.path).map_err(|source| DatasetError::read(&self.path, source))?;
        let batch = guarded(&self.path, || {
            let mask = ProjectionMask::roots(self.footer.parquet_schema(), roots);
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.footer.clone()).with_projection(mask);
            if let Some(ranges) = ranges {
                let rows = self.row_count();
                if ranges.iter().any(|range| range.end > rows) {
                    return Err(format!("rows {ranges:?} were asked for, there are {rows}"));
                }
                builder =
                    builder.with_row_selection(RowSelection::from_consecutive_ranges(ranges.iter().cloned(), rows));
            }
            let reader = builder.build().map_err(|error| error.to_string())?;
            let schema = reader.schema();
            let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().map_err(|error| error.to_string())?;
            concat_batches(&schema, &batches).map_err(|error| error.to_string())
        })?;
        Ok(Rows { path: self.path.clone(), batch })
    }
}

/// Runs the parquet decoder. It is written to return errors, but on damaged pages it can still run into an assertion
/// of its own; a damaged file must not take the process down, so that becomes an error as well.
fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T, String>) -> Result<T, DatasetError> {
    let outcome = catch_unwind(AssertUnwindSafe(decode));
    let result = outcome.unwrap_or_else(|_| Err("the file is damaged (the parquet decoder gave up)".into()));
    result.map_err(|message| DatasetError::table(path, message))
}

/// Decoded rows of some columns.
#[derive(Debug, Clone)]
pub struct Rows {
    path: PathBuf,
    batch: RecordBatch,
}

impl Rows {
    /// The file that the rows are from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn row_count(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column of whole numbers.
    pub fn integers(&self, column: &str) -> Result<Vec<i64>, DatasetError> {
        let array = self.column(column)?;
        let array = unlist(array);
        if !array.data_type().is_integer() {
            return Err(self.unexpected(column, array.data_type(), "whole numbers"));
        }
        Ok(self.cast(column, &array, &DataType::Int64)?.as_primitive::<Int64Type>().values().to_vec())
    }

    /// A column of numbers.
    pub fn floats(&self, column: &str) -> Result<Vec<f64>, DatasetError> {
        let array = self.column(column)?;
        if !array.data_type().is_numeric() {
            return Err(self.unexpected(column, array.data_type(), "numbers"));
        }
        Ok(self.cast(column, array, &DataType::Float64)?.as_primitive::<Float64Type>().values().to_vec())
    }

    /// A column of texts, also when dictionary-encoded.
    pub fn texts(&self, column: &str) -> Result<Vec<String>, DatasetError> {
        self.texts_of(column, self.column(column)?)
    }

    /// A column of lists of texts.
    pub fn text_lists(&self, column: &str) -> Result<Vec<Vec<String>>, DatasetError> {
        let array = self.column(column)?;
        let array = self.cast(column, array, &DataType::new_list(DataType::Utf8, true))?;
        let lists = array.as_list::<i32>();
        (0..lists.len())
            .map(|row| if lists.is_null(row) { Ok(Vec::new()) } else { self.texts_of(column, &lists.value(row)) })
            .collect()
    }

    /// A column of vectors of `width` numbers or booleans, row-major. Scalars count as vectors of one; lists may be of
    /// fixed or variable size, and nested.
    pub fn matrix(&self, column: &str, width: usize) -> Result<Vec<f32>, DatasetError> {
        let mut array = self.column(column)?.clone();
        let mut left = width;
        if width == 0 {
            return Err(DatasetError::table(
                &self.path,
                format!("column {column} is declared to hold nothing (shape 0)"),
            ));
        }
        while is_list(array.data_type()) {
            let nested = is_list(&element_type(array.data_type()));
            let (child, size) = self.open_lists(column, &array, (!nested).then_some(left))?;
            if size == 0 || !left.is_multiple_of(size) {
                return Err(self.width(column, 0, size, left));
            }
            left /= size;
            array = child;
        }
        if left != 1 {
            return Err(self.width(column, 0, width / left, width));
        }
        if !(array.data_type().is_numeric() || *array.data_type() == DataType::Boolean) {
            return Err(self.unexpected(column, array.data_type(), "numbers"));
        }
        Ok(self.cast(column, &array, &DataType::Float32)?.as_primitive::<Float32Type>().values().to_vec())
    }

    /// A column of encoded images, `struct{bytes, path}`: the bytes, or the path of a file that holds them.
    pub fn images(&self, column: &str) -> Result<Vec<EncodedImage>, DatasetError> {
        let array = self.column(column)?;
        let Some(fields) = array.as_struct_opt() else {
            return Err(self.unexpected(column, array.data_type(), "a struct of bytes and path"));
        };
        let part = |name: &str, to: DataType| match fields.column_by_name(name) {
            Some(part) => cast_with_options(part, &to, &strict())
                .map(Some)
                .map_err(|error| DatasetError::table(&self.path, format!("column {column}, field {name}: {error}"))),
            None => Ok(None),
        };
        let (bytes, paths) = (part("bytes", DataType::Binary)?, part("path", DataType::Utf8)?);
        let row = |row: usize| {
            let bytes = bytes.as_ref().map(|array| array.as_binary::<i32>() as &BinaryArray);
            if let Some(bytes) = bytes.filter(|array| array.is_valid(row)) {
                return Ok(EncodedImage::Bytes(bytes.value(row).to_vec()));
            }
            match paths.as_ref().map(|array| array.as_string::<i32>()).filter(|array| array.is_valid(row)) {
                Some(paths) => Ok(EncodedImage::File(paths.value(row).into())),
                None => Err(DatasetError::table(&self.path, format!("column {column}, row {row}: no image"))),
            }
        };
        (0..array.len()).map(row).collect()
    }

    fn column(&self, name: &str) -> Result<&ArrayRef, DatasetError> {
        let array = self
            .batch
            .column_by_name(name)
            .ok_or_else(|| DatasetError::table(&self.path, format!("column {name} was not read")))?;
        self.no_nulls(name, array)?;
        Ok(array)
    }

    fn no_nulls(&self, column: &str, array: &ArrayRef) -> Result<(), DatasetError> {
        match (0..array.len()).find(|&row| array.null_count() > 0 && array.is_null(row)) {
            Some(row) => Err(DatasetError::table(&self.path, format!("column {column}: no value in row {row}"))),
            None => Ok(()),
        }
    }

    fn texts_of(&self, column: &str, array: &ArrayRef) -> Result<Vec<String>, DatasetError> {
        let array = self.cast(column, array, &DataType::Utf8)?;
        Ok(array.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
    }

    fn cast(&self, column: &str, array: &ArrayRef, to: &DataType) -> Result<ArrayRef, DatasetError> {
        let array = cast_with_options(array, to, &strict())
            .map_err(|error| DatasetError::table(&self.path, format!("column {column}: {error}")))?;
        if !matches!(to, DataType::List(_)) {
            self.no_nulls(column, &array)?;
        }
        Ok(array)
    }

    /// The elements of all lists behind each other, and the size that every list has.
    fn open_lists(
        &self,
        column: &str,
        array: &ArrayRef,
        expected: Option<usize>,
    ) -> Result<(ArrayRef, usize), DatasetError> {
        self.no_nulls(column, array)?;
        if let Some(lists) = array.as_fixed_size_list_opt() {
            let size = usize::try_from(lists.value_length()).unwrap_or(0);
            let elements = lists.values().slice(lists.value_offset_at(0), lists.len() * size);
            return Ok((elements, size));
        }
        let item = element_type(array.data_type());
        let lists = self.cast_lists(column, array, item)?;
        let lists = lists.as_list::<i64>();
        let offsets = lists.value_offsets();
        let size_of = |pair: &[i64]| usize::try_from(pair[1] - pair[0]).unwrap_or(0);
        let size = expected.or_else(|| offsets.windows(2).next().map(size_of)).unwrap_or(1);
        if let Some(row) = offsets.windows(2).position(|pair| size_of(pair) != size) {
            return Err(self.width(column, row, size_of(&offsets[row..row + 2]), size));
        }
        let start = offsets.first().map_or(0, |&start| start as usize);
        Ok((lists.values().slice(start, lists.len() * size), size))
    }

    fn cast_lists(&self, column: &str, array: &ArrayRef, item: DataType) -> Result<ArrayRef, DatasetError> {
        let list = DataType::new_large_list(item, true);
        cast_with_options(array, &list, &strict())
            .map_err(|error| DatasetError::table(&self.path, format!("column {column}: {error}")))
    }

    fn width(&self, column: &str, row: usize, found: usize, expected: usize) -> DatasetError {
        let message = format!("column {column}, row {row}: {found} values, expected {expected} (shape in info.json)");
        DatasetError::table(&self.path, message)
    }

    fn unexpected(&self, column: &str, found: &DataType, expected: &str) -> DatasetError {
        DatasetError::table(&self.path, format!("column {column} holds {found}, expected {expected}"))
    }
}

/// An image as it lies in a parquet cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodedImage {
    Bytes(Vec<u8>),
    File(PathBuf),
}

/// A value that does not fit its target type is an error, never a null.
fn strict() -> CastOptions<'static> {
    CastOptions { safe: false, ..CastOptions::default() }
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

fn element_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            field.data_type().clone()
        }
        other => other.clone(),
    }
}

/// Some writers store the index columns, of shape [1], as lists of one.
fn unlist(array: &ArrayRef) -> ArrayRef {
    match array.as_fixed_size_list_opt() {
        Some(lists) if lists.value_length() == 1 => lists.values().slice(lists.value_offset_at(0), lists.len()),
        _ => array.clone(),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

//! An episode as bytes of its own, between its recording and its dataset.
//!
//! A recording that may be killed keeps each finished episode as a file. It holds what [`DatasetWriter::save`] needs:
//! numbers, compressed pictures as they will stand in the dataset, and the histograms of the pictures before compression,
//! which could not be told from them again. The form is that of safetensors, with the task and a note in its header.

use std::collections::HashMap;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::episode::{Column, Episode, Footage};
use super::spec::{DatasetSpec, FeatureKind, FeatureSpec, NumericType};
use super::statistics::ChannelHistogram;
use super::{DatasetWriter, WriteError};
use crate::dataset::video::{Clip, Track};

/// Of the bytes; others are refused.
const FORMAT: u32 = 1;
const HEADER: &str = "episode";

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    task: String,
    frames: usize,
    note: String,
}

/// What episodes of a dataset look like, where there is no [`DatasetWriter`] yet.
#[derive(Debug, Clone)]
pub struct EpisodeForm(Arc<DatasetSpec>);

impl EpisodeForm {
    /// # Errors
    /// [`WriteError::Spec`] or [`WriteError::Video`] when the features contradict themselves.
    pub fn new(spec: &DatasetSpec) -> Result<EpisodeForm, WriteError> {
        spec.validate()?;
        Ok(EpisodeForm(Arc::new(spec.clone().with_index_features())))
    }

    /// An empty episode to fill with frames and to [park](Episode::park).
    pub fn begin(&self, task: &str) -> Episode {
        Episode::new(self.0.clone(), task)
    }
}

impl Episode {
    /// The episode as bytes, with a note for whoever [unparks](DatasetWriter::unpark) it.
    ///
    /// # Errors
    /// [`WriteError::Parked`]; nothing that a recording can bring about.
    pub fn park(mut self, note: &str) -> Result<Vec<u8>, WriteError> {
        self.close();
        let mut parts = Parts::default();
        for (feature, column) in self.spec.features.iter().zip(&self.columns).take(self.recorded()) {
            parts.column(&feature.name, column);
        }
        let header = Header { format: FORMAT, task: self.task.clone(), frames: self.len(), note: note.to_owned() };
        let header = serde_json::to_string(&header).map_err(|error| parked(error.to_string()))?;
        let views = parts.0.iter().map(|(name, dtype, bytes)| {
            let length = bytes.len() / (dtype.bitsize() / 8);
            TensorView::new(*dtype, vec![length], bytes).map(|view| (name.as_str(), view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(|error| parked(error.to_string()))?;
        safetensors::serialize(views, Some(HashMap::from([(HEADER.to_owned(), header)])))
            .map_err(|error| parked(error.to_string()))
    }
}

impl DatasetWriter {
    /// An episode of a form with the same features, ready to be saved, and its note.
    ///
    /// # Errors
    /// [`WriteError::Parked`] when the bytes are no episode of this dataset.
    pub fn unpark(&self, bytes: &[u8]) -> Result<(Episode, String), WriteError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| parked(error.to_string()))?;
        let header = metadata.metadata().as_ref().and_then(|map| map.get(HEADER));
        let header = header.ok_or_else(|| parked("it has no header of an episode".into()))?;
        let header: Header = serde_json::from_str(header).map_err(|error| parked(error.to_string()))?;
        if header.format != FORMAT {
            return Err(parked(format!("its format is {}, this program's {FORMAT}", header.format)));
        }
        let stored = Stored {
            tensors: SafeTensors::deserialize(bytes).map_err(|error| parked(error.to_string()))?,
            frames: header.frames,
            fps: self.spec.fps,
        };
        let mut episode = Episode::new(self.spec.clone(), &header.task);
        let recorded = episode.recorded();
        for (feature, column) in self.spec.features.iter().zip(&mut episode.columns).take(recorded) {
            *column = stored.column(feature)?;
        }
        episode.set_len(header.frames);
        Ok((episode, header.note))
    }
}

fn parked(problem: String) -> WriteError {
    WriteError::Parked { problem }
}

/// Name, type and little-endian bytes of each stored vector.
#[derive(Default)]
struct Parts(Vec<(String, Dtype, Vec<u8>)>);

impl Parts {
    fn add<const N: usize>(&mut self, name: String, dtype: Dtype, values: impl Iterator<Item = [u8; N]>) {
        self.0.push((name, dtype, values.flatten().collect()));
    }

    fn column(&mut self, name: &str, column: &Column) {
        let part = |part: &str| format!("{name}/{part}");
        match column {
            Column::F32(values) => self.add(part("values"), Dtype::F32, values.iter().map(|v| v.to_le_bytes())),
            Column::F64(values) => self.add(part("values"), Dtype::F64, values.iter().map(|v| v.to_le_bytes())),
            Column::I64(values) => self.add(part("values"), Dtype::I64, values.iter().map(|v| v.to_le_bytes())),
            Column::Image { pngs, histogram } => {
                self.add(part("sizes"), Dtype::U32, pngs.iter().map(|png| (png.len() as u32).to_le_bytes()));
                self.0.push((part("bytes"), Dtype::U8, pngs.concat()));
                self.levels(part("levels"), histogram);
            }
            Column::Video { footage, histogram } => {
                if let Footage::Recorded(clip) = footage {
                    self.add(part("sizes"), Dtype::U32, clip.sizes.iter().map(|size| size.to_le_bytes()));
                    self.add(part("sync"), Dtype::U8, clip.sync.iter().map(|&sync| [u8::from(sync)]));
                    self.0.push((part("bytes"), Dtype::U8, clip.data.clone()));
                    self.0.push((part("sps"), Dtype::U8, clip.track.sps.clone()));
                    self.0.push((part("pps"), Dtype::U8, clip.track.pps.clone()));
                }
                self.levels(part("levels"), histogram);
            }
        }
    }

    fn levels(&mut self, name: String, histogram: &ChannelHistogram) {
        self.add(name, Dtype::U64, histogram.levels.iter().flatten().map(|count| count.to_le_bytes()));
    }
}

/// The vectors of an episode whose header was read.
struct Stored<'a> {
    tensors: SafeTensors<'a>,
    frames: usize,
    fps: u32,
}

impl Stored<'_> {
    fn column(&self, feature: &FeatureSpec) -> Result<Column, WriteError> {
        let name = &feature.name;
        let count = self.frames.checked_mul(feature.dims());
        let numbers = |dtype| self.vector(name, "values", dtype, count);
        Ok(match feature.kind {
            FeatureKind::Numeric(NumericType::Float32) => Column::F32(split(numbers(Dtype::F32)?, f32::from_le_bytes)),
            FeatureKind::Numeric(NumericType::Float64) => Column::F64(split(numbers(Dtype::F64)?, f64::from_le_bytes)),
            FeatureKind::Numeric(NumericType::Int64) => Column::I64(split(numbers(Dtype::I64)?, i64::from_le_bytes)),
            FeatureKind::Image => {
                let (sizes, mut rest) = self.compressed(name)?;
                let mut pngs = Vec::with_capacity(sizes.len());
                for size in sizes {
                    let (png, after) = rest.split_at_checked(size as usize).unwrap_or((rest, &[]));
                    pngs.push(png.to_vec());
                    rest = after;
                }
                Column::Image { pngs, histogram: self.levels(name)? }
            }
            FeatureKind::Video => {
                let (sizes, data) = self.compressed(name)?;
                let sync = self.vector(name, "sync", Dtype::U8, Some(self.frames))?;
                let parameters = |part| self.vector(name, part, Dtype::U8, None).map(<[u8]>::to_vec);
                let (height, width) = match *feature.shape.as_slice() {
                    [height, width, _] => (height, width),
                    _ => (0, 0),
                };
                let track = Track { width, height, fps: self.fps, sps: parameters("sps")?, pps: parameters("pps")? };
                let sync = sync.iter().map(|&sync| sync != 0).collect();
                let clip = Clip { track, data: data.to_vec(), sizes, sync };
                Column::Video { footage: Footage::Recorded(clip), histogram: self.levels(name)? }
            }
        })
    }

    /// Bytes of each frame, and the frames behind one another.
    fn compressed(&self, name: &str) -> Result<(Vec<u32>, &[u8]), WriteError> {
        let sizes = split(self.vector(name, "sizes", Dtype::U32, Some(self.frames))?, u32::from_le_bytes);
        let total: usize = sizes.iter().map(|&size| size as usize).sum();
        Ok((sizes, self.vector(name, "bytes", Dtype::U8, Some(total))?))
    }

    fn levels(&self, name: &str) -> Result<Box<ChannelHistogram>, WriteError> {
        let mut histogram = ChannelHistogram { frames: self.frames as u64, ..ChannelHistogram::default() };
        let counts = split(self.vector(name, "levels", Dtype::U64, Some(3 * 256))?, u64::from_le_bytes);
        for (level, count) in histogram.levels.iter_mut().flatten().zip(counts) {
            *level = count;
        }
        Ok(Box::new(histogram))
    }

    /// The bytes of a vector; `count`: how many values it must have.
    fn vector(&self, name: &str, part: &str, dtype: Dtype, count: Option<usize>) -> Result<&[u8], WriteError> {
        let name = format!("{name}/{part}");
        let tensor = self.tensors.tensor(&name).map_err(|error| parked(error.to_string()))?;
        let found = tensor.shape().iter().product::<usize>();
        if tensor.dtype() != dtype || count.is_some_and(|count| count != found) {
            let expected = count.map_or_else(|| "any number".to_owned(), |count| count.to_string());
            let found = format!("{name} has {found} values of {:?}", tensor.dtype());
            return Err(parked(format!("{found}, expected {expected} of {dtype:?}")));
        }
        Ok(tensor.data())
    }
}

fn split<T, const N: usize>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| read(chunk)).collect()
}

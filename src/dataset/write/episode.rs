//! The frames of one episode, column by column.

use std::sync::Arc;

use image::ExtendedColorType;
use image::ImageEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};

use super::WriteError;
use super::spec::{DatasetSpec, FeatureKind, FeatureSpec, NumericType};
use super::statistics::ChannelHistogram;
use crate::dataset::frame::RgbFrame;
use crate::dataset::statistics::stats_of;
use crate::dataset::stats::FeatureStats;
use crate::dataset::video::{Clip, ClipRecorder, VideoWriteError};

/// One feature of one frame.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I64(&'a [i64]),
    Image(&'a RgbFrame),
}

/// An episode while it is recorded.
#[derive(Debug)]
pub struct Episode {
    pub(super) spec: Arc<DatasetSpec>,
    pub(super) task: String,
    /// In the order of the spec's features.
    pub(super) columns: Vec<Column>,
    frames: usize,
}

impl Episode {
    pub(super) fn new(spec: Arc<DatasetSpec>, task: &str) -> Self {
        let columns = spec.features.iter().map(Column::new).collect();
        Episode { spec, task: task.to_owned(), columns, frames: 0 }
    }

    /// Number of frames so far.
    pub fn len(&self) -> usize {
        self.frames
    }

    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Appends a frame: one value for every recorded feature, in the order of the spec.
    ///
    /// # Errors
    /// [`WriteError::Value`] when a value is missing or its type or size differs; the episode is then unchanged.
    /// [`WriteError::Video`] and [`WriteError::Png`] when a frame cannot be encoded; the episode is lost then.
    pub fn push(&mut self, values: &[Value]) -> Result<(), WriteError> {
        let recorded = self.recorded();
        let refuse = |feature: &str, found: String, expected: String| {
            Err(WriteError::Value { frame: self.frames, feature: feature.to_owned(), found, expected })
        };
        if values.len() != recorded {
            return refuse("(all)", format!("{} values", values.len()), format!("{recorded}"));
        }
        for (feature, value) in self.spec.features.iter().zip(values) {
            let (expected, found) = (expected(feature), describe(value));
            if expected != found {
                return refuse(&feature.name, found, expected);
            }
        }
        for ((feature, column), value) in self.spec.features.iter().zip(&mut self.columns).zip(values) {
            column.push(value, feature, self.spec.fps)?;
        }
        self.frames += 1;
        Ok(())
    }

    /// The compressed frames of each video feature, in the order of the spec.
    pub(super) fn clips(&self) -> impl Iterator<Item = &Clip> {
        self.columns.iter().filter_map(|column| match column {
            Column::Video { footage: Footage::Recorded(clip), .. } => Some(clip),
            _ => None,
        })
    }

    /// Ends the recording: no frame follows.
    pub(super) fn close(&mut self) {
        for column in &mut self.columns {
            if let Column::Video { footage, .. } = column {
                footage.close();
            }
        }
    }

    /// After its columns were put in from elsewhere.
    pub(super) fn set_len(&mut self, frames: usize) {
        self.frames = frames;
    }

    /// How many of the columns come from the recording; the index columns follow them.
    pub(super) fn recorded(&self) -> usize {
        self.columns.len() - INDEX_COLUMNS
    }

    /// Fills `timestamp`, `frame_index`, `episode_index`, `index` and `task_index`.
    pub(super) fn fill_index_columns(&mut self, episode: usize, first_index: usize, task: usize) {
        let (frames, recorded, fps) = (self.frames, self.recorded(), f64::from(self.spec.fps));
        let constant = |value: usize| vec![value as i64; frames];
        self.columns.truncate(recorded);
        self.columns.extend([
            // Divided in f64, then rounded: as numpy does it for LeRobot.
            Column::F32((0..frames).map(|i| (i as f64 / fps) as f32).collect()),
            Column::I64((0..frames as i64).collect()),
            Column::I64(constant(episode)),
            Column::I64((first_index as i64..(first_index + frames) as i64).collect()),
            Column::I64(constant(task)),
        ]);
    }
}

const INDEX_COLUMNS: usize = 5;

fn expected(feature: &FeatureSpec) -> String {
    match feature.kind {
        FeatureKind::Numeric(numeric) => format!("{}[{}]", numeric.name(), feature.dims()),
        FeatureKind::Image | FeatureKind::Video => format!("image {:?}", feature.shape),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::F32(values) => format!("float32[{}]", values.len()),
        Value::F64(values) => format!("float64[{}]", values.len()),
        Value::I64(values) => format!("int64[{}]", values.len()),
        Value::Image(frame) if frame.data.len() == frame.height * frame.width * 3 => {
            format!("image {:?}", [frame.height, frame.width, 3])
        }
        Value::Image(frame) => format!("image {}x{} of {} bytes", frame.height, frame.width, frame.data.len()),
    }
}

fn encode_png(frame: &RgbFrame, feature: &str) -> Result<Vec<u8>, WriteError> {
    let mut png = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Default, FilterType::Adaptive);
    encoder
        .write_image(&frame.data, frame.width as u32, frame.height as u32, ExtendedColorType::Rgb8)
        .map_err(|source| WriteError::Png { feature: feature.to_owned(), source })?;
    Ok(png)
}

/// The values of one feature, frame after frame; vectors lie flat.
#[derive(Debug)]
pub(super) enum Column {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Image {
        pngs: Vec<Vec<u8>>,
        histogram: Box<ChannelHistogram>,
    },
    /// The histogram is that of the frames before compression.
    Video {
        footage: Footage,
        histogram: Box<ChannelHistogram>,
    },
}

/// An episode's video.
#[derive(Debug, Default)]
pub(super) enum Footage {
    /// Before the first frame; the encoder is made with it.
    #[default]
    None,
    Recording(Box<ClipRecorder>),
    Recorded(Clip),
}

impl Footage {
    fn push(&mut self, frame: &RgbFrame, fps: u32) -> Result<(), VideoWriteError> {
        if let Footage::None = self {
            *self = Footage::Recording(Box::new(ClipRecorder::new(frame.width, frame.height, fps)?));
        }
        match self {
            Footage::Recording(recorder) => recorder.push(frame),
            Footage::None | Footage::Recorded(_) => {
                debug_assert!(false, "a frame behind the end of an episode");
                Ok(())
            }
        }
    }

    fn close(&mut self) {
        *self = match std::mem::take(self) {
            Footage::Recording(recorder) => Footage::Recorded(recorder.finish()),
            other => other,
        };
    }
}

impl Column {
    pub(super) fn new(feature: &FeatureSpec) -> Self {
        match feature.kind {
            FeatureKind::Numeric(NumericType::Float32) => Column::F32(Vec::new()),
            FeatureKind::Numeric(NumericType::Float64) => Column::F64(Vec::new()),
            FeatureKind::Numeric(NumericType::Int64) => Column::I64(Vec::new()),
            FeatureKind::Image => Column::Image { pngs: Vec::new(), histogram: Box::default() },
            FeatureKind::Video => Column::Video { footage: Footage::None, histogram: Box::default() },
        }
    }

    /// The caller has compared the value with the feature; another type would be our defect and is left out.
    fn push(&mut self, value: &Value, feature: &FeatureSpec, fps: u32) -> Result<(), WriteError> {
        match (self, value) {
            (Column::F32(column), Value::F32(values)) => column.extend_from_slice(values),
            (Column::F64(column), Value::F64(values)) => column.extend_from_slice(values),
            (Column::I64(column), Value::I64(values)) => column.extend_from_slice(values),
            (Column::Image { pngs, histogram }, Value::Image(frame)) => {
                pngs.push(encode_png(frame, &feature.name)?);
                histogram.add(frame);
            }
            (Column::Video { footage, histogram }, Value::Image(frame)) => {
                let video = |source| WriteError::Video { feature: feature.name.clone(), source };
                footage.push(frame, fps).map_err(video)?;
                histogram.add(frame);
            }
            _ => debug_assert!(false, "a value of another type passed the comparison"),
        }
        Ok(())
    }

    /// Takes over what the statistics of the whole dataset need: values, or the histogram of an image.
    pub(super) fn absorb(&mut self, other: Column) {
        match (self, other) {
            (Column::F32(all), Column::F32(more)) => all.extend(more),
            (Column::F64(all), Column::F64(more)) => all.extend(more),
            (Column::I64(all), Column::I64(more)) => all.extend(more),
            (Column::Image { histogram: all, .. }, Column::Image { histogram: more, .. })
            | (Column::Video { histogram: all, .. }, Column::Video { histogram: more, .. }) => all.merge(&more),
            _ => debug_assert!(false, "episodes of one dataset have the same columns"),
        }
    }

    /// Exact statistics over all frames of the column.
    pub(super) fn statistics(&self, dims: usize) -> FeatureStats {
        /// Dimension `d` of a row-major column.
        fn dimension<T: Copy>(values: &[T], dims: usize, d: usize, to: impl Fn(T) -> f64) -> Vec<f64> {
            values.iter().skip(d).step_by(dims).map(|&value| to(value)).collect()
        }
        match self {
            Column::F32(values) => stats_of(dims, |d| dimension(values, dims, d, f64::from)),
            Column::F64(values) => stats_of(dims, |d| dimension(values, dims, d, |value| value)),
            Column::I64(values) => stats_of(dims, |d| dimension(values, dims, d, |value| value as f64)),
            Column::Image { histogram, .. } | Column::Video { histogram, .. } => histogram.statistics(),
        }
    }
}

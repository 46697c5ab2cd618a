//! What a new dataset will hold, and its `info.json`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::WriteError;
use crate::dataset::video::{self, KEY_FRAME_EVERY};

/// Limits of LeRobot's writer: megabytes of a data file, and files in a chunk directory.
const DATA_FILE_MEGABYTES: usize = 100;
const VIDEO_FILE_MEGABYTES: usize = 200;
const FILES_PER_CHUNK: usize = 1000;
const VIDEO_PATH: &str = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";

/// A dataset before its first frame.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetSpec {
    /// Frames per second, > 0.
    pub fps: u32,
    pub robot_type: Option<String>,
    /// The recorded features; `timestamp`, `frame_index`, `episode_index`, `index` and `task_index` are added.
    pub features: Vec<FeatureSpec>,
    /// A data file is closed before it would exceed this many megabytes (2²⁰ bytes).
    pub data_files_size_in_mb: usize,
    /// As well a video file.
    pub video_files_size_in_mb: usize,
    /// Files in a chunk directory.
    pub chunks_size: usize,
}

impl DatasetSpec {
    /// With LeRobot's file limits.
    pub fn new(fps: u32, robot_type: Option<&str>, features: Vec<FeatureSpec>) -> Self {
        DatasetSpec {
            fps,
            robot_type: robot_type.map(str::to_owned),
            features,
            data_files_size_in_mb: DATA_FILE_MEGABYTES,
            video_files_size_in_mb: VIDEO_FILE_MEGABYTES,
            chunks_size: FILES_PER_CHUNK,
        }
    }

    pub(super) fn validate(&self) -> Result<(), WriteError> {
        let refuse = |problem: String| Err(WriteError::Spec { problem });
        let sizes = [self.data_files_size_in_mb, self.video_files_size_in_mb, self.chunks_size];
        if self.fps == 0 || sizes.contains(&0) {
            return refuse("fps, data_files_size_in_mb, video_files_size_in_mb and chunks_size must be above 0".into());
        }
        let mut seen: BTreeSet<&str> = index_features().map(|(name, _)| name).into();
        for feature in &self.features {
            // A slash would be taken for a level of the episodes table's column names.
            if feature.name.is_empty() || feature.name.contains('/') {
                return refuse(format!("feature name {:?} is empty or contains a slash", feature.name));
            }
            if !seen.insert(&feature.name) {
                return refuse(format!("feature {} stands twice or is one of the index columns", feature.name));
            }
            if feature.dims() == 0 {
                return refuse(format!("feature {} has no elements", feature.name));
            }
            if let (FeatureKind::Video, [height, width, _]) = (feature.kind, feature.shape.as_slice()) {
                video::check(*width, *height, self.fps)
                    .map_err(|source| WriteError::Video { feature: feature.name.clone(), source })?;
            }
        }
        Ok(())
    }

    /// The five columns of every LeRobot dataset, behind the recorded ones.
    pub(super) fn with_index_features(mut self) -> Self {
        self.features.extend(index_features().map(|(name, kind)| FeatureSpec {
            name: name.to_owned(),
            kind: FeatureKind::Numeric(kind),
            shape: vec![1],
            names: None,
        }));
        self
    }

    /// The features that are videos, in the order of the spec.
    pub(super) fn videos(&self) -> impl Iterator<Item = &FeatureSpec> {
        self.features.iter().filter(|feature| feature.kind == FeatureKind::Video)
    }

    /// The content of `meta/info.json`.
    pub(super) fn info(&self, episodes: usize, frames: usize, tasks: usize) -> Value {
        let features: Map<String, Value> = self.features.iter().map(|f| (f.name.clone(), f.info(self.fps))).collect();
        let video_path = self.videos().next().map(|_| VIDEO_PATH);
        json!({
            "codebase_version": "v3.0",
            "fps": self.fps,
            "features": features,
            "total_episodes": episodes,
            "total_frames": frames,
            "total_tasks": tasks,
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.data_files_size_in_mb,
            "video_files_size_in_mb": self.video_files_size_in_mb,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": video_path,
            "robot_type": self.robot_type,
            "splits": { "train": format!("0:{episodes}") },
        })
    }
}

fn index_features() -> [(&'static str, NumericType); 5] {
    [
        ("timestamp", NumericType::Float32),
        ("frame_index", NumericType::Int64),
        ("episode_index", NumericType::Int64),
        ("index", NumericType::Int64),
        ("task_index", NumericType::Int64),
    ]
}

/// One feature of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureSpec {
    pub name: String,
    pub kind: FeatureKind,
    /// `[n]`, or `[height, width, 3]` of an image.
    pub shape: Vec<usize>,
    /// Names of the elements (of the axes, for an image).
    pub names: Option<Vec<String>>,
}

/// What a feature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureKind {
    Numeric(NumericType),
    /// RGB, stored as PNG in the parquet rows.
    Image,
    /// RGB, stored as H.264 in MP4 files beside them. Not lossless; both sides of the picture must be even.
    Video,
}

impl FeatureKind {
    /// Whether a frame of it is a picture, however it is stored.
    pub(super) fn is_picture(self) -> bool {
        matches!(self, FeatureKind::Image | FeatureKind::Video)
    }
}

/// Types of numbers in LeRobot datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumericType {
    Float32,
    Float64,
    Int64,
}

impl NumericType {
    /// As `info.json` spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            NumericType::Float32 => "float32",
            NumericType::Float64 => "float64",
            NumericType::Int64 => "int64",
        }
    }
}

impl FeatureSpec {
    /// A vector with one name an element.
    pub fn vector(name: &str, numeric: NumericType, names: &[&str]) -> Self {
        FeatureSpec {
            name: name.to_owned(),
            kind: FeatureKind::Numeric(numeric),
            shape: vec![names.len()],
            names: Some(names.iter().map(|&n| n.to_owned()).collect()),
        }
    }

    /// A camera image, `height` × `width` pixels.
    pub fn image(name: &str, height: usize, width: usize) -> Self {
        FeatureSpec::picture(name, FeatureKind::Image, height, width)
    }

    /// A camera's video, `height` × `width` pixels.
    pub fn video(name: &str, height: usize, width: usize) -> Self {
        FeatureSpec::picture(name, FeatureKind::Video, height, width)
    }

    fn picture(name: &str, kind: FeatureKind, height: usize, width: usize) -> Self {
        FeatureSpec {
            name: name.to_owned(),
            kind,
            shape: vec![height, width, 3],
            names: Some(["height", "width", "channels"].map(str::to_owned).into()),
        }
    }

    /// Dimensions of the statistics: elements of a vector, channels of an image.
    pub(super) fn dims(&self) -> usize {
        match self.kind {
            FeatureKind::Numeric(_) => self.shape.iter().product(),
            FeatureKind::Image | FeatureKind::Video if self.shape.contains(&0) => 0,
            FeatureKind::Image | FeatureKind::Video => 3,
        }
    }

    fn info(&self, fps: u32) -> Value {
        let dtype = match self.kind {
            FeatureKind::Numeric(numeric) => numeric.name(),
            FeatureKind::Image => "image",
            FeatureKind::Video => "video",
        };
        let mut info = json!({ "dtype": dtype, "shape": self.shape, "names": self.names });
        if self.kind == FeatureKind::Video {
            info["info"] = self.video_info(fps);
        }
        info
    }

    /// What LeRobot's `get_video_info` would find, and what it would record of its own encoder: a recording that it
    /// continues is encoded with these settings.
    fn video_info(&self, fps: u32) -> Value {
        json!({
            "video.height": self.shape.first(),
            "video.width": self.shape.get(1),
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.fps": fps,
            "video.channels": 3,
            "has_audio": false,
            "video.g": KEY_FRAME_EVERY,
            "video.crf": video::QUANTISER,
            "video.preset": null,
            "video.fast_decode": 0,
            "video.video_backend": "pyav",
            "video.extra_options": {},
            "is_depth_map": false,
        })
    }

    /// The type in the `huggingface` block of a data file, which the `datasets` library reads; none for what is not there.
    pub(super) fn hub_type(&self) -> Option<Value> {
        let value = |numeric: NumericType| json!({ "dtype": numeric.name(), "_type": "Value" });
        match self.kind {
            FeatureKind::Image => Some(json!({ "_type": "Image" })),
            FeatureKind::Video => None,
            FeatureKind::Numeric(numeric) if self.dims() == 1 => Some(value(numeric)),
            FeatureKind::Numeric(numeric) => {
                Some(json!({ "feature": value(numeric), "length": self.dims(), "_type": "List" }))
            }
        }
    }
}

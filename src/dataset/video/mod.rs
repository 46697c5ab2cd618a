//! Placeholder until the video reader is merged: every file is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::RgbFrame;
use crate::error::{Explain, Kind};

#[derive(Debug, thiserror::Error)]
#[error("video is not read yet: {}", file.display())]
pub struct VideoError {
    file: PathBuf,
}

impl Explain for VideoError {
    fn kind(&self) -> Kind {
        Kind::Internal
    }
}

#[derive(Debug, Clone, Default)]
pub struct PoolOptions {}

#[derive(Debug)]
pub struct VideoIndex {
    pub width: usize,
    pub height: usize,
}

impl VideoIndex {
    pub fn seconds(&self, _frame: usize) -> Option<f64> {
        None
    }
    pub fn fps(&self) -> Option<f64> {
        None
    }
    pub fn longest_gop(&self) -> usize {
        0
    }
    pub fn frames(&self) -> usize {
        0
    }
}

#[derive(Debug)]
pub struct VideoPool {}

impl VideoPool {
    pub fn new(_options: PoolOptions) -> VideoPool {
        VideoPool {}
    }

    pub fn index(&self, file: &Path) -> Result<Arc<VideoIndex>, VideoError> {
        Err(VideoError { file: file.to_path_buf() })
    }

    pub fn frame(&self, file: &Path, _frame: usize) -> Result<Arc<RgbFrame>, VideoError> {
        Err(VideoError { file: file.to_path_buf() })
    }
}

//! The video files of one camera: episodes behind one another, split by size.

use std::fs;
use std::path::{Path, PathBuf};

use super::data::Place;
use super::spec::DatasetSpec;
use super::{WriteError, io_error};
use crate::dataset::video::{Clip, Mp4Writer, VideoWriteError};

/// Where an episode lies in the files of one camera.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct VideoPlace {
    pub place: Place,
    /// Seconds from the file's beginning; the end is not part of the episode.
    pub from: f64,
    pub to: f64,
}

#[derive(Debug)]
pub(super) struct VideoFiles {
    /// `videos/KEY`
    directory: PathBuf,
    feature: String,
    fps: u32,
    limit_bytes: u64,
    chunks_size: usize,
    place: Place,
    /// The file that grows at present.
    open: Option<Mp4Writer>,
}

impl VideoFiles {
    pub(super) fn new(root: &Path, spec: &DatasetSpec, feature: &str) -> Self {
        VideoFiles {
            directory: root.join("videos").join(feature),
            feature: feature.to_owned(),
            fps: spec.fps,
            limit_bytes: (spec.video_files_size_in_mb as u64) << 20,
            chunks_size: spec.chunks_size,
            place: Place::default(),
            open: None,
        }
    }

    /// Appends the episode's frames as they are and says where.
    ///
    /// LeRobot's rule: a new file when the bytes so far and those of the episode reach the limit.
    pub(super) fn append(&mut self, clip: &Clip) -> Result<VideoPlace, WriteError> {
        let bytes = clip.bytes() as u64;
        if self.open.as_ref().is_some_and(|open| open.bytes() + bytes >= self.limit_bytes) {
            self.close()?;
            self.place = self.place.next(self.chunks_size);
        }
        let mut file = match self.open.take() {
            Some(open) => open,
            None => {
                let path = self.place.path(&self.directory, "mp4");
                let directory = path.parent().unwrap_or(&path);
                fs::create_dir_all(directory).map_err(io_error(directory))?;
                Mp4Writer::create(&path).map_err(|source| self.fault(source))?
            }
        };
        // From the number of frames, not from sums of durations: errors would add up over a file.
        let seconds = |frames: usize| frames as f64 / f64::from(self.fps);
        let from = seconds(file.len());
        file.append(clip).map_err(|source| self.fault(source))?;
        let to = seconds(file.len());
        self.open = Some(file);
        Ok(VideoPlace { place: self.place, from, to })
    }

    pub(super) fn close(&mut self) -> Result<(), WriteError> {
        self.open.take().map_or(Ok(()), |open| open.finish().map_err(|source| self.fault(source)))
    }

    fn fault(&self, source: VideoWriteError) -> WriteError {
        WriteError::Video { feature: self.feature.clone(), source }
    }
}

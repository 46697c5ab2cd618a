//! What can go wrong between a path and a frame.

use std::io;
use std::path::{Path, PathBuf};

use super::index::Codec;
use crate::error::{Explain, Kind};

/// Names the file first in the text a reader needs, the path last.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    #[error("cannot open the video {}", file.display())]
    Open { file: PathBuf, source: io::Error },
    #[error("cannot read {size} bytes at byte {offset} of the video {}", file.display())]
    Read { file: PathBuf, offset: u64, size: u64, source: io::Error },
    #[error("a Git LFS pointer lies where a video is expected: {}", file.display())]
    LfsPointer { file: PathBuf },
    /// The tables of the file contradict themselves, the file's size, or the format.
    #[error("not a usable MP4 file: {found}: {}", file.display())]
    Malformed { file: PathBuf, found: String },
    /// A valid file with a feature that this reader leaves out.
    #[error("{found}, which is not supported: {}", file.display())]
    Unsupported { file: PathBuf, found: String },
    #[error("the video's codec is {codec}; AV1 and H.264 can be decoded: {}", file.display())]
    UnknownCodec { file: PathBuf, codec: Codec },
    #[error("frame {frame} was asked for, the video has {frames} frames (0..={}): {}", frames.saturating_sub(1), file.display())]
    PastTheEnd { file: PathBuf, frame: usize, frames: usize },
    #[error("decoding frame {frame} failed: {found}: {}", file.display())]
    Decode { file: PathBuf, frame: usize, found: String },
    /// Not every sample gave a picture, so it is not known which frame a picture is.
    #[error("from frame {first} on, {samples} samples gave {pictures} pictures: {}", file.display())]
    LostFrames { file: PathBuf, first: usize, samples: usize, pictures: usize },
}

impl VideoError {
    /// The video that the error is about.
    pub fn file(&self) -> &Path {
        match self {
            VideoError::Open { file, .. }
            | VideoError::Read { file, .. }
            | VideoError::LfsPointer { file }
            | VideoError::Malformed { file, .. }
            | VideoError::Unsupported { file, .. }
            | VideoError::UnknownCodec { file, .. }
            | VideoError::PastTheEnd { file, .. }
            | VideoError::Decode { file, .. }
            | VideoError::LostFrames { file, .. } => file,
        }
    }
}

impl Explain for VideoError {
    fn kind(&self) -> Kind {
        match self {
            VideoError::Open { source, .. } if source.kind() != io::ErrorKind::NotFound => Kind::Environment,
            VideoError::Read { .. } => Kind::Environment,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            VideoError::LfsPointer { file } => {
                let directory = file.parent().unwrap_or(Path::new("."));
                Some(format!("git -C {} lfs pull", quoted(directory)))
            }
            VideoError::Malformed { .. } => Some("download or record this file again".to_owned()),
            VideoError::Unsupported { file, .. }
            | VideoError::UnknownCodec { file, .. }
            | VideoError::Decode { file, .. }
            | VideoError::LostFrames { file, .. } => Some(transcode_command(file)),
            VideoError::Open { .. } | VideoError::Read { .. } | VideoError::PastTheEnd { .. } => None,
        }
    }
}

/// Why a video could not be written. What was begun under a temporary name is gone then.
#[derive(Debug, thiserror::Error)]
pub enum VideoWriteError {
    #[error(
        "a video of {width}x{height} pixels cannot be encoded as H.264: both sides must be even, at least {min}, and at \
         most {long} and {short}",
        min = SMALLEST_SIDE, long = LONGEST_SIDE, short = LONGEST_SHORT_SIDE
    )]
    Size { width: usize, height: usize },
    #[error("a video of {fps} frames a second cannot be written: a rate is from 1 to {FASTEST}")]
    Rate { fps: u32 },
    #[error("frame {frame} has {found}, the video has {expected}")]
    Frame { frame: usize, found: String, expected: String },
    #[error("encoding frame {frame} failed: {found}")]
    Encode { frame: usize, found: String },
    /// Streams that cannot stand in one track.
    #[error("cannot join videos into {}: {found}", file.display())]
    Join { file: PathBuf, found: String },
    #[error("the video {} would hold {frames} frames; a file holds 1 to {most}", file.display())]
    Length { file: PathBuf, frames: usize, most: usize },
    #[error("cannot write the video {}", file.display())]
    Io { file: PathBuf, source: io::Error },
}

/// Pixels: one macroblock, and what OpenH264 takes at most.
pub(super) const SMALLEST_SIDE: usize = 16;
pub(super) const LONGEST_SIDE: usize = 3840;
pub(super) const LONGEST_SHORT_SIDE: usize = 2160;
/// Frames a second.
pub(super) const FASTEST: u32 = 1000;

impl Explain for VideoWriteError {
    fn kind(&self) -> Kind {
        match self {
            VideoWriteError::Size { .. }
            | VideoWriteError::Rate { .. }
            | VideoWriteError::Frame { .. }
            | VideoWriteError::Join { .. }
            | VideoWriteError::Length { .. } => Kind::Input,
            VideoWriteError::Io { .. } => Kind::Environment,
            VideoWriteError::Encode { .. } => Kind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            VideoWriteError::Size { width, height } => {
                let [width, height] = [width, height].map(|side| (side + side % 2).max(SMALLEST_SIDE));
                let fits = width.max(height) <= LONGEST_SIDE && width.min(height) <= LONGEST_SHORT_SIDE;
                let change =
                    if fits { format!("pad the pictures to {width}x{height}") } else { "scale them down".into() };
                Some(format!("{change}, or store them as PNG"))
            }
            VideoWriteError::Io { file, .. } => {
                let directory = quoted(file.parent().unwrap_or(Path::new(".")));
                Some(format!("check free space and permissions: df -h {directory}; ls -ld {directory}"))
            }
            _ => None,
        }
    }
}

/// Re-encodes in place, frame for frame, to what every decoder here reads and seeks well (H.264, key frame every 2).
pub(crate) fn transcode_command(file: &Path) -> String {
    let (old, new) = (quoted(file), quoted(&file.with_extension("transcoded.mp4")));
    format!(
        "ffmpeg -i {old} -an -fps_mode passthrough -c:v libx264 -crf 18 -g 2 -bf 0 -pix_fmt yuv420p {new} && mv {new} {old}"
    )
}

/// The path as one word for a POSIX shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transcode_command_survives_blanks_and_quotes_in_the_path() {
        let command = transcode_command(Path::new("/data/it's here/file-000.mp4"));
        assert_eq!(
            command,
            r"ffmpeg -i '/data/it'\''s here/file-000.mp4' -an -fps_mode passthrough -c:v libx264 -crf 18 -g 2 -bf 0 -pix_fmt yuv420p '/data/it'\''s here/file-000.transcoded.mp4' && mv '/data/it'\''s here/file-000.transcoded.mp4' '/data/it'\''s here/file-000.mp4'"
        );
    }

    #[test]
    fn counts_past_the_end_are_in_the_message() {
        let error = VideoError::PastTheEnd { file: "v.mp4".into(), frame: 40, frames: 39 };
        assert_eq!(error.to_string(), "frame 40 was asked for, the video has 39 frames (0..=38): v.mp4");
    }
}

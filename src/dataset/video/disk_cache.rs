//! Whole decoded videos on disk: one file each, raw RGB behind a header.
//!
//! Raw, since reading a frame then costs one copy out of the page cache; PNG of camera images saves about half and
//! costs more than decoding AV1. Positioned reads rather than a memory map: the frame is copied into its own buffer
//! either way, and a map would turn a file cut short by someone else into a killed process.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use super::error::VideoError;
use super::index::VideoIndex;
use super::lru::Bounded;
use super::pool::lock;
use super::reader::Reader;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::frame::RgbFrame;
use crate::files;

const MAGIC: &[u8; 8] = b"vlrgb\0\0\x01";
const HEADER_BYTES: usize = 64;
/// Cached videos kept open.
const OPEN_FILES: usize = 256;
/// Left free for checkpoints and logs.
const RESERVE_BYTES: u64 = 1 << 30;

pub(super) struct DiskCache {
    directory: PathBuf,
    open: Mutex<Bounded<PathBuf, Arc<File>>>,
    /// Videos that are decoded directly: another thread is building their cache, or it could not be built.
    direct: Mutex<HashSet<PathBuf>>,
    /// Nothing more is written after a write failed.
    given_up: AtomicBool,
    findings: Mutex<Vec<Finding>>,
    free_bytes: fn(&Path) -> io::Result<u64>,
}

impl DiskCache {
    pub fn new(directory: PathBuf) -> DiskCache {
        DiskCache {
            directory,
            open: Mutex::new(Bounded::new(OPEN_FILES)),
            direct: Mutex::default(),
            given_up: AtomicBool::new(false),
            findings: Mutex::default(),
            free_bytes,
        }
    }

    /// The frame out of the video's cache, which is built first where it is missing or stale; none when the caller has
    /// to decode.
    pub fn frame(&self, video: &Path, index: &Arc<VideoIndex>, frame: usize) -> Option<Arc<RgbFrame>> {
        let file = self.file(video, index)?;
        let bytes = frame_bytes(index)?;
        let offset = HEADER_BYTES as u64 + frame as u64 * bytes as u64;
        let mut data = vec![0; bytes];
        match file.read_exact_at(&mut data, offset) {
            Ok(()) => Some(Arc::new(RgbFrame { height: index.height, width: index.width, data })),
            Err(error) => {
                self.give_up(format!("a decoded frame of {} cannot be read: {error}", video.display()));
                lock(&self.direct).insert(video.to_owned());
                None
            }
        }
    }

    pub fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut *lock(&self.findings))
    }

    fn file(&self, video: &Path, index: &Arc<VideoIndex>) -> Option<Arc<File>> {
        if let Some(file) = lock(&self.open).get(video) {
            return Some(file);
        }
        if lock(&self.direct).contains(video) {
            return None;
        }
        let header = header(video, index).ok()?;
        let path = self.path(video);
        if let Some(file) = open_fresh(&path, &header, index) {
            let file = Arc::new(file);
            lock(&self.open).insert(video.to_owned(), Arc::clone(&file), 1);
            return Some(file);
        }
        if self.given_up.load(Ordering::Relaxed) || !lock(&self.direct).insert(video.to_owned()) {
            return None;
        }
        match self.build(video, index, &path, &header) {
            Ok(()) => {
                lock(&self.direct).remove(video);
                open_fresh(&path, &header, index).map(Arc::new)
            }
            Err(BuildError::Video(error)) => {
                self.tell("frame-cache-skipped", format!("no decoded frames of this video are kept: {error}"), None);
                None
            }
            Err(BuildError::Disk(found)) => {
                self.give_up(found);
                None
            }
        }
    }

    /// Named after the whole path: file names repeat in every chunk and camera.
    fn path(&self, video: &Path) -> PathBuf {
        let absolute = fs::canonicalize(video).unwrap_or_else(|_| video.to_owned());
        let digest = Sha256::digest(absolute.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.rgb"))
    }

    fn build(&self, video: &Path, index: &Arc<VideoIndex>, path: &Path, header: &[u8]) -> Result<(), BuildError> {
        let write_error = |error: io::Error| {
            BuildError::Disk(format!("decoded frames cannot be written to {}: {error}", self.directory.display()))
        };
        fs::create_dir_all(&self.directory).map_err(write_error)?;
        let needed = file_bytes(index).unwrap_or(u64::MAX);
        let free = (self.free_bytes)(&self.directory).map_err(write_error)?;
        if needed.saturating_add(RESERVE_BYTES) > free {
            return Err(BuildError::Disk(format!(
                "the decoded frames of {} need {} MB and leave less than {} MB of the {} MB free on {}",
                video.display(),
                needed >> 20,
                RESERVE_BYTES >> 20,
                free >> 20,
                self.directory.display()
            )));
        }
        let mut failed = None;
        let written = files::write_atomic_with(path, |file| {
            let mut writer = BufWriter::with_capacity(1 << 20, file);
            writer.write_all(header)?;
            if let Err(error) = each_frame(video, index, |frame| writer.write_all(&frame.data)) {
                match error {
                    EachError::Write(error) => return Err(error),
                    EachError::Video(error) => failed = Some(error),
                }
                return Err(io::Error::other("the video cannot be decoded"));
            }
            writer.flush()
        });
        match (failed, written) {
            (Some(error), _) => Err(BuildError::Video(error)),
            (None, written) => written.map_err(write_error),
        }
    }

    fn give_up(&self, found: String) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.tell(
                "frame-cache-given-up",
                format!("{found}. Frames are decoded on every use from here on"),
                Some("data.frame_cache = false"),
            );
        }
    }

    fn tell(&self, code: &'static str, message: String, fix: Option<&str>) {
        let finding = Finding { severity: Severity::Warning, code, message, fix: fix.map(str::to_owned) };
        lock(&self.findings).push(finding);
    }
}

enum BuildError {
    Video(VideoError),
    Disk(String),
}

enum EachError {
    Video(VideoError),
    Write(io::Error),
}

/// Decodes the shown frames in order.
fn each_frame(
    video: &Path,
    index: &Arc<VideoIndex>,
    mut write: impl FnMut(&RgbFrame) -> io::Result<()>,
) -> Result<(), EachError> {
    let mut reader = Reader::new(video, Arc::clone(index)).map_err(EachError::Video)?;
    let mut next = index.shown.start;
    while next < index.shown.end {
        let wanted = next;
        for (rank, frame) in reader.decode(wanted).map_err(EachError::Video)? {
            // Neighbours before the wanted frame have been written already.
            if rank == next {
                write(&frame).map_err(EachError::Write)?;
                next += 1;
            }
        }
        if next == wanted {
            let frame = wanted - index.shown.start;
            let found = "no picture came out".to_owned();
            return Err(EachError::Video(VideoError::Decode { file: video.to_owned(), frame, found }));
        }
    }
    Ok(())
}

/// The cached video, if it is complete and of that very source.
fn open_fresh(path: &Path, header: &[u8], index: &VideoIndex) -> Option<File> {
    let file = File::open(path).ok()?;
    let mut found = [0; HEADER_BYTES];
    file.read_exact_at(&mut found, 0).ok()?;
    (found == header && file.metadata().ok()?.len() == file_bytes(index)?).then_some(file)
}

/// Magic, then size and modification time of the source, width, height and number of frames, little endian.
fn header(video: &Path, index: &VideoIndex) -> io::Result<[u8; HEADER_BYTES]> {
    let source = fs::metadata(video)?;
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    let fields = [
        source.len(),
        source.mtime() as u64,
        source.mtime_nsec() as u64,
        index.width as u64,
        index.height as u64,
        index.frames() as u64,
    ];
    for (place, field) in header[8..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    Ok(header)
}

fn frame_bytes(index: &VideoIndex) -> Option<usize> {
    index.width.checked_mul(index.height)?.checked_mul(3)
}

fn file_bytes(index: &VideoIndex) -> Option<u64> {
    (frame_bytes(index)? as u64).checked_mul(index.frames() as u64)?.checked_add(HEADER_BYTES as u64)
}

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(directory)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::video::demux;

    #[test]
    fn too_little_space_is_said_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let video = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/video/bframes.mp4"));
        let index = Arc::new(demux::read_index(video).unwrap());
        let mut cache = DiskCache::new(directory.path().to_owned());
        cache.free_bytes = |_| Ok(RESERVE_BYTES + 40 * 32 * 48 * 3);
        assert_eq!(cache.frame(video, &index, 0), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let findings = cache.take_findings();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("leave less than 1024 MB of the 1024 MB free"), "{}", findings[0].message);

        let mut cache = DiskCache::new(directory.path().to_owned());
        cache.free_bytes = |_| Ok(RESERVE_BYTES + 40 * 32 * 48 * 3 + HEADER_BYTES as u64);
        assert!(cache.frame(video, &index, 0).is_some());
    }
}

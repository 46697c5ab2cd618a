//! The front door: frames of any video in any order, from any thread.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::demux;
use super::disk_cache::DiskCache;
use super::error::VideoError;
use super::index::VideoIndex;
use super::lru::Bounded;
use super::reader::{Decoded, Reader};
use crate::dataset::finding::Finding;
use crate::dataset::frame::RgbFrame;

/// Memory for indexes: about ten million frames.
const INDEX_BYTES: usize = 256 << 20;

/// Bounds of a [`VideoPool`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOptions {
    /// Decoders kept open, at least 1. More exist only while more threads than that decode at once.
    pub open_decoders: usize,
    /// Memory for decoded frames, in bytes.
    pub cached_frames_bytes: usize,
    /// Directory for whole decoded videos (3 bytes a pixel): each video is decoded once, when it is first used.
    pub disk_cache: Option<PathBuf>,
}

impl Default for PoolOptions {
    /// 32 decoders (about 10 MB each at 640×480), 256 MiB of frames, nothing on disk.
    fn default() -> Self {
        PoolOptions { open_decoders: 32, cached_frames_bytes: 256 << 20, disk_cache: None }
    }
}

/// Indexes, open decoders and decoded frames, shared by loader threads.
///
/// A video that is replaced on disk while a pool knows it is not noticed; a new pool reads the new one.
pub struct VideoPool {
    indexes: Mutex<Bounded<PathBuf, Arc<VideoIndex>>>,
    readers: Readers,
    frames: Mutex<Bounded<FrameKey, Arc<RgbFrame>>>,
    disk: Option<DiskCache>,
}

impl fmt::Debug for VideoPool {
    /// Frames and indexes would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VideoPool").finish_non_exhaustive()
    }
}

impl VideoPool {
    /// A pool without open decoders.
    pub fn new(options: PoolOptions) -> VideoPool {
        VideoPool {
            indexes: Mutex::new(Bounded::new(INDEX_BYTES)),
            readers: Readers { limit: options.open_decoders.max(1), state: Mutex::default() },
            frames: Mutex::new(Bounded::new(options.cached_frames_bytes)),
            disk: options.disk_cache.map(DiskCache::new),
        }
    }

    /// The tables of a video, read once.
    pub fn index(&self, file: &Path) -> Result<Arc<VideoIndex>, VideoError> {
        if let Some(index) = lock(&self.indexes).get(file) {
            return Ok(index);
        }
        // Read without the lock: on a network file system this takes milliseconds.
        let index = Arc::new(demux::read_index(file)?);
        let mut indexes = lock(&self.indexes);
        if let Some(earlier) = indexes.get(file) {
            return Ok(earlier);
        }
        indexes.insert(file.to_owned(), Arc::clone(&index), index.cost());
        Ok(index)
    }

    /// The frame of that index in presentation order, `[height, width, 3]`.
    pub fn frame(&self, file: &Path, frame: usize) -> Result<Arc<RgbFrame>, VideoError> {
        let index = self.index(file)?;
        let rank = index.rank(frame).ok_or_else(|| VideoError::PastTheEnd {
            file: file.to_owned(),
            frame,
            frames: index.frames(),
        })?;
        if let Some(found) = lock(&self.frames).get(&FrameKey::new(&index, rank)) {
            return Ok(found);
        }
        if let Some(found) = self.disk.as_ref().and_then(|disk| disk.frame(file, &index, frame)) {
            self.remember(&index, [(rank, Arc::clone(&found))]);
            return Ok(found);
        }
        let decoded = self.readers.decode(file, &index, rank)?;
        let found = decoded.iter().find(|(other, _)| *other == rank).map(|(_, frame)| Arc::clone(frame));
        self.remember(&index, decoded);
        found.ok_or_else(|| VideoError::Decode {
            file: file.to_owned(),
            frame,
            found: "no picture came out".to_owned(),
        })
    }

    /// What there is to say about the cache on disk since the last call, such as that it had to be given up.
    pub fn take_findings(&self) -> Vec<Finding> {
        self.disk.as_ref().map(DiskCache::take_findings).unwrap_or_default()
    }

    /// Decoders that are open now, in use or waiting.
    pub fn open_decoders(&self) -> usize {
        lock(&self.readers.state).count()
    }

    /// Memory that decoded frames take now, in bytes.
    pub fn cached_frames_bytes(&self) -> usize {
        lock(&self.frames).cost()
    }

    fn remember(&self, index: &Arc<VideoIndex>, frames: impl IntoIterator<Item = (usize, Arc<RgbFrame>)>) {
        let mut cache = lock(&self.frames);
        for (rank, frame) in frames {
            let bytes = frame.data.len();
            cache.insert(FrameKey::new(index, rank), frame, bytes);
        }
    }
}

/// Readers that wait for the next request; one that is in use belongs to its thread alone, so that threads never wait
/// for each other's decoding, even in the same video.
struct Readers {
    limit: usize,
    state: Mutex<ReadersState>,
}

#[derive(Default)]
struct ReadersState {
    /// Least recently used first.
    idle: VecDeque<Reader>,
    in_use: usize,
}

impl ReadersState {
    fn count(&self) -> usize {
        self.idle.len() + self.in_use
    }

    fn make_room(&mut self, limit: usize) {
        while self.count() > limit && self.idle.pop_front().is_some() {}
    }
}

impl Readers {
    fn decode(&self, file: &Path, index: &Arc<VideoIndex>, rank: usize) -> Result<Vec<Decoded>, VideoError> {
        let mut lease = self.take(index, rank);
        let reader = match lease.reader.take() {
            Some(reader) => reader,
            None => Reader::new(file, Arc::clone(index))?,
        };
        lease.reader.insert(reader).decode(rank)
    }

    /// The place of a reader and, if one of that video is idle, the reader: one on its way to the frame first.
    fn take(&self, index: &Arc<VideoIndex>, rank: usize) -> Lease<'_> {
        let mut state = lock(&self.state);
        let on_its_way = state.idle.iter().position(|reader| reader.reads(index) && reader.continues_to(rank));
        let at = on_its_way.or_else(|| state.idle.iter().position(|reader| reader.reads(index)));
        let reader = at.and_then(|at| state.idle.remove(at));
        state.in_use += 1;
        state.make_room(self.limit);
        Lease { readers: self, reader }
    }
}

/// A reader in use; goes back to the others when dropped.
struct Lease<'p> {
    readers: &'p Readers,
    reader: Option<Reader>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.readers.state);
        state.in_use = state.in_use.saturating_sub(1);
        state.idle.extend(self.reader.take());
        state.make_room(self.readers.limit);
    }
}

/// An index, by identity, and a rank. Holds the index, so that its address cannot come to mean another video.
struct FrameKey {
    index: Arc<VideoIndex>,
    rank: usize,
}

impl FrameKey {
    fn new(index: &Arc<VideoIndex>, rank: usize) -> FrameKey {
        FrameKey { index: Arc::clone(index), rank }
    }
}

impl PartialEq for FrameKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index) && self.rank == other.rank
    }
}

impl Eq for FrameKey {}

impl Hash for FrameKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.index).hash(state);
        self.rank.hash(state);
    }
}

/// A thread that panicked while it held the lock left the data whole: every critical section here is a few moves.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

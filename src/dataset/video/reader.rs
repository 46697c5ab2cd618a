//! One open video: decodes from the nearest entry, and goes on from where it stands when it can.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::color::{self, Picture};
use super::decoder::{self, Decoder, Fault};
use super::error::VideoError;
use super::index::VideoIndex;
use crate::dataset::frame::RgbFrame;

/// Frames before the wanted one that are worth their conversion to RGB: makes backward reading of a long group of
/// pictures cost one run for every so many frames.
const NEIGHBOURS: usize = 8;

/// A decoded frame and its rank.
pub(super) type Decoded = (usize, Arc<RgbFrame>);

pub(super) struct Reader {
    path: PathBuf,
    file: File,
    index: Arc<VideoIndex>,
    decoder: Option<Box<dyn Decoder>>,
    run: Option<Run>,
    /// The compressed sample; kept for its capacity.
    sample: Vec<u8>,
}

/// A run from an entry to the next one, in progress.
struct Run {
    samples: Range<usize>,
    /// Next sample to feed.
    fed: usize,
    /// Rank of the next picture to come out.
    next: usize,
}

impl Reader {
    pub fn new(path: &Path, index: Arc<VideoIndex>) -> Result<Reader, VideoError> {
        let file = File::open(path).map_err(|source| VideoError::Open { file: path.to_owned(), source })?;
        Ok(Reader { path: path.to_owned(), file, index, decoder: None, run: None, sample: Vec::new() })
    }

    /// Whether this reader reads that very index.
    pub fn reads(&self, index: &Arc<VideoIndex>) -> bool {
        Arc::ptr_eq(&self.index, index)
    }

    /// Whether the frame lies ahead in the run that is in progress.
    pub fn continues_to(&self, rank: usize) -> bool {
        self.run.as_ref().is_some_and(|run| (run.next..run.samples.end).contains(&rank))
    }

    /// Decodes up to that rank; returns its frame with neighbours that came along, ascending.
    pub fn decode(&mut self, rank: usize) -> Result<Vec<Decoded>, VideoError> {
        let result = self.try_decode(rank);
        if result.is_err() {
            // A decoder that stumbled may hold half of a run.
            (self.decoder, self.run) = (None, None);
        }
        result
    }

    fn try_decode(&mut self, rank: usize) -> Result<Vec<Decoded>, VideoError> {
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => decoder::open(&self.index)
                .map_err(|found| self.fault(rank, found))?
                .ok_or_else(|| VideoError::UnknownCodec { file: self.path.clone(), codec: self.index.codec })?,
        };
        let mut run = match self.run.take() {
            Some(run) if (run.next..run.samples.end).contains(&rank) => run,
            left => {
                if left.is_some() {
                    decoder.flush(&mut |_| Ok(())).map_err(|found| self.fault(rank, found))?;
                }
                let samples = self.index.run(self.index.entry_of(rank));
                Run { fed: samples.start, next: samples.start, samples }
            }
        };
        let mut frames = Vec::new();
        while run.next <= rank && run.fed < run.samples.end {
            self.read_sample(run.fed)?;
            let entry = run.fed == run.samples.start;
            run.fed += 1;
            let index = &self.index;
            decoder
                .push(&self.sample, entry, &mut |picture| keep(index, &mut run.next, rank, picture, &mut frames))
                .map_err(|found| self.fault(rank, found))?;
        }
        if run.fed == run.samples.end {
            let index = &self.index;
            decoder
                .flush(&mut |picture| keep(index, &mut run.next, rank, picture, &mut frames))
                .map_err(|found| self.fault(rank, found))?;
            if run.next != run.samples.end {
                return Err(VideoError::LostFrames {
                    file: self.path.clone(),
                    first: self.frame(run.samples.start),
                    expected: run.samples.len(),
                    found: run.next - run.samples.start,
                });
            }
        } else {
            self.run = Some(run);
        }
        self.decoder = Some(decoder);
        Ok(frames)
    }

    fn read_sample(&mut self, sample: usize) -> Result<(), VideoError> {
        let Some(bytes) = self.index.samples.get(sample).copied() else { return Ok(()) };
        self.sample.resize(bytes.size as usize, 0);
        self.file.read_exact_at(&mut self.sample, bytes.offset).map_err(|source| VideoError::Read {
            file: self.path.clone(),
            offset: bytes.offset,
            size: bytes.size.into(),
            source,
        })
    }

    fn frame(&self, rank: usize) -> usize {
        rank.saturating_sub(self.index.shown.start)
    }

    fn fault(&self, rank: usize, found: Fault) -> VideoError {
        VideoError::Decode { file: self.path.clone(), frame: self.frame(rank), found }
    }
}

/// Takes the picture of rank `next` if it is the wanted one, near before it, or after it (it would be lost).
fn keep(
    index: &VideoIndex,
    next: &mut usize,
    wanted: usize,
    picture: &Picture<'_>,
    frames: &mut Vec<Decoded>,
) -> Result<(), Fault> {
    let rank = *next;
    *next += 1;
    if (picture.width, picture.height) != (index.width, index.height) {
        return Err(format!(
            "a picture has {}x{} pixels where the container says {}x{}",
            picture.width, picture.height, index.width, index.height
        ));
    }
    if index.shown.contains(&rank) && rank + NEIGHBOURS >= wanted {
        let frame = RgbFrame { height: picture.height, width: picture.width, data: color::to_rgb(picture) };
        frames.push((rank, Arc::new(frame)));
    }
    Ok(())
}

//! One open video: decodes from the nearest entry, and goes on from where it stands when it can.

use std::fs::File;
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

/// Pictures a decoder may hold back: the format's largest picture buffer (ISO/IEC 14496-10 A.3.1) and one more.
const MOST_INSIDE: usize = 17;

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

/// Decoding in progress, from an entry on; it may pass later entries.
struct Run {
    /// The entry; its rank and its place in decoding order.
    start: usize,
    /// Next sample to feed.
    fed: usize,
    /// Rank of the next picture to come out.
    next: usize,
    /// Pictures of an earlier run, still inside the decoder, that come out first.
    stale: usize,
}

impl Run {
    /// Pictures inside the decoder.
    fn inside(&self) -> usize {
        self.fed - self.next + self.stale
    }
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

    /// Whether going on reaches the frame with no more decodes than a new start.
    pub fn continues_to(&self, rank: usize) -> bool {
        self.run.as_ref().is_some_and(|run| run.next <= rank && self.index.entry_before(rank) <= run.fed)
    }

    /// Decodes up to that rank; returns its frame with neighbours that came along, ascending.
    pub fn decode(&mut self, rank: usize) -> Result<Vec<Decoded>, VideoError> {
        // Taken out first: a decoder that stumbles may hold half of a run, and is dropped on the way.
        let continues = self.continues_to(rank);
        let (run, decoder) = (self.run.take(), self.decoder.take());
        let mut decoder = match decoder {
            Some(decoder) => decoder,
            None => decoder::open(&self.index)
                .map_err(|fault| self.fault(rank, fault))?
                .ok_or_else(|| VideoError::UnknownCodec { file: self.path.clone(), codec: self.index.codec })?,
        };
        let mut run = match run {
            Some(run) if continues => run,
            left => {
                let start = self.index.entry_before(rank);
                Run { start, fed: start, next: start, stale: left.map_or(0, |run| run.inside()) }
            }
        };
        let frames = loop {
            match self.advance(&mut run, decoder.as_mut(), rank)? {
                Some(frames) => break frames,
                None => {
                    let start = self.index.entry_before(run.start.saturating_sub(1));
                    run = Run { start, fed: start, next: start, stale: run.stale };
                }
            }
        };
        // A flush leaves nothing to go on from.
        self.run = (run.fed < self.index.samples.len() || run.inside() > 0).then_some(run);
        self.decoder = Some(decoder);
        Ok(frames)
    }

    /// Goes on until the wanted frame is out; none if the decoder cannot start where the run does, but maybe earlier.
    fn advance(
        &mut self,
        run: &mut Run,
        decoder: &mut dyn Decoder,
        wanted: usize,
    ) -> Result<Option<Vec<Decoded>>, VideoError> {
        let index = Arc::clone(&self.index);
        let mut frames = Vec::new();
        while run.next <= wanted && run.fed < index.samples.len() {
            self.read_sample(run.fed)?;
            let start = run.fed == run.start;
            run.fed += 1;
            match decoder.push(&self.sample, start, &mut |picture| take(run, &index, wanted, picture, &mut frames)) {
                Ok(()) => (),
                Err(Fault::NoStart) if run.start > 0 => return Ok(None),
                Err(fault) => return Err(self.fault(wanted, fault)),
            }
            if run.inside() > MOST_INSIDE {
                return Err(self.lost(run));
            }
        }
        if run.next <= wanted {
            decoder
                .flush(&mut |picture| take(run, &index, wanted, picture, &mut frames))
                .map_err(|fault| self.fault(wanted, fault))?;
            if run.inside() > 0 {
                return Err(self.lost(run));
            }
        }
        Ok(Some(frames))
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

    fn lost(&self, run: &Run) -> VideoError {
        VideoError::LostFrames {
            file: self.path.clone(),
            first: self.frame(run.start),
            samples: run.fed - run.start,
            pictures: run.next - run.start,
        }
    }

    fn fault(&self, rank: usize, fault: Fault) -> VideoError {
        VideoError::Decode { file: self.path.clone(), frame: self.frame(rank), found: fault.to_string() }
    }
}

/// The next picture that comes out of a run: keeps it if it is the wanted one, near before it, or after it (it would be
/// lost).
fn take(
    run: &mut Run,
    index: &VideoIndex,
    wanted: usize,
    picture: &Picture<'_>,
    frames: &mut Vec<Decoded>,
) -> Result<(), Fault> {
    if run.stale > 0 {
        run.stale -= 1;
        return Ok(());
    }
    let rank = run.next;
    if rank == run.fed {
        return Err(Fault::Failed("more pictures came out than samples were fed".to_owned()));
    }
    run.next += 1;
    if (picture.width, picture.height) != (index.width, index.height) {
        return Err(format!(
            "a picture has {}x{} pixels where the container says {}x{}",
            picture.width, picture.height, index.width, index.height
        )
        .into());
    }
    if index.shown.contains(&rank) && rank + NEIGHBOURS >= wanted {
        let frame = RgbFrame { height: picture.height, width: picture.width, data: color::to_rgb(picture) };
        frames.push((rank, Arc::new(frame)));
    }
    Ok(())
}

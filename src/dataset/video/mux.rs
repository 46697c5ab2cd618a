//! MP4 files of one H.264 track (ISO/IEC 14496-12, -15): the samples as they come, the tables behind them.
//!
//! There is no crate that writes what is needed here and is kept up, and it is one fixed tree of small boxes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::boxes::FourCc;
use super::encode::{Clip, Track};
use super::error::VideoWriteError;
use crate::files::{sync_directory, temporary_beside};

/// Ticks of a frame. Times are whole numbers then at every rate, and at 30 frames a second they are those of FFmpeg.
const FRAME_TICKS: u32 = 512;
/// Durations have 32 bits.
const MOST_FRAMES: usize = (u32::MAX / FRAME_TICKS) as usize;
/// Header of the box with the samples: a size of 64 bits, since it is only known at the end.
const MDAT_HEADER: usize = 16;

/// An MP4 file while it grows, under a temporary name beside its place; removed when dropped unfinished.
#[derive(Debug)]
pub struct Mp4Writer {
    path: PathBuf,
    temporary: Temporary,
    file: BufWriter<File>,
    /// Of the first sample; all others must have the same.
    track: Option<Track>,
    sizes: Vec<u32>,
    /// Numbers of the key frames, from 1.
    sync: Vec<u32>,
    bytes: u64,
}

#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Mp4Writer {
    /// Begins a file that will stand at `path`, in a directory that exists.
    ///
    /// # Errors
    /// I/O.
    pub fn create(path: &Path) -> Result<Mp4Writer, VideoWriteError> {
        let io = |source| VideoWriteError::Io { file: path.to_owned(), source };
        let temporary = Temporary(temporary_beside(path));
        let mut file = BufWriter::with_capacity(1 << 18, File::create(&temporary.0).map_err(io)?);
        let mut head = file_type();
        head.extend([0, 0, 0, 1]);
        head.extend(b"mdat");
        head.extend([0; 8]);
        file.write_all(&head).map_err(io)?;
        let path = path.to_owned();
        Ok(Mp4Writer { path, temporary, file, track: None, sizes: Vec::new(), sync: Vec::new(), bytes: 0 })
    }

    /// Number of frames so far.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Bytes of the frames so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends an episode as it is, without encoding it again.
    ///
    /// # Errors
    /// [`VideoWriteError::Join`] when size, rate or parameters of the stream are not those of the file, or I/O.
    pub fn append(&mut self, clip: &Clip) -> Result<(), VideoWriteError> {
        clip.samples().try_for_each(|(sample, sync)| self.push(&clip.track, sample, sync))
    }

    pub(super) fn push(&mut self, track: &Track, sample: &[u8], sync: bool) -> Result<(), VideoWriteError> {
        match &self.track {
            None => self.track = Some(track.clone()),
            Some(kept) if kept == track => (),
            Some(kept) => {
                let told = |t: &Track| format!("{}x{} pixels at {} frames a second", t.width, t.height, t.fps);
                let found = match (told(kept), told(track)) {
                    (kept, new) if kept == new => format!("both have {new}, but other parameters of the encoder"),
                    (kept, new) => format!("{new} behind {kept}"),
                };
                return Err(VideoWriteError::Join { file: self.path.clone(), found });
            }
        }
        self.file.write_all(sample).map_err(|source| VideoWriteError::Io { file: self.path.clone(), source })?;
        self.sizes.push(sample.len() as u32);
        if sync {
            self.sync.push(self.sizes.len() as u32);
        }
        self.bytes += sample.len() as u64;
        Ok(())
    }

    /// Writes the tables, makes the file durable, and gives it its name.
    ///
    /// # Errors
    /// [`VideoWriteError::Length`] without a frame or with more than the format's durations hold, or I/O.
    pub fn finish(mut self) -> Result<(), VideoWriteError> {
        let frames = self.sizes.len();
        let Some(track) = self.track.take().filter(|_| frames <= MOST_FRAMES) else {
            return Err(VideoWriteError::Length { file: self.path, frames, most: MOST_FRAMES });
        };
        let begin = file_type().len() as u64;
        let movie = movie(&track, &self.sizes, &self.sync, begin as u32 + MDAT_HEADER as u32);
        let (path, temporary, mut file, bytes) = (self.path, self.temporary, self.file, self.bytes);
        let mut write = || -> io::Result<()> {
            file.write_all(&movie)?;
            file.flush()?;
            file.seek(io::SeekFrom::Start(0))?;
            file.get_ref().write_all_at(&(bytes + MDAT_HEADER as u64).to_be_bytes(), begin + 8)?;
            file.get_ref().sync_all()?;
            fs::rename(&temporary.0, &path)?;
            sync_directory(path.parent().unwrap_or(Path::new(".")))
        };
        write().map_err(|source| VideoWriteError::Io { file: path.clone(), source })
    }
}

/// Bytes of boxes, big-endian.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(&mut self, values: impl IntoIterator<Item = u16>) -> &mut Self {
        self.0.extend(values.into_iter().flat_map(u16::to_be_bytes));
        self
    }

    fn u32(&mut self, values: impl IntoIterator<Item = u32>) -> &mut Self {
        self.0.extend(values.into_iter().flat_map(u32::to_be_bytes));
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// A box whose body `fill` writes.
    fn boxed(&mut self, kind: &FourCc, fill: impl FnOnce(&mut Bytes) -> &mut Bytes) -> &mut Self {
        let start = self.0.len();
        self.u32([0]).raw(kind);
        fill(self);
        let size = ((self.0.len() - start) as u32).to_be_bytes();
        self.0.iter_mut().skip(start).zip(size).for_each(|(to, from)| *to = from);
        self
    }
}

fn file_type() -> Vec<u8> {
    let mut bytes = Bytes::default();
    bytes.boxed(b"ftyp", |b| b.raw(b"isom").u32([512]).raw(b"isomiso2avc1mp41"));
    bytes.0
}

/// The unit matrix of `mvhd` and `tkhd`: 16.16, the last row 2.30.
const UNITY: [u32; 9] = [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30];

/// The box `moov`; the samples lie behind one another from byte `data` on.
fn movie(track: &Track, sizes: &[u32], sync: &[u32], data: u32) -> Vec<u8> {
    let timescale = track.fps * FRAME_TICKS;
    let duration = sizes.len() as u32 * FRAME_TICKS;
    let (width, height) = (track.width as u32, track.height as u32);
    let mut bytes = Bytes::default();
    bytes.boxed(b"moov", |b| {
        b.boxed(b"mvhd", |b| {
            // Version, creation and modification (none); normal speed and volume; the next track's number.
            b.u32([0, 0, 0, timescale, duration, 1 << 16]).u16([1 << 8, 0]).u32([0; 2]);
            b.u32(UNITY).u32([0; 6]).u32([2])
        });
        b.boxed(b"trak", |b| {
            // Flags: enabled, part of the movie. Track 1; layer, group and volume 0.
            b.boxed(b"tkhd", |b| {
                b.u32([3, 0, 0, 1, 0, duration, 0, 0, 0, 0]).u32(UNITY).u32([width << 16, height << 16])
            });
            b.boxed(b"mdia", |b| {
                // Language "und".
                b.boxed(b"mdhd", |b| b.u32([0, 0, 0, timescale, duration]).u16([0x55c4, 0]));
                b.boxed(b"hdlr", |b| b.u32([0, 0]).raw(b"vide").u32([0; 3]).raw(b"VideoHandler\0"));
                b.boxed(b"minf", |b| {
                    b.boxed(b"vmhd", |b| b.u32([1, 0, 0]));
                    // The data lie in this file.
                    b.boxed(b"dinf", |b| b.boxed(b"dref", |b| b.u32([0, 1]).boxed(b"url ", |b| b.u32([1]))));
                    b.boxed(b"stbl", |b| sample_tables(b, track, sizes, sync, data))
                })
            })
        })
    });
    bytes.0
}

fn sample_tables<'a>(b: &'a mut Bytes, track: &Track, sizes: &[u32], sync: &[u32], data: u32) -> &'a mut Bytes {
    let count = sizes.len() as u32;
    b.boxed(b"stsd", |b| {
        b.u32([0, 1]).boxed(b"avc1", |b| {
            // The first data reference; 72 dots an inch; one frame a sample; 24 bits; no colour table.
            b.u16([0, 0, 0, 1]).u32([0; 4]).u16([track.width as u16, track.height as u16]);
            b.u32([72 << 16, 72 << 16, 0]).u16([1]).raw(&[0; 32]).u16([24, 0xffff]);
            b.boxed(b"avcC", |b| decoder_configuration(b, track))
        })
    });
    b.boxed(b"stts", |b| b.u32([0, 1, count, FRAME_TICKS]));
    b.boxed(b"stss", |b| b.u32([0, sync.len() as u32]).u32(sync.iter().copied()));
    // The samples lie without gaps, so they are one chunk, whose offset fits 32 bits however long the file is.
    b.boxed(b"stsc", |b| b.u32([0, 1, 1, count, 1]));
    b.boxed(b"stsz", |b| b.u32([0, 0, count]).u32(sizes.iter().copied()));
    b.boxed(b"stco", |b| b.u32([0, 1, data]))
}

/// ISO/IEC 14496-15 §5.3.3.1: profile, compatibility and level as the sequence parameter set has them; lengths of four
/// bytes; one set of each kind.
fn decoder_configuration<'a>(b: &'a mut Bytes, track: &Track) -> &'a mut Bytes {
    let Track { sps, pps, .. } = track;
    b.raw(&[1]).raw(sps.get(1..4).unwrap_or(&[66, 0, 10])).raw(&[0xff]);
    b.raw(&[0xe1]).u16([sps.len() as u16]).raw(sps);
    b.raw(&[1]).u16([pps.len() as u16]).raw(pps)
}

//! RGB frames to H.264, by OpenH264: what a recording needs and our reader, FFmpeg and browsers read.
//!
//! 4:2:0, BT.601 in limited range (stated in the stream), one slice a picture, no B-frames, constant quality, a key frame
//! every [`KEY_FRAME_EVERY`] frames as LeRobot has them. The bytes are a function of the frames: one thread, no clock, no
//! rate control. So videos of the same size and rate share their parameter sets and can stand in one track.

use std::path::Path;

use openh264::OpenH264API;
use openh264::encoder::{
    BitRate, Complexity, Encoder as OpenH264, EncoderConfig, FrameRate, IntraFramePeriod, QpRange, RateControlMode,
    VuiConfig,
};
use openh264::formats::YUVSlices;

use super::color;
use super::error::{FASTEST, LONGEST_SHORT_SIDE, LONGEST_SIDE, SMALLEST_SIDE, VideoWriteError};
use super::mux::Mp4Writer;
use crate::dataset::frame::RgbFrame;

/// Frames between key frames, the key frame included: what one random access decodes at most.
pub const KEY_FRAME_EVERY: usize = 2;
/// The quantiser of every macroblock (0…51, less is better): nothing that a policy could see is lost.
pub(in crate::dataset) const QUANTISER: u8 = 21;

/// `nal_unit_type` (ISO/IEC 14496-10 Table 7-1).
const IDR_SLICE: u8 = 5;
const SEQUENCE_PARAMETERS: u8 = 7;
const PICTURE_PARAMETERS: u8 = 8;

/// What every frame of a track has in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Track {
    /// Pixels.
    pub width: usize,
    /// Pixels.
    pub height: usize,
    pub fps: u32,
    /// Sequence and picture parameter set: NAL units without length or start code.
    pub sps: Vec<u8>,
    pub pps: Vec<u8>,
}

/// One compressed frame: NAL units, each behind its length in four bytes.
pub(super) struct Compressed {
    pub bytes: Vec<u8>,
    /// Whether decoding can start here.
    pub sync: bool,
}

/// Turns frames of one size into H.264.
pub(super) struct Encoder {
    inner: OpenH264,
    track: Track,
    frames: usize,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encoder").field("track", &self.track).field("frames", &self.frames).finish()
    }
}

impl Encoder {
    pub fn new(width: usize, height: usize, fps: u32) -> Result<Encoder, VideoWriteError> {
        check(width, height, fps)?;
        // Two bits a pixel, about what comes out at most: only the level that the stream states follows from it.
        let bits = (2 * width * height) as u64 * u64::from(fps);
        let config = EncoderConfig::new()
            // Controls nothing as long as the quantiser has no range; the mode "off" would fix it at 26.
            .rate_control_mode(RateControlMode::Bufferbased)
            .qp(QpRange::new(QUANTISER, QUANTISER))
            .bitrate(BitRate::from_bps(bits.min(200_000_000) as u32))
            .max_frame_rate(FrameRate::from_hz(fps as f32))
            .intra_frame_period(IntraFramePeriod::from_num_frames(KEY_FRAME_EVERY as u32))
            // A group of two gains nothing from a longer search.
            .complexity(Complexity::Low)
            .skip_frames(false)
            .scene_change_detect(false)
            .adaptive_quantization(false)
            .background_detection(false)
            .num_threads(1)
            .vui(VuiConfig::bt601());
        let inner = OpenH264::with_api_config(OpenH264API::from_source(), config)
            .map_err(|error| VideoWriteError::Encode { frame: 0, found: format!("OpenH264: {error}") })?;
        let track = Track { width, height, fps, sps: Vec::new(), pps: Vec::new() };
        Ok(Encoder { inner, track, frames: 0 })
    }

    /// The parameter sets are there from the first frame on.
    pub fn track(&self) -> &Track {
        &self.track
    }

    pub fn encode(&mut self, frame: &RgbFrame) -> Result<Compressed, VideoWriteError> {
        let (width, height, number) = (self.track.width, self.track.height, self.frames);
        if (frame.width, frame.height) != (width, height) || frame.data.len() != width * height * 3 {
            return Err(VideoWriteError::Frame {
                frame: number,
                found: format!("{}x{} pixels in {} bytes", frame.width, frame.height, frame.data.len()),
                expected: format!("{width}x{height} pixels in {} bytes", width * height * 3),
            });
        }
        let fault = |found: String| VideoWriteError::Encode { frame: number, found };
        let planes = color::from_rgb(&frame.data, width, height);
        let (luma, chroma) = planes.split_at(width * height);
        let (u, v) = chroma.split_at(width * height / 4);
        let picture = YUVSlices::new((luma, u, v), (width, height), (width, width / 2, width / 2));
        let stream = self.inner.encode(&picture).map_err(|error| fault(format!("OpenH264: {error}")))?;
        let mut compressed = Compressed { bytes: Vec::new(), sync: false };
        for layer in (0..stream.num_layers()).filter_map(|layer| stream.layer(layer)) {
            for unit in (0..layer.nal_count()).filter_map(|unit| layer.nal_unit(unit)) {
                let unit = without_start_code(unit);
                match unit.first().map(|header| header & 0x1f) {
                    Some(SEQUENCE_PARAMETERS) => keep(&mut self.track.sps, unit).map_err(fault)?,
                    Some(PICTURE_PARAMETERS) => keep(&mut self.track.pps, unit).map_err(fault)?,
                    Some(kind) => {
                        compressed.sync |= kind == IDR_SLICE;
                        compressed.bytes.extend((unit.len() as u32).to_be_bytes());
                        compressed.bytes.extend(unit);
                    }
                    None => (),
                }
            }
        }
        if compressed.bytes.is_empty() || self.track.sps.len() < 4 || self.track.pps.is_empty() {
            return Err(fault("OpenH264 left the frame out".to_owned()));
        }
        self.frames += 1;
        Ok(compressed)
    }
}

/// Whether such a video can be written, before there is a frame.
///
/// # Errors
/// [`VideoWriteError::Size`] or [`VideoWriteError::Rate`].
pub(in crate::dataset) fn check(width: usize, height: usize, fps: u32) -> Result<(), VideoWriteError> {
    if !(1..=FASTEST).contains(&fps) {
        return Err(VideoWriteError::Rate { fps });
    }
    let (long, short) = (width.max(height), width.min(height));
    let fits = short >= SMALLEST_SIDE && long <= LONGEST_SIDE && short <= LONGEST_SHORT_SIDE;
    if fits && width.is_multiple_of(2) && height.is_multiple_of(2) {
        Ok(())
    } else {
        Err(VideoWriteError::Size { width, height })
    }
}

/// A unit after its start code: three or four bytes.
fn without_start_code(unit: &[u8]) -> &[u8] {
    unit.strip_prefix(&[0, 0, 0, 1]).or_else(|| unit.strip_prefix(&[0, 0, 1])).unwrap_or(unit)
}

/// Parameter sets come with every key frame and must stay what they are: the container holds them once.
fn keep(kept: &mut Vec<u8>, unit: &[u8]) -> Result<(), String> {
    if kept.is_empty() {
        kept.extend_from_slice(unit);
    }
    if kept == unit { Ok(()) } else { Err("OpenH264 changed the parameters of the stream".to_owned()) }
}

/// Writes RGB frames into an MP4 file, which appears under its name when it is whole.
#[derive(Debug)]
pub struct VideoWriter {
    encoder: Encoder,
    file: Mp4Writer,
}

impl VideoWriter {
    /// A video of `width` × `height` pixels, both even; `fps` frames a second. The directory must exist.
    ///
    /// # Errors
    /// [`VideoWriteError::Size`], [`VideoWriteError::Rate`], or I/O.
    pub fn create(path: &Path, width: usize, height: usize, fps: u32) -> Result<VideoWriter, VideoWriteError> {
        let encoder = Encoder::new(width, height, fps)?;
        Ok(VideoWriter { encoder, file: Mp4Writer::create(path)? })
    }

    /// Appends a frame; it is shown for 1/fps seconds.
    ///
    /// # Errors
    /// [`VideoWriteError::Frame`] when its size is not the video's, or I/O.
    pub fn push(&mut self, frame: &RgbFrame) -> Result<(), VideoWriteError> {
        let compressed = self.encoder.encode(frame)?;
        self.file.push(self.encoder.track(), &compressed.bytes, compressed.sync)
    }

    /// Completes the file, makes it durable, and gives it its name.
    ///
    /// # Errors
    /// [`VideoWriteError::Length`] without a single frame, or I/O.
    pub fn finish(self) -> Result<(), VideoWriteError> {
        self.file.finish()
    }
}

/// The compressed frames of one episode and camera.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    pub(in crate::dataset) track: Track,
    /// Frame after frame, as a container holds them.
    pub(in crate::dataset) data: Vec<u8>,
    /// Bytes of each frame in `data`.
    pub(in crate::dataset) sizes: Vec<u32>,
    /// By frame: whether decoding can start there.
    pub(in crate::dataset) sync: Vec<bool>,
}

impl Clip {
    /// Number of frames.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Bytes that its frames take in a file.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Each frame's bytes and whether it is a key frame.
    pub(super) fn samples(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let mut rest = self.data.as_slice();
        self.sizes.iter().zip(&self.sync).map_while(move |(&size, &sync)| {
            let (sample, after) = rest.split_at_checked(size as usize)?;
            rest = after;
            Some((sample, sync))
        })
    }
}

/// A [`Clip`] while it is recorded.
#[derive(Debug)]
pub struct ClipRecorder {
    encoder: Encoder,
    data: Vec<u8>,
    sizes: Vec<u32>,
    sync: Vec<bool>,
}

impl ClipRecorder {
    /// As [`VideoWriter::create`].
    pub fn new(width: usize, height: usize, fps: u32) -> Result<ClipRecorder, VideoWriteError> {
        let encoder = Encoder::new(width, height, fps)?;
        Ok(ClipRecorder { encoder, data: Vec::new(), sizes: Vec::new(), sync: Vec::new() })
    }

    /// As [`VideoWriter::push`].
    pub fn push(&mut self, frame: &RgbFrame) -> Result<(), VideoWriteError> {
        let compressed = self.encoder.encode(frame)?;
        self.sizes.push(compressed.bytes.len() as u32);
        self.sync.push(compressed.sync);
        self.data.extend(compressed.bytes);
        Ok(())
    }

    pub fn finish(self) -> Clip {
        Clip { track: self.encoder.track, data: self.data, sizes: self.sizes, sync: self.sync }
    }
}

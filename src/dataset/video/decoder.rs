//! What the two decoders have in common.

use super::av1::Av1Decoder;
use super::color::Picture;
use super::h264::H264Decoder;
use super::index::{Codec, CodecConfig, VideoIndex};

/// Why a decoder gave no picture.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The container marks key frames that only some decoders can start from (H.264: those that are no IDR pictures).
    #[error("decoding cannot begin at this key frame")]
    NoStart,
    #[error("{0}")]
    Failed(String),
}

impl From<String> for Fault {
    fn from(found: String) -> Self {
        Fault::Failed(found)
    }
}

/// Receives pictures in presentation order.
pub(super) type Sink<'s> = &'s mut dyn FnMut(&Picture<'_>) -> Result<(), Fault>;

/// Samples in, pictures out, both in order. A decoder that returned a fault is of no further use.
pub(super) trait Decoder: Send {
    /// Feeds one sample as stored in the file. `start` marks the first after a seek, which is a key frame; pictures of
    /// the samples before the seek that are still inside come out before its own.
    fn push(&mut self, sample: &[u8], start: bool, sink: Sink<'_>) -> Result<(), Fault>;
    /// Ends the stream: what is still inside comes out. A start may follow.
    fn flush(&mut self, sink: Sink<'_>) -> Result<(), Fault>;
}

/// The decoder for a video; none where the codec has none here.
pub(super) fn open(index: &VideoIndex) -> Result<Option<Box<dyn Decoder>>, Fault> {
    Ok(match (&index.codec, &index.config) {
        (Codec::Av1, CodecConfig::Av1 { config_obus }) => Some(Box::new(Av1Decoder::open(config_obus.clone())?)),
        (Codec::H264, CodecConfig::H264 { length_size, parameter_sets, profile }) => {
            Some(Box::new(H264Decoder::new(*length_size, parameter_sets.clone(), *profile, index.color)?))
        }
        _ => None,
    })
}

/// The answer to pictures that are not 8 bits, 4:2:0.
pub(super) fn pixel_format_fault(bits: u32, layout: &str) -> Fault {
    format!("its pixels are {layout} with {bits} bits; 4:2:0 with 8 bits (yuv420p) can be read").into()
}

//! Frames out of MP4 files, addressed by integer index in presentation order, in any order; and into such files.
//!
//! One pass over a file's tables (no decoding) gives a [`VideoIndex`]: which samples are shown, when, and where
//! decoding can start. [`VideoPool`] decodes from the nearest such point, keeps decoders open so that the next frame
//! costs one decode, and caches what it decoded in memory and, if asked, on disk. Loader threads share one pool.
//!
//! Guarantees: a frame's bytes do not depend on the order of access; colours equal those of FFmpeg's `swscale` for
//! 8-bit 4:2:0; hostile or truncated files give a [`VideoError`] that names the file, and no length
//! that a file states is allocated before it was checked against the file's size.
//!
//! The other way, [`VideoWriter`] encodes RGB frames as H.264 into an MP4 file; a [`Clip`] keeps an episode's compressed
//! frames in memory, and [`Mp4Writer`] puts clips behind one another into one file without encoding again.
//!
//! Left out: fragmented MP4, edit lists of several parts, more than 8 bits, 4:2:2 and 4:4:4. Each is recognised and
//! answered with the command that converts the file.

mod av1;
mod boxes;
mod color;
mod decoder;
mod demux;
mod disk_cache;
mod encode;
mod error;
mod h264;
mod index;
mod lru;
mod mux;
mod pool;
mod reader;
mod samples;
mod sps;

#[cfg(test)]
pub(in crate::dataset) mod encode_tests;
#[cfg(test)]
mod tests;

pub use encode::{Clip, ClipRecorder, KEY_FRAME_EVERY, VideoWriter};
pub(in crate::dataset) use encode::{QUANTISER, Track, check};
pub use error::{VideoError, VideoWriteError};
pub use index::{Codec, VideoIndex};
pub use mux::Mp4Writer;
pub use pool::{PoolOptions, VideoPool};

//! What a video holds, known without decoding.

use std::fmt;
use std::ops::Range;

use super::boxes::FourCc;

/// The compression of a video track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    Av1,
    H264,
    /// The four-letter code of the sample entry, such as `hvc1`; cannot be decoded here.
    Other(FourCc),
}

impl fmt::Display for Codec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Av1 => formatter.write_str("AV1"),
            Codec::H264 => formatter.write_str("H.264"),
            Codec::Other([b'h', b'v' | b'e', b'c' | b'v', b'1']) => formatter.write_str("HEVC (H.265)"),
            Codec::Other(name) => write!(formatter, "`{}`", name.escape_ascii()),
        }
    }
}

/// What a decoder needs besides the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodecConfig {
    /// `av1C`: OBUs (the sequence header) that precede the first sample.
    Av1 {
        config_obus: Vec<u8>,
    },
    /// `avcC`: bytes of the length before each NAL unit, SPS and PPS units in Annex B form, and `profile_idc`.
    H264 {
        length_size: usize,
        parameter_sets: Vec<u8>,
        profile: u8,
    },
    None,
}

/// Bytes of one compressed frame in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleBytes {
    pub offset: u64,
    pub size: u32,
}

/// The colours that an H.264 stream or its container states; AV1 pictures bring their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatedColor {
    /// ISO/IEC 23091-2 matrix coefficients.
    pub matrix: u16,
    pub full_range: bool,
}

/// The frames of one video track in presentation order, and where decoding can start.
///
/// *Frame* counts what a player shows, from 0, edit list applied. *Rank* counts every sample of the track in
/// presentation order, hidden ones too; what lies between two entries has the same numbers in decoding order.
#[derive(Debug)]
pub struct VideoIndex {
    /// Pixels.
    pub width: usize,
    /// Pixels.
    pub height: usize,
    pub codec: Codec,
    /// Ticks a second of [`VideoIndex::pts`].
    pub timescale: u32,
    pub(super) config: CodecConfig,
    pub(super) color: Option<StatedColor>,
    /// In decoding order.
    pub(super) samples: Vec<SampleBytes>,
    /// By rank, in ticks after the start that the edit list sets; ascending.
    pub(super) pts: Vec<i64>,
    /// By rank.
    pub(super) sync: Vec<bool>,
    /// Where decoding can start: decoding order and rank at once. Ascending, begins with 0.
    pub(super) entries: Vec<usize>,
    /// Ranks that are shown.
    pub(super) shown: Range<usize>,
}

impl VideoIndex {
    /// Number of frames shown.
    pub fn frames(&self) -> usize {
        self.shown.len()
    }

    /// Presentation time of a frame in ticks of [`VideoIndex::timescale`].
    pub fn pts(&self, frame: usize) -> Option<i64> {
        self.rank(frame).and_then(|rank| self.pts.get(rank)).copied()
    }

    /// Presentation time of a frame in seconds.
    pub fn seconds(&self, frame: usize) -> Option<f64> {
        self.pts(frame).map(|ticks| ticks as f64 / f64::from(self.timescale))
    }

    /// Whether the file marks the frame as a sync sample (key frame).
    pub fn is_sync(&self, frame: usize) -> Option<bool> {
        self.rank(frame).and_then(|rank| self.sync.get(rank)).copied()
    }

    /// The frame whose presentation time is nearest to `seconds`, the earlier one of two; none for NaN.
    pub fn nearest(&self, seconds: f64) -> Option<usize> {
        let ticks = seconds * f64::from(self.timescale);
        let shown = self.pts.get(self.shown.clone())?;
        let after = shown.partition_point(|pts| (*pts as f64) < ticks);
        let distance = |frame: usize| shown.get(frame).map(|pts| (*pts as f64 - ticks).abs());
        match (after.checked_sub(1), distance(after)) {
            _ if ticks.is_nan() => None,
            (Some(before), Some(to_after)) => {
                Some(if distance(before).is_some_and(|to_before| to_before <= to_after) { before } else { after })
            }
            (Some(before), None) => Some(before),
            (None, Some(_)) => Some(after),
            (None, None) => None,
        }
    }

    /// Frames a second, measured between the first and the last frame; none for fewer than two frames.
    pub fn fps(&self) -> Option<f64> {
        let last = self.frames().checked_sub(1)?;
        let seconds = self.seconds(last)? - self.seconds(0)?;
        (seconds > 0.0).then(|| last as f64 / seconds)
    }

    /// The most frames that one random access may have to decode: the longest run between places where decoding can
    /// start. LeRobot writes 2; x264's default of 250 makes random access about a hundred times dearer.
    pub fn longest_gop(&self) -> usize {
        let ends = self.entries.iter().copied().skip(1).chain([self.samples.len()]);
        self.entries.iter().zip(ends).map(|(start, end)| end - start).max().unwrap_or(0)
    }

    /// The rank of a frame.
    pub(super) fn rank(&self, frame: usize) -> Option<usize> {
        (frame < self.frames()).then(|| self.shown.start + frame)
    }

    /// The last entry from which the frame of that rank can be decoded.
    pub(super) fn entry_before(&self, rank: usize) -> usize {
        let later = self.entries.partition_point(|entry| *entry <= rank);
        later.checked_sub(1).and_then(|last| self.entries.get(last)).copied().unwrap_or(0)
    }

    /// Bytes that the index takes in memory, about.
    pub(super) fn cost(&self) -> usize {
        self.samples.len() * (size_of::<SampleBytes>() + size_of::<i64>() + 1) + self.entries.len() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> VideoIndex {
        VideoIndex {
            width: 2,
            height: 2,
            codec: Codec::H264,
            timescale: 100,
            config: CodecConfig::None,
            color: None,
            samples: vec![SampleBytes { offset: 0, size: 1 }; 7],
            pts: vec![-10, 0, 10, 20, 30, 40, 50],
            sync: vec![true, false, false, true, false, true, false],
            entries: vec![0, 3, 5],
            shown: 1..6,
        }
    }

    #[test]
    fn frames_count_what_is_shown() {
        let index = index();
        assert_eq!(index.frames(), 5);
        assert_eq!((index.pts(0), index.pts(4), index.pts(5)), (Some(0), Some(40), None));
        assert_eq!((index.is_sync(2), index.is_sync(0)), (Some(true), Some(false)));
        assert_eq!(index.longest_gop(), 3);
        assert_eq!(index.fps(), Some(10.0));
        let entries: Vec<_> = (0..5).map(|frame| index.entry_before(index.rank(frame).unwrap())).collect();
        assert_eq!(entries, [0, 0, 3, 3, 5]);
    }

    #[test]
    fn the_nearest_frame_is_found_also_outside_of_the_video() {
        let index = index();
        let nearest: Vec<_> = [-9.0, 0.04, 0.05, 0.06, 0.4, 99.0].map(|seconds| index.nearest(seconds)).into();
        assert_eq!(nearest, [Some(0), Some(0), Some(0), Some(1), Some(4), Some(4)]);
        assert_eq!(index.nearest(f64::NAN), None);
    }
}

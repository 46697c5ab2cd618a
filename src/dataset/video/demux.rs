//! From a file to its [`VideoIndex`]: reads the `moov` box only.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use re_mp4::{Co64Box, CttsBox, ElstBox, MdhdBox, MvhdBox, StcoBox, StscBox, StssBox, StszBox, SttsBox};

use super::boxes::{self, FourCc, Mp4Box};
use super::error::VideoError;
use super::index::{Codec, CodecConfig, StatedColor, VideoIndex};
use super::samples::{self, Sample, Tables};
use super::sps;

/// How every Git LFS pointer begins (<https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>).
const LFS_POINTER: &[u8] = b"version https://git-lfs";
/// Fields of a visual sample entry before its boxes (ISO/IEC 14496-12 §12.1.3).
const VISUAL_SAMPLE_ENTRY: usize = 78;

/// Why a file has no index: damaged, or valid and left out.
#[derive(Debug)]
enum Refusal {
    Malformed(String),
    Unsupported(String),
}

impl From<String> for Refusal {
    fn from(found: String) -> Self {
        Refusal::Malformed(found)
    }
}

/// Reads the tables of a video.
pub(super) fn read_index(path: &Path) -> Result<VideoIndex, VideoError> {
    let open_error = |source| VideoError::Open { file: path.to_owned(), source };
    let file = File::open(path).map_err(open_error)?;
    let size = file.metadata().map_err(open_error)?.len();
    let mut head = [0; LFS_POINTER.len()];
    if size >= head.len() as u64 && file.read_exact_at(&mut head, 0).is_ok() && head == LFS_POINTER {
        return Err(VideoError::LfsPointer { file: path.to_owned() });
    }
    match read_tables_of(&file, size) {
        Ok(index) => Ok(index),
        Err(Refusal::Malformed(found)) => Err(VideoError::Malformed { file: path.to_owned(), found }),
        Err(Refusal::Unsupported(found)) => Err(VideoError::Unsupported { file: path.to_owned(), found }),
    }
}

fn read_tables_of(file: &File, file_size: u64) -> Result<VideoIndex, Refusal> {
    let (offset, size) = boxes::locate_moov(file, file_size)?;
    // `locate_moov` checked the size against the file's; it fits into memory where the file's tables do.
    let mut moov = vec![0; usize::try_from(size).map_err(|_| format!("a moov box of {size} bytes"))?];
    file.read_exact_at(&mut moov, offset).map_err(|error| format!("the moov box cannot be read: {error}"))?;
    parse_moov(&moov, file_size)
}

/// `moov` with its header; the file's size bounds what its tables may say.
fn parse_moov(moov: &[u8], file_size: u64) -> Result<VideoIndex, Refusal> {
    let moov = boxes::find(moov, b"moov")?.ok_or_else(|| "no moov box".to_owned())?;
    if moov.find(b"mvex")?.is_some() {
        return Err(Refusal::Unsupported("a fragmented MP4".to_owned()));
    }
    let movie_timescale = moov.require(b"mvhd")?.read::<MvhdBox>()?.timescale;
    let track = video_track(&moov)?;
    let media = track.require(b"mdia")?;
    let timescale = media.require(b"mdhd")?.read::<MdhdBox>()?.timescale;
    if timescale == 0 || movie_timescale == 0 {
        return Err(Refusal::Malformed("a timescale of 0".to_owned()));
    }
    let table = media.require(b"minf")?.require(b"stbl")?;
    let entry = SampleEntry::read(&table.require(b"stsd")?)?;
    let samples = samples::expand(&read_tables(&table)?, file_size)?;
    let edit = match track.find(b"edts")? {
        Some(edits) => match edits.find(b"elst")? {
            Some(list) => Edit::read(&list.read::<ElstBox>()?, u64::from(movie_timescale), u64::from(timescale))?,
            None => Edit::default(),
        },
        None => Edit::default(),
    };
    assemble(entry, timescale, &samples, edit)
}

/// The first track whose handler is video; LeRobot files have one.
fn video_track<'a>(moov: &Mp4Box<'a>) -> Result<Mp4Box<'a>, String> {
    let mut tracks = 0;
    for child in moov.children() {
        let child = child?;
        if child.kind != *b"trak" {
            continue;
        }
        tracks += 1;
        // Full box header (4), pre-defined (4), then the handler's type.
        let handler = child.require(b"mdia")?.require(b"hdlr")?.body.get(8..12);
        if handler == Some(b"vide") {
            return Ok(child);
        }
    }
    Err(format!("none of its {tracks} tracks holds video"))
}

fn read_tables(table: &Mp4Box<'_>) -> Result<Tables, String> {
    let chunk_offsets = match (table.find(b"stco")?, table.find(b"co64")?) {
        (Some(offsets), _) => offsets.read::<StcoBox>()?.entries.into_iter().map(u64::from).collect(),
        (None, Some(offsets)) => offsets.read::<Co64Box>()?.entries,
        (None, None) => return Err("neither a box `stco` nor a box `co64`".to_owned()),
    };
    Ok(Tables {
        sizes: table.require(b"stsz")?.read::<StszBox>()?,
        chunks: table.require(b"stsc")?.read::<StscBox>()?,
        chunk_offsets,
        durations: table.require(b"stts")?.read::<SttsBox>()?,
        composition: table.find(b"ctts")?.map(|offsets| offsets.read::<CttsBox>()).transpose()?,
        sync: table.find(b"stss")?.map(|sync| sync.read::<StssBox>()).transpose()?,
    })
}

/// What the first sample description says.
struct SampleEntry {
    codec: Codec,
    config: CodecConfig,
    color: Option<StatedColor>,
    width: usize,
    height: usize,
}

impl SampleEntry {
    fn read(descriptions: &Mp4Box<'_>) -> Result<SampleEntry, String> {
        // Full box header (4) and number of entries (4).
        let entries = descriptions.body.get(8..).ok_or("box `stsd` is cut off")?;
        let entry = boxes::children(entries).next().ok_or("box `stsd` describes nothing")??;
        let (fields, inside) =
            entry.body.split_at_checked(VISUAL_SAMPLE_ENTRY).ok_or("the sample description is cut off")?;
        let (width, height) = match fields.get(24..28) {
            Some([w1, w0, h1, h0]) => (u16::from_be_bytes([*w1, *w0]), u16::from_be_bytes([*h1, *h0])),
            _ => (0, 0),
        };
        if width == 0 || height == 0 {
            return Err(format!("pictures of {width}x{height} pixels"));
        }
        let (codec, config, color) = codec(&entry.kind, inside)?;
        Ok(SampleEntry { codec, config, color, width: width.into(), height: height.into() })
    }
}

fn codec(kind: &FourCc, inside: &[u8]) -> Result<(Codec, CodecConfig, Option<StatedColor>), String> {
    let require = |kind: &FourCc| {
        boxes::find(inside, kind)?.ok_or_else(|| format!("the sample description holds no box {}", boxes::name(kind)))
    };
    match kind {
        b"av01" => {
            // Four bytes of fields, then OBUs (AV1 in ISO-BMFF §2.3).
            let config_obus = require(b"av1C")?.body.get(4..).ok_or("box `av1C` is cut off")?.to_vec();
            Ok((Codec::Av1, CodecConfig::Av1 { config_obus }, None))
        }
        b"avc1" | b"avc3" => {
            let (config, color) = avc_config(require(b"avcC")?.body).ok_or("box `avcC` is cut off")?;
            Ok((Codec::H264, config, color.or(container_color(inside)?)))
        }
        other => Ok((Codec::Other(*other), CodecConfig::None, None)),
    }
}

/// `avcC` (ISO/IEC 14496-15 §5.3.3.1): five bytes, then the counted SPS units, then the counted PPS units.
fn avc_config(body: &[u8]) -> Option<(CodecConfig, Option<StatedColor>)> {
    let ([_, profile, _, _, length_size], mut rest) = body.split_first_chunk()?;
    let mut parameter_sets = Vec::new();
    let mut color = None;
    for count_mask in [0x1f, 0xff] {
        let (count, after) = rest.split_first()?;
        rest = after;
        for _ in 0..count & count_mask {
            let (length, after) = rest.split_first_chunk()?;
            let (unit, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            if parameter_sets.is_empty() {
                color = sps::stated_color(unit);
            }
            parameter_sets.extend_from_slice(&[0, 0, 0, 1]);
            parameter_sets.extend_from_slice(unit);
            rest = after;
        }
    }
    let length_size = usize::from(length_size & 3) + 1;
    Some((CodecConfig::H264 { length_size, parameter_sets, profile: *profile }, color))
}

/// `colr` of type `nclx` (ISO/IEC 14496-12 §12.1.5): primaries, transfer, matrix, then the range in the highest bit.
fn container_color(inside: &[u8]) -> Result<Option<StatedColor>, String> {
    let Some(stated) = boxes::find(inside, b"colr")? else { return Ok(None) };
    Ok(match stated.body {
        [b'n', b'c', b'l', b'x', _, _, _, _, m1, m0, range, ..] => {
            Some(StatedColor { matrix: u16::from_be_bytes([*m1, *m0]), full_range: range & 0x80 != 0 })
        }
        _ => None,
    })
}

/// The part of the track that is shown, in ticks of the track.
#[derive(Debug, Default, PartialEq, Eq)]
struct Edit {
    /// Presentation times below are hidden; none: nothing is hidden and times stay as they are.
    start: Option<i64>,
    /// Length of the part; none: to the end.
    duration: Option<i64>,
    /// Empty time before the part.
    delay: i64,
}

impl Edit {
    fn read(list: &ElstBox, movie_timescale: u64, timescale: u64) -> Result<Edit, Refusal> {
        let ticks = |duration: u64| {
            let ticks = u128::from(duration) * u128::from(timescale) / u128::from(movie_timescale);
            i64::try_from(ticks).map_err(|_| Refusal::Malformed(format!("an edit of {duration} ticks")))
        };
        let mut edit = Edit::default();
        for entry in &list.entries {
            let media_time =
                if list.version == 1 { entry.media_time as i64 } else { i64::from(entry.media_time as u32 as i32) };
            if media_time < 0 {
                edit.delay = edit.delay.saturating_add(ticks(entry.segment_duration)?);
                continue;
            }
            if edit.start.is_some() || entry.media_rate != 1 {
                return Err(Refusal::Unsupported("an edit list of several parts or another speed".to_owned()));
            }
            edit.start = Some(media_time);
            edit.duration = match entry.segment_duration {
                0 => None,
                duration => Some(ticks(duration)?),
            };
        }
        Ok(edit)
    }

    /// The ranks shown, of ascending presentation times.
    fn shown(&self, pts: &[i64]) -> Range<usize> {
        let Some(start) = self.start else { return 0..pts.len() };
        let end = self.duration.map_or(i64::MAX, |duration| start.saturating_add(duration));
        pts.partition_point(|pts| *pts < start)..pts.partition_point(|pts| *pts < end)
    }
}

fn assemble(entry: SampleEntry, timescale: u32, samples: &[Sample], edit: Edit) -> Result<VideoIndex, Refusal> {
    let mut by_rank: Vec<(i64, bool)> = samples.iter().map(|sample| (sample.pts, sample.sync)).collect();
    by_rank.sort_by_key(|(pts, _)| *pts);
    let mut pts: Vec<i64> = by_rank.iter().map(|(pts, _)| *pts).collect();
    let shown = edit.shown(&pts);
    if shown.is_empty() {
        return Err(Refusal::Malformed(format!("none of its {} frames is shown", samples.len())));
    }
    let shift = edit.delay.saturating_sub(edit.start.unwrap_or(0));
    for time in &mut pts {
        *time = time.saturating_add(shift);
    }
    Ok(VideoIndex {
        width: entry.width,
        height: entry.height,
        codec: entry.codec,
        timescale,
        config: entry.config,
        color: entry.color,
        entries: entries(samples),
        samples: samples.iter().map(|sample| sample.bytes).collect(),
        pts,
        sync: by_rank.into_iter().map(|(_, sync)| sync).collect(),
        shown,
    })
}

/// Key frames that part the track: all that is stored before is shown before, all that is stored after is shown after.
/// With open groups of pictures, pictures stored after a key frame and shown before it need the group before, so
/// decoding cannot begin there.
fn entries(samples: &[Sample]) -> Vec<usize> {
    let latest_before = samples.iter().scan(i64::MIN, |latest, sample| {
        let before = *latest;
        *latest = before.max(sample.pts);
        Some(before)
    });
    let latest_before: Vec<i64> = latest_before.collect();
    let mut earliest_after = i64::MAX;
    let mut entries = Vec::new();
    for ((position, sample), before) in samples.iter().enumerate().zip(latest_before).rev() {
        if position == 0 || (sample.sync && before < sample.pts && sample.pts < earliest_after) {
            entries.push(position);
        }
        earliest_after = earliest_after.min(sample.pts);
    }
    entries.reverse();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::video::index::SampleBytes;

    fn samples(pts: &[i64], sync: &[usize]) -> Vec<Sample> {
        let sample = |(position, pts): (usize, &i64)| Sample {
            bytes: SampleBytes { offset: 0, size: 1 },
            pts: *pts,
            sync: sync.contains(&position),
        };
        pts.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn a_key_frame_with_leading_pictures_is_no_entry() {
        // Decoding order I P B | I P B, closed; then an I whose leading B is shown before it.
        assert_eq!(entries(&samples(&[0, 2, 1, 3, 5, 4], &[0, 3])), [0, 3]);
        assert_eq!(entries(&samples(&[0, 2, 1, 4, 3, 5, 6], &[0, 3, 6])), [0, 6]);
        assert_eq!(entries(&samples(&[0, 1], &[])), [0]);
    }

    /// An edit list as stored, version 0: (duration in ticks of the movie, media time) at normal speed.
    fn list(entries: &[(u32, i32)]) -> ElstBox {
        let mut body = vec![0, 0, 0, 0];
        body.extend((entries.len() as u32).to_be_bytes());
        for (duration, media_time) in entries {
            body.extend(duration.to_be_bytes().into_iter().chain(media_time.to_be_bytes()).chain([0, 1, 0, 0]));
        }
        boxes::tests::boxed(b"elst", &body, |found| found.read().unwrap())
    }

    #[test]
    fn an_edit_hides_what_lies_outside() {
        let pts: Vec<i64> = (0..10).map(|frame| 512 + frame * 512).collect();
        // 8 of 10 frames at 30 frames a second, in milliseconds.
        let edit = Edit::read(&list(&[(266, 1024)]), 1000, 15360).unwrap();
        assert_eq!(edit.shown(&pts), 1..9);
        assert_eq!(Edit::read(&list(&[]), 1000, 15360).unwrap().shown(&pts), 0..10);
        let delayed = Edit::read(&list(&[(100, -1), (0, 512)]), 1000, 15360).unwrap();
        assert_eq!(delayed, Edit { start: Some(512), duration: None, delay: 1536 });
        assert!(matches!(Edit::read(&list(&[(5, 0), (5, 100)]), 1000, 15360), Err(Refusal::Unsupported(_))));
    }
}

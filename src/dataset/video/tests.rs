//! The pool against golden frames, in every order, and against damaged files.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use safetensors::SafeTensors;

use super::*;
use crate::dataset::frame::RgbFrame;
use crate::error::Explain as _;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

fn pool() -> VideoPool {
    VideoPool::new(PoolOptions { open_decoders: 2, cached_frames_bytes: 0, disk_cache: None })
}

const V30_AV1: &str = "datasets/v30-av1/videos/observation.images.top/chunk-000/file-000.mp4";
const V30_H264: &str = "datasets/v30-h264/videos/observation.images.front/chunk-000/file-000.mp4";

/// Where a fixture dataset keeps the frame of a global index: file and frame within it.
fn place(dataset: &str, camera: &str, index: usize) -> (PathBuf, usize) {
    if dataset != "v21" {
        // One file a camera; its episodes follow one another without gaps, so `from_timestamp · fps` of an episode is
        // its first global index.
        return (fixture(&format!("datasets/{dataset}/videos/{camera}/chunk-000/file-000.mp4")), index);
    }
    // Lengths from meta/episodes.jsonl.
    let mut frame = index;
    let mut episode = 0;
    for length in [38, 40, 29, 41] {
        if frame < length {
            break;
        }
        (frame, episode) = (frame - length, episode + 1);
    }
    (fixture(&format!("datasets/v21/videos/chunk-000/{camera}/episode_{episode:06}.mp4")), frame)
}

/// `[3, height, width]` as stored to `[height, width, 3]`.
fn interleaved(planar: &[u8], height: usize, width: usize) -> Vec<u8> {
    (0..height * width).flat_map(|pixel| (0..3).map(move |channel| planar[channel * height * width + pixel])).collect()
}

fn differences(found: &[u8], expected: &[u8]) -> usize {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).filter(|(found, expected)| found != expected).count()
}

#[rstest::rstest]
#[case("v30-av1", 22)]
#[case("v30-h264", 20)]
#[case("v21", 22)]
fn golden_frames_are_met_byte_for_byte(#[case] dataset: &str, #[case] frames: usize) {
    let golden = fs::read(fixture(&format!("datasets/{dataset}.golden-frames.safetensors"))).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let pool = pool();
    let mut compared = 0;
    for name in golden.names() {
        let Some((index, camera)) = name.strip_prefix("frame.").and_then(|name| name.split_once('.')) else { continue };
        if !camera.starts_with("observation.images.") {
            continue;
        }
        let expected = golden.tensor(name).unwrap();
        let [3, height, width] = *expected.shape() else { panic!("{name}: {:?}", expected.shape()) };
        let (file, frame) = place(dataset, camera, index.parse().unwrap());
        let found = pool.frame(&file, frame).unwrap();
        assert_eq!((found.height, found.width), (height, width));
        assert_eq!(differences(&found.data, &interleaved(expected.data(), height, width)), 0, "{name}");
        compared += 1;
    }
    assert_eq!(compared, frames);
}

#[test]
fn fixture_files_have_the_frames_of_their_episodes() {
    let pool = pool();
    for (camera, height, width) in [("observation.images.top", 96, 96), ("observation.images.wrist", 80, 112)] {
        for (first, length) in [(0, 38), (38, 40), (78, 29), (107, 41)] {
            let index = pool.index(&place("v21", camera, first).0).unwrap();
            assert_eq!((index.frames(), index.height, index.width, index.codec), (length, height, width, Codec::Av1));
        }
        assert_eq!(pool.index(&place("v30-av1", camera, 0).0).unwrap().frames(), 143);
    }
    for camera in ["observation.images.front", "observation.images.side"] {
        let index = pool.index(&place("v30-h264", camera, 0).0).unwrap();
        assert_eq!((index.frames(), index.codec, index.longest_gop()), (143, Codec::H264, 2));
        assert_eq!(index.fps().map(|fps| (fps * 1e6).round() / 1e6), Some(20.0));
        assert_eq!((index.seconds(0), index.nearest(1.0)), (Some(0.0), Some(20)));
    }
}

fn all_frames(file: &Path, order: impl IntoIterator<Item = usize>) -> HashMap<usize, RgbFrame> {
    let pool = pool();
    order.into_iter().map(|frame| (frame, (*pool.frame(file, frame).unwrap()).clone())).collect()
}

#[rstest::rstest]
#[case(V30_AV1, 143)]
#[case(V30_H264, 143)]
#[case("video/bframes.mp4", 40)]
#[case("video/opengop.mp4", 40)]
#[case("video/edit.mp4", 35)]
fn the_order_of_access_does_not_matter(#[case] file: &str, #[case] frames: usize) {
    let file = fixture(file);
    let sequential = all_frames(&file, 0..frames);
    assert!(sequential == all_frames(&file, (0..frames).rev()), "backwards");
    // 59 shares no factor with the numbers of frames.
    assert!(sequential == all_frames(&file, (0..frames).map(|step| step * 59 % frames)), "strided");
    let mut distinct: Vec<_> = sequential.values().map(|frame| &frame.data).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), frames, "a moving picture has no frame twice");
}

/// Frames of x264 streams with B-frames, decoded by FFmpeg. OpenH264 rounds a few samples of B-frames otherwise, by 1;
/// in RGB that is up to 3. Neighbouring frames differ by 7 in each pixel.
#[rstest::rstest]
#[case("bframes", "video/bframes.mp4", 0)]
#[case("opengop", "video/opengop.mp4", 0)]
#[case("bframes", "video/edit.mp4", 5)]
fn reordered_and_hidden_frames_come_in_presentation_order(
    #[case] golden: &str,
    #[case] file: &str,
    #[case] hidden: usize,
) {
    let bytes = fs::read(fixture("video/golden-frames.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let expected = tensors.tensor(golden).unwrap();
    let (file, pool) = (fixture(file), pool());
    let frames: Vec<_> = expected.data().chunks(32 * 48 * 3).skip(hidden).collect();
    assert_eq!(pool.index(&file).unwrap().frames(), frames.len());
    for (frame, expected) in frames.into_iter().enumerate() {
        let found = pool.frame(&file, frame).unwrap();
        let furthest = found.data.iter().zip(expected).map(|(found, expected)| found.abs_diff(*expected)).max();
        assert!(furthest <= Some(3), "frame {frame}: {furthest:?}");
    }
}

#[test]
fn threads_share_a_pool_and_its_bounds_hold() {
    let frame_bytes = 96 * 96 * 3;
    let pool =
        VideoPool::new(PoolOptions { open_decoders: 3, cached_frames_bytes: 10 * frame_bytes, disk_cache: None });
    let files: Vec<_> = [0, 38, 78, 107].map(|first| place("v21", "observation.images.top", first).0).into();
    let expected: Vec<_> = files.iter().map(|file| all_frames(file, 0..29)).collect();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (pool, files, expected) = (&pool, &files, &expected);
            scope.spawn(move || {
                for step in 0..29 * 4 {
                    let (video, frame) = (step % 4, (step * 7 + thread * 3) % 29);
                    let found = pool.frame(&files[video], frame).unwrap();
                    assert!(*found == expected[video][&frame], "video {video}, frame {frame}");
                    assert!(pool.open_decoders() <= 3 && pool.cached_frames_bytes() <= 10 * frame_bytes);
                }
            });
        }
    });
    assert_eq!(pool.open_decoders(), 3);
    assert!(pool.cached_frames_bytes() > 5 * frame_bytes);
}

#[test]
fn what_cannot_be_read_is_named_with_a_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let told = |file: &Path| {
        let error = pool().frame(file, 0).unwrap_err();
        assert_eq!(error.file(), file);
        (error.to_string(), error.hint().unwrap_or_default())
    };

    let pointer = write("pointer.mp4", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    let (message, hint) = told(&pointer);
    assert!(message.starts_with("a Git LFS pointer lies where"), "{message}");
    assert_eq!(hint, format!("git -C '{}' lfs pull", directory.path().display()));

    let (message, _) = told(&write("text.mp4", b"<html>404 not found</html>"));
    assert!(message.contains("box `l>40`") || message.contains("claims"), "{message}");
    assert!(told(&write("empty.mp4", b"")).0.contains("no moov box in 0 bytes"));

    let whole = fs::read(fixture(V30_AV1)).unwrap();
    let (message, _) = told(&write("cut.mp4", &whole[..whole.len() - 1000]));
    assert!(message.contains("the file is cut off"), "{message}");

    let (message, hint) = told(&fixture("video/hevc.mp4"));
    assert!(message.starts_with("the video's codec is HEVC"), "{message}");
    assert!(hint.starts_with("ffmpeg -i '"), "{hint}");
    assert!(told(&fixture("video/h264-10bit.mp4")).0.contains("4:2:0 with 10 bits"));
    assert!(told(&fixture("video/fragmented.mp4")).0.starts_with("a fragmented MP4, which is not supported"));

    let past = pool().frame(&fixture(V30_AV1), 143).unwrap_err();
    assert!(past.to_string().starts_with("frame 143 was asked for, the video has 143 frames (0..=142)"), "{past}");
    assert_eq!(pool().index(&fixture("video/hevc.mp4")).unwrap().codec.to_string(), "HEVC (H.265)");
}

#[test]
fn the_cache_on_disk_gives_the_same_frames_and_notices_a_new_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("video.mp4");
    let cached = || {
        VideoPool::new(PoolOptions {
            open_decoders: 1,
            cached_frames_bytes: 0,
            disk_cache: Some(directory.path().join("cache")),
        })
    };
    for (source, frames) in [("video/bframes.mp4", 40), ("video/edit.mp4", 35)] {
        fs::copy(fixture(source), &file).unwrap();
        let expected = all_frames(&file, 0..frames);
        for _ in 0..2 {
            let pool = cached();
            for frame in (0..frames).rev() {
                assert!(*pool.frame(&file, frame).unwrap() == expected[&frame], "{source}: frame {frame}");
            }
            assert_eq!(pool.open_decoders(), 0, "the pool's own decoders are not needed");
            assert_eq!(pool.take_findings(), []);
        }
        let sizes: Vec<_> = fs::read_dir(directory.path().join("cache"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes, [64 + frames as u64 * 32 * 48 * 3]);
    }
}

#[test]
fn without_a_place_for_the_cache_frames_are_decoded_and_it_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let occupied = directory.path().join("cache");
    fs::write(&occupied, b"a file where the directory should be").unwrap();
    let pool =
        VideoPool::new(PoolOptions { open_decoders: 1, cached_frames_bytes: 0, disk_cache: Some(occupied.clone()) });
    for file in ["video/bframes.mp4", "video/edit.mp4"] {
        assert!(*pool.frame(&fixture(file), 7).unwrap() == all_frames(&fixture(file), [7])[&7]);
    }
    let findings = pool.take_findings();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["frame-cache-given-up"]);
    assert!(findings[0].message.contains(&occupied.display().to_string()), "{}", findings[0].message);
    assert_eq!(pool.take_findings(), []);
}

/// The tables of a fixture with bytes replaced, or the file cut: an index or an error, never a panic, and no table
/// larger than the file could hold.
fn survives(original: &[u8], changes: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) {
    let find = |needle: &[u8]| original.windows(4).position(|window| window == needle).unwrap();
    let moov = find(b"moov") - 4;
    let size = u32::from_be_bytes(original[moov..moov + 4].try_into().unwrap()) as usize;
    let mut bytes = original.to_vec();
    for (place, value) in changes {
        bytes[moov + place.index(size)] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(original.len()));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    if let Ok(index) = pool().index(file.path()) {
        assert!(index.samples.len() <= bytes.len());
        let last = index.frames() - 1;
        assert!(index.pts(last).is_some() && index.longest_gop() <= index.samples.len());
        assert!(index.samples.iter().all(|sample| sample.offset + u64::from(sample.size) <= bytes.len() as u64));
    }
}

/// Bytes of compressed frames replaced. The tables stay whole, so every frame has to come out or be refused.
fn outlives_damaged_frames(original: &[u8], changes: &[(prop::sample::Index, u8)]) {
    let mdat = original.windows(4).position(|window| window == b"mdat").unwrap();
    let size = u32::from_be_bytes(original[mdat - 4..mdat].try_into().unwrap()) as usize - 8;
    let mut bytes = original.to_vec();
    for (place, value) in changes {
        bytes[mdat + 4 + place.index(size)] = *value;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    let pool = pool();
    let index = pool.index(file.path()).unwrap();
    for frame in (0..index.frames()).step_by(3) {
        match pool.frame(file.path(), frame) {
            Ok(found) => assert_eq!(found.data.len(), index.width * index.height * 3),
            Err(error) => assert!(error.hint().is_some_and(|hint| hint.starts_with("ffmpeg")), "{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// rav1d aborted the process here as long as it had a single frame context.
    #[test]
    fn damaged_frames_never_end_the_process(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        for file in [V30_AV1, "video/bframes.mp4"] {
            outlives_damaged_frames(&fs::read(fixture(file)).unwrap(), &changes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_tables_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(255)]), 0..12),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        for file in [V30_AV1, "video/bframes.mp4", "video/fragmented.mp4"] {
            survives(&fs::read(fixture(file)).unwrap(), &changes, cut);
        }
    }
}

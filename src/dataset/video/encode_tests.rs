//! What is written against what our reader returns.

use std::fs;
use std::path::Path;
use std::time::Instant;

use proptest::prelude::*;

use super::encode::{ClipRecorder, VideoWriter};
use super::mux::Mp4Writer;
use super::*;
use crate::dataset::frame::RgbFrame;

/// Decibels between a frame and what comes back, at least: a quantiser of 21 leaves about 42, less in a picture that is
/// all edges. Against the frame with halved colours ([`halved`]): what 4:2:0 loses at edges of tiny pictures is more.
const LEAST_PSNR: f64 = 34.0;

/// A disc on a slope of colours, somewhere else in every frame.
pub fn scene(width: usize, height: usize, frame: usize) -> RgbFrame {
    let centre = (width as f64 * (0.2 + 0.1 * (frame % 7) as f64), height as f64 * (0.3 + 0.07 * (frame % 5) as f64));
    let radius = width.min(height) as f64 / 5.0;
    let pixel = |x: usize, y: usize| {
        let distance = (x as f64 - centre.0).hypot(y as f64 - centre.1);
        let inside = (radius - distance + 0.5).clamp(0.0, 1.0);
        let slope = [x * 200 / width, y * 180 / height + 30, 90].map(|v| v as f64);
        let disc = [190.0, 150.0, 110.0 + (frame % 3) as f64 * 20.0];
        [0, 1, 2].map(|c| (slope[c] * (1.0 - inside) + disc[c] * inside) as u8)
    };
    let data = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect();
    RgbFrame { height, width, data }
}

pub fn psnr(a: &RgbFrame, b: &RgbFrame) -> f64 {
    assert_eq!((a.width, a.height, a.data.len()), (b.width, b.height, b.data.len()));
    let squares: f64 = a.data.iter().zip(&b.data).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0f64.powi(2) * a.data.len() as f64 / squares.max(1e-9)).log10()
}

/// What 4:2:0 leaves of a frame without any compression.
fn halved(frame: &RgbFrame) -> RgbFrame {
    let (width, height) = (frame.width, frame.height);
    let planes = color::from_rgb(&frame.data, width, height);
    let (y, chroma) = planes.split_at(width * height);
    let (u, v) = chroma.split_at(chroma.len() / 2);
    let plane = |data, stride| color::Plane { data, stride };
    let space = color::ColorSpace::UNSTATED;
    let (y, u, v) = (plane(y, width), plane(u, width / 2), plane(v, width / 2));
    RgbFrame { data: color::to_rgb(&color::Picture { width, height, y, u, v, space }), ..*frame }
}

fn write(path: &Path, width: usize, height: usize, fps: u32, frames: usize) {
    let mut writer = VideoWriter::create(path, width, height, fps).unwrap();
    (0..frames).for_each(|frame| writer.push(&scene(width, height, frame)).unwrap());
    writer.finish().unwrap();
}

fn clip(width: usize, height: usize, frames: std::ops::Range<usize>) -> Clip {
    let mut recorder = ClipRecorder::new(width, height, 20).unwrap();
    frames.for_each(|frame| recorder.push(&scene(width, height, frame)).unwrap());
    recorder.finish()
}

fn pool() -> VideoPool {
    VideoPool::new(PoolOptions { open_decoders: 2, cached_frames_bytes: 0, disk_cache: None })
}

/// Every frame in its place, at its time, in its quality; key frames where they should be.
fn check(path: &Path, expected: &[RgbFrame], fps: u32, key: impl Fn(usize) -> bool) {
    let pool = pool();
    let index = pool.index(path).unwrap();
    assert_eq!((index.frames(), index.codec), (expected.len(), Codec::H264));
    let mut least = f64::INFINITY;
    for (frame, wanted) in expected.iter().enumerate() {
        assert_eq!(index.is_sync(frame), Some(key(frame)), "frame {frame}");
        assert!((index.seconds(frame).unwrap() - frame as f64 / f64::from(fps)).abs() < 1e-12, "frame {frame}");
        let found = pool.frame(path, frame).unwrap();
        let quality = psnr(&found, &halved(wanted));
        assert!(quality >= LEAST_PSNR, "frame {frame}: {quality:.1} dB");
        least = least.min(quality);
    }
    println!("{}x{}: {least:.1} dB", index.width, index.height);
}

#[rstest::rstest]
#[case(96, 96, 20, 61)]
#[case(224, 224, 20, 2)]
#[case(130, 98, 30, 2)]
#[case(16, 16, 5, 3)]
#[case(640, 480, 60, 1)]
fn what_is_written_is_read(#[case] width: usize, #[case] height: usize, #[case] fps: u32, #[case] frames: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.mp4");
    write(&path, width, height, fps, frames);
    let expected: Vec<_> = (0..frames).map(|frame| scene(width, height, frame)).collect();
    check(&path, &expected, fps, |frame| frame % KEY_FRAME_EVERY == 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_even_size_and_length_comes_back(width in 8usize..60, height in 8usize..60, frames in 1usize..6) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.mp4");
        write(&path, 2 * width, 2 * height, 25, frames);
        let expected: Vec<_> = (0..frames).map(|frame| scene(2 * width, 2 * height, frame)).collect();
        check(&path, &expected, 25, |frame| frame % KEY_FRAME_EVERY == 0);
    }
}

/// Episodes of one, three and four frames in one file: each begins with a key frame, nothing is encoded again.
#[test]
fn clips_stand_behind_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file-000.mp4");
    let ranges = [0..1, 1..2, 2..5, 5..9];
    let mut writer = Mp4Writer::create(&path).unwrap();
    for range in ranges.clone() {
        let clip = clip(96, 64, range);
        writer.append(&clip).unwrap();
        assert_eq!(clip.samples().map(|(bytes, _)| bytes.len()).sum::<usize>(), clip.bytes());
    }
    assert_eq!(writer.len(), 9);
    writer.finish().unwrap();
    let expected: Vec<_> = (0..9).map(|frame| scene(96, 64, frame)).collect();
    check(&path, &expected, 20, |frame| {
        ranges.iter().any(|range| range.contains(&frame) && (frame - range.start) % KEY_FRAME_EVERY == 0)
    });
}

#[test]
fn the_same_frames_give_the_same_bytes() {
    assert_eq!(clip(96, 96, 0..12), clip(96, 96, 0..12));
}

#[test]
fn what_cannot_be_written_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.mp4");
    let message = |error: VideoWriteError| error.to_string();
    for (width, height) in [(97, 96), (96, 97), (14, 96), (0, 0), (3842, 100), (2162, 2162)] {
        let error = message(VideoWriter::create(&path, width, height, 20).unwrap_err());
        assert!(error.contains(&format!("{width}x{height}")) && error.contains("even"), "{error}");
    }
    assert!(message(VideoWriter::create(&path, 96, 96, 0).unwrap_err()).contains("0 frames a second"));
    let mut writer = VideoWriter::create(&path, 96, 96, 20).unwrap();
    writer.push(&scene(96, 96, 0)).unwrap();
    let other = message(writer.push(&scene(96, 64, 0)).unwrap_err());
    assert!(other.contains("frame 1 has 96x64 pixels"), "{other}");
    drop(writer);
    let empty = message(VideoWriter::create(&path, 96, 96, 20).unwrap().finish().unwrap_err());
    assert!(empty.contains("0 frames"), "{empty}");
    let mut joined = Mp4Writer::create(&path).unwrap();
    joined.append(&clip(96, 96, 0..1)).unwrap();
    let mixed = message(joined.append(&clip(96, 64, 0..1)).unwrap_err());
    assert!(mixed.contains("96x64 pixels at 20 frames a second behind 96x96"), "{mixed}");
    drop(joined);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays");
}

/// `cargo test --release --lib -- --ignored --nocapture encoding_speed`
#[test]
#[ignore = "a measurement"]
fn encoding_speed() {
    for size in [96, 224] {
        let frames: Vec<_> = (0..100).map(|frame| scene(size, size, frame)).collect();
        let begun = Instant::now();
        let mut recorder = ClipRecorder::new(size, size, 20).unwrap();
        frames.iter().for_each(|frame| recorder.push(frame).unwrap());
        let clip = recorder.finish();
        let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
        println!("{size}x{size}: {milliseconds:.1} ms for 100 frames, {} bytes a frame", clip.bytes() / 100);
    }
}

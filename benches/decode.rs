//! One frame of the fixture videos: the next one, one anywhere, and one out of the cache on disk.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use vlash_forge::dataset::video::{PoolOptions, VideoPool};

const AV1: &str = "datasets/v30-av1/videos/observation.images.top/chunk-000/file-000.mp4";
const H264: &str = "datasets/v30-h264/videos/observation.images.front/chunk-000/file-000.mp4";
const B_FRAMES: &str = "video/bframes.mp4";

fn main() {
    divan::main();
}

/// A request that walks over the frames in strides, so that memory never holds the answer.
fn bench_frames(bencher: divan::Bencher<'_, '_>, video: &str, stride: usize, disk_cache: Option<PathBuf>) {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(video);
    let pool = VideoPool::new(PoolOptions { open_decoders: 1, cached_frames_bytes: 0, disk_cache });
    let frames = pool.index(&file).expect("a fixture").frames();
    let next = Cell::new(0);
    bencher.bench_local(|| {
        next.set((next.get() + stride) % frames);
        pool.frame(&file, next.get()).expect("a fixture")
    });
}

#[divan::bench(args = [AV1, H264, B_FRAMES])]
fn sequential(bencher: divan::Bencher<'_, '_>, video: &str) {
    bench_frames(bencher, video, 1, None);
}

#[divan::bench(args = [AV1, H264, B_FRAMES])]
fn random(bencher: divan::Bencher<'_, '_>, video: &str) {
    bench_frames(bencher, video, 59, None);
}

#[divan::bench(args = [AV1])]
fn cached_on_disk(bencher: divan::Bencher<'_, '_>, video: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    bench_frames(bencher, video, 59, Some(directory.path().to_owned()));
}

#[divan::bench(args = [AV1, H264])]
fn index(bencher: divan::Bencher<'_, '_>, video: &str) {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(video);
    bencher.bench_local(|| VideoPool::new(PoolOptions::default()).index(&file).expect("a fixture"));
}

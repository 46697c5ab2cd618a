//! Small images for a terminal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::robot::Frame;
use crate::track::telemetry::Thumbnail;

/// Widest thumbnail in pixels.
const WIDTH: usize = 64;

/// `frame` of `camera` at most [`WIDTH`] wide: each pixel is the mean of a square of the image's.
pub(super) fn of(camera: &str, frame: &Frame) -> Thumbnail {
    let image = &frame.image;
    let square = image.width.div_ceil(WIDTH).max(1);
    let (width, height) = (image.width / square, image.height / square);
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let rows = (0..square).map(|dy| ((y * square + dy) * image.width + x * square) * 3 + channel);
                let pixels = rows.flat_map(|start| (0..square).map(move |dx| start + dx * 3));
                let sum: usize = pixels.filter_map(|at| image.data.get(at)).map(|&value| usize::from(value)).sum();
                rgb.push((sum / (square * square)) as u8);
            }
        }
    }
    Thumbnail {
        camera: camera.to_owned(),
        time: frame.captured.as_secs_f64(),
        width: width as u32,
        height: height as u32,
        rgb: STANDARD.encode(rgb),
    }
}

//! Camera images: decoded once when they arrive, encoded for the terminal once for every place and size.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use image::imageops::FilterType;
use image::{DynamicImage, RgbImage};
use ratatui::layout::Size;
use ratatui_image::protocol::Protocol;
use ratatui_image::protocol::halfblocks::Halfblocks;
use ratatui_image::protocol::iterm2::Iterm2;
use ratatui_image::protocol::kitty::Kitty;
use ratatui_image::protocol::sixel::Sixel;

use super::probe::Graphics;
use crate::track::telemetry::Thumbnail;
use crate::tui::format;

/// Largest side of a thumbnail, in pixels.
const LARGEST: u32 = 1024;

/// A camera's image.
#[derive(Clone, PartialEq)]
pub struct Picture {
    pub camera: String,
    /// On the robot's clock.
    pub time: f64,
    pub pixels: RgbImage,
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} s, {}x{}", self.camera, self.time, self.pixels.width(), self.pixels.height())
    }
}

impl Picture {
    /// None when the bytes are not what width and height say.
    pub fn decode(thumbnail: &Thumbnail) -> Option<Picture> {
        let Thumbnail { camera, time, width, height, rgb } = thumbnail;
        let sizes = 1..=LARGEST;
        if !sizes.contains(width) || !sizes.contains(height) || !time.is_finite() {
            return None;
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(rgb).ok()?;
        if bytes.len() as u64 != u64::from(*width) * u64::from(*height) * 3 {
            return None;
        }
        let pixels = RgbImage::from_raw(*width, *height, bytes)?;
        Some(Picture { camera: format::clean(camera), time: *time, pixels })
    }
}

/// What an encoded image was made of.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    camera: String,
    time: f64,
    size: Size,
    stale: bool,
    graphics: Graphics,
}

/// Encoded images by camera, each made anew only when something about it changed.
#[derive(Default)]
pub struct Encoded(Vec<(Key, Protocol)>);

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl Encoded {
    /// Makes sure that `picture` can be drawn in `size` cells; faint and grey when it is `stale`. Tells whether it had to
    /// be encoded.
    pub fn prepare(&mut self, picture: &Arc<Picture>, size: Size, stale: bool, graphics: Graphics) -> bool {
        let camera = picture.camera.clone();
        let key = Key { camera, time: picture.time, size, stale, graphics };
        let before = self.0.iter().position(|(k, _)| k.camera == key.camera);
        if before.is_some_and(|i| self.0.get(i).is_some_and(|(k, _)| *k == key)) {
            return false;
        }
        let id = before.unwrap_or(self.0.len());
        let Some(protocol) = encode(&picture.pixels, size, stale, graphics, id) else { return false };
        match before.and_then(|i| self.0.get_mut(i)) {
            Some(slot) => *slot = (key, protocol),
            None => self.0.push((key, protocol)),
        }
        true
    }

    pub fn of(&self, camera: &str) -> Option<&Protocol> {
        self.0.iter().find(|(key, _)| key.camera == camera).map(|(_, protocol)| protocol)
    }
}

fn encode(pixels: &RgbImage, size: Size, stale: bool, graphics: Graphics, id: usize) -> Option<Protocol> {
    let (cell_width, cell_height) = graphics.cell();
    let room = (u32::from(size.width) * u32::from(cell_width), u32::from(size.height) * u32::from(cell_height));
    if room.0 == 0 || room.1 == 0 {
        return None;
    }
    let mut image = DynamicImage::ImageRgb8(pixels.clone()).resize(room.0, room.1, FilterType::Triangle);
    if stale {
        image = DynamicImage::ImageRgb8(image.grayscale().brighten(-40).to_rgb8());
    }
    let cells = Size::new(
        image.width().div_ceil(u32::from(cell_width)).min(u32::from(size.width)) as u16,
        image.height().div_ceil(u32::from(cell_height)).min(u32::from(size.height)) as u16,
    );
    match graphics {
        Graphics::None => None,
        Graphics::HalfBlocks => Halfblocks::new(image, cells).ok().map(Protocol::Halfblocks),
        // The same number for a camera's every image: the terminal replaces it and keeps one.
        Graphics::Kitty { .. } => {
            let number = (std::process::id() << 8) | (id as u32 & 0xff);
            Kitty::new(image, cells, number, false, false).ok().map(Protocol::Kitty)
        }
        Graphics::Iterm2 { .. } => Iterm2::new(image, cells, false).ok().map(Protocol::ITerm2),
        Graphics::Sixel { .. } => Sixel::new(image, cells, false).ok().map(Protocol::Sixel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thumbnail(width: u32, height: u32, bytes: usize) -> Thumbnail {
        let rgb = base64::engine::general_purpose::STANDARD.encode(vec![200; bytes]);
        Thumbnail { camera: "wrist".into(), time: 1.0, width, height, rgb }
    }

    #[test]
    fn only_whole_images_are_taken() {
        assert!(Picture::decode(&thumbnail(4, 2, 24)).is_some());
        for (width, height, bytes) in [(4, 2, 23), (0, 0, 0), (u32::MAX, u32::MAX, 3), (5000, 1, 15_000)] {
            assert_eq!(Picture::decode(&thumbnail(width, height, bytes)), None, "{width}x{height}");
        }
        let noise = Thumbnail { rgb: "not base64!".into(), ..thumbnail(4, 2, 24) };
        assert_eq!(Picture::decode(&noise), None);
    }

    #[test]
    fn an_image_is_encoded_once_for_every_look() {
        let picture = Arc::new(Picture::decode(&thumbnail(16, 16, 768)).unwrap());
        let size = Size::new(8, 4);
        let cell = (10, 20);
        for graphics in
            [Graphics::HalfBlocks, Graphics::Kitty { cell }, Graphics::Iterm2 { cell }, Graphics::Sixel { cell }]
        {
            let mut encoded = Encoded::default();
            assert!(encoded.prepare(&picture, size, false, graphics), "{graphics:?}");
            assert!(!encoded.prepare(&picture, size, false, graphics));
            assert!(encoded.prepare(&picture, size, true, graphics));
            let drawn = encoded.of("wrist").unwrap().size();
            assert!(drawn.width <= 8 && drawn.height <= 4 && drawn.width > 0, "{drawn}");
            assert!(!encoded.prepare(&picture, Size::new(0, 4), false, graphics));
        }
        assert!(!Encoded::default().prepare(&picture, size, false, Graphics::None));
    }
}

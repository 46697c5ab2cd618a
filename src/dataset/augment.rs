//! Random image transforms for training: LeRobot's `image_transforms` with its default ranges.
//!
//! Of brightness, contrast, saturation, hue, sharpness and a small affine motion, a random subset is applied to each
//! image. Which, how strong and in which order is a pure function of (seed, epoch, sample, camera). The arithmetic is
//! torchvision's on float images in [0, 1]; the result is rounded to 8 bits once, at the end.

use rand::Rng;
use rand::seq::SliceRandom;
use rand::seq::index;

use super::frame::RgbFrame;
use super::sample::Sample;
use crate::config::train::AugmentConfig;
use crate::random;

/// Luma weights of torchvision's `rgb_to_grayscale`.
const LUMA: [f32; 3] = [0.2989, 0.587, 0.114];

/// One transform with its strength.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    /// Shift of the hue circle, in turns.
    Hue(f32),
    Sharpness(f32),
    /// Rotation in degrees and translation in pixels; nearest neighbour, black outside.
    Affine {
        angle: f32,
        dx: f32,
        dy: f32,
    },
}

/// Transforms the images of `sample` in place. `ordinal` numbers the draw of this sample (epoch and position).
pub fn augment(sample: &mut Sample, config: &AugmentConfig, seed: u64, ordinal: [u64; 2]) {
    if !config.enabled {
        return;
    }
    for (camera, (_, image)) in sample.images.iter_mut().enumerate() {
        let transforms = draw(config, seed, [ordinal[0], ordinal[1], camera as u64], image.width, image.height);
        let mut planes = Planes::from(image.as_ref());
        for transform in &transforms {
            planes = planes.apply(*transform);
        }
        *image = std::sync::Arc::new(planes.to_frame());
    }
}

/// The transforms of one image, in the order of their application.
fn draw(config: &AugmentConfig, seed: u64, key: [u64; 3], width: usize, height: usize) -> Vec<Transform> {
    let mut random = random::stream(seed, "augment", &key);
    let all = [
        Transform::Brightness(random.random_range(0.8..=1.2)),
        Transform::Contrast(random.random_range(0.8..=1.2)),
        Transform::Saturation(random.random_range(0.5..=1.5)),
        Transform::Hue(random.random_range(-0.05..=0.05)),
        Transform::Sharpness(random.random_range(0.5..=1.5)),
        Transform::Affine {
            angle: random.random_range(-5.0..=5.0),
            // torchvision draws whole pixels.
            dx: (random.random_range(-0.05..=0.05f32) * width as f32).round(),
            dy: (random.random_range(-0.05..=0.05f32) * height as f32).round(),
        },
    ];
    let mut chosen = index::sample(&mut random, all.len(), config.max_transforms.min(all.len())).into_vec();
    if config.random_order {
        chosen.shuffle(&mut random);
    } else {
        chosen.sort_unstable();
    }
    chosen.into_iter().filter_map(|i| all.get(i).copied()).collect()
}

/// A float image, one plane a channel, values in [0, 1].
#[derive(Debug, Clone, PartialEq)]
struct Planes {
    width: usize,
    height: usize,
    /// Pixels row by row, RGB together.
    pixels: Vec<[f32; 3]>,
}

impl From<&RgbFrame> for Planes {
    fn from(frame: &RgbFrame) -> Self {
        let pixels = frame.data.as_chunks::<3>().0.iter().map(|rgb| rgb.map(|c| f32::from(c) / 255.0)).collect();
        Planes { width: frame.width, height: frame.height, pixels }
    }
}

impl Planes {
    fn to_frame(&self) -> RgbFrame {
        let data = self.pixels.iter().flatten().map(|c| (c * 255.0).round() as u8).collect();
        RgbFrame { width: self.width, height: self.height, data }
    }

    fn apply(&self, transform: Transform) -> Planes {
        match transform {
            Transform::Brightness(factor) => self.blend(factor, |_, _| [0.0; 3]),
            Transform::Contrast(factor) => {
                let mean = self.pixels.iter().map(luma).sum::<f32>() / self.pixels.len().max(1) as f32;
                self.blend(factor, |_, _| [mean; 3])
            }
            Transform::Saturation(factor) => self.blend(factor, |_, pixel| [luma(pixel); 3]),
            Transform::Sharpness(factor) => self.blend(factor, |i, pixel| self.blurred(i).unwrap_or(*pixel)),
            Transform::Hue(shift) => self.map(|_, pixel| shift_hue(pixel, shift)),
            Transform::Affine { angle, dx, dy } => self.affine(angle, dx, dy),
        }
    }

    fn map(&self, f: impl Fn(usize, &[f32; 3]) -> [f32; 3]) -> Planes {
        let pixels = self.pixels.iter().enumerate().map(|(i, pixel)| f(i, pixel)).collect();
        Planes { pixels, ..*self }
    }

    /// `factor · image + (1 − factor) · other`, clamped.
    fn blend(&self, factor: f32, other: impl Fn(usize, &[f32; 3]) -> [f32; 3]) -> Planes {
        self.map(|i, pixel| {
            let other = other(i, pixel);
            std::array::from_fn(|c| (factor * pixel[c] + (1.0 - factor) * other[c]).clamp(0.0, 1.0))
        })
    }

    /// The 3×3 mean with five-fold weight of the centre; none at the border, which sharpening leaves alone.
    fn blurred(&self, i: usize) -> Option<[f32; 3]> {
        let (x, y) = (i % self.width, i / self.width);
        if x == 0 || y == 0 || x + 1 == self.width || y + 1 == self.height {
            return None;
        }
        Some(std::array::from_fn(|c| {
            let mut sum = 4.0 * self.pixels[i][c];
            for row in [i - self.width, i, i + self.width] {
                sum += self.pixels[row - 1..=row + 1].iter().map(|pixel| pixel[c]).sum::<f32>();
            }
            sum / 13.0
        }))
    }

    fn affine(&self, angle: f32, dx: f32, dy: f32) -> Planes {
        let (sin, cos) = angle.to_radians().sin_cos();
        let (cx, cy) = ((self.width as f32 - 1.0) * 0.5, (self.height as f32 - 1.0) * 0.5);
        self.map(|i, _| {
            let (x, y) = ((i % self.width) as f32 - cx - dx, (i / self.width) as f32 - cy - dy);
            let from_x = (cos * x + sin * y + cx).round_ties_even();
            let from_y = (-sin * x + cos * y + cy).round_ties_even();
            let inside = from_x >= 0.0 && from_y >= 0.0 && from_x < self.width as f32 && from_y < self.height as f32;
            if inside { self.pixels[from_y as usize * self.width + from_x as usize] } else { [0.0; 3] }
        })
    }
}

fn luma(pixel: &[f32; 3]) -> f32 {
    LUMA[0] * pixel[0] + LUMA[1] * pixel[1] + LUMA[2] * pixel[2]
}

fn shift_hue(&[r, g, b]: &[f32; 3], shift: f32) -> [f32; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [r, g, b];
    }
    let range = most - least;
    let saturation = range / most;
    let away = |c: f32| (most - c) / range;
    let sextant = if most == r {
        away(b) - away(g)
    } else if most == g {
        2.0 + away(r) - away(b)
    } else {
        4.0 + away(g) - away(r)
    };
    let hue = (sextant / 6.0 + 1.0 + shift).rem_euclid(1.0) * 6.0;
    let fraction = hue - hue.floor();
    let low = most * (1.0 - saturation);
    let falling = most * (1.0 - saturation * fraction);
    let rising = most * (1.0 - saturation * (1.0 - fraction));
    match hue as u32 % 6 {
        0 => [most, rising, low],
        1 => [falling, most, low],
        2 => [low, most, rising],
        3 => [low, falling, most],
        4 => [rising, low, most],
        _ => [most, low, falling],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor};
    use std::collections::HashMap;

    fn golden() -> HashMap<String, Tensor> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/augment/transforms.safetensors");
        candle_core::safetensors::load(path, &Device::Cpu).unwrap()
    }

    fn frame(golden: &HashMap<String, Tensor>) -> RgbFrame {
        let image = &golden["image"];
        let (_, height, width) = image.dims3().unwrap();
        let data = image.permute((1, 2, 0)).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        RgbFrame { height, width, data }
    }

    fn parse(name: &str) -> Option<Transform> {
        let (kind, rest) = name.split_once('.')?;
        let value = |text: &str| text.parse::<f32>().unwrap();
        Some(match kind {
            "brightness" => Transform::Brightness(value(rest)),
            "contrast" => Transform::Contrast(value(rest)),
            "saturation" => Transform::Saturation(value(rest)),
            "sharpness" => Transform::Sharpness(value(rest)),
            "hue" => Transform::Hue(value(rest)),
            _ => {
                let mut parts = rest.rsplitn(3, '.');
                let (dy, dx, angle) = (parts.next()?, parts.next()?, parts.next()?);
                Transform::Affine { angle: value(angle), dx: value(dx), dy: value(dy) }
            }
        })
    }

    /// The numbers are torchvision's (tests/fixtures/augment/make.py).
    #[test]
    fn every_transform_is_torchvisions() {
        let golden = golden();
        let planes = Planes::from(&frame(&golden));
        let mut compared = 0;
        for (name, expected) in golden.iter().filter(|(name, _)| *name != "image") {
            let ours = planes.apply(parse(name).unwrap());
            let expected: Vec<f32> = expected.permute((1, 2, 0)).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            for (ours, expected) in ours.pixels.iter().flatten().zip(&expected) {
                assert!((ours - expected).abs() < 2e-6, "{name}: {ours} instead of {expected}");
            }
            compared += 1;
        }
        assert_eq!(compared, 13);
    }

    #[test]
    fn draws_repeat_by_key_and_respect_the_limits() {
        let config = |max_transforms, random_order| AugmentConfig { enabled: true, max_transforms, random_order };
        let first = draw(&config(3, false), 1, [0, 5, 0], 64, 48);
        assert_eq!(first, draw(&config(3, false), 1, [0, 5, 0], 64, 48));
        assert_eq!(first.len(), 3);
        assert!((0..20).any(|i| draw(&config(3, false), 1, [0, i, 0], 64, 48) != first));
        assert_eq!(draw(&config(9, true), 1, [0, 5, 0], 64, 48).len(), 6);
    }
}

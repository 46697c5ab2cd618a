//! Camera frames to what the vision tower sees: resized without distortion, padded, scaled to [-1, 1].
//!
//! The arithmetic is PyTorch's bilinear `interpolate` without antialiasing (half-pixel centres), as LeRobot's
//! `resize_with_pad_torch` uses it. A resize is separable, so one table of weights a direction says everything.

use serde::{Deserialize, Serialize};

/// Filter of the resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// Two neighbours a direction, whatever the scale (LeRobot, VLASH).
    #[default]
    Bilinear,
    /// A triangle as wide as the scale when shrinking (PIL, openpi), evaluated in f32.
    BilinearAntialias,
}

/// Where the image lies in the padded square.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pad {
    /// In the middle; an odd pixel of padding goes to the bottom or right (openpi, LeRobot).
    #[default]
    Center,
    /// All padding at the top and left (VLASH).
    TopLeft,
}

/// Resize and padding, which belong to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSpec {
    pub height: usize,
    pub width: usize,
    pub resize: Resize,
    pub pad: Pad,
}

/// Weights of one output row or column: inputs `start ..` count with `weights`.
#[derive(Debug, Clone, PartialEq)]
struct Tap {
    start: usize,
    weights: Vec<f32>,
}

/// The resize of one input size, with its weights worked out once.
#[derive(Debug, Clone, PartialEq)]
pub struct Resizer {
    input: (usize, usize),
    output: (usize, usize),
    rows: Vec<Tap>,
    columns: Vec<Tap>,
    /// First row and column of the image in the output.
    offset: (usize, usize),
}

/// Why an image cannot be resized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("{height} × {width} pixels leave no row or column at {to_height} × {to_width}")]
    Vanishes { height: usize, width: usize, to_height: usize, to_width: usize },
    #[error("{found} values, but {height} × {width} pixels of 3 channels have {expected}")]
    Length { found: usize, expected: usize, height: usize, width: usize },
}

/// Fill of the padding after scaling: black.
pub const PAD: f32 = -1.0;

impl Resizer {
    /// Weights for images of `height` × `width` pixels. Source: openpi's and LeRobot's `resize_with_pad`.
    pub fn new(height: usize, width: usize, spec: ImageSpec) -> Result<Resizer, ImageError> {
        let vanishes = ImageError::Vanishes { height, width, to_height: spec.height, to_width: spec.width };
        if height == 0 || width == 0 || spec.height == 0 || spec.width == 0 {
            return Err(vanishes);
        }
        // The reference's floats and truncations, in the reference's order.
        let ratio = (width as f64 / spec.width as f64).max(height as f64 / spec.height as f64);
        let new_height = ((height as f64 / ratio) as usize).min(spec.height);
        let new_width = ((width as f64 / ratio) as usize).min(spec.width);
        if new_height == 0 || new_width == 0 {
            return Err(vanishes);
        }
        let taps = match spec.resize {
            Resize::Bilinear => bilinear,
            Resize::BilinearAntialias => triangle,
        };
        let (free_rows, free_columns) = (spec.height - new_height, spec.width - new_width);
        let offset = match spec.pad {
            Pad::Center => (free_rows / 2, free_columns / 2),
            Pad::TopLeft => (free_rows, free_columns),
        };
        Ok(Resizer {
            input: (height, width),
            output: (spec.height, spec.width),
            rows: taps(height, new_height),
            columns: taps(width, new_width),
            offset,
        })
    }

    /// `data`: u8 HWC, as cameras deliver. Returns f32 CHW in [-1, 1].
    pub fn apply_u8(&self, data: &[u8]) -> Result<Vec<f32>, ImageError> {
        self.check(data.len())?;
        let unit: [f32; 256] = std::array::from_fn(|value| value as f32 / 255.0);
        let width = self.input.1;
        Ok(self.resample(|row, column, channel| {
            let value = data[(row * width + column) * 3 + channel];
            unit[value as usize]
        }))
    }

    /// `data`: f32 CHW in [0, 1], as the reference's raw images. Returns f32 CHW in [-1, 1].
    pub fn apply_f32(&self, data: &[f32]) -> Result<Vec<f32>, ImageError> {
        self.check(data.len())?;
        let (height, width) = self.input;
        Ok(self.resample(|row, column, channel| data[(channel * height + row) * width + column]))
    }

    fn check(&self, found: usize) -> Result<(), ImageError> {
        let (height, width) = self.input;
        let expected = height.checked_mul(width).and_then(|n| n.checked_mul(3));
        if expected != Some(found) {
            return Err(ImageError::Length { found, expected: expected.unwrap_or(usize::MAX), height, width });
        }
        Ok(())
    }

    /// Horizontal pass over the rows that are needed, then the vertical one into the padded output.
    fn resample(&self, pixel: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
        let line = self.columns.len();
        let mut needed = vec![false; self.input.0];
        for tap in &self.rows {
            needed[tap.start..tap.start + tap.weights.len()].fill(true);
        }
        let (out_height, out_width) = self.output;
        let (top, left) = self.offset;
        let mut output = vec![PAD; 3 * out_height * out_width];
        let mut narrowed = vec![0f32; self.input.0 * line];
        for channel in 0..3 {
            for row in (0..self.input.0).filter(|&row| needed[row]) {
                for (column, tap) in self.columns.iter().enumerate() {
                    narrowed[row * line + column] = weighted(tap, |index| pixel(row, index, channel));
                }
            }
            for (row, tap) in self.rows.iter().enumerate() {
                let begin = (channel * out_height + top + row) * out_width + left;
                for (column, value) in output[begin..begin + line].iter_mut().enumerate() {
                    let mixed = weighted(tap, |index| narrowed[index * line + column]);
                    *value = mixed.clamp(0.0, 1.0) * 2.0 - 1.0;
                }
            }
        }
        output
    }
}

#[inline]
fn weighted(tap: &Tap, value: impl Fn(usize) -> f32) -> f32 {
    tap.weights.iter().enumerate().map(|(k, weight)| weight * value(tap.start + k)).sum()
}

/// `interpolate(mode="bilinear", align_corners=False, antialias=False)` in one direction, in f32 as PyTorch does.
fn bilinear(from: usize, to: usize) -> Vec<Tap> {
    let scale = from as f32 / to as f32;
    (0..to)
        .map(|index| {
            // PyTorch's kernels are compiled with fused multiply-add; at column 200 an unfused one is off by 1e-5.
            let source = scale.mul_add(index as f32 + 0.5, -0.5).max(0.0);
            let start = (source as usize).min(from - 1);
            let fraction = (source - start as f32).min(1.0);
            let weights = if start + 1 < from { vec![1.0 - fraction, fraction] } else { vec![1.0] };
            Tap { start, weights }
        })
        .collect()
}

/// The antialiased filter of PyTorch and PIL: a triangle around the centre, as wide as the scale, normalised.
fn triangle(from: usize, to: usize) -> Vec<Tap> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    (0..to)
        .map(|index| {
            let centre = scale * (index as f64 + 0.5);
            let start = ((centre - support + 0.5).max(0.0) as usize).min(from - 1);
            let end = ((centre + support + 0.5) as usize).clamp(start + 1, from);
            let raw: Vec<f64> =
                (start..end).map(|i| (1.0 - ((i as f64 + 0.5 - centre) / support).abs()).max(0.0)).collect();
            let sum: f64 = raw.iter().sum();
            Tap { start, weights: raw.iter().map(|w| (w / sum) as f32).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Golden, close};
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Case {
        case: usize,
        input_hw: (usize, usize),
        target_hw: (usize, usize),
        kind: String,
        resized_hw: (usize, usize),
        pad_top_bottom: (usize, usize),
        pad_left_right: (usize, usize),
    }

    fn spec(height: usize, width: usize) -> ImageSpec {
        ImageSpec { height, width, resize: Resize::Bilinear, pad: Pad::Center }
    }

    #[test]
    fn resize_with_pad_is_lerobots_in_all_its_recorded_sizes() {
        let cases: Vec<Case> =
            serde_json::from_str(&super::super::testing::text("preprocessing/resize_with_pad.json")).unwrap();
        let golden = Golden::open("preprocessing/resize_with_pad.safetensors");
        for case in &cases {
            let resizer =
                Resizer::new(case.input_hw.0, case.input_hw.1, spec(case.target_hw.0, case.target_hw.1)).unwrap();
            assert_eq!((resizer.rows.len(), resizer.columns.len()), case.resized_hw);
            assert_eq!(resizer.offset, (case.pad_top_bottom.0, case.pad_left_right.0));
            let input = golden.u8(&format!("case.{}.input_u8_nhwc", case.case));
            let pixels = resizer.apply_u8(&input).unwrap();
            if case.kind == "f32" {
                // 1e-6 in [0, 1] is 2e-6 in [-1, 1].
                close(
                    &pixels,
                    &golden.f32(&format!("case.{}.siglip_f32_nchw", case.case)),
                    2e-6,
                    &format!("case {}", case.case),
                );
            } else {
                let bytes = golden.u8(&format!("case.{}.output_u8_nhwc", case.case));
                assert!(as_rounded_bytes(&resizer, &input) == bytes, "case {}", case.case);
            }
        }
        assert_eq!(cases.len(), 13);
    }

    /// The reference's path for u8 results, which no policy uses: PyTorch takes the same weights in fixed point (as
    /// many bits as fit in 16 with the sign, from f64), first along the columns and rounded, then along the rows. HWC.
    fn as_rounded_bytes(resizer: &Resizer, input: &[u8]) -> Vec<u8> {
        let (height, width) = resizer.output;
        let exact = |taps: &[Tap], from: usize| -> Vec<(usize, Vec<f64>)> {
            let scale = from as f64 / taps.len() as f64;
            let weights = |index: usize, tap: &Tap| {
                let fraction = (scale * (index as f64 + 0.5) - 0.5).max(0.0) - tap.start as f64;
                if tap.weights.len() == 2 { vec![1.0 - fraction, fraction] } else { vec![1.0] }
            };
            taps.iter().enumerate().map(|(index, tap)| (tap.start, weights(index, tap))).collect()
        };
        let bits = |taps: &[(usize, Vec<f64>)]| {
            let largest = taps.iter().flat_map(|(_, weights)| weights).fold(0f64, |m, &w| m.max(w));
            (0..22u32).find(|bits| (0.5 + largest * f64::from(1u32 << (bits + 1))) as u32 >= 1 << 15).unwrap()
        };
        let fixed = |(start, weights): &(usize, Vec<f64>), bits: u32, value: &dyn Fn(usize) -> u8| {
            let weights = weights.iter().map(|w| (0.5 + w * f64::from(1u32 << bits)) as i32);
            let sum: i32 = weights.enumerate().map(|(k, w)| w * i32::from(value(start + k))).sum();
            ((sum + (1 << (bits - 1))) >> bits).clamp(0, 255) as u8
        };
        let (all_rows, all_columns) = (exact(&resizer.rows, resizer.input.0), exact(&resizer.columns, resizer.input.1));
        let (row_bits, column_bits) = (bits(&all_rows), bits(&all_columns));
        let mut bytes = vec![0; height * width * 3];
        for (row, rows) in all_rows.iter().enumerate() {
            for (column, columns) in all_columns.iter().enumerate() {
                for channel in 0..3 {
                    let narrowed =
                        |y: usize| fixed(columns, column_bits, &|x| input[(y * resizer.input.1 + x) * 3 + channel]);
                    let at = ((row + resizer.offset.0) * width + column + resizer.offset.1) * 3 + channel;
                    bytes[at] = fixed(rows, row_bits, &narrowed);
                }
            }
        }
        bytes
    }

    #[test]
    fn float_images_give_the_policys_recorded_pixels() {
        let (inputs, forward) = (
            Golden::open("pi05-tiny/case-a/inputs.safetensors"),
            Golden::open("pi05-tiny/case-a/train_forward.safetensors"),
        );
        for (camera, name) in ["observation.images.top", "observation.images.wrist"].iter().enumerate() {
            let shape = inputs.shape(name);
            let resizer = Resizer::new(shape[2], shape[3], spec(56, 56)).unwrap();
            let raw = inputs.f32(name);
            let pixels: Vec<f32> =
                raw.chunks(raw.len() / shape[0]).flat_map(|image| resizer.apply_f32(image).unwrap()).collect();
            close(&pixels, &forward.f32(&format!("image.{camera}.pixels")), 2e-6, name);
        }
    }

    #[test]
    fn an_image_that_would_vanish_or_is_no_image_is_refused() {
        assert!(matches!(Resizer::new(2, 500, spec(56, 56)), Err(ImageError::Vanishes { .. })));
        assert!(matches!(Resizer::new(0, 5, spec(56, 56)), Err(ImageError::Vanishes { .. })));
        let resizer = Resizer::new(4, 5, spec(8, 8)).unwrap();
        assert!(matches!(resizer.apply_u8(&[0; 59]), Err(ImageError::Length { expected: 60, found: 59, .. })));
        assert!(matches!(resizer.apply_f32(&[0.0; 61]), Err(ImageError::Length { .. })));
    }

    #[test]
    fn top_left_padding_lies_above_and_antialiasing_averages() {
        let white = vec![255u8; 4 * 8 * 3];
        let resizer = Resizer::new(4, 8, ImageSpec { pad: Pad::TopLeft, ..spec(8, 8) }).unwrap();
        let pixels = resizer.apply_u8(&white).unwrap();
        assert!(pixels[..4 * 8].iter().all(|&p| p == PAD) && pixels[4 * 8..8 * 8].iter().all(|&p| p == 1.0));

        // A checkerboard shrunk fourfold: antialiased it is grey everywhere inside, plain bilinear takes what it hits.
        let board: Vec<u8> = (0..16 * 16).flat_map(|i| [if (i / 16 + i) % 2 == 0 { 255 } else { 0 }; 3]).collect();
        let smooth = Resizer::new(16, 16, ImageSpec { resize: Resize::BilinearAntialias, ..spec(4, 4) }).unwrap();
        let pixels = smooth.apply_u8(&board).unwrap();
        assert!(pixels.iter().all(|p| p.abs() < 0.1), "{pixels:?}");
        for tap in smooth.rows.iter().chain(&smooth.columns) {
            assert!((tap.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6 && tap.start + tap.weights.len() <= 16);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_size_stays_inside_its_bounds(h in 1usize..70, w in 1usize..70, th in 1usize..40, tw in 1usize..40, smooth: bool, left: bool) {
            let spec = ImageSpec {
                height: th,
                width: tw,
                resize: if smooth { Resize::BilinearAntialias } else { Resize::Bilinear },
                pad: if left { Pad::TopLeft } else { Pad::Center },
            };
            if let Ok(resizer) = Resizer::new(h, w, spec) {
                let pixels = resizer.apply_u8(&vec![255; h * w * 3]).unwrap();
                proptest::prop_assert!(pixels.iter().all(|&p| p == PAD || (p - 1.0).abs() < 1e-5));
                proptest::prop_assert!(pixels.iter().filter(|&&p| p != PAD).count() == 3 * resizer.rows.len() * resizer.columns.len());
            }
        }
    }
}

//! YUV 4:2:0 to RGB in the integer arithmetic of FFmpeg's `swscale`, bit for bit.
//!
//! With `mulhi(a, b) = (a·b) >> 16` (floor) and every chroma sample used for its 2×2 pixels, limited range:
//! `y = 8Y − 128`, `u = 8U − 1024`, `v = 8V − 1024`, `R = mulhi(y, cy) + mulhi(v, crv)`,
//! `G = mulhi(y, cy) + mulhi(u, −cgu) + mulhi(v, −cgv)`, `B = mulhi(y, cy) + mulhi(u, cbu)`, clamped to 0…255.
//! LeRobot's readers (PyAV, torchcodec) give these bytes. Interpolated chroma would differ by up to 50 at edges.
//!
//! Streams that state BT.709 are converted with its matrix, as torchcodec (LeRobot's default) does and PyAV does not;
//! streams that state nothing with BT.601, as both do.

/// Rows of samples; `stride` is at least the width.
#[derive(Clone, Copy)]
pub(super) struct Plane<'a> {
    pub data: &'a [u8],
    pub stride: usize,
}

impl<'a> Plane<'a> {
    fn row(&self, row: usize, width: usize) -> &'a [u8] {
        let start = row * self.stride;
        self.data.get(start..start + width).unwrap_or(&[])
    }
}

/// A decoded picture, 8 bits, 4:2:0.
#[derive(Clone, Copy)]
pub(super) struct Picture<'a> {
    pub width: usize,
    pub height: usize,
    pub y: Plane<'a>,
    pub u: Plane<'a>,
    pub v: Plane<'a>,
    pub space: ColorSpace,
}

/// How YUV relates to RGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColorSpace {
    pub matrix: Matrix,
    pub full_range: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matrix {
    /// Also for streams that state nothing.
    Bt601,
    Bt709,
}

impl ColorSpace {
    /// What `swscale` takes for granted.
    pub const UNSTATED: ColorSpace = ColorSpace { matrix: Matrix::Bt601, full_range: false };

    /// From ISO/IEC 23091-2 matrix coefficients; what is not BT.709 is treated as `swscale` treats the unknown.
    pub fn new(matrix: u32, full_range: bool) -> ColorSpace {
        ColorSpace { matrix: if matrix == 1 { Matrix::Bt709 } else { Matrix::Bt601 }, full_range }
    }

    fn tables(self) -> &'static Tables {
        static TABLES: [Tables; 4] =
            [Tables::new(BT601, false), Tables::new(BT601, true), Tables::new(BT709, false), Tables::new(BT709, true)];
        let matrix = match self.matrix {
            Matrix::Bt601 => 0,
            Matrix::Bt709 => 2,
        };
        &TABLES[matrix + usize::from(self.full_range)]
    }
}

/// Coefficients (V→R, U→B, U→G, V→G) of full-scale chroma, 16 fractional bits, as `swscale` lists them.
type Coefficients = [i64; 4];
const BT601: Coefficients = [104_597, 132_201, 25_675, 53_279];
const BT709: Coefficients = [117_489, 138_438, 13_975, 34_925];

/// Contributions of each sample value to each channel.
struct Tables {
    y: [i16; 256],
    red_v: [i16; 256],
    green_u: [i16; 256],
    green_v: [i16; 256],
    blue_u: [i16; 256],
}

impl Tables {
    const fn new(coefficients: Coefficients, full_range: bool) -> Tables {
        let (luma, luma_offset) = if full_range { (65_536, 0) } else { (65_536 * 255 / 219, 128) };
        let mut tables =
            Tables { y: [0; 256], red_v: [0; 256], green_u: [0; 256], green_v: [0; 256], blue_u: [0; 256] };
        let mut value = 0;
        while value < 256 {
            let luma_input = 8 * value as i64 - luma_offset;
            let chroma_input = 8 * value as i64 - 1024;
            tables.y[value] = mulhi(luma_input, fixed(luma));
            tables.red_v[value] = mulhi(chroma_input, fixed(scaled(coefficients[0], full_range)));
            tables.blue_u[value] = mulhi(chroma_input, fixed(scaled(coefficients[1], full_range)));
            tables.green_u[value] = mulhi(chroma_input, fixed(-scaled(coefficients[2], full_range)));
            tables.green_v[value] = mulhi(chroma_input, fixed(-scaled(coefficients[3], full_range)));
            value += 1;
        }
        tables
    }
}

/// Full-range chroma spans 255 steps where limited chroma spans 224.
const fn scaled(coefficient: i64, full_range: bool) -> i64 {
    if full_range { coefficient * 224 / 255 } else { coefficient }
}

/// 13 fractional bits, rounded.
const fn fixed(coefficient: i64) -> i64 {
    (coefficient * (1 << 13) + (1 << 15)) >> 16
}

const fn mulhi(a: i64, b: i64) -> i16 {
    ((a * b) >> 16) as i16
}

/// The picture as RGB, rows from the top, `height · width · 3` bytes.
pub(super) fn to_rgb(picture: &Picture<'_>) -> Vec<u8> {
    let tables = picture.space.tables();
    let (width, chroma_width) = (picture.width, picture.width.div_ceil(2));
    let mut rgb = vec![0; width * picture.height * 3];
    for (row, target) in rgb.chunks_exact_mut(width * 3).enumerate() {
        let luma = picture.y.row(row, width);
        let u = picture.u.row(row / 2, chroma_width);
        let v = picture.v.row(row / 2, chroma_width);
        for (((target, luma), u), v) in target.chunks_mut(6).zip(luma.chunks(2)).zip(u).zip(v) {
            let red = tables.red_v[usize::from(*v)];
            let green = tables.green_u[usize::from(*u)] + tables.green_v[usize::from(*v)];
            let blue = tables.blue_u[usize::from(*u)];
            for (pixel, luma) in target.chunks_exact_mut(3).zip(luma) {
                let luma = tables.y[usize::from(*luma)];
                pixel[0] = (luma + red).clamp(0, 255) as u8;
                pixel[1] = (luma + green).clamp(0, 255) as u8;
                pixel[2] = (luma + blue).clamp(0, 255) as u8;
            }
        }
    }
    rgb
}

/// Weights of R, G and B, 16 fractional bits: BT.601 in limited range. Those of a chroma sample sum to 0.
const LUMA_OF: [i32; 3] = [16_829, 33_039, 6_416];
const U_OF: [i32; 3] = [-9_714, -19_070, 28_784];
const V_OF: [i32; 3] = [28_784, -24_103, -4_681];

/// The inverse of [`to_rgb`] for [`ColorSpace::UNSTATED`]: the planes Y, U and V behind one another, without padding.
/// Width and height are even; a chroma sample is the mean of its 2×2 pixels.
pub(super) fn from_rgb(rgb: &[u8], width: usize, height: usize) -> Vec<u8> {
    let (pixels, quarter) = (width * height, width * height / 4);
    let mut planes = vec![0; pixels + 2 * quarter];
    let (luma, chroma) = planes.split_at_mut(pixels);
    let weighted =
        |weights: [i32; 3], sum: [i32; 3]| weights.iter().zip(sum).map(|(weight, v)| weight * v).sum::<i32>();
    for (value, pixel) in luma.iter_mut().zip(rgb.chunks_exact(3)) {
        let sum = [pixel[0], pixel[1], pixel[2]].map(i32::from);
        *value = (16 + ((weighted(LUMA_OF, sum) + (1 << 15)) >> 16)) as u8;
    }
    let (u, v) = chroma.split_at_mut(quarter);
    let rows = rgb.chunks_exact(2 * width * 3).zip(u.chunks_exact_mut(width / 2).zip(v.chunks_exact_mut(width / 2)));
    for (rows, (u, v)) in rows {
        let (upper, lower) = rows.split_at(width * 3);
        for (((upper, lower), u), v) in upper.chunks_exact(6).zip(lower.chunks_exact(6)).zip(u).zip(v) {
            let sum = |c: usize| [upper[c], upper[c + 3], lower[c], lower[c + 3]].map(i32::from).iter().sum::<i32>();
            let sum = [sum(0), sum(1), sum(2)];
            *u = (128 + ((weighted(U_OF, sum) + (1 << 17)) >> 18)) as u8;
            *v = (128 + ((weighted(V_OF, sum) + (1 << 17)) >> 18)) as u8;
        }
    }
    planes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 17th level of each channel, as blocks of one colour: nothing is lost but by rounding.
    #[test]
    fn colours_survive_the_way_to_yuv_and_back() {
        let levels = || (0..=255u8).step_by(17);
        for color in levels().flat_map(|r| levels().flat_map(move |g| levels().map(move |b| [r, g, b]))) {
            let planes = from_rgb(&color.repeat(4), 2, 2);
            let plane = |data, stride| Plane { data, stride };
            let (y, u, v) = (plane(&planes[..4], 2), plane(&planes[4..5], 1), plane(&planes[5..], 1));
            let found = to_rgb(&Picture { width: 2, height: 2, y, u, v, space: ColorSpace::UNSTATED });
            let farthest = found.iter().zip(color.repeat(4)).map(|(a, b)| a.abs_diff(b)).max().unwrap();
            assert!(farthest <= 3, "{color:?}: {found:?}");
        }
        assert_eq!(from_rgb(&[255; 12], 2, 2), [235, 235, 235, 235, 128, 128]);
        assert_eq!(from_rgb(&[0; 12], 2, 2), [16, 16, 16, 16, 128, 128]);
    }

    #[test]
    fn the_derived_coefficients_are_those_of_the_reference() {
        assert_eq!(fixed(65_536 * 255 / 219), 9539);
        assert_eq!(BT601.map(fixed), [13_075, 16_525, 3_209, 6_660]);
    }

    #[test]
    fn limited_range_maps_black_white_and_odd_sizes() {
        let luma = [16, 235, 126, 16, 235, 126, 0, 255, 126];
        let neutral = [128; 4];
        let plane = |data, stride| Plane { data, stride };
        let picture = Picture {
            width: 3,
            height: 3,
            y: plane(&luma, 3),
            u: plane(&neutral, 2),
            v: plane(&neutral, 2),
            space: ColorSpace::UNSTATED,
        };
        let rgb = to_rgb(&picture);
        let gray: Vec<u8> = rgb.chunks(3).map(|pixel| pixel[0]).collect();
        assert!(rgb.chunks(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
        // mulhi(8·235 − 128, 9539) = 255 exactly; 126 is mulhi(880, 9539) = 128.
        assert_eq!(gray, [0, 255, 128, 0, 255, 128, 0, 255, 128]);
    }

    #[test]
    fn full_range_keeps_gray_as_it_is() {
        let luma: Vec<u8> = (0..=255).collect();
        let neutral = [128; 128];
        let plane = |data, stride| Plane { data, stride };
        let picture = Picture {
            width: 256,
            height: 1,
            y: plane(&luma, 256),
            u: plane(&neutral, 128),
            v: plane(&neutral, 128),
            space: ColorSpace::new(6, true),
        };
        assert!(to_rgb(&picture).chunks(3).zip(&luma).all(|(pixel, luma)| pixel.iter().all(|value| value == luma)));
    }
}

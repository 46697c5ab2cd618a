//! Triangles onto a grid of samples with a depth buffer, then samples into pixels.

/// Samples along each side of a pixel. Nine samples tell a ball's place to a fraction of a pixel.
pub const SAMPLES: usize = 3;

/// Inverse distance from the camera (0 is infinitely far), then red, green, blue in 0 … 255. One array, so that a sample
/// is interpolated and stored at once.
type Sample = [f32; 4];

/// A triangle's corner on the grid of samples.
#[derive(Debug, Clone, Copy)]
pub struct Corner {
    /// Samples from the left and top edge.
    pub at: [f32; 2],
    pub sample: Sample,
}

/// What has been drawn so far.
pub struct Canvas {
    side: usize,
    samples: Vec<Sample>,
}

impl Canvas {
    /// A square image of `size` pixels a side, filled with `background` (0 … 255).
    pub fn new(size: usize, background: [f32; 3]) -> Canvas {
        let side = size * SAMPLES;
        let [r, g, b] = background;
        Canvas { side, samples: vec![[0.0, r, g, b]; side * side] }
    }

    /// Draws where nothing nearer has been drawn. A sample belongs to the triangle that holds its centre; triangles that
    /// share an edge leave no gap and no overlap, since its crossings are computed alike for both.
    pub fn triangle(&mut self, corners: &[Corner; 3]) {
        let Some(plane) = Plane::through(corners) else { return };
        let ys = corners.map(|c| c.at[1]);
        let rows = centres_between(ys[0].min(ys[1]).min(ys[2]), ys[0].max(ys[1]).max(ys[2]), self.side);
        for row in rows {
            let y = row as f32 + 0.5;
            let Some([left, right]) = crossings(corners, y) else { continue };
            let columns = centres_between(left, right, self.side);
            let mut value = plane.at(columns.start as f32 + 0.5, y);
            let line = row * self.side;
            for sample in &mut self.samples[line + columns.start..line + columns.end] {
                if value[0] > sample[0] {
                    *sample = value;
                }
                value = std::array::from_fn(|i| value[i] + plane.dx[i]);
            }
        }
    }

    /// The mean of each pixel's samples: RGB, rows from the top.
    pub fn into_rgb(self) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(self.samples.len() / (SAMPLES * SAMPLES) * 3);
        let Some(width) = (self.side > 0).then_some(self.side) else { return pixels };
        for rows in self.samples.chunks_exact(width * SAMPLES) {
            for column in (0..width).step_by(SAMPLES) {
                let mut sum = [0.0; 4];
                for row in rows.chunks_exact(width) {
                    for sample in &row[column..column + SAMPLES] {
                        sum = std::array::from_fn(|i| sum[i] + sample[i]);
                    }
                }
                let [_, r, g, b] = sum;
                pixels.extend([r, g, b].map(|x| (x / (SAMPLES * SAMPLES) as f32 + 0.5) as u8));
            }
        }
        pixels
    }
}

/// Which of `side` samples have their centres in `[low, high)`.
fn centres_between(low: f32, high: f32, side: usize) -> std::ops::Range<usize> {
    // A cast saturates: what lies left of the grid becomes 0.
    let first = |x: f32| ((x - 0.5).ceil().max(0.0) as usize).min(side);
    let start = first(low);
    start..first(high).max(start)
}

/// Where the triangle's outline crosses the line at height `y`, from left to right.
fn crossings(corners: &[Corner; 3], y: f32) -> Option<[f32; 2]> {
    let mut found = [f32::INFINITY, f32::NEG_INFINITY];
    for (i, j) in [(0, 1), (1, 2), (2, 0)] {
        let (a, b) = (corners[i].at, corners[j].at);
        let (top, bottom) = if a[1] <= b[1] { (a, b) } else { (b, a) };
        if top[1] <= y && y < bottom[1] {
            let x = top[0] + (bottom[0] - top[0]) * ((y - top[1]) / (bottom[1] - top[1]));
            found = [found[0].min(x), found[1].max(x)];
        }
    }
    (found[0] < found[1]).then_some(found)
}

/// Samples over a triangle as linear functions of the place on the grid. That is exact for the inverse distance;
/// colours within one of our small triangles are straight enough without a correction for perspective.
struct Plane {
    origin: [f32; 2],
    value: Sample,
    dx: Sample,
    dy: Sample,
}

impl Plane {
    /// None where the triangle is seen edge-on.
    fn through(corners: &[Corner; 3]) -> Option<Plane> {
        let [a, b, c] = corners;
        let (bx, by) = (b.at[0] - a.at[0], b.at[1] - a.at[1]);
        let (cx, cy) = (c.at[0] - a.at[0], c.at[1] - a.at[1]);
        let area = bx * cy - cx * by;
        if area.is_nan() || area.abs() < 1e-6 {
            return None;
        }
        let slope = |i: usize| (b.sample[i] - a.sample[i], c.sample[i] - a.sample[i]);
        let dx = std::array::from_fn(|i| (slope(i).0 * cy - slope(i).1 * by) / area);
        let dy = std::array::from_fn(|i| (slope(i).1 * bx - slope(i).0 * cx) / area);
        Some(Plane { origin: a.at, value: a.sample, dx, dy })
    }

    fn at(&self, x: f32, y: f32) -> Sample {
        let (x, y) = (x - self.origin[0], y - self.origin[1]);
        std::array::from_fn(|i| self.value[i] + self.dx[i] * x + self.dy[i] * y)
    }
}

//! Shapes as triangles, lit and projected.

use std::f64::consts::PI;

use super::raster::{Canvas, Corner, SAMPLES};
use super::vector::{Vector, add, cross, dot, narrow, scale, sub, unit};
use super::viewpoint::Viewpoint;
use crate::robot::kinematics::Pose;
use crate::robot::sim::snapshot::Look;

/// What is nearer than this to the camera is not drawn, metres.
const NEAR: f32 = 0.01;

/// Part of the light that reaches every face.
const AMBIENT: f32 = 0.5;

/// Facets around a cylinder, a ball; from pole to pole of a ball.
const AROUND: usize = 28;
const POLE_TO_POLE: usize = 12;

/// How a shape takes light.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    /// Lambert's law.
    Matt,
    /// The same and a highlight.
    Glossy,
    /// Shines by itself, in any light.
    Lit,
}

/// A shape's surface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surface {
    /// Red, green, blue, 0 … 1.
    pub colour: [f32; 3],
    pub finish: Finish,
}

/// A corner before projection.
#[derive(Debug, Clone, Copy)]
struct Vertex {
    position: Vector,
    /// Outwards, of length one.
    normal: Vector,
}

/// Draws shapes as one camera sees them in one light.
pub struct Painter<'a> {
    pub canvas: Canvas,
    view: &'a Viewpoint,
    look: &'a Look,
    side: f32,
}

impl<'a> Painter<'a> {
    /// For an image of `size` pixels a side; `background` in 0 … 1.
    pub fn new(size: usize, view: &'a Viewpoint, look: &'a Look, background: [f32; 3]) -> Painter<'a> {
        let canvas = Canvas::new(size, background.map(|x| x * look.brightness * 255.0));
        Painter { canvas, view, look, side: (size * SAMPLES) as f32 }
    }

    /// A box with edges along `pose`'s axes, between two opposite corners in its frame.
    pub fn cuboid(&mut self, pose: &Pose, low: [f64; 3], high: [f64; 3], surface: Surface) {
        let corner =
            |axes: [bool; 3]| narrow(pose.point(std::array::from_fn(|i| if axes[i] { high[i] } else { low[i] })));
        for axis in 0..3 {
            for far in [false, true] {
                let at = |u: bool, v: bool| {
                    let mut axes = [far; 3];
                    (axes[(axis + 1) % 3], axes[(axis + 2) % 3]) = (u, v);
                    corner(axes)
                };
                let outwards = if far { 1.0 } else { -1.0 };
                let normal = scale(narrow(pose.rotation.map(|row| row[axis])), outwards);
                self.quad([at(false, false), at(true, false), at(true, true), at(false, true)], normal, surface);
            }
        }
    }

    /// A flat, convex face with four corners in turn.
    pub fn quad(&mut self, corners: [Vector; 4], normal: Vector, surface: Surface) {
        let [a, b, c, d] = corners.map(|position| Vertex { position, normal });
        self.triangle([a, b, c], surface);
        self.triangle([a, c, d], surface);
    }

    pub fn ball(&mut self, centre: Vector, radius: f32, surface: Surface) {
        let rings: [(f32, f32); POLE_TO_POLE + 1] =
            std::array::from_fn(|i| sin_cos(PI * i as f64 / POLE_TO_POLE as f64));
        let around = circle();
        let vertex = |ring: usize, step: usize| {
            let ((out, up), (s, c)) = (rings[ring], around[step]);
            let normal = [out * c, out * s, up];
            Vertex { position: add(centre, scale(normal, radius)), normal }
        };
        for ring in 0..POLE_TO_POLE {
            for step in 0..AROUND {
                let [a, b] = [vertex(ring, step), vertex(ring, step + 1)];
                let [c, d] = [vertex(ring + 1, step + 1), vertex(ring + 1, step)];
                self.triangle([a, b, c], surface);
                self.triangle([a, c, d], surface);
            }
        }
    }

    /// A closed cylinder around the line between the centres of its two ends.
    pub fn cylinder(&mut self, ends: [Vector; 2], radius: f32, surface: Surface) {
        let axis = unit(sub(ends[1], ends[0]));
        let rim = rim(axis);
        for step in 0..AROUND {
            let vertex = |end: usize, step: usize| Vertex {
                position: add(ends[end], scale(rim[step], radius)),
                normal: rim[step],
            };
            let [a, b] = [vertex(0, step), vertex(0, step + 1)];
            let [c, d] = [vertex(1, step + 1), vertex(1, step)];
            self.triangle([a, b, c], surface);
            self.triangle([a, c, d], surface);
        }
        self.disc(ends[0], scale(axis, -1.0), radius, surface);
        self.disc(ends[1], axis, radius, surface);
    }

    pub fn disc(&mut self, centre: Vector, normal: Vector, radius: f32, surface: Surface) {
        let rim = rim(normal);
        for step in 0..AROUND {
            let edge = |step: usize| add(centre, scale(rim[step], radius));
            let corners = [centre, edge(step), edge(step + 1)];
            self.triangle(corners.map(|position| Vertex { position, normal }), surface);
        }
    }

    /// A cylinder with half balls as its ends.
    pub fn capsule(&mut self, ends: [Vector; 2], radius: f32, surface: Surface) {
        self.cylinder(ends, radius, surface);
        for end in ends {
            self.ball(end, radius, surface);
        }
    }

    /// Leaves out what faces away and what is too near.
    fn triangle(&mut self, vertices: [Vertex; 3], surface: Surface) {
        if vertices.iter().all(|v| dot(v.normal, sub(self.view.eye, v.position)) <= 0.0) {
            return;
        }
        let lit = vertices.map(|v| (self.view.seen(v.position), self.light(&v, surface)));
        if lit.iter().all(|(seen, _)| seen[2] > NEAR) {
            return self.project(lit);
        }
        // Cut off the part behind the near plane; what remains has three or four corners.
        let mut kept = [lit[0]; 4];
        let mut count = 0;
        for i in 0..3 {
            let (here, next) = (lit[i], lit[(i + 1) % 3]);
            let cut = (here.0[2] > NEAR) != (next.0[2] > NEAR);
            let part = (NEAR - here.0[2]) / (next.0[2] - here.0[2]);
            let crossing = || (mix(here.0, next.0, part), mix(here.1, next.1, part));
            for corner in (here.0[2] > NEAR).then_some(here).into_iter().chain(cut.then(crossing)) {
                kept[count] = corner;
                count += 1;
            }
        }
        for last in 2..count {
            self.project([kept[0], kept[last - 1], kept[last]]);
        }
    }

    /// Of corners as (seen, colour).
    fn project(&mut self, corners: [(Vector, [f32; 3]); 3]) {
        self.canvas.triangle(&corners.map(|(seen, [r, g, b])| Corner {
            at: self.view.project(seen, self.side),
            sample: [1.0 / seen[2], r, g, b],
        }));
    }

    /// The colour that leaves a corner towards the camera, 0 … 255.
    fn light(&self, vertex: &Vertex, surface: Surface) -> [f32; 3] {
        let facing = dot(vertex.normal, self.look.light).max(0.0);
        let (diffuse, highlight) = match surface.finish {
            Finish::Lit => return surface.colour.map(|x| x * 255.0),
            Finish::Matt => (facing, 0.0),
            Finish::Glossy => {
                let halfway = unit(add(self.look.light, unit(sub(self.view.eye, vertex.position))));
                let aligned = dot(vertex.normal, halfway).max(0.0);
                let fourth = aligned * aligned * aligned * aligned;
                (facing, 0.6 * fourth * fourth * fourth)
            }
        };
        let factor = (AMBIENT + (1.0 - AMBIENT) * diffuse) * self.look.brightness;
        surface.colour.map(|x| ((x * factor + highlight * self.look.brightness) * 255.0).clamp(0.0, 255.0))
    }
}

fn mix(a: Vector, b: Vector, part: f32) -> Vector {
    add(a, scale(sub(b, a), part))
}

fn sin_cos(angle: f64) -> (f32, f32) {
    let (s, c) = angle.sin_cos();
    (s as f32, c as f32)
}

/// Sine and cosine once around; the last equals the first to the bit, so that seams close.
fn circle() -> [(f32, f32); AROUND + 1] {
    std::array::from_fn(|i| sin_cos(2.0 * PI * (i % AROUND) as f64 / AROUND as f64))
}

/// Directions once around `axis`.
fn rim(axis: Vector) -> [Vector; AROUND + 1] {
    let other = if axis[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
    let u = unit(cross(axis, other));
    let v = cross(axis, u);
    circle().map(|(s, c)| add(scale(u, c), scale(v, s)))
}

//! What the simulated cameras see: a small software renderer.
//!
//! Shapes become triangles ([`drawing`], [`shapes`]), triangles become samples behind a depth buffer ([`raster`]), nine
//! samples become a pixel. The pictures are a function of the [`Snapshot`] alone: single precision with + − × ÷ √ in a
//! fixed order, angles and joints in double precision before. The policy in the box has learned these very pictures;
//! whoever changes one trains it anew (the tests hold a checksum of them).

mod drawing;
mod raster;
mod shapes;
#[cfg(test)]
mod tests;
mod vector;
mod viewpoint;

#[cfg(test)]
pub use tests::snapshot_for_tests;

use super::snapshot::Snapshot;
use crate::dataset::frame::RgbFrame;
use shapes::Painter;
use viewpoint::Viewpoint;

/// The simulated robot's cameras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Camera {
    /// On a tripod in front of the table, looking back at the arm: +y is on the image's right.
    Front,
    /// On the hand, looking along the fingers.
    Wrist,
}

impl Camera {
    /// In the order of the robot's features.
    pub const ALL: [Camera; 2] = [Camera::Front, Camera::Wrist];

    /// As in LeRobot's feature names, without `observation.images.`.
    pub fn name(self) -> &'static str {
        match self {
            Camera::Front => "front",
            Camera::Wrist => "wrist",
        }
    }
}

/// The image of `camera`, `size` pixels a side; every size shows the same view. The same snapshot gives the same bytes.
pub fn render(snapshot: &Snapshot, camera: Camera, size: usize) -> RgbFrame {
    let view = Viewpoint::of(camera, snapshot);
    let mut painter = Painter::new(size, &view, &snapshot.look, drawing::BACKGROUND);
    drawing::draw(snapshot, &mut painter);
    RgbFrame { height: size, width: size, data: painter.canvas.into_rgb() }
}

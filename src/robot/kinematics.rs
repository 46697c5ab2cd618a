//! Where the links of a Piper are, for given joints.

use std::f64::consts::PI;

/// Rotary joints.
pub const JOINTS: usize = 6;

/// A rotation matrix by rows, and a translation in metres.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    pub rotation: [[f64; 3]; 3],
    pub position: [f64; 3],
}

impl Pose {
    pub const IDENTITY: Pose = Pose { rotation: [[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]], position: [0.; 3] };

    /// `self` then, in its frame, `inner`.
    pub fn then(&self, inner: &Pose) -> Pose {
        let row = |i: usize, j: usize| (0..3).map(|k| self.rotation[i][k] * inner.rotation[k][j]).sum();
        Pose {
            rotation: std::array::from_fn(|i| std::array::from_fn(|j| row(i, j))),
            position: self.point(inner.position),
        }
    }

    /// A point of this frame, in the frame around it.
    pub fn point(&self, p: [f64; 3]) -> [f64; 3] {
        std::array::from_fn(|i| self.position[i] + (0..3).map(|k| self.rotation[i][k] * p[k]).sum::<f64>())
    }
}

/// Modified Denavit-Hartenberg parameters of one link: metres, radians.
struct Link {
    a: f64,
    alpha: f64,
    d: f64,
    offset: f64,
}

/// The Piper from firmware S-V1.6-3 on (AgileX's "offset" variant).
const LINKS: [Link; JOINTS] = [
    Link { a: 0.0, alpha: 0.0, d: 0.123, offset: 0.0 },
    Link { a: 0.0, alpha: -PI / 2.0, d: 0.0, offset: -172.22 * PI / 180.0 },
    Link { a: 0.28503, alpha: 0.0, d: 0.0, offset: -102.78 * PI / 180.0 },
    Link { a: -0.02198, alpha: PI / 2.0, d: 0.25075, offset: 0.0 },
    Link { a: 0.0, alpha: -PI / 2.0, d: 0.0, offset: 0.0 },
    Link { a: 0.0, alpha: PI / 2.0, d: 0.091, offset: 0.0 },
];

impl Link {
    fn pose(&self, joint: f64) -> Pose {
        let Link { a, alpha, d, offset } = self;
        let ((st, ct), (sa, ca)) = ((joint + offset).sin_cos(), alpha.sin_cos());
        Pose {
            rotation: [[ct, -st, 0.0], [st * ca, ct * ca, -sa], [st * sa, ct * sa, ca]],
            position: [*a, -sa * d, ca * d],
        }
    }
}

/// Poses of links 1 … 6 in the base's frame (x forward, y left, z up); the last is the flange, whose z axis leaves the
/// arm. `joints` in radians.
pub fn links(joints: &[f64; JOINTS]) -> [Pose; JOINTS] {
    let mut pose = Pose::IDENTITY;
    std::array::from_fn(|i| {
        pose = pose.then(&LINKS[i].pose(joints[i]));
        pose
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case([0.0; 6], [56.128, 0.0, 213.266])]
    #[case([0.2, 0.5, -0.4, 0.3, -0.2, 0.1], [109.919, 16.830, 327.174])]
    #[case([0.0, 1.57, -1.57, 0.0, 0.0, 0.0], [376.893, 0.0, 457.119])]
    fn the_flange_is_where_the_manufacturer_says(#[case] joints: [f64; 6], #[case] millimetres: [f64; 3]) {
        let flange = links(&joints)[5].position;
        for (found, wanted) in flange.iter().zip(millimetres) {
            assert!((found * 1e3 - wanted).abs() < 1e-3, "{flange:?}, wanted {millimetres:?}");
        }
    }
}

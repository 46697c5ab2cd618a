//! What stands on the table, as shapes.

use super::shapes::{Finish, Painter, Surface};
use super::vector::{Vector, narrow};
use crate::robot::kinematics::{self, Pose};
use crate::robot::sim::dimensions::*;
use crate::robot::sim::snapshot::{Colour, Snapshot};

/// Behind the table's edges.
pub const BACKGROUND: [f32; 3] = [0.42, 0.44, 0.47];

const ARM: Surface = matt([0.86, 0.87, 0.88]);
const JOINT: Surface = matt([0.30, 0.31, 0.34]);
const PALM: Surface = matt([0.22, 0.22, 0.25]);
/// Neither a ball's nor a pedestal's colour, and lighter than the palm: where the fingers are must be plain.
const FINGER: Surface = matt([0.92, 0.74, 0.12]);
const PLATFORM: Surface = matt([0.20, 0.20, 0.21]);
const RIM: Surface = matt([0.42, 0.42, 0.44]);
const LAMP: Surface = Surface { colour: [0.35, 1.0, 0.30], finish: Finish::Lit };
const LAMP_RADIUS: f64 = 0.016;

/// Lines on the table help to judge distances.
const GRID_SPACING: f64 = 0.1;
const GRID_WIDTH: f64 = 0.004;
const GRID_DARKENS: f32 = 0.86;
/// Above what they are drawn on, so that the depth buffer tells them apart.
const LIFT: f64 = 0.0005;

const UP: Vector = [0.0, 0.0, 1.0];

const fn matt(colour: [f32; 3]) -> Surface {
    Surface { colour, finish: Finish::Matt }
}

/// Draws all of it.
pub fn draw(snapshot: &Snapshot, painter: &mut Painter<'_>) {
    table(snapshot.look.table, painter);
    platform(snapshot, painter);
    for (top, colour) in snapshot.pedestals.iter().zip(snapshot.look.pedestals) {
        column(*top, 0.0, PEDESTAL_RADIUS, pedestal_surface(colour), painter);
    }
    painter.ball(narrow(snapshot.ball), BALL_RADIUS as f32, ball_surface(snapshot.look.ball));
    let links = kinematics::links(&snapshot.joints);
    arm(&links, painter);
    hand(&links[kinematics::JOINTS - 1], snapshot.gripper, painter);
}

fn pedestal_surface(colour: Colour) -> Surface {
    matt(match colour {
        Colour::Red => [0.78, 0.05, 0.07],
        Colour::Blue => [0.05, 0.16, 0.76],
    })
}

/// Lighter than the pedestal of its colour, and with a highlight: it must be seen in front of it.
fn ball_surface(colour: Colour) -> Surface {
    let colour = match colour {
        Colour::Red => [1.0, 0.30, 0.26],
        Colour::Blue => [0.28, 0.48, 1.0],
    };
    Surface { colour, finish: Finish::Glossy }
}

fn table(colour: [f32; 3], painter: &mut Painter<'_>) {
    let [[x0, x1], [y0, y1]] = TABLE;
    let mut patch = |[x0, x1]: [f64; 2], [y0, y1]: [f64; 2], z: f64, surface: Surface| {
        let corners = [[x0, y0, z], [x1, y0, z], [x1, y1, z], [x0, y1, z]];
        painter.quad(corners.map(narrow), UP, surface);
    };
    patch([x0, x1], [y0, y1], 0.0, matt(colour));
    let line = matt(colour.map(|x| x * GRID_DARKENS));
    let lines = |low: f64, high: f64| {
        let count = |x: f64| (x / GRID_SPACING) as i32;
        (count(low)..=count(high)).map(|i| f64::from(i) * GRID_SPACING)
    };
    for x in lines(x0, x1) {
        patch([x - GRID_WIDTH / 2.0, x + GRID_WIDTH / 2.0], [y0, y1], LIFT, line);
    }
    for y in lines(y0, y1) {
        patch([x0, x1], [y - GRID_WIDTH / 2.0, y + GRID_WIDTH / 2.0], LIFT, line);
    }
}

/// A standing cylinder, given by its top.
fn column(top: [f64; 3], bottom: f64, radius: f64, surface: Surface, painter: &mut Painter<'_>) {
    painter.cylinder([narrow([top[0], top[1], bottom]), narrow(top)], radius as f32, surface);
}

fn platform(snapshot: &Snapshot, painter: &mut Painter<'_>) {
    let [x, y, z] = snapshot.platform;
    let underside = z - PLATFORM_THICKNESS;
    column([x, y, underside], 0.0, PLATFORM_COLUMN_RADIUS, PLATFORM, painter);
    column([x, y, z], underside, PLATFORM_RADIUS, RIM, painter);
    painter.disc(narrow([x, y, z + LIFT]), UP, (PLATFORM_RADIUS - 0.008) as f32, PLATFORM);
    if snapshot.heading != 0 {
        let leading = y + f64::from(snapshot.heading.signum()) * PLATFORM_RADIUS;
        painter.ball(narrow([x, leading, z]), LAMP_RADIUS as f32, LAMP);
    }
}

fn arm(links: &[Pose; kinematics::JOINTS], painter: &mut Painter<'_>) {
    let [shoulder, elbow, wrist, flange] = [1, 2, 3, 5].map(|i| narrow(links[i].position));
    painter.cylinder([[0.0; 3], [0.0, 0.0, 0.02]], 0.075, JOINT);
    painter.cylinder([[0.0; 3], shoulder], 0.05, ARM);
    for (joint, radius) in [(1, 0.045), (2, 0.04), (4, 0.032)] {
        // The joint's axis is its z axis.
        let end = |z: f64| narrow(links[joint].point([0.0, 0.0, z]));
        painter.cylinder([end(-0.045), end(0.045)], radius, JOINT);
    }
    painter.capsule([shoulder, elbow], 0.034, ARM);
    painter.capsule([elbow, wrist], 0.028, ARM);
    painter.cylinder([wrist, flange], 0.026, ARM);
}

fn hand(flange: &Pose, opening: f64, painter: &mut Painter<'_>) {
    let [x, y] = PALM_HALF;
    painter.cuboid(flange, [-x, -y, 0.0], [x, y, PALM_LENGTH], PALM);
    let inner = opening.clamp(0.0, GRIPPER_MAX) / 2.0;
    let outer = inner + FINGER_THICKNESS;
    for [low, high] in [[-outer, -inner], [inner, outer]] {
        let low = [-FINGER_HALF_WIDTH, low, PALM_LENGTH];
        painter.cuboid(flange, low, [FINGER_HALF_WIDTH, high, FINGER_END], FINGER);
    }
}

use std::sync::Arc;

use rstest::rstest;

use super::*;
use crate::robot::sim::dimensions::{BALL_RADIUS, PLATFORM_RADIUS};
use crate::robot::sim::snapshot::{Colour, Look};

/// The hand above the ball, the pedestals on either side.
pub fn snapshot_for_tests() -> Snapshot {
    Snapshot {
        look: Arc::new(Look {
            ball: Colour::Red,
            pedestals: [Colour::Red, Colour::Blue],
            brightness: 1.0,
            light: [0.36, 0.48, 0.8],
            table: [0.62, 0.55, 0.45],
            tripod_shift: [0.0; 3],
            tripod_turn: [0.0; 2],
        }),
        joints: [0.0, 1.693, -1.3788, 0.0, 1.2217, 0.0],
        gripper: 0.06,
        ball: [0.35, 0.0, 0.07],
        platform: [0.35, 0.0, 0.05],
        heading: 0,
        pedestals: [[0.25, 0.2, 0.08], [0.25, -0.2, 0.08]],
    }
}

const SIZE: usize = 112;

/// Nothing is drawn this far below the table.
const AWAY: [f64; 3] = [0.3, 0.0, -50.0];

/// The scene without what could hide the ball: the arm folded back, no pedestals, no platform.
fn bare(ball: [f64; 3]) -> Snapshot {
    let joints = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    Snapshot { joints, ball, platform: AWAY, pedestals: [AWAY; 2], ..snapshot_for_tests() }
}

fn pixel(image: &RgbFrame, [x, y]: [f32; 2]) -> [u8; 3] {
    let at = (y as usize * image.width + x as usize) * 3;
    [image.data[at], image.data[at + 1], image.data[at + 2]]
}

fn projected(snapshot: &Snapshot, camera: Camera, point: [f64; 3]) -> [f32; 2] {
    let view = Viewpoint::of(camera, snapshot);
    view.project(view.seen(vector::narrow(point)), SIZE as f32)
}

/// How much of each pixel the ball changes, and the centre of that, in pixels.
fn centre_of_ball(snapshot: &Snapshot, camera: Camera) -> [f64; 2] {
    let without = render(&Snapshot { ball: AWAY, ..snapshot.clone() }, camera, SIZE);
    let with = render(snapshot, camera, SIZE);
    let (mut sum, mut weight) = ([0.0; 2], 0.0);
    for (i, (a, b)) in with.data.chunks(3).zip(without.data.chunks(3)).enumerate() {
        let change = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>();
        let at = [(i % SIZE) as f64 + 0.5, (i / SIZE) as f64 + 0.5];
        sum = [sum[0] + change * at[0], sum[1] + change * at[1]];
        weight += change;
    }
    assert!(weight > 0.0, "the ball is not in the picture");
    sum.map(|s| s / weight)
}

#[rstest]
#[case::front(Camera::Front, [0.3, 0.12, 0.05])]
#[case::front_far(Camera::Front, [0.12, -0.25, 0.02])]
#[case::wrist(Camera::Wrist, [0.36, 0.02, 0.05])]
fn a_ball_appears_where_its_centre_is_projected(#[case] camera: Camera, #[case] ball: [f64; 3]) {
    let mut scene = Snapshot { joints: snapshot_for_tests().joints, ..bare(ball) };
    scene.gripper = 0.07;
    let (found, wanted) = (centre_of_ball(&scene, camera), projected(&scene, camera, ball));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - f64::from(wanted)).abs() < 0.8, "{found:?}, projected {wanted:?}");
    }
}

#[test]
fn the_tripod_aims_at_the_middle_and_has_the_arms_left_on_its_right() {
    let middle = centre_of_ball(&bare([0.29, 0.0, 0.1]), Camera::Front);
    assert!(middle.iter().all(|x| (x - 56.0).abs() < 0.5), "{middle:?}");
    let left = centre_of_ball(&bare([0.29, 0.1, 0.1]), Camera::Front);
    assert!(left[0] > middle[0] + 10.0 && (left[1] - middle[1]).abs() < 0.5, "{left:?}");
    let near = centre_of_ball(&bare([0.39, 0.0, 0.1]), Camera::Front);
    assert!(near[1] > middle[1] + 5.0, "{near:?}");
}

#[test]
fn the_workspace_is_in_the_tripods_view_wherever_the_tripod_stands() {
    for (shift, turn) in [(0.0, 0.0), (0.01, 0.01), (-0.01, -0.01)] {
        let mut scene = snapshot_for_tests();
        let look = Look { tripod_shift: [shift; 3], tripod_turn: [turn; 2], ..(*scene.look).clone() };
        scene.look = Arc::new(look);
        for (x, z) in [(0.1, 0.0), (0.1, 0.3), (0.5, 0.0), (0.5, 0.1)] {
            for y in [-0.3, 0.3] {
                let at = projected(&scene, Camera::Front, [x, y, z]);
                assert!(at.iter().all(|c| (0.0..=SIZE as f32).contains(c)), "{:?} at {at:?}", [x, y, z]);
            }
        }
    }
}

#[test]
fn what_is_nearer_hides_what_is_farther() {
    let pedestal = [0.3, 0.1, 0.1];
    let scene = |x: f64| Snapshot { pedestals: [AWAY, pedestal], ..bare([x, 0.1, BALL_RADIUS]) };
    let shown = |x: f64| {
        let scene = scene(x);
        pixel(&render(&scene, Camera::Front, SIZE), projected(&scene, Camera::Front, scene.ball))
    };
    let ([red, _, blue], [hidden_red, _, hidden_blue]) = (shown(0.4), shown(0.25));
    assert!(red > 150 && red > blue, "in front: {red} red, {blue} blue");
    assert!(hidden_blue > 60 && hidden_red < 40, "behind: {hidden_red} red, {hidden_blue} blue");
}

#[rstest]
#[case(Colour::Red, 0)]
#[case(Colour::Blue, 2)]
fn a_ball_has_its_colour_and_stands_out_from_its_pedestal(#[case] colour: Colour, #[case] channel: usize) {
    let top = [0.3, 0.1, 0.08];
    let mut scene = Snapshot { pedestals: [top, AWAY], ..bare([top[0], top[1], top[2] + BALL_RADIUS]) };
    let other = if colour == Colour::Red { Colour::Blue } else { Colour::Red };
    scene.look = Arc::new(Look { ball: colour, pedestals: [colour, other], ..(*scene.look).clone() });
    let image = render(&scene, Camera::Front, SIZE);
    let ball = pixel(&image, projected(&scene, Camera::Front, scene.ball));
    let side = pixel(&image, projected(&scene, Camera::Front, [top[0] + 0.03, top[1], 0.04]));
    for rgb in [ball, side] {
        assert!((0..3).all(|c| c == channel || rgb[c] < rgb[channel]), "{colour:?}: {rgb:?}");
    }
    let apart: u32 = ball.iter().zip(side).map(|(a, b)| u32::from(a.abs_diff(b))).sum();
    assert!(apart > 120, "ball {ball:?}, pedestal {side:?}");
}

#[test]
fn a_millimetre_moves_the_picture_by_a_fraction_of_a_pixel() {
    let places: Vec<f64> =
        (0..20).map(|i| centre_of_ball(&bare([0.3, 0.001 * f64::from(i), 0.03]), Camera::Front)[0]).collect();
    for pair in places.windows(2) {
        let moved = pair[1] - pair[0];
        assert!((0.02..0.35).contains(&moved), "a millimetre moved the ball by {moved} pixels: {places:?}");
    }
}

#[test]
fn the_lamp_tells_the_direction_from_the_tripod() {
    let lit = |heading: i8| {
        let scene = Snapshot { heading, platform: [0.3, 0.0, 0.05], ..bare(AWAY) };
        let image = render(&scene, Camera::Front, SIZE);
        [-PLATFORM_RADIUS, PLATFORM_RADIUS].map(|y| {
            let [red, green, _] = pixel(&image, projected(&scene, Camera::Front, [0.3, y, 0.05]));
            green > 200 && red < 150
        })
    };
    assert_eq!([lit(-1), lit(0), lit(1)], [[true, false], [false, false], [false, true]]);
}

#[test]
fn the_fingers_stand_apart_as_far_as_the_gripper_is_open() {
    let yellow = |gripper: f64| {
        let image = render(&Snapshot { gripper, ..snapshot_for_tests() }, Camera::Wrist, SIZE);
        let row = image.data.chunks(SIZE * 3).nth(SIZE * 3 / 4).unwrap();
        let columns: Vec<usize> =
            (0..SIZE).filter(|x| row[x * 3] > 60 && row[x * 3 + 2] < row[x * 3] / 3 && row[x * 3 + 1] > 40).collect();
        columns.last().unwrap() - columns[0]
    };
    assert!(yellow(0.07) > yellow(0.04) + 10, "{} and {}", yellow(0.07), yellow(0.04));
}

#[test]
fn odd_sizes_and_numbers_draw_without_a_panic() {
    for size in [0, 1, 7] {
        assert_eq!(render(&snapshot_for_tests(), Camera::Front, size).data.len(), size * size * 3);
    }
    for value in [f64::NAN, f64::INFINITY, 1e300] {
        let scene = Snapshot { joints: [value; 6], ball: [value; 3], gripper: value, ..snapshot_for_tests() };
        for camera in Camera::ALL {
            assert_eq!(render(&scene, camera, 16).data.len(), 16 * 16 * 3);
        }
    }
}

/// The policy in the box has learned these pictures: whoever changes them trains it anew.
#[rstest]
#[case(Camera::Front, 0x91b9_ed13_e791_40da)]
#[case(Camera::Wrist, 0xa884_7631_5be4_cc43)]
fn the_pictures_are_those_that_the_policy_has_learned(#[case] camera: Camera, #[case] checksum: u64) {
    let scene = snapshot_for_tests();
    let images = std::thread::scope(|threads| {
        let all: Vec<_> = (0..4).map(|_| threads.spawn(|| render(&scene, camera, SIZE))).collect();
        all.into_iter().map(|image| image.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
    // FNV-1a.
    let found = images[0]
        .data
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(found, checksum, "{found:#x}");
}

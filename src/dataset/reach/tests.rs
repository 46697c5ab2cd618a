use std::fs;
use std::time::Instant;

use super::motion::{FRAMES, REACHABLE, Reach, distance};
use super::*;

fn reaches() -> impl Iterator<Item = Reach> {
    (0..EPISODES as u64).map(|number| {
        let mut random = crate::random::stream(SEED, "reach", &[number]);
        scene::Look::draw(&mut random);
        Reach::draw(&mut random)
    })
}

#[test]
fn every_episode_arrives_within_its_bounds() {
    for reach in reaches() {
        assert!((FRAMES.0..=FRAMES.1).contains(&reach.steps.len()), "{} frames", reach.steps.len());
        let last = reach.steps.last().unwrap();
        assert!(distance(last.command, reach.target) < 0.006, "ends {} m away", distance(last.command, reach.target));
        let inside = |p: &[f64; 2]| p.iter().all(|v| v.abs() <= REACHABLE + 0.001);
        assert!(reach.steps.iter().all(|s| inside(&s.hand) && inside(&s.command)));
    }
}

#[test]
fn the_state_follows_the_preceding_action() {
    // What the delay augmentation replaces the future state by: off by well under 1 % of the range.
    for reach in reaches() {
        for pair in reach.steps.windows(2) {
            assert!(distance(pair[0].command, pair[1].hand) < 0.002);
        }
    }
}

#[test]
fn the_target_cannot_be_told_from_the_state() {
    // Hands in a corner move to the middle on average, no more: the start explains little of the way over ten frames.
    for axis in 0..2 {
        let ways: Vec<(f64, f64)> = reaches()
            .flat_map(|reach| {
                let way = |w: &[motion::Step]| (w[0].hand[axis], w[9].command[axis] - w[0].hand[axis]);
                reach.steps.windows(10).map(way).collect::<Vec<_>>()
            })
            .collect();
        let n = ways.len() as f64;
        let (start, way) = ways.iter().fold((0.0, 0.0), |sum, w| (sum.0 + w.0 / n, sum.1 + w.1 / n));
        let [mut between, mut of_start, mut of_way] = [0.0; 3];
        for w in &ways {
            between += (w.0 - start) * (w.1 - way) / n;
            of_start += (w.0 - start).powi(2) / n;
            of_way += (w.1 - way).powi(2) / n;
        }
        let explained = between * between / (of_start * of_way);
        assert!(explained < 0.4, "axis {axis}: the state explains {explained:.2} of the variance");
        assert!(of_way.sqrt() > 0.03, "axis {axis}: the hand hardly moves");
    }
}

#[test]
fn the_image_shows_target_and_hand_where_they_are() {
    let look = scene::Look::draw(&mut crate::random::stream(SEED, "reach", &[0]));
    let image = look.render([0.1, 0.1], [-0.1, -0.1]);
    let at = |row: usize, column: usize| &image.data[(row * scene::SIZE + column) * 3..][..3];
    let (table, hand, disc) = (at(4, 4), at(15, 40), at(40, 15));
    assert!(table.iter().all(|&v| v > 150), "{table:?}");
    assert!(hand[2] > 120 && hand[0] < 60, "{hand:?}");
    assert!(disc[0].max(disc[1]) > 120 && disc[2] < 90, "{disc:?}");
}

#[test]
fn a_second_call_returns_at_once_and_damage_is_mended() {
    let cache = tempfile::tempdir().unwrap();
    let root = ensure(cache.path()).unwrap();
    let bytes = |root: &Path| fs::read(root.join("data/chunk-000/file-000.parquet")).unwrap();
    let original = bytes(&root);
    assert!(original.len() < 3 << 20, "{} bytes", original.len());

    let started = Instant::now();
    assert_eq!(ensure(cache.path()).unwrap(), root);
    assert!(started.elapsed().as_millis() < 500, "{:?}", started.elapsed());

    fs::write(root.join("data/chunk-000/file-000.parquet"), &original[..1000]).unwrap();
    assert_eq!(ensure(cache.path()).unwrap(), root);
    assert!(bytes(&root) == original, "the same bytes every time");
    let names: Vec<_> = fs::read_dir(root.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "dataset and lock only: {names:?}");
}

#[test]
fn callers_at_the_same_time_get_the_same_whole_copy() {
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("datasets/few");
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| crate::dataset::store::ensure(&path, |root| generate(root, 3)))).collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap().unwrap(), path);
        }
    });
    assert!(path.join("meta/info.json").exists());
}

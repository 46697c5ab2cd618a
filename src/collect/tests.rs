//! Recordings that are interrupted, parallel, contradicted and damaged, played by a script.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::campaign::{self, Progress};
use super::demonstration::{Demonstration, Player, Step};
use super::error::CollectError;
use super::recorder::{Joined, Known, Recorder};
use super::settings::{Images, Settings, Worlds};
use crate::error::{Explain, Failure, Kind};
use crate::robot::sim::{Setup, World};

const EPISODES: u64 = 9;
const SEED: u64 = 40;

/// Fails every third seed; its episodes have a length of their own.
#[derive(Default)]
struct Script {
    played: Mutex<Vec<u64>>,
    hopeless: bool,
}

impl Player for Script {
    fn play(&self, setup: &Setup) -> Result<Demonstration, Failure> {
        self.played.lock().unwrap().push(setup.seed);
        let mut world = World::new(setup);
        let mut step = |number: u64| {
            let (state, snapshot) = (world.joints(), world.snapshot());
            let mut action = state;
            action[0] += 0.01 * number as f32;
            world.step(&action);
            Step { state, action, snapshot }
        };
        let steps = (0..2 + setup.seed % 3).map(&mut step).collect();
        let success = !setup.seed.is_multiple_of(3) && !self.hopeless;
        Ok(Demonstration { steps, success, ending: if success { "placed" } else { "time-limit" } })
    }
}

fn settings() -> Settings {
    Settings {
        source: "expert".into(),
        policy: None,
        seed: SEED,
        variant: Worlds::Mixed,
        noise: 1.5,
        lead: None,
        images: Images::H264,
        size: 16,
        time_limit_s: 0.1,
        keep_failures: false,
        version: "1".into(),
    }
}

fn record(recorder: &Recorder, script: &Script, threads: usize) -> Result<bool, Failure> {
    campaign::run(recorder, script, EPISODES, threads, &|| false, &|_| ())
}

/// A whole recording at `out`.
fn recorded(out: &Path, settings: Settings, threads: usize) -> Joined {
    let recorder = Recorder::open(out, settings).unwrap();
    assert!(record(&recorder, &Script::default(), threads).unwrap());
    recorder.join(Some(EPISODES)).unwrap()
}

/// All files below a directory by their names.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(below, bytes)| (name.join(below), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn threads_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let one = recorded(&place("one"), settings(), 1);
    // 40, 41, 43, 44, 46, 47, 49, 50, 52; multiples of three fail.
    assert_eq!((one.episodes, one.seeds), (EPISODES, (40, 52)));
    assert_eq!(one.left_out.keys().copied().collect::<Vec<_>>(), [42, 45, 48, 51]);
    let many = recorded(&place("many"), settings(), 5);
    assert_eq!((many.frames, many.seeds, &many.left_out), (one.frames, one.seeds, &one.left_out));
    assert!(files(&place("one")) == files(&place("many")));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no recording stays");

    let account: serde_json::Value =
        serde_json::from_slice(&fs::read(place("one").join("meta/collect.json")).unwrap()).unwrap();
    assert_eq!(
        account["command"],
        "vlash collect --episodes 9 --source expert --seed 40 --variant mixed --images h264 --size 16 --time-limit 0.1 \
         --noise 1.5"
    );
    assert_eq!(account["episodes"][2], serde_json::json!({ "seed": 43, "ending": "placed", "frames": 3 }));
    assert_eq!(account["left_out"][0], serde_json::json!({ "seed": 42, "ending": "time-limit" }));
}

#[test]
fn an_interrupted_recording_goes_on_to_the_same_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (out, whole) = (dir.path().join("out"), dir.path().join("whole"));
    recorded(&whole, settings(), 1);
    let mut played = Vec::new();
    for (most, threads) in [(2, 1), (4, 3), (1, 2), (100, 4)] {
        let recorder = Recorder::open(&out, settings()).unwrap();
        // As kills leave it, one while an episode was written, one while the episodes were joined.
        fs::write(recorder.place().join(".tmp-00000000000000000099.episode-1-1"), "half of an epis").unwrap();
        fs::create_dir_all(recorder.place().join("dataset/meta")).unwrap();
        drop(recorder);
        let recorder = Recorder::open(&out, settings()).unwrap();
        let (script, handed_in) = (Script::default(), AtomicUsize::new(0));
        let stop = || handed_in.load(Ordering::Relaxed) >= most;
        let say = |_: Progress| {
            handed_in.fetch_add(1, Ordering::Relaxed);
        };
        let done = campaign::run(&recorder, &script, EPISODES, threads, &stop, &say).unwrap();
        assert_eq!(done, most == 100);
        played.extend(script.played.into_inner().unwrap());
        if done {
            recorder.join(Some(EPISODES)).unwrap();
        } else {
            assert!(!out.exists());
        }
    }
    assert!(files(&out) == files(&whole));
    let distinct: BTreeSet<u64> = played.iter().copied().collect();
    assert_eq!((played.len(), distinct), (13, (40..53).collect()), "no seed is played twice, failed ones neither");
}

#[test]
fn other_settings_and_other_processes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let recorder = Recorder::open(&out, settings()).unwrap();
    let busy = Recorder::open(&out, settings()).unwrap_err();
    assert!(matches!(busy, CollectError::Busy { .. }), "{busy}");
    record(&recorder, &Script::default(), 2).unwrap();
    let before = files(recorder.place());
    drop(recorder);
    let other = Settings { noise: 0.0, size: 32, ..settings() };
    let error = Recorder::open(&out, other).unwrap_err();
    assert!(error.to_string().contains("noise: 1.5 there, 0.0 here; size: 16 there, 32 here"), "{error}");
    assert_eq!(error.kind(), Kind::Input);
    let recorder = Recorder::reopen(&out).unwrap();
    assert!(files(recorder.place()) == before);
    assert_eq!(
        (recorder.known(40), recorder.known(42), recorder.known(99)),
        (Some(Known::Kept), Some(Known::LeftOut), None)
    );
    // A lower goal than what is there takes the first ones.
    assert_eq!(recorder.join(Some(2)).unwrap().seeds, (40, 41));

    let odd = Recorder::open(&dir.path().join("odd"), Settings { size: 17, ..settings() }).unwrap_err();
    assert!(odd.to_string().contains("17x17"), "{odd}");
    assert!(!dir.path().join("odd.recording").exists(), "nothing is begun that cannot be joined");
}

#[test]
fn a_dataset_is_never_written_over_and_what_it_was_joined_from_goes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let recorder = Recorder::open(&out, settings()).unwrap();
    record(&recorder, &Script::default(), 2).unwrap();
    let place = recorder.place().to_owned();
    let manifest = fs::read(place.join("manifest.json")).unwrap();
    recorder.join(None).unwrap();
    // As a kill between the rename and the removal leaves it.
    fs::create_dir(&place).unwrap();
    fs::write(place.join("manifest.json"), manifest).unwrap();
    let before = files(&out);
    let error = Recorder::open(&out, settings()).unwrap_err();
    assert!(error.to_string().contains("it exists"), "{error}");
    assert!(!place.exists() && files(&out) == before);
    let nothing = Recorder::reopen(&dir.path().join("none")).unwrap_err();
    assert!(nothing.to_string().contains("nothing to finish"), "{nothing}");
}

#[test]
fn what_is_damaged_or_foreign_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (out, whole) = (dir.path().join("out"), dir.path().join("whole"));
    let recorder = Recorder::open(&out, settings()).unwrap();
    record(&recorder, &Script::default(), 2).unwrap();
    let file = recorder.place().join(format!("{:020}.episode", 43));
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let error = recorder.join(None).unwrap_err();
    assert!(matches!(error, CollectError::Damaged { .. }), "{error}");
    assert_eq!(error.hint(), Some(format!("rm {}; the same command records it again", file.display())));
    assert!(!out.exists());
    fs::remove_file(&file).unwrap();
    recorded(&out, settings(), 1);
    recorded(&whole, settings(), 1);
    assert!(files(&out) == files(&whole));

    let foreign = dir.path().join("foreign");
    fs::create_dir(dir.path().join("foreign.recording")).unwrap();
    fs::write(dir.path().join("foreign.recording/thesis.txt"), "keep").unwrap();
    let error = Recorder::open(&foreign, settings()).unwrap_err();
    assert!(error.to_string().contains("it holds thesis.txt"), "{error}");
    assert_eq!(fs::read(dir.path().join("foreign.recording/thesis.txt")).unwrap(), b"keep");
}

#[test]
fn failures_are_kept_when_asked_for_and_a_hopeless_player_is_sent_home() {
    let dir = tempfile::tempdir().unwrap();
    let all = recorded(&dir.path().join("all"), Settings { keep_failures: true, images: Images::Png, ..settings() }, 3);
    assert_eq!((all.seeds, all.left_out.len()), ((40, 48), 0));
    let account = fs::read_to_string(dir.path().join("all/meta/collect.json")).unwrap();
    assert!(account.contains("--keep-failures") && account.contains("time-limit"));

    let recorder = Recorder::open(&dir.path().join("none"), settings()).unwrap();
    let error = record(&recorder, &Script { hopeless: true, ..Script::default() }, 4).unwrap_err();
    assert!(error.message().contains("0 of 200 seeds succeeded"), "{}", error.message());
}

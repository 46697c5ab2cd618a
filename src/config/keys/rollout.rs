//! The keys of `vlash run`: `task`, `robot.*`, `policy.*`; `control.*`, `rtc.*`, `limits.*`, `watchdog.*`;
//! `telemetry.*`, `run.*`.

use super::Default::{Absent, Is};
use super::Kind::{Choice, Count, CountOr, Device, Real, Reals2, Renames, Switch, Text, Texts};
use super::{ANY, BELOW_ONE, Key, NOT_NEGATIVE, POSITIVE, same};

const FUSED: &str = "our engine always fuses, and compiles nothing at run time";
const SIMULATED: &str = "the simulated arm has neither a bus nor camera devices";
const SCREEN: &str = "the Robot screen shows cameras and joints; nothing plays sounds";

pub(super) static KEYS: &[Key] = &[
    Key::new("task", Text, Absent, "What the policy is told to do; not set: the simulated task's own words.")
        .yaml(&[same("single_task")])
        .also(&["prompt", "instruction", "task_description", "robot.task"]),
    Key::new("robot.type", Text, Is("\"sim\""), "The robot; sim: the simulated tabletop.").also(&["robot.kind"]),
    Key::new(
        "robot.variant",
        Choice(&["static", "moving"]),
        Is("\"static\""),
        "The simulated task: the ball's platform stands, or it travels to and fro.",
    ),
    Key::new(
        "robot.seed",
        Count { min: 0 },
        Is("1"),
        "Seed of the simulated scene; every further episode takes the next one.",
    )
    .yaml(&[same("seed")])
    .also(&["run.seed"]),
    Key::new("robot.faults", Texts, Is("[]"), "Faults that the simulated robot plays, as kind:what@seconds+seconds: stall, freeze or black:wrist; feedback; stick:joint_3; offset:joint_3=0.1; drop:3, each third command.")
        .also(&["faults"]),
    Key::new(
        "robot.confirm",
        Switch,
        Is("false"),
        "Wait until the robot's name is typed before anything moves, and hold when the operator's screen is gone.",
    )
    .also(&["robot.dead_man", "confirm"]),
    Key::new(
        "robot.on_exit",
        Choice(&["hold", "rest"]),
        Is("\"hold\""),
        "Where the arm is left: where it is, under torque; or at its rest pose, after a slow move. After a fault, or held by the operator, it stays.",
    ),
    Key::ignored(
        &[
            same("robot.port"),
            same("robot.id"),
            same("robot.cameras"),
            same("robot.can_name"),
            same("robot.can_port"),
            same("robot.max_relative_target"),
            same("robot.use_degrees"),
            same("robot.disable_torque_on_disconnect"),
            same("robot.calibration_dir"),
        ],
        SIMULATED,
    ),
    Key::new("policy.path", Text, Absent, "Checkpoint directory; not set: the policy in the box.").also(&[
        "policy.checkpoint",
        "checkpoint",
        "model.base",
        "policy.pretrained_path",
    ]),
    Key::new(
        "policy.n_action_steps",
        Count { min: 1 },
        Absent,
        "Actions executed of each chunk, n; not set: a quarter of the chunk, at least the trained delay.",
    )
    .also(&["n_action_steps", "control.execute"]),
    Key::new("policy.num_steps", Count { min: 1 }, Absent, "Denoising steps of a chunk; not set: the checkpoint's.")
        .yaml(&[same("policy.num_inference_steps")])
        .also(&["num_steps"]),
    Key::new(
        "policy.device",
        Device,
        Is("\"auto\""),
        "auto: a GPU where there is one; cpu; cuda, cuda:1: that GPU or an error.",
    )
    .also(&["device", "runtime.device"]),
    Key::new(
        "policy.cameras",
        Renames,
        Is("{}"),
        "The robot's camera to the policy's, where their names differ: {front = \"base_0_rgb\"}.",
    )
    .also(&["rename_map", "policy.rename", "robot.map"]),
    Key::ignored(
        &[
            same("policy.compile_model"),
            same("policy.compile_mode"),
            same("policy.fuse_qkv"),
            same("policy.fuse_gate_up"),
            same("policy.fuse_adarms"),
        ],
        FUSED,
    ),
    Key::ignored(&[same("policy.type")], "the checkpoint says what it is"),
    Key::ignored(&[same("display_data"), same("play_sounds")], SCREEN),
];

pub(super) static CONTROL: &[Key] = &[
    Key::new(
        "control.mode",
        Choice(&["sync", "async", "vlash", "rtc", "rtc-trained"]),
        Is("\"vlash\""),
        "sync: the arm waits for every chunk; async: it moves on, the policy is told the state at launch; vlash: the state at the chunk's start; rtc: guided towards the old chunk; rtc-trained: its leading actions are given.",
    )
    .also(&["mode"]),
    Key::new("control.fps", Real(POSITIVE), Is("30.0"), "Control rate in Hz.").yaml(&[same("fps")]),
    Key::new("control.duration_s", Real(POSITIVE), Is("60.0"), "Longest time of an episode in seconds.")
        .yaml(&[same("control_time_s")])
        .yaml_default(Is("600.0"))
        .also(&["duration", "seconds", "episode_time_s"]),
    Key::new(
        "control.speedup",
        Count { min: 1 },
        Is("1"),
        "Policy steps a tick, q: the motion is that many times as fast as demonstrated.",
    )
    .yaml(&[same("action_quant_ratio")])
    .also(&["speed", "quantization"]),
    Key::new(
        "control.overlap",
        CountOr("auto"),
        Is("\"auto\""),
        "Ticks between the launch of an inference and the start of its chunk; auto: from the measured latency.",
    )
    .yaml(&[same("inference_overlap_steps")])
    .yaml_default(Is("0"))
    .also(&["overlap", "delay"]),
    Key::new(
        "control.overlap_margin_ms",
        Real(NOT_NEGATIVE),
        Is("5.0"),
        "What the overlap of auto adds to the 95th percentile of the last 64 latencies.",
    ),
    Key::new(
        "control.launch",
        Choice(&["end", "eager"]),
        Is("\"end\""),
        "When the next chunk is asked for: as late as the overlap allows, or as soon as nothing is being inferred.",
    ),
    Key::new(
        "control.miss",
        Choice(&["continue", "hold", "stop"]),
        Is("\"continue\""),
        "While a chunk is late: go on with the old one past its end, repeat the last command, or end the rollout.",
    ),
    Key::new("control.blend", Count { min: 0 }, Is("0"), "Ticks over which an old chunk fades out; 0: none."),
    Key::new(
        "control.realtime",
        Switch,
        Is("false"),
        "Real-time priority for the control thread and locked memory, where the system permits it.",
    )
    .also(&["control.priority", "realtime"]),
    Key::new(
        "control.latency_ms",
        Real(NOT_NEGATIVE),
        Is("0.0"),
        "Every inference takes at least this long: replays a slower machine.",
    )
    .also(&["latency", "control.latency"]),
    Key::new(
        "control.latency_trace",
        Text,
        Absent,
        "A rollout's directory or its telemetry.jsonl: inferences take as long as they took there, in order, going round.",
    )
    .also(&["latency_trace", "control.latencies"]),
    Key::new("rtc.execution_horizon", Count { min: 1 }, Is("10"), "Steps over which the old chunk has influence."),
    Key::new("rtc.max_weight", Real(NOT_NEGATIVE), Is("10.0"), "Bound of the guidance weight."),
    Key::new(
        "rtc.schedule",
        Choice(&["zeros", "ones", "linear", "exponential"]),
        Is("\"exponential\""),
        "How the old chunk's influence falls between the delay and the execution horizon.",
    ),
    Key::new(
        "rtc.jacobian",
        Choice(&["identity", "full"]),
        Is("\"identity\""),
        "identity needs no backward pass, as LeRobot computes it; full is the method as published.",
    ),
    Key::new(
        "limits.margin",
        Real(NOT_NEGATIVE),
        Is("0.0"),
        "Part of a joint's range, at either end, that is not used; rad, m.",
    ),
    Key::new(
        "limits.max_step",
        Real(POSITIVE),
        Absent,
        "Largest step of a joint in a tick, rad or m; not set: what its speed limit allows.",
    )
    .also(&["max_relative_target", "max_step_rad"]),
    Key::new(
        "limits.excess",
        Choice(&["clamp", "refuse"]),
        Is("\"clamp\""),
        "A target beyond the limits: the nearest one within them (counted and shown), or hold and end the rollout.",
    )
    .also(&["on_limit", "limits.on_limit"]),
    Key::new(
        "limits.workspace_x",
        Reals2(ANY),
        Absent,
        "Where the gripper may be, forward: lowest and highest, metres from the base. A command that leads out is held.",
    ),
    Key::new(
        "limits.workspace_y",
        Reals2(ANY),
        Absent,
        "Where the gripper may be, to the left: lowest and highest, metres from the base. A command that leads out is held.",
    ),
    Key::new(
        "limits.workspace_z",
        Reals2(ANY),
        Absent,
        "Where the gripper may be, up: lowest and highest, metres from the base. A command that leads out is held.",
    ),
    Key::new(
        "limits.start_distance",
        Real(POSITIVE),
        Is("0.35"),
        "Largest distance of a joint between the measured pose and a rollout's first action, rad or m.",
    )
    .also(&["first_action", "limits.first_action"]),
    Key::new(
        "limits.far_start",
        Choice(&["approach", "refuse"]),
        Is("\"approach\""),
        "A first action further away: move there slowly and ask for a new chunk, or end the rollout.",
    ),
    Key::new(
        "limits.approach_speed",
        Real(BELOW_ONE),
        Is("0.25"),
        "Speed of that slow move and of the one to the rest pose, as a part of the speed limits.",
    ),
    Key::new(
        "limits.rejected_chunks",
        Count { min: 1 },
        Is("1"),
        "Chunks that are no numbers or of a wrong size before the rollout ends.",
    ),
    Key::new(
        "watchdog.camera_age_ms",
        Real(POSITIVE),
        Absent,
        "Images older than this hold the arm; not set: three control periods.",
    )
    .also(&["camera_timeout"]),
    Key::new("watchdog.camera_stop_s", Real(POSITIVE), Is("3.0"), "Images older than this end the rollout."),
    Key::new(
        "watchdog.frozen",
        Count { min: 2 },
        Absent,
        "Equal images, or equal joint readings, in a row under motion that hold the arm; not set: half a second of them.",
    ),
    Key::new("watchdog.inference_stop_s", Real(POSITIVE), Is("30.0"), "An inference that takes longer ends the rollout."),
    Key::new(
        "watchdog.recover",
        Switch,
        Is("false"),
        "Move on when what held the arm is over; else an operator has to arm it.",
    ),
];

pub(super) static OUTPUT: &[Key] = &[
    Key::new(
        "telemetry.listen",
        Text,
        Is("\"127.0.0.1:0\""),
        "Where the socket for watching and steering listens; port 0: a free one, written into the run directory.",
    )
    .also(&["listen", "port"]),
    Key::new("run.name", Text, Is("\"rollout\""), "Name of the run.").also(&["name", "job_name"]),
    Key::new("run.dir", Text, Absent, "Run directory; not set: outputs/<name>-<date>-<time>.")
        .yaml(&[same("output_dir")])
        .also(&["out_dir"]),
    Key::new("run.episodes", Count { min: 1 }, Is("1"), "Simulated episodes in a row.")
        .also(&["episodes", "n_episodes"]),
];

//! A recorded rollout that never was, for the tests of whoever shows or reads telemetry.

use base64::Engine;

use super::lines::Item;
use super::pictures::Picture;
use super::probe::Graphics;
use super::source::{Data, Link};
use super::state::{Settings, State};
use crate::track::event::Level;
use crate::track::telemetry::{ArmState, Chunk, Hello, Message, Origin, Phase, Status, Thumbnail, Tick};
use crate::tui::capability::{ColorLevel, Glyphs};
use crate::tui::theme::Tone;

/// Noon of a day, UTC.
pub const NOON: f64 = 1_767_268_800.0;
pub const FPS: f64 = 30.0;
/// Steps executed of a chunk.
pub const EXECUTE: u64 = 20;
/// Steps before the splice at which the next inference begins.
pub const OVERLAP: u64 = 6;

pub fn hello() -> Hello {
    Hello {
        robot: "piper-left".into(),
        policy: "pi05-small".into(),
        task: "pick the ball and place it on the pedestal of its colour".into(),
        fps: FPS,
        joints: (1..=6).map(|i| format!("joint_{i}.pos")).chain(["gripper.pos".into()]).collect(),
        limits: vec![
            [-2.6179, 2.6179],
            [0.0, 3.0],
            [-2.967, 0.0],
            [-1.745, 1.745],
            [-1.22, 1.22],
            [-2.09439, 2.09439],
            [0.0, 0.07],
        ],
        cameras: vec!["front".into(), "wrist".into()],
        horizon: 50,
        execute: EXECUTE as usize,
        trained_delay: 8,
        pid: 4123,
        host: "bench".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// A repeatable value in 0..1.
fn noise(n: u64) -> f64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n >> 7);
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 24) as f64
}

fn time(tick: u64) -> f64 {
    2.0 + tick as f64 / FPS
}

/// The messages of tick `tick`. The first 300 ticks are synchronous: the arm waits for each chunk; then the next
/// chunk is inferred while the last is executed, and every tenth is two ticks late.
pub fn messages_of(tick: u64) -> Vec<Message> {
    let mut messages = Vec::new();
    let synchronous = tick < 300;
    let cycle = if synchronous { EXECUTE + OVERLAP } else { EXECUTE };
    let since = if synchronous { tick } else { tick - 300 };
    let number = since / cycle + if synchronous { 0 } else { 12 };
    let phase = since % cycle;
    let late = if number % 10 == 9 && !synchronous { 2 } else { 0 };
    let mut say = |chunk, phase| messages.push(Message::Chunk(Chunk { chunk, time: time(tick), tick, phase }));
    let latency_ms = 120.0 + 40.0 * noise(number) + if late > 0 { 80.0 } else { 0.0 };
    let arrived =
        Phase::Arrived { latency_ms, preprocess_ms: 4.0, prefix_ms: 60.0, denoise_ms: latency_ms - 66.0, copy_ms: 2.0 };
    let spliced = Phase::Spliced { index: late, late, jump: 0.02, state_error: 0.01 };
    match (synchronous, phase) {
        (true, 0) => say(number, Phase::Launched { splice: tick, synchronous: true }),
        (true, OVERLAP) => {
            say(number, arrived);
            say(number, spliced);
        }
        (false, p) if p == EXECUTE - OVERLAP => {
            say(number + 1, Phase::Launched { splice: tick + OVERLAP, synchronous: false });
        }
        (false, p) if p == u64::from(late) => {
            say(number, arrived);
            say(number, spliced);
        }
        _ => {}
    }
    let waits = synchronous && phase < OVERLAP;
    let (origin, chunk) = match (waits, phase < u64::from(late)) {
        (true, _) => (Origin::Hold, None),
        (false, true) => (Origin::Continued, Some(number - 1)),
        (false, false) => (Origin::Fresh, Some(number)),
    };
    let swing = (tick as f32 / 40.0).sin();
    let command = vec![0.4 * swing, 1.2 + 0.3 * swing, -1.0, 0.1 * swing, 0.3, -0.5 * swing, 0.035];
    messages.push(Message::Tick(Tick {
        tick,
        time: time(tick),
        period_ms: 1e3 / FPS + 0.4 * (noise(tick) - 0.5) + if tick == 700 { 2.1 } else { 0.0 },
        missed: u32::from(tick == 700),
        origin,
        chunk,
        index: chunk.map(|_| phase as u32),
        state: command.iter().map(|c| c - 0.01).collect(),
        command,
        clipped: u32::from(tick.is_multiple_of(50)) << 1,
        observation_age_ms: Some(12.0),
    }));
    if tick.is_multiple_of(3) {
        messages.push(Message::Status(status(tick)));
    }
    if tick.is_multiple_of(15) {
        messages.extend(["front", "wrist"].map(|camera| Message::Thumbnail(thumbnail(camera, tick))));
    }
    messages
}

pub fn status(tick: u64) -> Status {
    Status {
        time: time(tick),
        arm: ArmState::Armed,
        reason: None,
        mode: if tick < 300 { "sync" } else { "vlash" }.into(),
        overlap: OVERLAP as u32,
        ticks: tick,
        late_chunks: tick / 400,
        missed_ticks: u64::from(tick >= 700),
        held_ticks: tick.min(300) / 5,
        continued_ticks: tick / 200,
        clipped_ticks: tick / 50,
        rejected_chunks: 0,
        camera_age_ms: vec![Some(9.0 + (tick % 4) as f64), Some(14.0 + (tick % 3) as f64)],
        camera_hz: vec![30.0, 29.9],
        recording: false,
        task_state: Some(if tick < 600 { "reaching" } else { "carrying the ball" }.into()),
    }
}

pub fn thumbnail(camera: &str, tick: u64) -> Thumbnail {
    let (width, height) = (32u32, 32u32);
    let shade = |x: u32, y: u32| [(x * 8) as u8, (y * 8) as u8, (tick % 256) as u8];
    let rgb: Vec<u8> = (0..width * height).flat_map(|i| shade(i % width, i / width)).collect();
    let rgb = base64::engine::general_purpose::STANDARD.encode(rgb);
    Thumbnail { camera: camera.into(), time: time(tick), width, height, rgb }
}

pub fn event(tick: u64, level: Level, text: &str) -> Message {
    Message::Event { time: time(tick), level, text: text.into() }
}

/// A rollout up to tick `ticks`, without its end.
pub fn rollout(ticks: u64) -> Vec<Message> {
    let mut messages = vec![Message::Hello(hello()), event(0, Level::Info, "armed by operator")];
    for tick in 0..ticks {
        messages.extend(messages_of(tick));
        match tick {
            300 => messages.push(event(tick, Level::Info, "mode vlash from chunk 12 on")),
            700 => messages.push(event(tick, Level::Warn, "missed 1 control tick: 35.4 ms")),
            _ => {}
        }
    }
    messages
}

/// A message as the reading thread passes it on.
pub fn item(message: Message) -> Item {
    match message {
        Message::Thumbnail(thumbnail) => Picture::decode(&thumbnail).map_or(Item::Damaged, Item::Picture),
        message => Item::Message(message),
    }
}

pub fn settings() -> Settings {
    Settings {
        target: "127.0.0.1:5151".into(),
        run_dir: None,
        read_only: false,
        owned: false,
        color: ColorLevel::Never,
        glyphs: Glyphs::Braille,
        tone: Tone::Calm,
        images: true,
        graphics: Graphics::HalfBlocks,
        remote: false,
        zone: jiff::tz::TimeZone::UTC,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// A rollout in full swing after `ticks` control ticks, heard right now.
pub fn after(ticks: u64, width: u16, height: u16) -> State {
    let mut state = State::new(settings(), NOON, ratatui::layout::Size::new(width, height));
    state.data(Data::Link(Link::Connected("127.0.0.1:5151".into())));
    state.data(Data::Items(rollout(ticks).into_iter().map(item).collect()));
    state
}

/// As [`after`] a little more than half a minute.
pub fn running(width: u16, height: u16) -> State {
    after(1012, width, height)
}

pub fn hear(state: &mut State, message: Message) {
    state.data(Data::Items(vec![item(message)]));
}

/// What is drawn, with the images that are due.
pub fn draw(state: &mut State) -> ratatui::buffer::Buffer {
    super::view::prepare_images(state);
    let backend = ratatui::backend::TestBackend::new(state.size.width, state.size.height);
    let mut terminal = ratatui::Terminal::new(backend).unwrap();
    terminal.draw(|frame| super::view::render(state, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The characters of a drawing, line by line, without the blanks at the ends.
pub fn text(state: &mut State) -> String {
    crate::tui::testing::rows(&draw(state))
}

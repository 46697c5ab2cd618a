//! What the tests of this room share: a run to look at, screens as text, keys as strings.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;

use super::action::Effect;
use super::capability::{ColorLevel, Glyphs};
use super::state::{Data, Settings, State};
use super::theme::Tone;
use super::view;
use crate::track::event::{Body, Event, GpuMemory, Level, StepMetrics, ValidationMetrics};
use crate::track::reader::{RunFacts, Update};
use crate::track::status::{State as RunState, Status};

/// Noon of a day, UTC.
pub const NOON: f64 = 1_767_268_800.0;

pub fn settings() -> Settings {
    Settings {
        run_dir: "outputs/bright-owl".into(),
        read_only: false,
        owned: false,
        color: ColorLevel::Never,
        glyphs: Glyphs::Braille,
        tone: Tone::Calm,
        mouse: false,
        zone: TimeZone::UTC,
        version: "0.4.0",
    }
}

pub fn status(state: RunState, heartbeat: f64) -> Status {
    Status {
        state,
        name: "bright-owl".into(),
        step: 12_400,
        steps: 30_000,
        heartbeat,
        started: NOON - 4000.0,
        pid: 4123,
        host: "h3".into(),
        loss: Some(0.312),
        lr: Some(1.92e-5),
        samples_per_s: Some(49.6),
        eta_s: Some(18_720.0),
        checkpoint: Some("checkpoints/012000".into()),
        doing: None,
    }
}

/// A repeatable value in 0..1.
fn noise(n: u64) -> f64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n >> 7);
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1u64 << 24) as f64
}

pub fn metrics(step: u64) -> StepMetrics {
    let progress = step as f64;
    let warm = (progress / 1000.0).min(1.0);
    StepMetrics {
        step,
        loss: 0.29 + 0.9 * (-progress / 2500.0).exp() + 0.05 * (noise(step) - 0.5),
        loss_valid: 0.3,
        grad_norm: if step == 9800 { 8.1 } else { 0.6 + 0.5 * noise(step + 7) },
        lr: 2e-5 * warm * (0.5 + 0.5 * (progress / 30_000.0 * std::f64::consts::PI).cos()),
        epoch: progress / 5000.0,
        samples: step * 16,
        samples_per_s: 49.6,
        chunks_per_s: None,
        loss_by_delay: Vec::new(),
        step_s: 0.322,
        data_s: 0.002,
        forward_s: 0.096,
        backward_s: 0.161,
        optimizer_s: 0.038,
        memory_bytes: 6_764_573_491,
        gpu_memory: Some(GpuMemory { used: 9_126_805_504, peak: 10_123_804_672, total: 85_899_345_920 }),
    }
}

/// The events of a run at step 12400 of 30000.
pub fn events() -> Vec<Event> {
    let at = |step: u64, body| Event { time: NOON - 4000.0 + step as f64 * 0.322, body };
    let started = Body::Started {
        step: 0,
        steps: 30_000,
        pid: 4123,
        host: "h3".into(),
        version: "0.4.0".into(),
        resumed_from: None,
    };
    let account = "812 tensors loaded, none missing; 2.1 % of 3.6 G parameters train (LoRA)".into();
    let mut events =
        vec![at(0, started), at(0, Body::Weights { account, parameters: 3_600_000_000, trained: 75_600_000 })];
    for step in (10..=12_400).step_by(10) {
        events.push(at(step, Body::Step(metrics(step))));
        if step % 2000 == 0 {
            let validation = ValidationMetrics {
                step,
                loss: metrics(step).loss + 0.04,
                zero_velocity: 1.21,
                shuffled: Some(0.93),
                loss_by_delay: Vec::new(),
                samples: 512,
                seconds: 3.0,
            };
            events.push(at(step, Body::Validation(validation)));
        }
        if step % 4000 == 0 {
            let path = format!("checkpoints/{step:06}");
            events.push(at(step, Body::Checkpoint { step, path, bytes: 1_181_116_006, seconds: 2.4 }));
        }
    }
    let text = "loader waited 140 ms (episode 88, camera wrist)".into();
    events.insert(events.len() - 2, at(12_390, Body::Notice { level: Level::Warn, text }));
    events
}

/// A run in full swing, watched since noon.
pub fn running(width: u16, height: u16) -> State {
    let mut state = State::new(settings(), NOON, Size::new(width, height));
    let facts = RunFacts { name: Some("bright-owl".into()), version: Some("0.4.0".into()), ..RunFacts::default() };
    let update = Update {
        events: events(),
        run: Some(facts),
        status: Some(status(RunState::Running, NOON - 1.0)),
        progress: 1.0,
        ..Update::default()
    };
    state.data(Data::Update(Box::new(update)));
    beat(&mut state, RunState::Running);
    state
}

/// The run's heart beats now.
pub fn beat(state: &mut State, run_state: RunState) {
    let update = Update { status: Some(status(run_state, state.now)), progress: 1.0, ..Update::default() };
    state.data(Data::Update(Box::new(update)));
}

/// An event happens now.
pub fn happen(state: &mut State, body: Body) {
    let events = vec![Event { time: state.now, body }];
    let heartbeat = state.run.status.as_ref().map_or(state.now, |s| s.heartbeat);
    let run_state = state.run.status.as_ref().map_or(RunState::Running, |s| s.state);
    let update = Update { events, status: Some(status(run_state, heartbeat)), progress: 1.0, ..Update::default() };
    state.data(Data::Update(Box::new(update)));
}

/// What is drawn.
pub fn draw(state: &State) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(state.size.width, state.size.height)).unwrap();
    terminal.draw(|frame| view::render(state, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The characters of a drawing, line by line, without the blanks at the ends.
pub fn text(state: &State) -> String {
    rows(&draw(state))
}

/// The characters of `buffer`, line by line, without the blanks at the ends.
pub fn rows(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content().chunks(width).map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

/// The styles of a drawing: for every run of cells with a style of its own, its place, style and text.
pub fn styles(state: &State) -> String {
    styled_rows(&draw(state))
}

/// As [`styles`], of any drawing.
pub fn styled_rows(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let mut result = String::new();
    for (y, row) in buffer.content().chunks(width).enumerate() {
        for group in row.chunk_by(|a, b| a.fg == b.fg && a.modifier == b.modifier) {
            let text: String = group.iter().map(|cell| cell.symbol()).collect();
            let plain = group[0].fg == ratatui::style::Color::Reset && group[0].modifier.is_empty();
            if !plain && !text.trim().is_empty() {
                result += &format!("{y:>2} {:?} {:?} {:?}\n", group[0].fg, group[0].modifier, text.trim());
            }
        }
    }
    result
}

/// Presses keys written as text: letters stand for themselves, `<Enter>`, `<Esc>`, `<Tab>`, `<C-c>` for the others.
pub fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    events_of(keys).iter().flat_map(|event| state.key(event)).collect()
}

/// Key presses of keys written as text, as [`press`] reads it.
pub fn events_of(keys: &str) -> Vec<KeyEvent> {
    let mut events = Vec::new();
    let mut rest = keys;
    while let Some(first) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|r| r.split_once('>')).and_then(|(n, r)| Some((key_named(n)?, r)));
        let (event, after) = named.unwrap_or_else(|| {
            let modifiers = if first.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
            (KeyEvent::new(KeyCode::Char(first), modifiers), &rest[first.len_utf8()..])
        });
        events.push(event);
        rest = after;
    }
    events
}

fn key_named(name: &str) -> Option<KeyEvent> {
    let code = match name {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Tab" => KeyCode::Tab,
        "S-Tab" => KeyCode::BackTab,
        "Up" => KeyCode::Up,
        "Down" => KeyCode::Down,
        "Left" => KeyCode::Left,
        "Right" => KeyCode::Right,
        "PgUp" => KeyCode::PageUp,
        "Home" => KeyCode::Home,
        "BS" => KeyCode::Backspace,
        _ => {
            let letter = name.strip_prefix("C-")?.chars().next()?;
            return Some(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        }
    };
    Some(KeyEvent::new(code, KeyModifiers::NONE))
}

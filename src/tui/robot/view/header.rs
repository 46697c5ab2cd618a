//! The first line: product, screen, robot, policy; mode, state of the arm, sign of life.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::track::telemetry::ArmState;
use crate::tui::format;
use crate::tui::robot::source::Link;
use crate::tui::robot::state::{Liveness, State};

/// `● <1 s`, `x LINK LOST 3 s`: how fresh the last word is. By the file it says so.
pub fn link_words(state: &State) -> String {
    let way = if matches!(state.link, Link::Down { file: true, .. }) { "file " } else { "" };
    match state.liveness() {
        Liveness::Waiting => "~ waiting".into(),
        Liveness::Alive(age) if age < 1.0 => format!("{} {way}<1 s", state.theme().dot()),
        Liveness::Alive(age) => format!("{} {way}{}", state.theme().dot(), format::age(age)),
        Liveness::Lost(age) => format!("x LINK LOST {}", format::age(age)),
        Liveness::Gone => "x GONE".into(),
        Liveness::Ended => "- ended".into(),
    }
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let (history, at) = state.shown();
    let status = history.status_at(at);
    let mut right = Vec::new();
    if state.frozen.is_some() {
        right.push("VIEW FROZEN".to_owned());
    }
    if let Some(status) = status {
        right.push(format!("mode {}", status.mode.to_uppercase()));
        right.push(state.arm_words(status).into());
        right.extend(status.recording.then(|| "REC".to_owned()));
    }
    let right_text = format!("{}  ", right.join("  "));
    let life = link_words(state);
    let right_width = right_text.chars().count() + life.chars().count() + 1;

    let mut left = vec!["vlash".to_owned(), "Robot".into(), state.robot()];
    left.extend(history.hello.as_ref().map(|h| h.policy.clone()).filter(|p| !p.is_empty()));
    if state.settings.read_only {
        left.push("read-only".into());
    }
    // The state matters more than the names: parts go from the end of the left side until both fit.
    let room = usize::from(area.width).saturating_sub(right_width + 2);
    while left.len() > 1 && left.join("  ").chars().count() > room {
        left.pop();
    }
    let left = format!(" {}", left.join("  "));
    let gap = usize::from(area.width).saturating_sub(left.chars().count() + right_width);
    let armed = status.is_some_and(|s| s.arm == ArmState::Armed) && matches!(state.liveness(), Liveness::Alive(_));
    let life_style = match state.liveness() {
        Liveness::Alive(_) => theme.blue(),
        Liveness::Ended | Liveness::Waiting => theme.grey(),
        Liveness::Lost(_) | Liveness::Gone => theme.orange(),
    };
    let line = Line::from(vec![
        Span::styled(left, theme.strong()),
        Span::raw(" ".repeat(gap)),
        Span::styled(right_text, if armed { theme.blue().patch(theme.strong()) } else { theme.strong() }),
        Span::styled(life, life_style),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

//! The first line: product, screen, run, place; state, time left, sign of life.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::tui::format;
use crate::tui::run::Liveness;
use crate::tui::state::State;

/// `RUNNING 41 %`.
pub fn state_words(state: &State) -> String {
    let (done, steps) = state.run.steps();
    let word = state.run.word();
    if steps == 0 {
        return word.into();
    }
    // Rounded down: 100 % is said when all is done.
    let percent = (done as f64 / steps as f64 * 100.0).floor().min(100.0);
    format!("{word} {percent} %")
}

/// `3 s`, `~ stale 45 s`, `! no heartbeat for 12 min`, `x process gone`.
pub fn life_words(state: &State) -> String {
    if state.run.problem.is_some() {
        return "x unreadable".into();
    }
    match state.run.liveness(state.now) {
        Liveness::Waiting => "~ waiting".into(),
        Liveness::Alive(age) => format!("{} {}", state.theme().dot(), format::age(age)),
        Liveness::Stale(age) => format!("~ stale {}", format::age(age)),
        Liveness::Silent(age) => format!("! no heartbeat for {}", format::age(age)),
        Liveness::Vanished => "x process gone".into(),
        Liveness::Ended => "- ended".into(),
    }
}

pub fn render(state: &State, frame: &mut Frame, area: Rect) {
    let theme = state.theme();
    let run = &state.run;
    let mut right = vec![state_words(state)];
    if run.progress < 1.0 {
        right.push(format!("reading history {:.0} %", run.progress * 100.0));
    } else if let Some(eta) = run.eta().filter(|_| !state.is_stale()) {
        right.push(format!("ETA {}", format::duration(eta)));
    }
    let life = life_words(state);
    let right_text = format!("{}  ", right.join("  "));
    let right_width = right_text.chars().count() + life.chars().count() + 1;

    let place = run.process().map(|(pid, host)| format!("local {host} pid {pid}"));
    let mut left = vec!["vlash".to_owned(), "Train".into(), run.name()];
    left.extend(place);
    if state.settings.read_only {
        left.push("read-only".into());
    }
    // The state matters more than the place: parts go from the end of the left side until both fit.
    let room = usize::from(area.width).saturating_sub(right_width + 2);
    while left.len() > 1 && left.join("  ").chars().count() > room {
        left.remove(if left.len() > 3 { left.len() - 1 } else { left.len() - 2 });
    }
    let name = left.pop().unwrap_or_default();
    let prefix = if left.is_empty() { " ".to_owned() } else { format!(" {}  ", left.join("  ")) };
    let used = prefix.chars().count() + name.chars().count();
    let gap = usize::from(area.width).saturating_sub(used + right_width);

    let life_style = match run.liveness(state.now) {
        Liveness::Alive(_) if run.problem.is_none() => theme.blue(),
        Liveness::Ended | Liveness::Waiting => theme.grey(),
        _ => theme.orange(),
    };
    let line = Line::from(vec![
        Span::styled(prefix, theme.strong()),
        Span::raw(name),
        Span::raw(" ".repeat(gap)),
        Span::styled(right_text, theme.strong()),
        Span::styled(life, life_style),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

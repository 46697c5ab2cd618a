//! How fast the run is and what a step is spent on; what memory it takes; what it has reached.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{block, value_style};
use crate::track::event::GpuMemory;
use crate::tui::format;
use crate::tui::state::{Pane, State};

pub fn render_speed(state: &State, frame: &mut Frame, area: Rect, title: String) {
    let block = block(state, Pane::Speed, title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some(metrics) = &state.run.metrics else {
        return frame.render_widget(Paragraph::new("no step yet").style(state.theme().grey()), inner);
    };
    let per_second = if metrics.step_s > 0.0 { format::metric(1.0 / metrics.step_s) } else { "n/a".into() };
    let chunks = metrics.chunks_per_s.map(|rate| format!(" ({} chunks/s)", format::metric(rate))).unwrap_or_default();
    let head = format!(
        "{per_second} step/s  {} smp/s{chunks}  step {}",
        format::metric(metrics.samples_per_s),
        format::seconds(metrics.step_s)
    );
    let mut lines = vec![Line::styled(head, value_style(state))];
    let parts = [
        ("data", metrics.data_s),
        ("forward", metrics.forward_s),
        ("backward", metrics.backward_s),
        ("optimizer", metrics.optimizer_s),
    ];
    // Each part against the longest, so that the bars use the room there is.
    let longest = parts.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
    let room = usize::from(inner.width).saturating_sub(20);
    for (name, seconds) in parts {
        let share =
            if metrics.step_s > 0.0 { format!(" {:>2.0} %", seconds / metrics.step_s * 100.0) } else { String::new() };
        let bar = state.theme().bar(seconds / longest, room.saturating_sub(share.len()));
        lines.push(Line::from(vec![
            Span::styled(format!("{name:<9} {:>8} ", format::seconds(seconds)), value_style(state)),
            Span::styled(bar, if state.is_stale() { state.theme().grey() } else { state.theme().blue() }),
            Span::styled(share, state.theme().grey()),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

/// What the run holds of its GPU.
fn gpu(memory: Option<GpuMemory>) -> String {
    memory.map_or_else(
        || "n/a: the run reports no GPU memory".into(),
        |m| {
            let [peak, used, total] = [m.peak, m.used, m.total].map(format::bytes);
            format!("{peak} at its peak, {used} of {total} in use now")
        },
    )
}

pub fn render_memory(state: &State, frame: &mut Frame, area: Rect, title: String) {
    let block = block(state, Pane::Memory, title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let run = &state.run;
    let metrics = run.metrics.as_ref();
    // Nothing measured is "n/a", never a zero.
    let memory = metrics.map(|m| m.memory_bytes).filter(|&b| b > 0).map_or_else(|| "n/a".into(), format::bytes);
    let mut rows =
        vec![("process", format!("{memory} at its peak (resident)")), ("GPU", gpu(metrics.and_then(|m| m.gpu_memory)))];
    if let Some(metrics) = metrics {
        rows.push(("seen", format!("{} samples, epoch {:.2}", format::count(metrics.samples), metrics.epoch)));
    }
    if let Some(v) = &run.validated {
        let shuffled = v.shuffled.map(|s| format!(", shuffled {}", format::metric(s))).unwrap_or_default();
        let text = format!(
            "{} at step {} (zero {}{shuffled})",
            format::metric(v.loss),
            v.step,
            format::metric(v.zero_velocity)
        );
        rows.push(("held out", text));
    }
    if let Some(v) = run.validated.as_ref().filter(|v| !v.loss_by_delay.is_empty()) {
        let each: Vec<String> =
            v.loss_by_delay.iter().map(|loss| loss.map_or_else(|| "n/a".into(), format::metric)).collect();
        rows.push(("by delay", each.join(" ")));
    }
    let checkpoint = match (&run.checkpoint, run.last_checkpoint()) {
        (Some(c), _) => format!("{} ({}, {})", c.path, format::bytes(c.bytes), format::seconds(c.seconds)),
        (None, Some(path)) => path,
        (None, None) => "none yet".into(),
    };
    rows.push(("saved", checkpoint));
    if let Some(weights) = &run.weights {
        rows.push(("weights", weights.clone()));
    }
    let lines: Vec<Line> = rows
        .into_iter()
        .map(|(name, text)| {
            Line::from(vec![
                Span::styled(format!("{name:<9}"), state.theme().grey()),
                Span::styled(text, value_style(state)),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

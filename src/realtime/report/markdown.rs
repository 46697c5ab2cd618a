//! The report as text.

use super::{Episode, LATENCY, PERIOD, Report, TIMELINE};
use crate::realtime::metrics::{Boundary, Distribution};

/// `report.md`.
pub(super) fn text(report: &Report) -> String {
    let mut page = format!("# Rollout on {}\n\n", cell(&report.robot));
    page.push_str(&format!("- Task: {}\n- Policy: {}\n", cell(&report.task), cell(&report.policy)));
    page.push_str(&format!(
        "- Mode {}, {:.0} Hz, {} of {} actions executed a chunk, trained for delays of at most {} steps\n",
        report.mode, report.fps, report.execute, report.horizon, report.trained_delay
    ));
    let (judged, succeeded) = report.successes();
    if judged > 0 {
        let time = report.completion_s().map(|s| format!(", in {s:.1} s on average")).unwrap_or_default();
        page.push_str(&format!("- Success: {succeeded} of {judged}{time}\n"));
    }
    page.push_str(&format!("- vlash {}\n", report.version));
    page.push_str(&episodes(&report.episodes));
    for (number, episode) in report.episodes.iter().enumerate() {
        page.push_str(&format!("\n## Episode {}, seed {}\n\n", number + 1, episode.seed));
        for notice in &episode.notices {
            page.push_str(&format!("> {}\n\n", cell(notice)));
        }
        page.push_str(&figures(episode));
    }
    for (title, file) in [("Inference latency", LATENCY), ("Chunks", TIMELINE), ("Control period", PERIOD)] {
        page.push_str(&format!("\n## {title}\n\n![{title}]({file})\n"));
    }
    page
}

fn episodes(episodes: &[Episode]) -> String {
    let mut table =
        String::from("\n| seed | end | seconds | ticks | held | continued | late chunks | missed ticks |\n");
    table.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for episode in episodes {
        let figures = &episode.metrics;
        table.push_str(&format!(
            "| {} | {} | {:.1} | {} | {} | {} | {} | {} |\n",
            episode.seed,
            cell(&episode.end),
            figures.seconds,
            figures.ticks,
            figures.held_ticks,
            figures.continued_ticks,
            figures.late_chunks,
            figures.missed_ticks
        ));
    }
    table
}

fn figures(episode: &Episode) -> String {
    let figures = &episode.metrics;
    let mut table = String::from(
        "| | mean | std | p50 | p90 | p95 | p99 | max |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let rows: [(&str, &Distribution, usize); 11] = [
        ("inference latency, ms", &figures.latency_ms, 1),
        ("· preprocess", &figures.preprocess_ms, 1),
        ("· vision and prefix", &figures.prefix_ms, 1),
        ("· denoise", &figures.denoise_ms, 1),
        ("· copy", &figures.copy_ms, 1),
        ("control period, ms", &figures.period_ms, 2),
        ("\\|period − wanted\\|, ms", &figures.jitter_ms, 2),
        ("age of the image behind an action, ms", &figures.observation_age_ms, 1),
        ("jump where chunks meet, rad", &figures.boundary_jump, 4),
        ("state told − state at the splice, rad", &figures.state_error, 4),
        ("state − last command, rad", &figures.tracking_error, 4),
    ];
    for (name, of, digits) in rows {
        let cells = [of.mean, of.std, of.p50, of.p90, of.p95, of.p99, of.max];
        let cells = cells.map(|value| if of.count == 0 { "n/a".into() } else { format!("{value:.digits$}") });
        table.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    table.push_str(&format!(
        "\n{} chunks: {} late, {} discarded, {} rejected. {} ticks with a clipped command. {:.1} % of the ticks under the \
         policy without a fresh action. RMS jerk {:.1} rad/s³, {} changes of direction. Warm-up inference {:.1} ms.\n",
        figures.chunks,
        figures.late_chunks,
        figures.discarded_chunks,
        figures.rejected_chunks,
        figures.clipped_ticks,
        1e2 * figures.idle_fraction,
        figures.jerk_rms,
        figures.sign_changes,
        episode.warm_up_ms
    ));
    table.push_str(&boundaries(&figures.boundaries));
    table
}

/// Where chunks meet, by joint, against what is usual inside of them.
fn boundaries(boundaries: &[Boundary]) -> String {
    if boundaries.iter().all(|boundary| boundary.jump.count == 0) {
        return String::new();
    }
    let mut table =
        String::from("\n| joint | median step in a chunk | jump p50 | p95 | max | change of step p95 | max |\n");
    table.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for Boundary { joint, median_step, jump, velocity_jump } in boundaries {
        let values = [*median_step, jump.p50, jump.p95, jump.max, velocity_jump.p95, velocity_jump.max];
        let values = values.map(|value| format!("{value:.4}")).join(" | ");
        table.push_str(&format!("| {} | {values} |\n", cell(joint)));
    }
    table.push_str("\nSteps in rad or m a tick.\n");
    table
}

/// Foreign text that breaks neither line nor table.
fn cell(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|")
}

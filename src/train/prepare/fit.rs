//! Whether the run fits the device, asked before any weight is read.

use super::data::Data;
use crate::config::train::{Dtype, TrainConfig};
use crate::dataset::finding::{Finding, Severity};
use crate::device::{self, Gpu, Opened};
use crate::plan::fit::Fit;
use crate::plan::report::On;
use crate::plan::subject::Target;
use crate::plan::{Report, Subject, cards};
use crate::train::error::TrainError;
use crate::train::memory;

/// Plans the run on the device that was opened for it.
///
/// # Errors
/// A GPU without bf16 when bf16 is asked for; a GPU whose free memory is less than the run needs, unless `ignore`.
/// On a CPU, whose memory others share and can give back, a run that seems too large is a warning.
pub fn check(
    config: &TrainConfig,
    data: &Data,
    opened: &Opened,
    ignore: bool,
) -> Result<(Report, Option<Finding>), TrainError> {
    let cameras = data.train.cameras().iter().map(|camera| camera.name.clone()).collect();
    let subject = Subject::new(config, Some(cameras))?;
    let Some(gpu) = &opened.gpu else {
        let room = memory::total_and_available().map(|(total, free)| ("this machine", total, free));
        let report = Report::of(&subject, On { target: Target::Cpu, card: None, room })?;
        let finding = finding(&report);
        return Ok((report, finding));
    };
    if config.model.dtype == Dtype::Bfloat16 && gpu.capability.0 < 8 {
        return Err(TrainError::NoBf16 { name: gpu.name.clone(), capability: gpu.capability });
    }
    let report = Report::of(&subject, on(gpu, free_bytes(gpu, opened)))?;
    if !ignore && report.room.as_ref().is_some_and(|room| room.fit == Fit::TooLarge) {
        return Err(TrainError::DoesNotFit(Box::new(report)));
    }
    let finding = finding(&report);
    Ok((report, finding))
}

/// A GPU that is here, with what is free of it.
pub fn on(gpu: &Gpu, free: u64) -> On<'_> {
    let card = cards::detected(&gpu.name, gpu.total_bytes);
    On { target: Target::Gpu, card, room: Some((&gpu.name, gpu.total_bytes, free)) }
}

/// What others have left of a GPU. What this process holds already, its context, is part of what the planner counts.
pub fn free_bytes(gpu: &Gpu, opened: &Opened) -> u64 {
    device::memory::read(&opened.device)
        .map_or(gpu.total_bytes, |memory| (memory.total.saturating_sub(memory.used) + memory.peak).min(memory.total))
}

/// A warning when memory is close or short.
fn finding(report: &Report) -> Option<Finding> {
    let room = report.room.as_ref()?;
    let (code, rung) = match room.fit {
        Fit::Fits => return None,
        Fit::Close => ("memory-close", 1),
        // No fix where none of the ladder's is enough.
        Fit::TooLarge => ("memory-short", report.ladder.first_within(room.free_bytes).unwrap_or(0)),
    };
    let settings = report.ladder.settings(rung);
    Some(Finding {
        severity: Severity::Warning,
        code,
        message: report.verdict()?,
        fix: (!settings.is_empty()).then_some(settings),
    })
}

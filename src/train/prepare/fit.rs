//! Whether the run fits the device, asked before any weight is read.

use super::data::Data;
use crate::config::train::TrainConfig;
use crate::dataset::finding::{Finding, Severity};
use crate::device::{self, Gpu, Opened};
use crate::plan::calibration::CALIBRATION;
use crate::plan::fit::Fit;
use crate::plan::report::On;
use crate::plan::subject::Target;
use crate::plan::{Report, Subject, cards};
use crate::train::error::TrainError;
use crate::train::memory;

/// Plans the run on the device that was opened for it.
///
/// # Errors
/// A GPU whose free memory is less than the run needs, unless `ignore`.
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

/// What others have left of a GPU that was just opened.
pub fn free_bytes(gpu: &Gpu, opened: &Opened) -> u64 {
    device::memory::read(&opened.device).map_or(gpu.total_bytes, |memory| left(memory.used, memory.total))
}

/// Of `used` bytes the planner counts those of this process, too: at first its context, which the driver does not tell
/// from what others hold.
fn left(used: u64, total: u64) -> u64 {
    total.saturating_sub(used.saturating_sub(CALIBRATION.runtime_bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_hold_is_not_free_and_the_own_context_is() {
        let (context, total) = (CALIBRATION.runtime_bytes, 80 << 30);
        assert_eq!(left(context / 2, total), total);
        assert_eq!(left(context + (60 << 30), total), 20 << 30);
        assert_eq!(left(total, total), context);
    }
}

//! The whole network against the reference implementation, tensor by tensor.

use candle_core::{Device, Result, bail};
use vlash_forge::adapter::plan::Everything;
use vlash_forge::policy::Policy;
use vlash_forge::policy::verify::{Reference, Verdict, verify};

use super::record::Record;
use super::{CAMERAS, load, pixels, policy};

/// The files of a case.
const FILES: [&str; 5] = ["inputs", "train_forward", "gradients", "inference", "inference_other_step_counts"];
/// Tensors in them that are no inputs.
const TENSORS: usize = 203;

/// Boundary tensors, masks, losses, all gradients, key/value caches, Euler steps, and chunks of 10, 1, 4 and 5 steps.
pub fn every_tensor(device: &Device, case: &str, record: &mut Record) -> Result<()> {
    let one = |file: &str| -> Result<Reference> {
        Ok(Reference { file: file.into(), tensors: load(&format!("pi05-tiny/{case}/{file}.safetensors"))? })
    };
    let references = FILES.into_iter().map(one).collect::<Result<Vec<_>>>()?;
    let compared = agree(&policy(&Everything, device)?, &references, record)?;
    assert_eq!(compared, TENSORS);
    Ok(())
}

/// Compares `policy` with reference files from raw images on, within the tolerances of [`verify`]; how many tensors
/// were compared.
pub fn agree(policy: &Policy, references: &[Reference], record: &mut Record) -> Result<usize> {
    let report = verify(policy, references, &CAMERAS.map(str::to_owned), |_, raw| pixels(raw))?;
    for row in &report.rows {
        if let Verdict::NotCompared(why) = &row.verdict {
            bail!("{} of {}: {why}", row.name, row.file)
        }
        record.hold(kind(&row.name), &row.name, row.max_abs, row.tolerance);
    }
    Ok(report.compared)
}

/// `image.0.siglip_layer.1` is a `siglip_layer`; what begins with `model.` is the gradient of that parameter.
fn kind(name: &str) -> &str {
    if name.starts_with("model.") {
        return "gradients";
    }
    let is_number = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    name.rsplit('.').find(|part| !is_number(part)).unwrap_or(name)
}

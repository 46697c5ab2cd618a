//! The hash of the weights that adapters are trained on.

use candle_core::{DType, Device, Tensor};

use crate::adapter::base::WeightsDigest;
use crate::policy::arch::Arch;
use crate::policy::parameters::parameters;
use crate::policy::weights::WeightSource;

/// Hashes every parameter of `arch` as `source` gives it, in its stored type: the same weights give the same hash
/// from one file or many, tied or not.
pub fn digest(source: &dyn WeightSource, arch: &Arch) -> candle_core::Result<String> {
    let mut digest = WeightsDigest::default();
    for parameter in parameters(arch) {
        let tensor = source.tensor(&parameter.name, &parameter.shape, &Device::Cpu)?;
        let (dtype, bytes) = raw(&tensor)?;
        digest.add(&parameter.name, dtype, &parameter.shape, &bytes);
    }
    Ok(digest.hex())
}

/// The safetensors name of the type, and the elements as little-endian bytes.
fn raw(tensor: &Tensor) -> candle_core::Result<(&'static str, Vec<u8>)> {
    let flat = tensor.flatten_all()?;
    Ok(match tensor.dtype() {
        DType::BF16 => ("BF16", flat.to_vec1::<half::bf16>()?.iter().flat_map(|x| x.to_le_bytes()).collect()),
        DType::F16 => ("F16", flat.to_vec1::<half::f16>()?.iter().flat_map(|x| x.to_le_bytes()).collect()),
        _ => ("F32", flat.to_dtype(DType::F32)?.to_vec1::<f32>()?.iter().flat_map(|x| x.to_le_bytes()).collect()),
    })
}

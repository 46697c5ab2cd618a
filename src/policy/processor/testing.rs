//! Golden files for the parity tests of this room.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

/// Path of a file below `tests/fixtures`.
pub fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

pub fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// The tensors of one golden file.
pub struct Golden(HashMap<String, Tensor>);

impl Golden {
    pub fn open(name: &str) -> Golden {
        Golden(candle_core::safetensors::load(path(name), &Device::Cpu).unwrap())
    }

    pub fn tensor(&self, name: &str) -> &Tensor {
        self.0.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.tensor(name).dims().to_vec()
    }

    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.tensor(name).to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    pub fn u8(&self, name: &str) -> Vec<u8> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }

    pub fn i64(&self, name: &str) -> Vec<i64> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }
}

/// Asserts that all values agree within `absolute`.
pub fn close(ours: &[f32], reference: &[f32], absolute: f32, what: &str) {
    assert_eq!(ours.len(), reference.len(), "{what}: number of values");
    for (at, (a, b)) in ours.iter().zip(reference).enumerate() {
        assert!((a - b).abs() <= absolute, "{what}[{at}]: {a} against {b}");
    }
}

/// Asserts that all values agree within `relative` of the larger magnitude (and `relative` itself near zero).
pub fn close_relatively(ours: &[f32], reference: &[f32], relative: f32, what: &str) {
    assert_eq!(ours.len(), reference.len(), "{what}: number of values");
    for (at, (a, b)) in ours.iter().zip(reference).enumerate() {
        let limit = relative * a.abs().max(b.abs()).max(1.0);
        assert!((a - b).abs() <= limit, "{what}[{at}]: {a} against {b}");
    }
}

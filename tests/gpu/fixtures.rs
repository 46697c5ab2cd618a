//! The golden fixtures that this executable carries.

use std::io;
use std::path::Path;

use include_dir::{Dir, include_dir};

/// Folders of `tests/fixtures`, each with everything in it.
const FOLDERS: [(&str, Dir); 6] = [
    ("pi05-tiny/case-a", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/pi05-tiny/case-a")),
    ("pi05-tiny/case-b", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/pi05-tiny/case-b")),
    ("lora/adapter-lerobot-default", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/lora/adapter-lerobot-default")),
    ("optimisation/training", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/optimisation/training")),
    ("preprocessing/processors-pi05", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/preprocessing/processors-pi05")),
    ("preprocessing/tokenizer", include_dir!("$CARGO_MANIFEST_DIR/tests/fixtures/preprocessing/tokenizer")),
];

macro_rules! file {
    ($path:literal) => {
        ($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/", $path)).as_slice())
    };
}

/// Single files of folders that hold much more.
const FILES: [(&str, &[u8]); 10] = [
    file!("pi05-tiny/model.safetensors"),
    file!("lora/adapter-all-linear/adapter_config.json"),
    file!("lora/adapter-all-linear/adapter_model.safetensors"),
    file!("lora/adapter-all-linear/gradients.safetensors"),
    file!("lora/adapter-all-linear/reference.safetensors"),
    file!("preprocessing/end_to_end_pi05.safetensors"),
    file!("vlash/shared-observation.safetensors"),
    file!("vlash/shared-observation-gradients.safetensors"),
    file!("vlash/state-conditioned-single.safetensors"),
    file!("vlash/state-conditioning-weights.safetensors"),
];

/// Writes all of them below `root`, laid out as in `tests/fixtures`.
pub fn unpack(root: &Path) -> io::Result<()> {
    for (folder, content) in &FOLDERS {
        let folder = root.join(folder);
        std::fs::create_dir_all(&folder)?;
        content.extract(&folder)?;
    }
    for (file, content) in FILES {
        let file = root.join(file);
        file.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(file, content)?;
    }
    Ok(())
}

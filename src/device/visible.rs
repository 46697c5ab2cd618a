//! `CUDA_VISIBLE_DEVICES`, read as CUDA reads it, to explain what is seen. The value itself is never rewritten:
//! the driver applies it, and device 0 of this process is its first entry.

/// The variable.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// What the variable lets a process see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// Not set.
    All,
    /// Nothing: the value is empty, says so, or begins with an entry that CUDA does not take.
    Nothing,
    /// Entries as they were written, up to the first that CUDA does not take.
    Listed(Vec<String>),
}

/// An entry names a device that an earlier one named: CUDA then shows none at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}={value:?} names {entry} twice")]
pub struct Twice {
    pub value: String,
    pub entry: String,
}

/// The kinds of entries; a list holds one kind and ends where another begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Index,
    Gpu,
    Mig,
}

/// Reads a value of the variable.
///
/// # Errors
/// [`Twice`]: indices or identifiers that are equal as written (`01` is 1; letters in any case).
pub fn parse(value: Option<&str>) -> Result<Visible, Twice> {
    let Some(value) = value else { return Ok(Visible::All) };
    let mut entries: Vec<String> = Vec::new();
    let mut first = None;
    for entry in value.split(',').map(str::trim) {
        let Some((form, canonical)) = read(entry) else { break };
        if *first.get_or_insert(form) != form {
            break;
        }
        if entries.iter().any(|earlier| read(earlier).is_some_and(|(_, earlier)| earlier == canonical)) {
            return Err(Twice { value: value.to_owned(), entry: entry.to_owned() });
        }
        entries.push(entry.to_owned());
    }
    Ok(if entries.is_empty() { Visible::Nothing } else { Visible::Listed(entries) })
}

/// Whether a value names GPUs, be it in a way that CUDA refuses.
pub fn names_any(value: &str) -> bool {
    !matches!(parse(Some(value)), Ok(Visible::Nothing | Visible::All))
}

/// The form of an entry, and what equal entries have in common. None: nothing that CUDA takes (`-1`, `NoDevFiles`).
fn read(entry: &str) -> Option<(Form, String)> {
    if !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((Form::Index, entry.trim_start_matches('0').to_owned()));
    }
    let lower = entry.to_ascii_lowercase();
    let form = if lower.starts_with("mig-") {
        Form::Mig
    } else if lower.starts_with("gpu-") {
        Form::Gpu
    } else {
        return None;
    };
    (lower.len() > "gpu-".len()).then_some((form, lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(value: &str) -> Vec<String> {
        match parse(Some(value)).unwrap() {
            Visible::Listed(entries) => entries,
            other => panic!("{value:?}: {other:?}"),
        }
    }

    #[test]
    fn every_form_that_schedulers_write_is_read() {
        assert_eq!(parse(None).unwrap(), Visible::All);
        for uuids in ["GPU-8f2c41d0-11,GPU-03aa91c7-22", "GPU-8f2c", "MIG-5b1e", "MIG-GPU-8f2c/1/0", "2,3", "7"] {
            assert_eq!(listed(uuids).join(","), uuids);
        }
        assert_eq!(listed(" 2, 3 "), ["2", "3"]);
    }

    #[test]
    fn values_that_hide_every_gpu_are_recognised() {
        for nothing in ["", " ", "-1", "NoDevFiles", "none", "-1,0", "gpu-", ",0"] {
            assert_eq!(parse(Some(nothing)).unwrap(), Visible::Nothing, "{nothing:?}");
        }
    }

    #[test]
    fn the_list_ends_at_the_first_entry_that_cuda_does_not_take() {
        assert_eq!(listed("0,-1,1"), ["0"]);
        assert_eq!(listed("1,,2"), ["1"]);
        assert_eq!(listed("0,GPU-8f2c"), ["0"]);
        assert_eq!(listed("3,x"), ["3"]);
    }

    /// A job with such a value was given GPUs: the CPU would be a surprise.
    #[test]
    fn a_device_that_is_named_twice_is_refused_and_meant() {
        assert!(names_any("1") && !names_any("-1") && !names_any(""));
        for twice in ["0,0", "0,1,00", "GPU-8f2c,gpu-8F2C"] {
            assert!(names_any(twice));
            assert!(parse(Some(twice)).unwrap_err().to_string().contains("twice"), "{twice}");
        }
    }
}

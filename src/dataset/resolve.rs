//! Which directory a configuration means by `data.repo` and `data.root`.

use std::env;
use std::path::{Path, PathBuf};

use super::error::DatasetError;
use super::finding::{Finding, Severity};

/// The directory of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub path: PathBuf,
    /// What is to be said about how it was found.
    pub finding: Option<Finding>,
}

/// Finds the dataset on this machine.
///
/// 1. `repo` is a directory with `meta/info.json`: that one. What looks like a path is never anything else.
/// 2. `root` has `meta/info.json`: `root` itself.
/// 3. `root/owner/name`; without a root `$HF_LEROBOT_HOME/owner/name` (`$HF_HOME/lerobot`, `~/.cache/huggingface/lerobot`).
pub fn resolve(repo: Option<&str>, root: Option<&Path>) -> Result<Resolved, DatasetError> {
    resolve_in(repo, root, &lerobot_home())
}

fn lerobot_home() -> PathBuf {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("HF_LEROBOT_HOME")
        .or_else(|| variable("HF_HOME").map(|home| home.join("lerobot")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/lerobot")))
        .unwrap_or_else(|| PathBuf::from(".cache/huggingface/lerobot"))
}

fn resolve_in(repo: Option<&str>, root: Option<&Path>, home: &Path) -> Result<Resolved, DatasetError> {
    let plain = |path: PathBuf| Resolved { path, finding: None };
    let refuse = |path: &Path, why: &str| DatasetError::NotADataset { path: path.to_path_buf(), why: why.into() };
    let Some(repo) = repo else {
        return match root {
            Some(root) if is_dataset(root) => Ok(plain(root.to_path_buf())),
            Some(root) => Err(refuse(root, "it has no meta/info.json, and data.repo names no dataset below it")),
            None => Err(refuse(Path::new("(none)"), "neither data.repo nor data.root is set")),
        };
    };
    let path = Path::new(repo);
    if is_dataset(path) {
        return Ok(plain(path.to_path_buf()));
    }
    let Some((owner, name)) = owner_and_name(repo).filter(|_| !path.exists()) else {
        let why = if path.is_dir() { "it has no meta/info.json" } else { "there is no such directory" };
        return Err(refuse(path, why));
    };
    let below = root.unwrap_or(home).join(owner).join(name);
    let Some(root) = root.filter(|root| is_dataset(root)) else {
        return if is_dataset(&below) {
            Ok(plain(below))
        } else {
            Err(refuse(
                &below,
                &format!("{repo} is not there (nor a path), and datasets are read from local directories only"),
            ))
        };
    };
    if is_dataset(&below) {
        let why = format!("both it and {} are datasets; which of them {repo} means is not clear", below.display());
        return Err(refuse(root, &why));
    }
    // Nothing in a dataset tells its repository; its directory's name is the only sign.
    let named_otherwise = root.file_name().is_none_or(|directory| directory != name);
    let finding = named_otherwise.then(|| Finding {
        severity: Severity::Warning,
        code: "root-name",
        message: format!(
            "data.root {} is itself a dataset and is taken for {repo}, though its name differs",
            root.display()
        ),
        fix: Some(format!("data.repo = {:?}", root.display().to_string())),
    });
    Ok(Resolved { path: root.to_path_buf(), finding })
}

fn is_dataset(path: &Path) -> bool {
    path.join("meta/info.json").is_file()
}

/// Splits `owner/name`; none when the text is a path.
fn owner_and_name(repo: &str) -> Option<(&str, &str)> {
    let (owner, name) = repo.split_once('/')?;
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '~'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    (plain(owner) && plain(name)).then_some((owner, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn make(path: &Path) {
        fs::create_dir_all(path.join("meta")).unwrap();
        fs::write(path.join("meta/info.json"), "{}").unwrap();
    }

    #[test]
    fn the_order_of_places() {
        let dir = tempfile::tempdir().unwrap();
        let (home, root) = (dir.path().join("home"), dir.path().join("root"));
        let (own, below, cached) = (dir.path().join("pick"), root.join("lab/pick"), home.join("lab/pick"));
        let find = |repo: &str, root: Option<&Path>| resolve_in(Some(repo), root, &home).map(|found| found.path);

        assert!(find("lab/pick", None).is_err());
        make(&cached);
        assert_eq!(find("lab/pick", None).unwrap(), cached);
        make(&below);
        assert_eq!(find("lab/pick", Some(&root)).unwrap(), below);
        make(&own);
        assert_eq!(find(own.to_str().unwrap(), Some(&root)).unwrap(), own);
        assert_eq!(find("lab/pick", Some(&own)).unwrap(), own);
        assert_eq!(resolve_in(None, Some(&own), &home).unwrap().path, own);

        // A root that is a dataset of another name is taken, with a warning; one that could be both is not.
        let other = resolve_in(Some("lab/place"), Some(&own), &home).unwrap();
        assert_eq!(other.finding.unwrap().code, "root-name");
        make(&root);
        assert!(find("lab/pick", Some(&root)).unwrap_err().to_string().contains("is not clear"));
    }

    #[test]
    fn what_looks_like_a_path_is_never_a_repository() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        for repo in ["./lab/pick", "../lab", "~/pick", "/nowhere", "pick", "a/b/c"] {
            let error = resolve_in(Some(repo), None, home).unwrap_err().to_string();
            assert!(error.ends_with("there is no such directory"), "{error}");
        }
        let empty = home.join("empty");
        fs::create_dir(&empty).unwrap();
        let error = resolve_in(empty.to_str(), None, home).unwrap_err().to_string();
        assert!(error.ends_with("it has no meta/info.json"), "{error}");
    }
}

use std::collections::BTreeMap;

use super::*;

/// A root folder with these empty files.
fn root(files: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    root
}

/// Runs the search below `root` with variables whose values are relative to it; opens whatever file is there.
fn search(library: Library, root: &Path, variables: &[(&str, &str)], driver: Option<u32>) -> (Option<String>, Search) {
    let join = |value: &str| value.split(':').map(|v| root.join(v).display().to_string()).collect::<Vec<_>>().join(":");
    let variables: BTreeMap<&str, String> = variables.iter().map(|(name, value)| (*name, join(value))).collect();
    let around = Surroundings { root, variable: &|name| variables.get(name).map(OsString::from) };
    let mut account = Search::default();
    let mut open = |path: &Path| {
        if path.is_absolute() { Ok((path.to_owned(), path.to_owned())) } else { Err(Outcome::Absent) }
    };
    let found = find(library, &places(library, &around), driver, &mut account, &mut open);
    let relative = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
    (found.map(relative), account)
}

#[test]
fn the_own_variable_comes_before_everything_and_the_loader_before_known_folders() {
    let files =
        ["mine/libcuda.so.1", "ld/libcuda.so.1", "usr/local/nvidia/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1"];
    let root = root(&files);
    let variables = [(OWN_VARIABLE, "empty:mine"), ("LD_LIBRARY_PATH", "ld")];
    assert_eq!(search(Library::Driver, root.path(), &variables, None).0.unwrap(), files[0]);
    assert_eq!(search(Library::Driver, root.path(), &variables[1..], None).0.unwrap(), files[1]);
    let (found, account) = search(Library::Driver, root.path(), &[], None);
    assert_eq!(found.unwrap(), files[2]);
    let origins: Vec<_> = account.0.iter().map(|look| look.origin).collect();
    assert_eq!(origins, ["the loader's own search", "Kubernetes' device plug-ins"]);
}

#[test]
fn drivers_of_nix_singularity_and_jetpack_are_found() {
    for file in [
        "run/opengl-driver/lib/libcuda.so.1",
        ".singularity.d/libs/libcuda.so.1",
        "usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
        "usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
    ] {
        let root = root(&[file]);
        assert_eq!(search(Library::Driver, root.path(), &[], None).0.as_deref(), Some(file));
    }
}

#[test]
fn a_stub_is_named_and_passed_over() {
    let root = root(&["usr/local/cuda/lib64/stubs/libcuda.so.1", "usr/lib64/libcuda.so.1"]);
    let variables = [("LD_LIBRARY_PATH", "usr/local/cuda/lib64/stubs")];
    let (found, account) = search(Library::Driver, root.path(), &variables, None);
    assert_eq!(found.unwrap(), "usr/lib64/libcuda.so.1");
    assert!(matches!(&account.0[0].outcome, Outcome::Refused(why) if why.contains("stub")), "{account}");
}

#[test]
fn the_newest_toolkit_that_the_driver_can_serve_is_taken() {
    let root = root(&[
        "usr/local/cuda-12.4/lib64/libcublas.so.12",
        "usr/local/cuda-12.10/lib64/libcublas.so.12",
        "usr/local/cuda-13.0/lib64/libcublas.so.13",
        "usr/local/cuda-11.8/lib64/libcublas.so.12",
    ]);
    let found = |driver| search(Library::Cublas, root.path(), &[], Some(driver));
    assert_eq!(found(13).0.unwrap(), "usr/local/cuda-13.0/lib64/libcublas.so.13");
    let (older, account) = found(12);
    assert_eq!(older.unwrap(), "usr/local/cuda-12.10/lib64/libcublas.so.12");
    assert!(account.to_string().contains("for CUDA 13; the driver supports CUDA 12"), "{account}");
}

#[test]
fn the_wheels_of_a_python_environment_are_found() {
    let packages = "env/lib/python3.12/site-packages/nvidia";
    let cu13 = root(&["env/bin/python3", &format!("{packages}/cu13/lib/libcublas.so.13")]);
    let wanted = Some(format!("{packages}/cu13/lib/libcublas.so.13"));
    for variable in [("VIRTUAL_ENV", "env"), ("CONDA_PREFIX", "env"), ("PATH", "usr/bin:env/bin")] {
        assert_eq!(search(Library::Cublas, cu13.path(), &[variable], Some(13)).0, wanted, "{variable:?}");
    }
    let files = ["cublas/lib/libcublas.so.12", "curand/lib/libcurand.so.10"].map(|f| format!("{packages}/{f}"));
    let cu12 = root(&[&files[0], &files[1]]);
    let found = |library| search(library, cu12.path(), &[("VIRTUAL_ENV", "env")], Some(12)).0;
    assert_eq!(found(Library::Cublas).as_deref(), Some(files[0].as_str()));
    assert_eq!(found(Library::Curand).as_deref(), Some(files[1].as_str()));
}

#[test]
fn a_refused_file_does_not_end_the_search_and_the_account_says_what_it_was() {
    let root = root(&["a/libcurand.so.10", "b/libcurand.so.10"]);
    let value = OsString::from(format!("{0}/a:{0}/b", root.path().display()));
    let around = Surroundings { root: root.path(), variable: &|name| (name == OWN_VARIABLE).then(|| value.clone()) };
    let mut account = Search::default();
    let mut open = |path: &Path| match path.parent().unwrap().ends_with("b") {
        true => Ok(((), path.to_owned())),
        false => Err(Outcome::Refused("wrong ELF class".into())),
    };
    find(Library::Curand, &places(Library::Curand, &around), None, &mut account, &mut open).unwrap();
    let text = account.to_string().replace(&root.path().display().to_string(), "");
    assert_eq!(
        text,
        "looked for libcurand.so.10:\n  /a (VLASH_CUDA_LIBRARIES): wrong ELF class\n  /b (VLASH_CUDA_LIBRARIES): opened /b/libcurand.so.10"
    );
    assert_eq!(account.opened(Library::Curand), Some(root.path().join("b/libcurand.so.10").as_path()));
    assert_eq!(account.opened(Library::Cublas), None);
}

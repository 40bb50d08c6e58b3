//! The fleets in `examples/` are for users to copy, so each must pass `remoor lint` unchanged and
//! without a warning. These tests do not apply the fleets.

use remoor_config::Fleet;
use std::fs;
use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = fs::read_dir(&dir).expect("examples/ is readable").map(|entry| entry.expect("an entry").path());
    let mut fleets: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    fleets.sort();
    fleets
}

/// The errors and warnings of a fleet directory, with file and line.
fn lint(dir: &Path) -> Vec<String> {
    let faults = Fleet::load(dir).map_or_else(|faults| faults, |fleet| remoor::fleet::lint(&fleet));
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn each_example_passes_lint() {
    let fleets = examples();
    assert!(!fleets.is_empty(), "examples/ contains no fleet");
    for fleet in fleets {
        let faults = lint(&fleet);
        assert!(faults.is_empty(), "{}\n{}", fleet.display(), faults.join("\n"));
    }
}

#[test]
fn an_error_in_an_example_is_found() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("remoor.yml"), "version: 1\ninventory: nowhere.yml\n").expect("remoor.yml");
    assert!(!lint(dir.path()).is_empty(), "the inventory does not exist");
}

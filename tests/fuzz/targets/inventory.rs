//! An inventory of Ansible, by a name that leaves open whether it is YAML or INI, and by one that does not.

use remoor_config::load_inventory;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A directory of this process, there for one input only: nobody tells a target when it was the last.
static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("remoor-fuzz-{}", std::process::id())));

pub fn target(bytes: &[u8]) -> bool {
    let text = super::text(bytes);
    fs::create_dir_all(&*DIR).expect("a temporary directory");
    for name in ["hosts", "hosts.ini"] {
        let path = DIR.join(name);
        // Nobody may execute it, so nothing is run.
        fs::write(&path, text).expect("a temporary file");
        if let Err(faults) = load_inventory(&path) {
            assert!(!faults.is_empty(), "refused without a reason");
            assert!(faults.iter().all(|fault| !fault.message.is_empty()));
        }
    }
    fs::remove_dir_all(&*DIR).expect("the directory goes again");
    true
}

//! An Ansible inventory in two files. The name of the first file does not say whether the file is
//! YAML or INI. The name of the second file says that it is INI.

use remoor_config::load_inventory;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A directory of this process. It exists only during one input, because a target does not know
/// which input is the last.
static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("remoor-fuzz-{}", std::process::id())));

pub fn target(bytes: &[u8]) -> bool {
    let text = super::text(bytes);
    fs::create_dir_all(&*DIR).expect("a temporary directory");
    for name in ["hosts", "hosts.ini"] {
        let path = DIR.join(name);
        // The file is not executable, so it is not run as a dynamic inventory.
        fs::write(&path, text).expect("a temporary file");
        if let Err(faults) = load_inventory(&path) {
            assert!(!faults.is_empty(), "rejected without a reason");
            assert!(faults.iter().all(|fault| !fault.message.is_empty()));
        }
    }
    fs::remove_dir_all(&*DIR).expect("the directory can be removed");
    true
}

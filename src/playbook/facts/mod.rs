//! What is true of this node, without Python: `ansible_hostname` and its like, each also in `ansible_facts`.
//!
//! Read from files of the kernel and of the system, from one netlink socket, and from what `/etc/ansible/facts.d` says.
//! Which names there may be, `known` tells at compile time; what Ansible has besides is in `ABSENT`, with the reason.

mod address;
mod hardware;
mod local;
mod machine;
mod names;
mod network;
mod system;

pub use names::{ABSENT, NAMES, absent, known};

use super::event::Cancel;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Longest file that a fact is read from, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Where facts are read from: `/`, and in tests a tree that was copied from a machine.
#[derive(Debug, Clone)]
struct Root(PathBuf);

impl Root {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text; empty where there is none.
    fn read(&self, path: &str) -> String {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        if let Ok(file) = std::fs::File::open(self.at(path)) {
            // Files of the kernel may fail in the middle; what came before counts.
            let _ = file.take(FILE_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The same without blanks around; None where it is empty or not there.
    fn word(&self, path: &str) -> Option<String> {
        let text = self.read(path);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Names in a directory, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// All facts, gathered anew. Never fails: what cannot be told is left out, and after `cancel` nobody is asked any more.
pub fn facts(cancel: &Cancel) -> Map<String, Value> {
    let root = Root(PathBuf::from("/"));
    let mut out = Map::new();
    machine::of(&root, cancel, &mut out);
    system::of(&root, &mut out);
    hardware::of(&root, cancel, &mut out);
    network::of(&root, &address::ask().unwrap_or_default(), &mut out);
    out.insert("local".into(), local::of(&root, cancel));
    out.insert("gather_subset".into(), json!(["all"]));
    out.insert("module_setup".into(), json!(true));
    let mut all: Map<String, Value> = out.iter().map(|(k, v)| (format!("ansible_{k}"), v.clone())).collect();
    all.insert("ansible_facts".into(), Value::Object(out));
    all
}

#[cfg(test)]
mod tests;

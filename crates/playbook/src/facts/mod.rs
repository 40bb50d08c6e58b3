//! Facts of this node: `ansible_hostname` and others, each also in `ansible_facts`. Only the facts
//! about Python itself need Python.
//!
//! The facts are read from files of the kernel and the system, from one netlink socket, and from
//! `/etc/ansible/facts.d`. The compiler checks names with `is_known`. `ABSENT` lists the facts that
//! only Ansible has, with the reason.

mod address;
mod hardware;
mod local;
mod machine;
mod names;
mod network;
mod python;
mod system;

pub(crate) use machine::full_name;
pub use names::{ABSENT, NAMES, absence_reason, is_known};

use crate::compile;
use crate::modules::PYTHON_VARIABLE;
use crate::plan::Plan;
use crate::run::event::CancelToken;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Maximum number of bytes read from a file.
const FILE_MAX: u64 = 4 << 20;

/// The directory below which the files with facts are read: `/`, or in tests a tree copied from a
/// machine.
#[derive(Debug, Clone)]
struct FactsRoot(PathBuf);

impl FactsRoot {
    fn full_path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The text of a file, or an empty text if the file cannot be read.
    fn read(&self, path: &str) -> String {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        if let Ok(file) = std::fs::File::open(self.full_path(path)) {
            // Reading a kernel file may fail in the middle; the bytes before the error are used.
            let _ = file.take(FILE_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The trimmed text of a file. None if it is empty or does not exist.
    fn read_word(&self, path: &str) -> Option<String> {
        let text = self.read(path);
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.full_path(path).exists()
    }

    /// The sorted names in a directory.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.full_path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// Gathers all facts that a plan could read. Never fails, as `gather`.
pub fn gather_for(plan: &Plan, cancel: &CancelToken) -> Map<String, Value> {
    let mut all = gather(cancel);
    if compile::reads_python_facts(&compile::words_of(plan).0) {
        let named = plan.vars.get(PYTHON_VARIABLE).and_then(Value::as_str).unwrap_or_default();
        let python = python::gather_python(named, cancel).unwrap_or_default();
        all.extend(python.iter().map(|(k, v)| (format!("ansible_{k}"), v.clone())));
        if let Some(Value::Object(facts)) = all.get_mut("ansible_facts") {
            facts.extend(python);
        }
    }
    all
}

/// Gathers all facts except those about Python. Never fails: facts that cannot be read are left
/// out. After `cancel` no further program is started.
pub fn gather(cancel: &CancelToken) -> Map<String, Value> {
    let root = FactsRoot(PathBuf::from("/"));
    let mut out = Map::new();
    machine::gather_machine(&root, cancel, &mut out);
    system::gather_system(&root, &mut out);
    hardware::gather_hardware(&root, cancel, &mut out);
    network::gather_network(&root, &address::list_addresses().unwrap_or_default(), &mut out);
    out.insert("local".into(), local::gather_local(&root, cancel));
    out.insert("gather_subset".into(), json!(["all"]));
    out.insert("module_setup".into(), json!(true));
    let mut all: Map<String, Value> = out.iter().map(|(k, v)| (format!("ansible_{k}"), v.clone())).collect();
    all.insert("ansible_facts".into(), Value::Object(out));
    all
}

#[cfg(test)]
mod tests;

//! `package`: by the package manager that this node has.

use super::{Answer, Call, apt, dnf};
use std::path::Path;

pub fn package(call: &mut Call) -> Answer {
    let there = |program: &str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    match call.text(&["use"]).as_deref() {
        Some("apt") => apt::apt(call),
        Some("dnf" | "dnf4" | "dnf5" | "yum") => dnf::dnf(call),
        None | Some("auto") if there("apt-get") => apt::apt(call),
        None | Some("auto") if there("dnf") || there("yum") => dnf::dnf(call),
        None | Some("auto") => {
            Err("this node has neither apt-get nor dnf nor yum; use provisioner kind: ansible".into())
        }
        Some(other) => Err(format!("packages by `{other}` are not known; use provisioner kind: ansible")),
    }
}

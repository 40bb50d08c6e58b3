//! The variables that no gathered fact may set, because they select how a host is reached and which
//! program runs on it. The list is that of `vars/clean.py` in ansible-core.

const NAMES: [&str; 10] = [
    "ansible_connection",
    "ansible_host",
    "ansible_module_compression",
    "ansible_password",
    "ansible_pipelining",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_shell_executable",
    "ansible_timeout",
    "ansible_user",
];
const PREFIXES: [&str; 3] = ["ansible_become", "ansible_ssh_", "ansible_sudo"];
/// Facts whose names begin with one of `PREFIXES`.
const FACTS: &str = "ansible_ssh_host_key_";

/// Whether a fact may not have this name.
pub fn is_protected_name(name: &str) -> bool {
    let short = name.strip_prefix("ansible_").unwrap_or_default();
    NAMES.contains(&name)
        || short.ends_with("_interpreter")
        || !name.starts_with(FACTS) && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_may_not_select_how_a_host_is_reached() {
        for name in ["ansible_python_interpreter", "ansible_host", "ansible_become_user", "ansible_ssh_common_args"] {
            assert!(is_protected_name(name), "{name}");
        }
        for name in ["ansible_hostname", "ansible_ssh_host_key_rsa_public", "ansible_user_id", "my_interpreter"] {
            assert!(!is_protected_name(name), "{name}");
        }
    }
}

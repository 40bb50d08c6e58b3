//! Options of modules that Ansible has and remoor has not, and such that exclude each other: refused by name.

use super::spec::has;

/// What is refused, by module. A plain `false` is what everybody has who does not name them, and is taken.
pub const REFUSED: &[(&str, &str)] = &[
    ("apt", "policy_rc_d"),
    ("authorized_key", "validate_certs"),
    ("blockinfile", "encoding"),
    ("command", "warn"),
    ("copy", "decrypt"),
    ("dnf", "installroot list lock_timeout install_repoquery"),
    ("find", "encoding"),
    (
        "get_url",
        "tmp_dest use_netrc force_basic_auth client_cert client_key ca_path ciphers decompress use_gssapi \
         unredirected_headers",
    ),
    ("hostname", "use"),
    ("ini_file", "section_has_values"),
    ("modprobe", "persistent"),
    ("package_facts", "strategy"),
    ("replace", "encoding"),
    ("script", "decrypt"),
    ("set_fact", "cacheable"),
    ("setup", "gather_timeout fact_path"),
    ("shell", "warn"),
    (
        "template",
        "block_start_string block_end_string variable_start_string variable_end_string comment_start_string \
         comment_end_string",
    ),
    ("yum", "installroot list lock_timeout install_repoquery"),
];
/// The same of all modules that take `mode` and its like.
pub const REFUSED_OF_FILES: &str = "attributes attr selevel serole setype seuser unsafe_writes";
/// Options of which a task has one at most.
const APART: &[(&str, &[&str])] = &[
    ("copy", &["src", "content"]),
    ("lineinfile", &["insertbefore", "insertafter"]),
    ("lineinfile", &["regexp", "search_string"]),
    ("lineinfile", &["backrefs", "search_string"]),
    ("apt", &["deb", "upgrade"]),
    ("blockinfile", &["insertbefore", "insertafter"]),
    ("cron", &["insertbefore", "insertafter"]),
    ("ini_file", &["value", "values"]),
    ("pause", &["seconds", "minutes"]),
    ("debug", &["msg", "var"]),
    ("command", &["cmd", "argv"]),
];

/// Whether the module of Ansible has the option, and ours has not. `files`: it takes `mode`.
pub fn is_refused(module: &str, option: &str, files: bool) -> bool {
    let own = REFUSED.iter().any(|(name, options)| *name == module && has(options, option));
    own || files && has(REFUSED_OF_FILES, option)
}

/// Those of the options given that exclude each other.
pub fn apart(module: &str, given: &dyn Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    let mut rows = APART.iter().filter(|(name, _)| *name == module);
    rows.find_map(|(_, options)| {
        let mut both = options.iter().filter(|option| given(option));
        Some((*both.next()?, *both.next()?))
    })
}

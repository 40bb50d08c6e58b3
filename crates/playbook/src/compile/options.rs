//! Options of modules that remoor rejects by name: unsupported options and values, and options that
//! exclude each other.

use super::module_specs::{ModuleSpec, has_word};
use crate::vars::var_map::has_markup;

/// Rejected options by module. A plain `false` is accepted, because it is the default.
pub const REFUSED: &[(&str, &str)] = &[
    ("apt", "policy_rc_d"),
    ("assemble", "decrypt"),
    ("authorized_key", "validate_certs"),
    ("blockinfile", "encoding"),
    ("command", "warn"),
    ("dnf", "installroot list install_repoquery"),
    ("find", "encoding"),
    ("gather_facts", "gather_timeout fact_path"),
    ("get_url", "use_netrc ciphers use_gssapi"),
    (
        "git",
        "archive archive_prefix gpg_allowlist gpg_whitelist refspec separate_git_dir track_submodules verify_commit",
    ),
    ("hostname", "use"),
    ("ini_file", "section_has_values"),
    ("group", "local"),
    ("modprobe", "persistent"),
    ("mount", "opts_no_log"),
    ("package_facts", "strategy"),
    ("replace", "encoding"),
    ("script", "decrypt"),
    ("setup", "gather_timeout fact_path"),
    ("shell", "warn"),
    ("unarchive", "decrypt"),
    (
        "user",
        "authorization hidden local login_class password_expire_account_disable password_expire_max password_expire_min \
         password_expire_warn profile role seuser ssh_key_passphrase",
    ),
    ("uri", "use_netrc ciphers use_gssapi unix_socket"),
    ("yum", "installroot list install_repoquery"),
];
/// Options that are rejected for all modules that take the attributes of a file.
pub const REFUSED_OF_FILES: &str = "attributes attr";
/// Options that all modules take which take the attributes of a file. They are in no row of a
/// module: `modules::run_module` handles them for all.
pub const COMMON_OF_FILES: &str = "selevel serole setype seuser unsafe_writes";
/// Modules with an option `mode` that is not one of the attributes of a file.
const NO_FILE: &str = "apt_repository deb822_repository find synchronize";
/// Values of options that Ansible has and remoor does not support: module, option, beginning of the
/// value.
const REFUSED_VALUES: &[(&str, &str, &str)] = &[("apt_repository", "repo", "ppa:"), ("mount", "state", "ephemeral")];
/// Options that exclude each other.
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
    ("git", &["accept_hostkey", "accept_newhostkey"]),
    ("unarchive", &["copy", "remote_src"]),
    ("unarchive", &["include", "exclude"]),
    ("uri", &["body", "src"]),
    ("command", &["cmd", "argv"]),
    ("apt_key", &["data", "file", "keyserver", "url"]),
    ("pip", &["name", "requirements"]),
    ("pip", &["executable", "virtualenv"]),
    ("iptables", &["set_dscp_mark", "set_dscp_mark_class"]),
    ("iptables", &["flush", "policy"]),
    ("ufw", &["name", "proto", "logging"]),
    ("ufw", &["direction", "interface_in"]),
    ("ufw", &["direction", "interface_out"]),
];

/// Values of options that require other options: module, option, values, required options.
type Need = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);
const NEEDS: &[Need] = &[("mount", "state", &["mounted", "present"], &["src", "fstype"])];
/// Supported `extra_opts` of `unarchive`. They do not change where files are written, and they run
/// no program.
const EXTRA: &[&str] = &[
    "-j",
    "-q",
    "-p",
    "-v",
    "--same-permissions",
    "--preserve-permissions",
    "--no-same-permissions",
    "--same-owner",
    "--no-same-owner",
    "--numeric-owner",
    "--wildcards",
    "--no-wildcards",
    "--anchored",
    "--no-anchored",
    "--verbose",
    "--overwrite",
    "--warning=no-timestamp",
    "--warning=no-unknown-keyword",
];

/// The first option that `value` of `option` requires and that the task does not set.
pub fn missing_requirement(
    module: &str,
    option: &str,
    value: &str,
    given: &dyn Fn(&str) -> bool,
) -> Option<&'static str> {
    let row = NEEDS.iter().find(|(m, o, values, _)| *m == module && *o == option && values.contains(&value))?;
    row.3.iter().find(|name| !given(name)).copied()
}

/// The first item of `extra_opts` that is not supported; `all` are its items.
pub fn odd_extra<'o>(all: impl Iterator<Item = &'o str>) -> Option<&'o str> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut counted = false;
    for option in all {
        let strips = option.strip_prefix("--strip-components=").or(option.strip_prefix("--strip=")).is_some_and(number);
        let good = if counted { number(option) } else { strips || EXTRA.contains(&option) };
        let begins = !counted && matches!(option, "--strip-components" | "--strip");
        if !good && !begins {
            return Some(option);
        }
        counted = begins;
    }
    None
}

/// Whether remoor does not support this option of an Ansible module.
pub fn is_refused(spec: &ModuleSpec, option: &str) -> bool {
    let own = REFUSED.iter().any(|(name, options)| *name == spec.name && has_word(options, option));
    own || takes_attributes(spec) && has_word(REFUSED_OF_FILES, option)
}

/// Whether remoor does not support this value of an option.
pub fn is_refused_value(module: &str, option: &str, text: &str) -> bool {
    REFUSED_VALUES.iter().any(|(m, o, begin)| *m == module && *o == option && text.starts_with(begin))
}

/// Whether the option has values that remoor does not support.
pub fn has_refused_values(module: &str, option: &str) -> bool {
    REFUSED_VALUES.iter().any(|(m, o, _)| *m == module && *o == option)
}

/// Whether a text with markup may become a value that remoor does not support.
pub fn may_be_refused_value(module: &str, option: &str, text: &str) -> bool {
    let literal = text.split("{{").next().unwrap_or_default().split("{%").next().unwrap_or_default();
    let fits = |begin: &str| begin.starts_with(literal) || literal.starts_with(begin);
    has_markup(text) && REFUSED_VALUES.iter().any(|(m, o, begin)| *m == module && *o == option && fits(begin))
}

/// Whether the option is one of those of every module that takes the attributes of a file.
pub fn is_common(spec: &ModuleSpec, option: &str) -> bool {
    takes_attributes(spec) && has_word(COMMON_OF_FILES, option)
}

fn takes_attributes(spec: &ModuleSpec) -> bool {
    spec.options.contains(&"mode") && !has_word(NO_FILE, spec.name)
}

/// The first two given options that exclude each other.
pub fn conflicting_options(module: &str, given: &dyn Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    let mut rows = APART.iter().filter(|(name, _)| *name == module);
    rows.find_map(|(_, options)| {
        let mut both = options.iter().filter(|option| given(option));
        Some((*both.next()?, *both.next()?))
    })
}

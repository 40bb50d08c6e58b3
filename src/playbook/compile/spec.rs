//! What the modules and keywords are called and which options they take. Words only; what they do stands in `modules`.

/// A module.
pub struct Spec {
    pub name: &'static str,
    pub options: &'static [&'static str],
    /// One of each group must be given.
    pub required: &'static [&'static [&'static str]],
    /// Option that a bare text after the module's name stands for.
    pub free: Option<&'static str>,
}

macro_rules! spec {
    (@free) => { None };
    (@free $free:literal) => { Some($free) };
    ($name:literal, [$($option:literal)*] $(, need [$([$($need:literal)*])*])? $(, free $free:literal)?) => {
        Spec {
            name: $name,
            options: &[$($option),*],
            required: &[$($(&[$($need),*]),*)?],
            free: spec!(@free $($free)?),
        }
    };
}

pub const MODULES: &[Spec] = &[
    spec!("template", ["src" "dest" "mode" "owner" "group" "backup" "force" "follow" "validate" "trim_blocks" "lstrip_blocks" "newline_sequence"], need [["src"] ["dest"]]),
    spec!("copy", ["src" "dest" "content" "mode" "owner" "group" "backup" "force" "follow" "validate" "remote_src" "directory_mode"], need [["dest"] ["src" "content"]]),
    spec!("file", ["path" "dest" "name" "state" "src" "mode" "owner" "group" "recurse" "force" "follow" "modification_time" "access_time"], need [["path" "dest" "name"]]),
    spec!("lineinfile", ["path" "dest" "name" "line" "regexp" "regex" "search_string" "state" "create" "insertafter" "insertbefore" "backrefs" "firstmatch" "mode" "owner" "group" "backup" "validate"], need [["path" "dest" "name"]]),
    spec!("command", ["cmd" "argv" "chdir" "creates" "removes" "stdin" "stdin_add_newline" "strip_empty_ends" "warn" "expand_argument_vars"], need [["cmd" "argv"]], free "cmd"),
    spec!("shell", ["cmd" "chdir" "creates" "removes" "stdin" "stdin_add_newline" "executable" "warn"], need [["cmd"]], free "cmd"),
    spec!("service", ["name" "state" "enabled" "daemon_reload" "masked" "use" "args" "arguments" "pattern" "sleep" "runlevel"]),
    spec!("systemd", ["name" "service" "unit" "state" "enabled" "daemon_reload" "daemon_reexec" "masked" "no_block" "scope" "force"]),
    spec!("apt", ["name" "pkg" "package" "state" "update_cache" "cache_valid_time" "purge" "autoremove" "install_recommends" "default_release" "force_apt_get" "allow_downgrade" "lock_timeout" "dpkg_options" "autoclean" "only_upgrade"]),
    spec!("package", ["name" "state" "use"], need [["name"]]),
    spec!("user", ["name" "state" "uid" "group" "groups" "append" "shell" "home" "create_home" "createhome" "system" "comment" "remove" "force" "password_lock"], need [["name"]]),
    spec!("group", ["name" "state" "gid" "system"], need [["name"]]),
    spec!("wait_for", ["host" "port" "path" "state" "timeout" "delay" "sleep" "connect_timeout" "search_regex" "msg"]),
    spec!("assert", ["that" "fail_msg" "msg" "success_msg" "quiet"], need [["that"]]),
    spec!("debug", ["msg" "var" "verbosity"]),
    spec!("set_fact", []),
    spec!("stat", ["path" "follow" "get_checksum" "checksum_algorithm" "get_mime" "get_attributes" "get_md5"], need [["path"]]),
    spec!("fail", ["msg"]),
    spec!("meta", ["action"], free "action"),
    spec!("include_tasks", ["file" "apply"], need [["file"]], free "file"),
    spec!("import_tasks", ["file" "apply"], need [["file"]], free "file"),
    spec!("include_role", ["name" "role" "tasks_from" "vars_from" "defaults_from" "handlers_from" "public" "allow_duplicates" "apply" "rolespec_validate"], need [["name" "role"]]),
    spec!("import_role", ["name" "role" "tasks_from" "vars_from" "defaults_from" "handlers_from" "public" "allow_duplicates" "apply" "rolespec_validate"], need [["name" "role"]]),
    spec!("include_vars", ["file" "dir" "name" "depth" "files_matching" "ignore_files" "extensions" "ignore_unknown_extensions" "hash_behaviour"], free "file"),
];

/// Other spellings of the same module.
pub const ALIASES: &[(&str, &str)] = &[("systemd_service", "systemd"), ("include", "include_tasks")];

/// Modules that exist elsewhere and not here; only to tell them from a slip of the pen.
pub const ELSEWHERE: &str = "yum dnf get_url uri setup apt_repository find slurp raw rpm_key \
    ini_file mount unarchive sysctl apt_key replace modprobe tempfile yum_repository cron git blockinfile ping pause hostname \
    authorized_key service_facts package_facts getent script firewalld pip fetch reboot assemble selinux seboolean known_hosts \
    synchronize alternatives iptables add_host group_by async_status debconf deb822_repository dpkg_selections expect gather_facts \
    set_stats subversion sysvinit wait_for_connection docker docker_container docker_image filesystem lvol lvg kube parted \
    mysql_user mysql_db postgresql_user postgresql_db";

pub const TASK_KEYS: &[&str] = &[
    "name",
    "when",
    "tags",
    "vars",
    "environment",
    "ignore_errors",
    "ignore_unreachable",
    "no_log",
    "become",
    "become_user",
    "become_method",
    "become_flags",
    "become_exe",
    "sudo",
    "sudo_user",
    "any_errors_fatal",
    "check_mode",
    "diff",
    "run_once",
    "delegate_to",
    "delegate_facts",
    "timeout",
    "throttle",
    "notify",
    "debugger",
    "module_defaults",
    "collections",
    "connection",
    "port",
    "remote_user",
    "loop",
    "loop_control",
    "register",
    "changed_when",
    "failed_when",
    "until",
    "retries",
    "delay",
    "listen",
    "args",
];
pub const BLOCK_KEYS: &[&str] = &[
    "name",
    "when",
    "tags",
    "vars",
    "environment",
    "ignore_errors",
    "ignore_unreachable",
    "no_log",
    "become",
    "become_user",
    "become_method",
    "become_flags",
    "become_exe",
    "sudo",
    "sudo_user",
    "any_errors_fatal",
    "check_mode",
    "diff",
    "run_once",
    "delegate_to",
    "delegate_facts",
    "timeout",
    "throttle",
    "notify",
    "debugger",
    "module_defaults",
    "collections",
    "connection",
    "port",
    "remote_user",
    "block",
    "rescue",
    "always",
];
pub const PLAY_KEYS: &[&str] = &[
    "hosts",
    "name",
    "tags",
    "vars",
    "environment",
    "ignore_errors",
    "ignore_unreachable",
    "no_log",
    "become",
    "become_user",
    "become_method",
    "become_flags",
    "become_exe",
    "sudo",
    "sudo_user",
    "any_errors_fatal",
    "check_mode",
    "diff",
    "run_once",
    "timeout",
    "throttle",
    "debugger",
    "module_defaults",
    "collections",
    "connection",
    "port",
    "remote_user",
    "user",
    "gather_facts",
    "gather_subset",
    "vars_files",
    "pre_tasks",
    "tasks",
    "post_tasks",
    "handlers",
    "roles",
    "serial",
    "max_fail_percentage",
    "order",
    "strategy",
    "force_handlers",
];
/// Keywords of tasks and plays that exist elsewhere and not here.
pub const KEYS_ELSEWHERE: &str = "local_action async poll with_random_choice with_lines with_inventory_hostnames vars_prompt \
    gather_timeout fact_path import_playbook";

/// A module's or keyword's name without the collection that is built in.
pub fn short(name: &str) -> &str {
    ["ansible.builtin.", "ansible.legacy."].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name)
}

pub fn find(name: &str) -> Option<&'static Spec> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    MODULES.iter().find(|spec| spec.name == name)
}

/// Whether `words` (separated by blanks) has `word`.
pub fn has(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|w| w == word)
}

/// Allowed values of an option, where they are few.
pub fn choices(module: &str, option: &str) -> Option<&'static [&'static str]> {
    Some(match (module, option) {
        ("file", "state") => &["file", "directory", "absent", "touch", "link", "hard"],
        ("lineinfile" | "user" | "group", "state") => &["present", "absent"],
        ("service" | "systemd", "state") => &["started", "stopped", "restarted", "reloaded"],
        ("apt" | "package", "state") => &["present", "absent", "latest", "installed", "removed"],
        ("wait_for", "state") => &["started", "stopped", "present", "absent", "drained"],
        ("systemd", "scope") => &["system"],
        _ => return None,
    })
}

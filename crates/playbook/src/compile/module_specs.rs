//! Names of modules and keywords, and the options of modules. The implementations of the modules
//! are in `modules`.

/// The name and options of a module.
pub struct ModuleSpec {
    pub name: &'static str,
    pub options: &'static [&'static str],
    /// Groups of option names; a task must set at least one option of each group.
    pub required: &'static [&'static [&'static str]],
    /// The option that receives a text written directly after the module's name, as in
    /// `include_vars: x.yml`.
    pub free: Option<&'static str>,
}

macro_rules! spec {
    (@free) => { None };
    (@free $free:literal) => { Some($free) };
    ($name:literal, [$($option:literal)*] $(, need [$([$($need:literal)*])*])? $(, free $free:literal)?) => {
        ModuleSpec {
            name: $name,
            options: &[$($option),*],
            required: &[$($(&[$($need),*]),*)?],
            free: spec!(@free $($free)?),
        }
    };
}

/// The place of a module that runs as Python. Its options are checked by the module itself.
pub static PYTHON: ModuleSpec = ModuleSpec { name: "", options: &[], required: &[], free: None };

pub const MODULES: &[ModuleSpec] = &[
    spec!("template", ["src" "dest" "mode" "owner" "group" "backup" "force" "follow" "validate" "trim_blocks" "lstrip_blocks" "newline_sequence" "output_encoding" "variable_start_string" "variable_end_string" "block_start_string" "block_end_string" "comment_start_string" "comment_end_string"], need [["src"] ["dest"]]),
    spec!("copy", ["src" "dest" "content" "mode" "owner" "group" "backup" "force" "follow" "validate" "remote_src" "directory_mode" "local_follow" "checksum" "decrypt"], need [["dest"] ["src" "content"]]),
    spec!("file", ["path" "dest" "name" "state" "src" "mode" "owner" "group" "recurse" "force" "follow" "modification_time" "modification_time_format" "access_time" "access_time_format"], need [["path" "dest" "name"]]),
    spec!("lineinfile", ["path" "dest" "destfile" "name" "line" "value" "regexp" "regex" "search_string" "state" "create" "insertafter" "insertbefore" "backrefs" "firstmatch" "mode" "owner" "group" "backup" "validate" "follow"], need [["path" "dest" "destfile" "name"]]),
    spec!("command", ["cmd" "argv" "chdir" "creates" "removes" "stdin" "stdin_add_newline" "strip_empty_ends" "expand_argument_vars"], need [["cmd" "argv"]], free "cmd"),
    spec!("shell", ["cmd" "chdir" "creates" "removes" "stdin" "stdin_add_newline" "executable"], need [["cmd"]], free "cmd"),
    spec!("raw", ["cmd" "executable"], need [["cmd"]], free "cmd"),
    spec!("script", ["cmd" "chdir" "creates" "removes" "executable"], need [["cmd"]], free "cmd"),
    spec!("service", ["name" "state" "enabled" "daemon_reload" "masked" "use" "args" "arguments" "pattern" "sleep" "runlevel"], need [["name" "daemon_reload"]]),
    spec!("systemd", ["name" "service" "unit" "state" "enabled" "daemon_reload" "daemon-reload" "daemon_reexec" "daemon-reexec" "masked" "no_block" "scope" "force"]),
    spec!("apt", ["name" "pkg" "package" "state" "update_cache" "update-cache" "update_cache_retries" "update_cache_retry_max_delay" "cache_valid_time" "purge" "autoremove" "autoclean" "clean" "deb" "upgrade" "install_recommends" "install-recommends" "default_release" "default-release" "force" "force_apt_get" "auto_install_module_deps" "allow_downgrade" "allow-downgrade" "allow_downgrades" "allow_unauthenticated" "allow-unauthenticated" "allow_change_held_packages" "fail_on_autoremove" "lock_timeout" "dpkg_options" "only_upgrade"]),
    spec!("dnf", ["name" "pkg" "state" "update_cache" "update_only" "autoremove" "allow_downgrade" "allowerasing" "best" "bugfix" "cacheonly" "conf_file" "disable_excludes" "disable_gpg_check" "disable_plugin" "disablerepo" "download_dir" "download_only" "enable_plugin" "enablerepo" "exclude" "install_weak_deps" "lock_timeout" "nobest" "releasever" "security" "skip_broken" "sslverify" "use_backend" "validate_certs"]),
    spec!("yum", ["name" "pkg" "state" "update_cache" "update_only" "autoremove" "allow_downgrade" "allowerasing" "best" "bugfix" "cacheonly" "conf_file" "disable_excludes" "disable_gpg_check" "disable_plugin" "disablerepo" "download_dir" "download_only" "enable_plugin" "enablerepo" "exclude" "install_weak_deps" "lock_timeout" "nobest" "releasever" "security" "skip_broken" "sslverify" "use_backend" "validate_certs"]),
    spec!("package", ["name" "state" "use" "pkg" "package" "update_cache" "update-cache" "update_cache_retries" "update_cache_retry_max_delay" "cache_valid_time" "purge" "autoremove" "autoclean" "clean" "deb" "upgrade" "install_recommends" "install-recommends" "default_release" "default-release" "force" "force_apt_get" "auto_install_module_deps" "allow_downgrade" "allow-downgrade" "allow_downgrades" "allow_unauthenticated" "allow-unauthenticated" "allow_change_held_packages" "fail_on_autoremove" "lock_timeout" "dpkg_options" "only_upgrade" "update_only" "allowerasing" "best" "bugfix" "cacheonly" "conf_file" "disable_excludes" "disable_gpg_check" "disable_plugin" "disablerepo" "download_dir" "download_only" "enable_plugin" "enablerepo" "exclude" "install_weak_deps" "nobest" "releasever" "security" "skip_broken" "sslverify" "use_backend" "validate_certs"]),
    spec!("user", ["name" "state" "uid" "group" "groups" "append" "shell" "home" "create_home" "createhome" "system" "comment" "remove" "force" "password_lock" "user" "expires" "password" "update_password" "move_home" "skeleton" "non_unique" "umask" "uid_min" "uid_max" "generate_ssh_key" "ssh_key_bits" "ssh_key_type" "ssh_key_file" "ssh_key_comment"], need [["name" "user"]]),
    spec!("group", ["name" "state" "gid" "system" "force" "non_unique" "gid_min" "gid_max"], need [["name"]]),
    spec!("wait_for", ["host" "port" "path" "state" "timeout" "delay" "sleep" "connect_timeout" "search_regex" "msg" "exclude_hosts" "active_connection_states"]),
    spec!("blockinfile", ["path" "dest" "destfile" "name" "block" "content" "state" "create" "marker" "marker_begin" "marker_end" "insertafter" "insertbefore" "append_newline" "prepend_newline" "mode" "owner" "group" "backup" "validate" "follow"], need [["path" "dest" "destfile" "name"]]),
    spec!("replace", ["path" "dest" "destfile" "name" "regexp" "replace" "after" "before" "mode" "owner" "group" "backup" "validate" "follow"], need [["path" "dest" "destfile" "name"] ["regexp"]]),
    spec!("ini_file", ["path" "dest" "section" "option" "value" "values" "state" "exclusive" "create" "allow_no_value" "no_extra_spaces" "ignore_spaces" "modify_inactive_option" "mode" "owner" "group" "backup" "follow"], need [["path" "dest"]]),
    spec!("authorized_key", ["user" "key" "state" "path" "manage_dir" "key_options" "comment" "exclusive" "follow"], need [["user"] ["key"]]),
    spec!("cron", ["name" "job" "value" "state" "user" "cron_file" "backup" "minute" "hour" "day" "dom" "month" "weekday" "dow" "special_time" "disabled" "env" "insertafter" "insertbefore"]),
    spec!("get_url", ["url" "dest" "checksum" "force" "timeout" "headers" "http_agent" "use_proxy" "validate_certs" "ca_path" "client_cert" "client_key" "url_username" "username" "url_password" "password" "force_basic_auth" "unredirected_headers" "decompress" "tmp_dest" "backup" "mode" "owner" "group" "follow"], need [["url"] ["dest"]]),
    spec!("uri", ["url" "method" "body" "body_format" "src" "remote_src" "status_code" "return_content" "headers" "timeout" "follow_redirects" "validate_certs" "ca_path" "client_cert" "client_key" "url_username" "user" "url_password" "password" "force_basic_auth" "force" "unredirected_headers" "decompress" "http_agent" "use_proxy" "creates" "removes" "dest" "mode" "owner" "group" "follow"], need [["url"]]),
    spec!("unarchive", ["src" "dest" "remote_src" "copy" "creates" "exclude" "include" "keep_newer" "list_files" "extra_opts" "io_buffer_size" "validate_certs" "mode" "owner" "group"], need [["src"] ["dest"]]),
    spec!("git", ["repo" "name" "dest" "version" "remote" "update" "clone" "force" "depth" "single_branch" "recursive" "bare" "reference" "accept_hostkey" "accept_newhostkey" "key_file" "ssh_opts" "executable" "umask"], need [["repo" "name"]]),
    spec!("mount", ["path" "name" "src" "fstype" "opts" "dump" "passno" "state" "fstab" "boot" "backup"], need [["path" "name"] ["state"]]),
    spec!("sysctl", ["name" "key" "value" "val" "state" "sysctl_file" "sysctl_set" "reload" "ignoreerrors"], need [["name" "key"]]),
    spec!("modprobe", ["name" "state" "params"], need [["name"]]),
    spec!("hostname", ["name"], need[["name"]]),
    spec!("service_facts", []),
    spec!("package_facts", ["manager"]),
    spec!("find", ["paths" "name" "path" "patterns" "pattern" "excludes" "exclude" "use_regex" "file_type" "recurse" "depth" "hidden" "follow" "age" "age_stamp" "size" "mode" "exact_mode" "contains" "read_whole_file" "get_checksum" "checksum_algorithm" "checksum" "checksum_algo" "limit"], need [["paths" "name" "path"]]),
    spec!("fetch", ["src" "dest" "flat" "fail_on_missing" "validate_checksum"], need [["src"] ["dest"]]),
    spec!("synchronize", ["src" "dest" "mode" "archive" "recursive" "links" "perms" "times" "owner" "group" "delete" "checksum" "compress" "copy_links" "dirs" "existing_only" "partial" "delay_updates" "link_dest" "rsync_opts" "rsync_path" "rsync_timeout" "dest_port" "private_key" "set_remote_user" "use_ssh_args" "ssh_connection_multiplexing" "verify_host"], need [["src"] ["dest"]]),
    spec!("slurp", ["src" "path"], need [["src" "path"]]),
    spec!("getent", ["database" "key" "service" "fail_key" "split"], need [["database"]]),
    spec!("ping", ["data"]),
    spec!("pause", ["seconds" "minutes" "prompt" "echo"]),
    spec!("setup", ["filter" "gather_subset"]),
    spec!("tempfile", ["state" "path" "prefix" "suffix"]),
    spec!("gather_facts", ["filter" "gather_subset" "parallel"]),
    spec!("wait_for_connection", ["connect_timeout" "delay" "sleep" "timeout"]),
    spec!("reboot", ["msg" "pre_reboot_delay" "post_reboot_delay" "reboot_timeout" "connect_timeout" "test_command" "boot_time_command" "reboot_command" "search_paths"]),
    spec!("deb822_repository", ["name" "state" "types" "uris" "suites" "components" "architectures" "signed_by" "enabled" "mode" "allow_downgrade_to_insecure" "allow_insecure" "allow_weak" "by_hash" "check_date" "check_valid_until" "date_max_future" "inrelease_path" "languages" "pdiffs" "targets" "trusted"], need [["name"]]),
    spec!("apt_repository", ["repo" "state" "filename" "mode" "update_cache" "update-cache" "update_cache_retries" "update_cache_retry_max_delay" "codename" "install_python_apt" "validate_certs"], need [["repo"]]),
    spec!("apt_key", ["id" "url" "data" "file" "keyring" "keyserver" "state" "validate_certs"]),
    spec!("timezone", ["name" "hwclock" "rtc"], need [["name" "hwclock" "rtc"]]),
    spec!("locale_gen", ["name" "state"], need [["name"]]),
    spec!("alternatives", ["name" "path" "family" "link" "priority" "state" "subcommands" "slaves"], need [["name"] ["path" "family"]]),
    spec!("pam_limits", ["domain" "limit_type" "limit_item" "value" "use_max" "use_min" "dest" "comment" "backup"], need [["domain"] ["limit_type"] ["limit_item"] ["value"]]),
    spec!("dpkg_selections", ["name" "selection"], need [["name"] ["selection"]]),
    spec!("debconf", ["name" "pkg" "question" "selection" "setting" "vtype" "value" "answer" "unseen"], need [["name" "pkg"]]),
    spec!("assemble", ["src" "dest" "remote_src" "delimiter" "regexp" "ignore_hidden" "validate" "backup" "mode" "owner" "group" "follow"], need [["src"] ["dest"]]),
    spec!("known_hosts", ["name" "host" "key" "path" "hash_host" "state"], need [["name" "host"]]),
    spec!("iptables", ["table" "chain" "state" "action" "rule_num" "ip_version" "protocol" "source" "destination" "match" "tcp_flags" "jump" "gateway" "log_prefix" "log_level" "goto" "in_interface" "out_interface" "fragment" "set_counters" "source_port" "destination_port" "destination_ports" "to_ports" "to_destination" "to_source" "set_dscp_mark" "set_dscp_mark_class" "comment" "ctstate" "src_range" "dst_range" "match_set" "match_set_flags" "limit" "limit_burst" "uid_owner" "gid_owner" "reject_with" "icmp_type" "syn" "flush" "policy" "chain_management" "numeric" "wait"]),
    spec!("ufw", ["state" "default" "policy" "rule" "logging" "direction" "delete" "route" "insert" "insert_relative_to" "interface" "if" "interface_in" "if_in" "interface_out" "if_out" "log" "from_ip" "from" "src" "from_port" "to_ip" "to" "dest" "to_port" "port" "proto" "protocol" "name" "app" "comment"], need [["state" "default" "policy" "rule" "logging"]]),
    spec!("pip", ["name" "requirements" "version" "state" "virtualenv" "virtualenv_command" "virtualenv_python" "virtualenv_site_packages" "extra_args" "editable" "chdir" "executable" "umask" "break_system_packages"], need [["name" "requirements"]]),
    spec!("assert", ["that" "fail_msg" "msg" "success_msg" "quiet"], need [["that"]]),
    spec!("async_status", ["jid" "mode"], need [["jid"]]),
    spec!("validate_argument_spec", ["argument_spec" "provided_arguments" "validate_args_context"], need [["argument_spec"]]),
    spec!("debug", ["msg" "var" "verbosity"]),
    spec!("set_fact", []),
    spec!("set_stats", ["data" "per_host" "aggregate"]),
    spec!("add_host", ["name" "hostname" "host" "groups" "groupname" "group"], need [["name" "hostname" "host"]]),
    spec!("group_by", ["key" "parents"], need [["key"]]),
    spec!("stat", ["path" "dest" "name" "follow" "get_checksum" "checksum_algorithm" "checksum" "checksum_algo" "get_mime" "mime" "mime_type" "mime-type" "get_attributes"], need [["path" "dest" "name"]]),
    spec!("fail", ["msg"]),
    spec!("meta", ["action"], free "action"),
    spec!("include_tasks", ["file" "apply"], need [["file"]], free "file"),
    spec!("import_tasks", ["file" "apply"], need [["file"]], free "file"),
    spec!("include_role", ["name" "role" "tasks_from" "vars_from" "defaults_from" "handlers_from" "public" "allow_duplicates" "apply" "rolespec_validate"], need [["name" "role"]]),
    spec!("import_role", ["name" "role" "tasks_from" "vars_from" "defaults_from" "handlers_from" "public" "allow_duplicates" "apply" "rolespec_validate"], need [["name" "role"]]),
    spec!("include_vars", ["file" "dir" "name" "depth" "files_matching" "ignore_files" "extensions" "ignore_unknown_extensions" "hash_behaviour"], free "file"),
];

/// Other names of modules, each with the name that the module has in `ModuleSpec`.
pub const ALIASES: &[(&str, &str)] = &[("systemd_service", "systemd"), ("include", "include_tasks")];

/// Collections, each with its modules that were once part of Ansible itself.
const COLLECTIONS: &[(&str, &str)] = &[
    ("ansible.posix", "authorized_key mount synchronize sysctl"),
    ("community.general", "alternatives ini_file locale_gen modprobe pam_limits timezone ufw"),
];

/// Ansible modules that remoor refuses, because their action plugin runs on the controller or
/// because Ansible has removed them.
pub const UNSUPPORTED_MODULES: &str = "docker kube";

/// Ansible modules that are not native and run as Python. The list distinguishes them from typing
/// errors where no ansible-core is installed; other modules run in the same way.
pub const PYTHON_MODULES: &str = "rpm_key yum_repository firewalld selinux seboolean \
    expect subversion sysvinit \
    docker_container docker_image filesystem lvol lvg parted mysql_user mysql_db postgresql_user \
    postgresql_db apk capabilities composer flatpak gem homebrew htpasswd interfaces_file ldap_entry \
    monit nmcli npm openbsd_pkg pacman pamd pkgng portage rabbitmq_user runit \
    sefcontext seport snap supervisorctl xml zypper zypper_repository";

/// Lists the keywords of a play, block or task: the given ones, and those that all three have. A
/// task inherits the common keywords from its block, and a block from its play.
macro_rules! keys {
    ($($own:literal)*) => {
        &[
            $($own,)*
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
        ]
    };
}

pub const TASK_KEYS: &[&str] = keys! {
    "when" "delegate_to" "delegate_facts" "notify" "action" "local_action" "loop" "with_items" "with_list" "with_dict"
    "with_together" "with_nested" "with_cartesian" "with_sequence" "with_subelements" "with_indexed_items"
    "with_flattened" "with_fileglob" "with_first_found" "with_file" "with_inventory_hostnames"
    "with_csvfile" "with_ini" "with_lines" "with_password" "with_random_choice" "with_url" "loop_control" "register" "changed_when" "failed_when"
    "until" "retries" "delay" "listen" "args" "async" "poll"
};
pub const BLOCK_KEYS: &[&str] = keys! {
    "when" "delegate_to" "delegate_facts" "notify" "block" "rescue" "always"
};
pub const PLAY_KEYS: &[&str] = keys! {
    "hosts" "user" "gather_facts" "gather_subset" "vars_files" "vars_prompt" "pre_tasks" "tasks" "post_tasks" "handlers"
    "roles" "serial" "max_fail_percentage" "order" "strategy" "force_handlers"
};
/// Keywords of tasks and plays that Ansible has and remoor does not support.
pub const UNSUPPORTED_KEYWORDS: &str = "gather_timeout fact_path import_playbook";

/// A module's or keyword's name without its collection, if the collection is known.
pub fn short_name(name: &str) -> &str {
    let built_in = ["ansible.builtin.", "ansible.legacy."].iter().find_map(|p| name.strip_prefix(p));
    let once = || {
        let (collection, name) = name.rsplit_once('.')?;
        COLLECTIONS.iter().any(|(of, names)| *of == collection && has_word(names, name)).then_some(name)
    };
    built_in.or_else(once).unwrap_or(name)
}

pub fn find(name: &str) -> Option<&'static ModuleSpec> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    MODULES.iter().find(|spec| spec.name == name)
}

/// Whether the name is that of a module of Ansible that is not native.
pub fn is_foreign(name: &str) -> bool {
    has_word(UNSUPPORTED_MODULES, name) || has_word(PYTHON_MODULES, name)
}

/// Whether the list `words`, separated by blanks, contains `word`.
pub fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|w| w == word)
}

/// The allowed values of an option that has only few.
pub fn choices(module: &str, option: &str) -> Option<&'static [&'static str]> {
    Some(match (module, option) {
        ("file", "state") => &["file", "directory", "absent", "touch", "link", "hard"],
        (
            "lineinfile" | "user" | "group" | "blockinfile" | "ini_file" | "authorized_key" | "cron" | "sysctl"
            | "modprobe" | "deb822_repository" | "apt_repository" | "apt_key" | "locale_gen" | "known_hosts"
            | "iptables",
            "state",
        ) => &["present", "absent"],
        ("find", "file_type") => &["any", "directory", "file", "link"],
        ("find", "age_stamp") => &["atime", "ctime", "mtime"],
        ("tempfile", "state") => &["file", "directory"],
        ("cron", "special_time") => &["annually", "daily", "hourly", "monthly", "reboot", "weekly", "yearly"],
        ("service" | "systemd", "state") => &["started", "stopped", "restarted", "reloaded"],
        ("apt", "state") => &["present", "absent", "latest", "build-dep", "fixed", "installed", "removed"],
        ("apt", "upgrade") => &["yes", "no", "safe", "full", "dist"],
        ("package" | "dnf" | "yum", "state") => &["present", "absent", "latest", "installed", "removed"],
        ("dnf" | "yum", "use_backend") => &["auto", "dnf", "dnf4", "dnf5", "yum", "yum4"],
        ("template", "output_encoding") => &["utf-8", "UTF-8", "utf8"],
        ("template", "newline_sequence") => &["\n", "\r", "\r\n", "\\n", "\\r", "\\r\\n"],
        ("stat", "checksum_algorithm" | "checksum" | "checksum_algo") => {
            &["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
        }
        ("wait_for", "state") => &["started", "stopped", "present", "absent", "drained"],
        ("uri", "body_format") => &["raw", "json", "form-urlencoded"],
        ("uri", "follow_redirects") => &["all", "yes", "none", "no", "safe", "urllib2"],
        ("mount", "state") => &["mounted", "present", "unmounted", "absent", "absent_from_fstab", "remounted"],
        ("synchronize", "mode") => &["push", "pull"],
        ("timezone", "hwclock" | "rtc") => &["local", "UTC"],
        ("alternatives", "state") => &["present", "selected", "absent", "auto"],
        ("dpkg_selections", "selection") => &["install", "hold", "deinstall", "purge"],
        ("debconf", "vtype") => {
            &["boolean", "error", "multiselect", "note", "password", "seen", "select", "string", "text", "title"]
        }
        ("pip", "state") => &["present", "absent", "latest", "forcereinstall"],
        ("iptables", "table") => &["filter", "nat", "mangle", "raw", "security"],
        ("iptables", "action") => &["append", "insert"],
        ("iptables", "ip_version") => &["ipv4", "ipv6", "both"],
        ("iptables", "policy") => &["ACCEPT", "DROP", "QUEUE", "RETURN"],
        ("iptables", "syn") => &["ignore", "match", "negate"],
        ("ufw", "state") => &["enabled", "disabled", "reloaded", "reset"],
        ("ufw", "default" | "policy") => &["allow", "deny", "reject"],
        ("ufw", "logging") => &["full", "high", "low", "medium", "off", "on"],
        ("ufw", "direction") => &["in", "incoming", "out", "outgoing", "routed"],
        ("ufw", "rule") => &["allow", "deny", "limit", "reject"],
        ("ufw", "insert_relative_to") => &["zero", "first-ipv4", "last-ipv4", "first-ipv6", "last-ipv6"],
        ("ufw", "proto" | "protocol") => &["ah", "any", "esp", "ipv6", "tcp", "udp", "gre", "igmp", "vrrp"],
        ("async_status", "mode") => &["status", "cleanup"],
        ("systemd", "scope") => &["system", "user", "global"],
        _ => return None,
    })
}

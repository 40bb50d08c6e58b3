//! The types of module options. They are checked twice: values in the playbook at compile time, and
//! rendered values when the task runs. An invalid value is always an error. If it counted as false,
//! `enabled: "{{ x }}"` with `x: enable` would disable the service.

use super::module_specs::{choices, find, has_word};
use super::{HINT_ANSIBLE, options};
use crate::modules::map_of_text;
use crate::os::accounts;
use crate::vars::var_map;
use remoor_model::did_you_mean;
use serde_json::{Map, Value};

const BOOLEANS: &str = "accept_hostkey accept_newhostkey aggregate allow-downgrade allow-unauthenticated allow_change_held_packages \
    allow_downgrade allow_downgrade_to_insecure allow_downgrades allow_duplicates allow_insecure \
    allow_no_value allow_unauthenticated allow_weak allowerasing append append_newline \
    auto_install_module_deps autoclean autoremove backrefs backup bare best boot break_system_packages bugfix \
    by_hash cacheonly chain_management check_date check_valid_until clean clone create create_home createhome \
    daemon-reexec daemon-reload daemon_reexec daemon_reload decompress decrypt delete disable_gpg_check disabled \
    download_only echo editable enabled exact_mode exclusive expand_argument_vars fail_key fail_on_autoremove \
    fail_on_missing firstmatch flat flush follow force force_apt_get force_basic_auth get_attributes get_checksum get_mime \
    hash_host hidden ignore_hidden ignore_spaces ignore_unknown_extensions ignoreerrors install-recommends \
    install_python_apt install_recommends install_weak_deps keep_newer list_files local_follow log \
    lstrip_blocks manage_dir masked mime mime-type mime_type modify_inactive_option move_home no_block \
    no_extra_spaces nobest non_unique numeric only_upgrade parallel password_lock pdiffs per_host prepend_newline \
    public purge quiet read_whole_file recurse recursive reload remote_src remove return_content \
    rolespec_validate route security single_branch skip_broken sslverify stdin_add_newline strip_empty_ends \
    sysctl_set system trim_blocks trusted unseen update update-cache update_cache update_only use_max use_min \
    use_proxy use_regex validate_certs validate_checksum virtualenv_site_packages";
/// Options that are booleans in one module and something else in another.
const BOOLEANS_OF: &[(&str, &str)] = &[
    ("cron", "env"),
    ("unarchive", "copy"),
    ("user", "generate_ssh_key"),
    (
        "synchronize",
        "archive checksum compress copy_links delay_updates dirs existing_only group links owner partial perms \
         set_remote_user ssh_connection_multiplexing times use_ssh_args verify_host",
    ),
];
const NUMBERS: &str = "cache_valid_time connect_timeout date_max_future delay depth dest_port dump gid gid_max gid_min insert \
    io_buffer_size limit lock_timeout minutes passno port post_reboot_delay pre_reboot_delay priority reboot_timeout rsync_timeout seconds sleep ssh_key_bits timeout uid \
    uid_max uid_min update_cache_retries update_cache_retry_max_delay verbosity";
const LISTS: &str = "active_connection_states architectures argv components ctstate deb destination_ports disable_plugin \
    disablerepo enable_plugin enablerepo exclude exclude_hosts excludes extensions extra_opts filter \
    gather_subset groupname groups ignore_files include languages link_dest manager match package paths parents pattern patterns pkg \
    rsync_opts search_paths slaves status_code subcommands suites targets that types unredirected_headers uris values";
/// Options that are lists in these modules only.
const LISTS_OF: &[(&str, &str)] = &[
    ("apt", "name"),
    ("dnf", "name"),
    ("yum", "name"),
    ("package", "name"),
    ("find", "name path"),
    ("locale_gen", "name"),
    ("pip", "name"),
    ("add_host", "group"),
];
/// Options that are texts in these modules only.
const TEXTS_OF: &[(&str, &str)] = &[("iptables", "limit"), ("ufw", "port")];
const MAPS: &str = "argument_spec headers provided_arguments tcp_flags validate_args_context";
/// Options that take any value or have a form of their own.
const ANYTHING: &str =
    "answer apply block body content data fail_msg key line mode msg directory_mode stdin success_msg value val var";

/// The type of an option.
enum Kind {
    Boolean,
    Number,
    List,
    Map,
    Anything,
    Text,
}

fn kind(module: &str, option: &str) -> Kind {
    let of = |table: &[(&str, &str)]| table.iter().any(|(name, options)| *name == module && has_word(options, option));
    match option {
        _ if of(TEXTS_OF) => Kind::Text,
        _ if of(LISTS_OF) || has_word(LISTS, option) => Kind::List,
        _ if of(BOOLEANS_OF) || has_word(BOOLEANS, option) => Kind::Boolean,
        _ if has_word(NUMBERS, option) => Kind::Number,
        _ if has_word(MAPS, option) => Kind::Map,
        _ if has_word(ANYTHING, option) => Kind::Anything,
        _ => Kind::Text,
    }
}

/// Checks the value of an option. Returns the error and a hint; None: the value is valid.
pub fn check_value(module: &str, option: &str, value: &Value) -> Option<(String, String)> {
    let found = match value {
        Value::Null => return None,
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::String(text) => format!("`{}`", text.chars().take(80).collect::<String>()),
        other => format!("`{other}`"),
    };
    if let Some(text) = value.as_str().filter(|text| options::is_refused_value(module, option, text)) {
        let why = format!("the value `{text}` of `{option}` of {module} is not part of the language");
        return Some((why, HINT_ANSIBLE.to_owned()));
    }
    if let (Some(known), Some(text)) = (choices(module, option), value.as_str()) {
        let hint = || format!("known are {}", known.join(", "));
        let near = || did_you_mean(text, known.iter().copied());
        return (!known.contains(&text))
            .then(|| (format!("{found} is not a valid `{option}` of {module}"), near().unwrap_or_else(hint)));
    }
    if option == "mode" && module != "find" {
        let octal = crate::plan::elevation::octal_mode(value);
        let text = octal.unwrap_or_else(|| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        if text == "preserve" {
            return None;
        }
        return accounts::mode(&text, 0, false)
            .err()
            .map(|why| (format!("`mode`: {why}"), "as \"0644\" or \"u=rw,g=r\"".to_owned()));
    }
    let (takes, right) = match kind(module, option) {
        Kind::Boolean => ("yes or no", var_map::boolean(value).is_some()),
        Kind::Number => {
            ("a number", value.is_number() || value.as_str().is_some_and(|t| t.trim().parse::<f64>().is_ok()))
        }
        Kind::List => ("a list or a text", !value.is_object()),
        Kind::Map => ("a map", value.is_object() || option == "headers" && is_map_text(value)),
        Kind::Anything => return None,
        Kind::Text => ("a text", !value.is_object() && !value.is_array()),
    };
    (!right).then(|| (format!("`{option}` of {module} takes {takes}, found {found}"), format!("write {takes}")))
}

/// Whether the value is a text that Ansible converts to a map.
fn is_map_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| map_of_text(text).is_ok())
}

/// Checks the rendered options of a task that is about to run. None: they are valid.
pub fn check_rendered(module: &str, args: &Map<String, Value>) -> Option<String> {
    let spec = find(module)?;
    let given = |name: &str| args.get(name).is_some_and(|value| !value.is_null());
    // For `command` and similar modules, the compiler has moved the command line to `words`.
    let missing = spec.required.iter().find(|group| !group.iter().any(|name| given(name)) && !given("words"));
    if let Some(group) = missing {
        return Some(format!("{} needs `{}`", spec.name, group.join("` or `")));
    }
    // The compiler has kept such an option because it could have been omitted.
    let off = |value: &Value| var_map::boolean(value) == Some(false);
    if let Some((name, _)) = args.iter().find(|(name, value)| options::is_refused(spec, name) && !off(value)) {
        return Some(format!("`{name}` of {module} is not part of the language"));
    }
    let mut options = args.iter().filter(|(name, _)| spec.options.contains(&name.as_str()));
    options.find_map(|(name, value)| check_value(spec.name, name, value)).map(|(why, hint)| format!("{why} ({hint})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::module_specs;
    use serde_json::json;

    #[test]
    fn what_is_no_answer_is_not_taken_for_one() {
        let told = |module: &str, option: &str, value: Value| check_value(module, option, &value).map(|(why, _)| why);
        for (module, option, value, want) in [
            ("service", "enabled", json!("enable"), "`enabled` of service takes yes or no, found `enable`"),
            ("service", "name", json!(["a", "b"]), "`name` of service takes a text, found a list"),
            ("apt", "name", json!({"a": 1}), "`name` of apt takes a list or a text, found a map"),
            ("copy", "owner", json!({"a": 1}), "`owner` of copy takes a text, found a map"),
            ("file", "recurse", json!(7), "`recurse` of file takes yes or no, found `7`"),
            ("group", "state", json!("removed"), "`removed` is not a valid `state` of group"),
            ("wait_for", "port", json!("abc"), "`port` of wait_for takes a number, found `abc`"),
            ("copy", "mode", json!("rwxr-xr-x"), "`mode`"),
        ] {
            let told = told(module, option, value.clone());
            assert!(told.as_deref().is_some_and(|why| why.starts_with(want)), "{module} {option} {value}: {told:?}");
        }
        for (module, option, value) in [
            ("service", "enabled", json!("Yes")),
            ("service", "enabled", json!(1)),
            ("apt", "name", json!(["a"])),
            ("apt", "upgrade", json!(true)),
            ("cron", "env", json!("no")),
            ("copy", "mode", json!("preserve")),
            ("copy", "mode", json!("u=rwX,g-w")),
            ("copy", "owner", json!(0)),
            ("wait_for", "port", json!("80")),
            ("debug", "msg", json!([1])),
            ("find", "age", json!("-3d")),
        ] {
            assert_eq!(told(module, option, value.clone()), None, "{module} {option} {value}");
        }
        let args = |value: Value| value.as_object().cloned().unwrap();
        assert_eq!(
            check_rendered("copy", &args(json!({"dest": "/x", "content": null}))).unwrap(),
            "copy needs `src` or `content`"
        );
        assert_eq!(check_rendered("copy", &args(json!({"dest": "/x", "content": ""}))), None);
    }

    #[test]
    fn each_word_is_an_option_of_a_module_and_of_one_kind() {
        let tables = [BOOLEANS, NUMBERS, LISTS, MAPS, ANYTHING];
        let all: Vec<&str> = tables.iter().flat_map(|words| words.split_whitespace()).collect();
        let options: Vec<&str> = module_specs::MODULES.iter().flat_map(|spec| spec.options).copied().collect();
        for (at, word) in all.iter().enumerate() {
            assert!(options.contains(word), "{word} is no option");
            assert!(!all[at + 1..].contains(word), "{word} stands twice");
        }
    }
}

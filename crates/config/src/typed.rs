//! Reads `remoor.yml` into `FleetConfig`: fields, types, keywords and single values. Checks that
//! involve other files or several fields are in `validate.rs`.

use super::reader::{ConfigReader, join};
use super::settings::*;
use super::tree::{self, ConfigNode, ConfigNodeKind};
use super::windows::windows;
use remoor_model::{Fault, GroupName, Limits, Normalizer, Policy, ServiceName, Trigger};
use serde_json::{Map, Value};

/// Known fields of each section, and the known values with their meaning.
/// `docs/reference/config.md` must list all.
pub const FIELDS: &[&str] =
    &["version", "inventory", "vars", "ssh", "groups", "services", "limits", "windows", "notify"];
pub const SSH_FIELDS: &[&str] = &["user", "port", "identity", "connect-timeout", "config", "sudo"];
pub const GROUP_FIELDS: &[&str] =
    &["services", "provision", "cleanup", "provisioner", "policy", "quorum", "scope", "parallel", "windows", "vars"];
pub const SERVICE_FIELDS: &[&str] = &[
    "files",
    "exclude",
    "secret",
    "normalize",
    "keep",
    "units",
    "state",
    "depends-on",
    "tags",
    "resetup-on-recorded",
    "provisioned",
];
pub const LIMIT_FIELDS: &[&str] = &[
    "settle",
    "retry",
    "flap-count",
    "flap-window",
    "flap-hold",
    "fleet-percent",
    "breaker-group-percent",
    "breaker-fleet-percent",
    "breaker-min",
    "breaker-window",
    "leader-grace",
    "probe",
    "unknown-retry",
    "exam-timeout",
    "phase-timeout",
    "check-interval",
    "rejoin",
    "remove-left",
    "examination-interval",
];
pub const NOTIFY_FIELDS: &[&str] = &["command", "webhook", "on", "text"];

pub const POLICIES: &[(&str, Policy)] =
    &[("report", Policy::Report), ("check", Policy::Check), ("resetup", Policy::Resetup)];
pub const OCCASIONS: &[(&str, Trigger)] = &[
    ("network", Trigger::Network),
    ("reboot", Trigger::Reboot),
    ("agent", Trigger::Agent),
    ("left", Trigger::Left),
    ("live", Trigger::Live),
    ("apply", Trigger::Apply),
];
pub const PROVISIONERS: &[(&str, Provisioner)] = &[("remoor", Provisioner::Remoor), ("ansible", Provisioner::Ansible)];
/// The flag is true if the keyword means "the whole group".
pub const SCOPES: &[(&str, bool)] = &[("service", false), ("group", true)];
pub const NOTIFY_ON: &[(&str, NotifyOn)] =
    &[("verdict", NotifyOn::Verdict), ("held", NotifyOn::Held), ("alert", NotifyOn::Alert)];

/// Names that a group must not have. Checks select nodes by groups and by cluster roles, so a group
/// must not have the name of a role. The other names are Ansible's built-in groups.
const RESERVED_GROUPS: &[&str] = &["manager", "worker", "all", "ungrouped"];
/// Maximum number of retries; more attempts are hardly useful.
const RETRIES_MAX: usize = 20;

/// The settings of `remoor.yml` that could be read, and all its faults. If there are faults, the
/// settings serve only to find more faults.
pub fn read(text: &str) -> (FleetConfig, Vec<Fault>) {
    let node = match tree::parse(CONFIG_FILE, text) {
        Ok(Some(node)) => node,
        Ok(None) => {
            let fault = Fault::error(CONFIG_FILE, 0, 0, "is empty")
                .hint("begin with `version: 1` and `inventory: inventory.yml`");
            return (FleetConfig::default(), vec![fault]);
        }
        Err(faults) => return (FleetConfig::default(), faults),
    };
    let mut reader = ConfigReader::new(CONFIG_FILE);
    let mut config = fleet(&mut reader, &node);
    config.places = reader.places;
    reader.faults.sort_by_key(|fault| (fault.line, fault.column));
    (config, reader.faults)
}

fn fleet(r: &mut ConfigReader, node: &ConfigNode) -> FleetConfig {
    let mut out = FleetConfig::default();
    let s = r.section(node, "", FIELDS);
    if node.entries().is_none() {
        return out;
    }
    match s.get("version") {
        None => {
            r.fault(node, "`version` is missing").hint = Some("write `version: 1` as the first line".into());
        }
        Some(version) if version.to_json() != 1 => {
            let found = version.to_json();
            r.fault(version, format!("version {found} is not known to this program")).hint =
                Some("it reads version 1".into());
        }
        Some(_) => {}
    }
    match s.get("inventory") {
        Some(node) if matches!(node.kind, ConfigNodeKind::List(_)) => {
            out.inventories = r.texts(node, "inventory");
            if out.inventories.is_empty() {
                r.fault(node, "`inventory` is empty");
            }
        }
        Some(node) => out.inventories = r.text(node, "inventory").into_iter().collect(),
        None => {
            r.fault(node, "`inventory` is missing").hint =
                Some("name an Ansible inventory: `inventory: inventory.yml`".into());
        }
    }
    if let Some(node) = s.get("vars") {
        out.vars = variables(r, node, "vars");
    }
    if let Some(node) = s.get("ssh") {
        out.ssh = ssh(r, node);
    }
    if let Some(node) = s.get("groups") {
        for (name, node) in r.mapping(node, "groups") {
            let path = join("groups", name);
            check_name(r, name, &path);
            if RESERVED_GROUPS.contains(&name) {
                let why =
                    if matches!(name, "manager" | "worker") { "a cluster role" } else { "a built-in group of Ansible" };
                let message = format!("a group must not be named `{name}`, which is {why}");
                fault_at(r, &path, message);
            }
            out.groups.insert(GroupName::from(name), group(r, node, &path));
        }
    }
    if let Some(node) = s.get("services") {
        for (name, node) in r.mapping(node, "services") {
            let path = join("services", name);
            check_name(r, name, &path);
            out.services.insert(ServiceName::from(name), service(r, node, name, &path));
        }
    }
    if let Some(node) = s.get("limits") {
        out.limits = limits(r, node);
    }
    if let Some(node) = s.get("windows") {
        out.windows = windows(r, node, "windows");
    }
    for group in out.groups.values_mut() {
        let own = &mut group.summary.windows;
        if own.allow.is_empty() {
            own.allow.clone_from(&out.windows.allow);
        }
        own.deny.extend(&out.windows.deny);
    }
    if let Some(node) = s.get("notify") {
        for (n, item) in r.list(node, "notify").iter().enumerate() {
            out.notify.extend(notify(r, item, &format!("notify.{n}")));
        }
    }
    out
}

fn ssh(r: &mut ConfigReader, node: &ConfigNode) -> SshConfig {
    let s = r.section(node, "ssh", SSH_FIELDS);
    let mut out = SshConfig::default();
    if let Some(user) = s.get("user").and_then(|node| r.text(node, "ssh.user")) {
        out.user = user;
    }
    if let Some(port) = s.get("port").and_then(|node| r.number(node, "ssh.port", 1, 65_535)) {
        out.port = port as u16;
    }
    if let Some(node) = s.get("identity") {
        out.identity = file_name(r, node, "ssh.identity");
        if out.identity.take_if(|name| !name.starts_with('/')).is_some() {
            let message = "`ssh.identity` is a file of this directory, so each generation would carry the private key";
            let hint = "write the absolute path that it has on the managers, or leave it out for the cluster's key";
            r.fault(node, message).hint = Some(hint.into());
        }
    }
    out.config = s.get("config").and_then(|node| file_name(r, node, "ssh.config"));
    if let Some(node) = s.get("connect-timeout")
        && let Some(ms) = r.duration(node, "ssh.connect-timeout")
    {
        if ms < 100 {
            r.fault(node, "`ssh.connect-timeout` is shorter than 100ms");
        }
        out.connect_timeout_ms = ms;
    }
    if let Some(sudo) = s.get("sudo").and_then(|node| r.boolean(node, "ssh.sudo")) {
        out.sudo = sudo;
    }
    out
}

fn group(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> GroupConfig {
    let s = r.section(node, path, GROUP_FIELDS);
    let mut out = GroupConfig::default();
    if let Some(node) = s.get("services") {
        out.summary.services = unique(r, node, &s.path("services")).into_iter().map(ServiceName).collect();
    }
    out.provision = s.get("provision").and_then(|node| playbook_name(r, node, &s.path("provision")));
    out.cleanup = s.get("cleanup").and_then(|node| playbook_name(r, node, &s.path("cleanup")));
    if let Some(kind) = s.get("provisioner").and_then(|node| r.keyword(node, &s.path("provisioner"), PROVISIONERS)) {
        out.provisioner = kind;
    }
    if let Some(node) = s.get("policy") {
        let words: Vec<&str> = OCCASIONS.iter().map(|(word, _)| *word).collect();
        let policy = r.section(node, &s.path("policy"), &words);
        for (word, occasion) in OCCASIONS {
            if let Some(value) = policy.get(word).and_then(|node| r.keyword(node, &policy.path(word), POLICIES)) {
                out.summary.policy.insert(*occasion, value);
            }
        }
    }
    if let Some(quorum) = s.get("quorum").and_then(|node| r.boolean(node, &s.path("quorum"))) {
        out.summary.quorum = quorum;
    }
    if let Some(whole) = s.get("scope").and_then(|node| r.keyword(node, &s.path("scope"), SCOPES)) {
        out.summary.whole = whole;
    }
    if let Some(parallel) = s.get("parallel").and_then(|node| r.number(node, &s.path("parallel"), 1, 1000)) {
        out.summary.parallel = parallel;
    }
    if let Some(node) = s.get("windows") {
        out.summary.windows = windows(r, node, &s.path("windows"));
    }
    if let Some(node) = s.get("vars") {
        out.vars = variables(r, node, &s.path("vars"));
    }
    out
}

fn service(r: &mut ConfigReader, node: &ConfigNode, name: &str, path: &str) -> ServiceConfig {
    let s = r.section(node, path, SERVICE_FIELDS);
    let mut out = ServiceConfig { tags: vec![name.to_owned()], ..ServiceConfig::default() };
    let mut paths = |field: &str| s.get(field).map(|node| globs(r, node, &s.path(field))).unwrap_or_default();
    out.files = paths("files");
    out.exclude = paths("exclude");
    out.secret = paths("secret");
    out.keep = paths("keep");
    out.state = paths("state");
    if let Some(node) = s.get("normalize") {
        out.normalize = patterns(r, node, &s.path("normalize"));
    }
    if let Some(node) = s.get("units") {
        out.units = unique(r, node, &s.path("units"));
        for (n, unit) in out.units.iter().enumerate() {
            if !unit.contains('.') || unit.contains('/') {
                let path = format!("{}.{n}", s.path("units"));
                fault_at(r, &path, format!("`{unit}` is not a full unit name")).hint =
                    Some(format!("write {unit}.service"));
            }
        }
    }
    if let Some(node) = s.get("depends-on") {
        out.summary.depends_on = unique(r, node, &s.path("depends-on")).into_iter().map(ServiceName).collect();
    }
    if let Some(node) = s.get("tags") {
        let tags = unique(r, node, &s.path("tags"));
        if !tags.is_empty() {
            out.tags = tags;
        }
    }
    if let Some(node) = s.get("resetup-on-recorded") {
        out.summary.resetup_on_recorded = r.boolean(node, &s.path("resetup-on-recorded")).unwrap_or_default();
    }
    if let Some(node) = s.get("provisioned") {
        out.summary.monitor_only = !r.boolean(node, &s.path("provisioned")).unwrap_or(true);
    }
    out
}

fn limits(r: &mut ConfigReader, node: &ConfigNode) -> Limits {
    let s = r.section(node, "limits", LIMIT_FIELDS);
    let mut out = Limits::default();
    let Limits {
        settle_ms,
        retry_ms,
        flap_count,
        flap_window_ms,
        flap_hold_ms,
        fleet_percent,
        breaker_group_percent,
        breaker_fleet_percent,
        breaker_min,
        breaker_window_ms,
        leader_grace_ms,
        probe_ms,
        unknown_retry_ms,
        exam_timeout_ms,
        phase_timeout_ms,
        check_interval_ms,
        rejoin_ms,
        remove_left_ms,
        examination_interval_ms,
    } = &mut out;
    // The third value of each entry is the minimum in milliseconds. A minimum of 0 allows the field
    // to be disabled. A minimum of 100 ms or more prevents busy loops.
    let times = [
        ("settle", settle_ms, 0),
        ("leader-grace", leader_grace_ms, 0),
        ("flap-window", flap_window_ms, 1),
        ("flap-hold", flap_hold_ms, 0),
        ("breaker-window", breaker_window_ms, 1),
        ("probe", probe_ms, 100),
        ("unknown-retry", unknown_retry_ms, 100),
        ("exam-timeout", exam_timeout_ms, 100),
        ("phase-timeout", phase_timeout_ms, 100),
        ("check-interval", check_interval_ms, 100),
        ("rejoin", rejoin_ms, 100),
        ("remove-left", remove_left_ms, 1_000),
        ("examination-interval", examination_interval_ms, 1_000),
    ];
    for (field, slot, least) in times {
        let Some(node) = s.get(field) else { continue };
        let Some(ms) = r.duration(node, &s.path(field)) else { continue };
        if ms < least {
            r.fault(node, format!("`{}` is shorter than {least}ms", s.path(field)));
        }
        *slot = ms;
    }
    let numbers = [
        ("flap-count", flap_count, 2, 1000),
        ("fleet-percent", fleet_percent, 1, 100),
        ("breaker-group-percent", breaker_group_percent, 1, 100),
        ("breaker-fleet-percent", breaker_fleet_percent, 1, 100),
        ("breaker-min", breaker_min, 1, 10_000),
    ];
    for (field, slot, min, max) in numbers {
        if let Some(value) = s.get(field).and_then(|node| r.number(node, &s.path(field), min, max)) {
            *slot = value;
        }
    }
    if let Some(node) = s.get("retry") {
        let path = s.path("retry");
        let items = r.list(node, &path);
        if items.len() > RETRIES_MAX {
            r.fault(node, format!("`{path}` has more than {RETRIES_MAX} times"));
        }
        *retry_ms = items.iter().take(RETRIES_MAX).filter_map(|item| r.duration(item, &path)).collect();
    }
    out
}

fn notify(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Option<Notify> {
    let s = r.section(node, path, NOTIFY_FIELDS);
    let to = match (s.get("command"), s.get("webhook")) {
        (Some(node), None) => {
            let words = r.texts(node, &s.path("command"));
            match words.first() {
                Some(program) if program.starts_with('/') => Some(NotifyTo::Command(words)),
                Some(program) => {
                    let message = format!("`{program}` is not an absolute path");
                    r.fault(node, message).hint =
                        Some("the command runs on whichever manager leads, without a shell".into());
                    None
                }
                None => {
                    r.fault(node, format!("`{}` is empty", s.path("command")));
                    None
                }
            }
        }
        (None, Some(node)) => {
            let url = r.text(node, &s.path("webhook"))?;
            let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            if host.is_none_or(|host| host.is_empty() || host.contains(char::is_whitespace)) {
                r.fault(node, format!("`{url}` is not an http or https address"));
            }
            Some(NotifyTo::Webhook(url))
        }
        (Some(_), Some(node)) => {
            r.fault(node, "`command` and `webhook` exclude each other").hint = Some("write two entries".into());
            None
        }
        (None, None) => {
            r.fault(node, "neither `command` nor `webhook` is given");
            None
        }
    };
    let mut on: Vec<NotifyOn> = NOTIFY_ON.iter().map(|(_, on)| *on).collect();
    if let Some(node) = s.get("on") {
        let path = s.path("on");
        let words = r.list(node, &path);
        on = words.iter().filter_map(|item| r.keyword(item, &path, NOTIFY_ON)).collect();
        if words.is_empty() && (node.is_null() || matches!(node.kind, ConfigNodeKind::List(_))) {
            r.fault(node, format!("`{path}` is empty")).hint = Some("omit it for all events".into());
        }
    }
    let text = s.get("text").and_then(|node| {
        let text = r.text(node, &s.path("text"))?;
        if let Err(error) = tera::Tera::default().add_raw_template("text", &text) {
            let error = error.to_string();
            // Only the first line of the error is used. Its other lines show the position as a
            // drawing.
            let first = error.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            let message = format!("`{}` is not a valid Tera template: {first}", s.path("text"));
            r.fault(node, message);
        }
        Some(text)
    });
    Some(Notify { to: to?, on, text })
}

/// Reads a mapping of variables. A name that a playbook cannot use is a fault.
fn variables(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in r.mapping(node, path) {
        if !is_variable(name) {
            let message = format!("`{name}` is not a variable name");
            fault_at(r, &join(path, name), message).hint = Some("letters, digits and `_`, a letter first".into());
        }
        out.insert(name.to_owned(), value.to_json());
    }
    out
}

/// Whether `name` is a valid variable name of Ansible.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A list of texts without duplicates.
fn unique(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Vec<String> {
    let texts = r.texts(node, path);
    for (n, text) in texts.iter().enumerate() {
        if texts[..n].contains(text) {
            fault_at(r, &format!("{path}.{n}"), format!("`{text}` appears here a second time"));
        }
    }
    texts
}

/// Reads a list of regular expressions that are matched against lines.
fn patterns(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Vec<String> {
    let texts = unique(r, node, path);
    for (n, text) in texts.iter().enumerate() {
        if let Err(error) = Normalizer::check(text) {
            fault_at(r, &format!("{path}.{n}"), error.to_string());
        }
    }
    texts
}

/// Reads a list of absolute paths or globs on the nodes.
fn globs(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Vec<String> {
    let texts = unique(r, node, path);
    for (n, text) in texts.iter().enumerate() {
        let place = format!("{path}.{n}");
        // A template is checked when the variables of a host are known, in `src/fleet/paths.rs`.
        if text.starts_with("{{") && text.contains("}}") {
            continue;
        }
        if !text.starts_with('/') {
            fault_at(r, &place, format!("`{text}` is not an absolute path")).hint =
                Some(format!("write /{text}, if that is meant"));
        } else if text.split('/').any(|part| matches!(part, "." | "..")) {
            fault_at(r, &place, format!("`{text}` contains `.` or `..`"));
        } else if text == "/" {
            fault_at(r, &place, "the whole file system can't be declared");
        } else if let Err(error) = globset::Glob::new(text) {
            fault_at(r, &place, format!("`{text}` is not a valid glob: {}", error.kind()));
        }
    }
    texts
}

/// A file of the fleet, or an absolute path on the managers.
fn file_name(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Option<String> {
    let text = r.text(node, path)?;
    if text.starts_with('~') {
        r.fault(node, format!("`{path}` can't begin with `~`: it would be another directory on each manager")).hint =
            Some("write an absolute path, or one of the fleet directory".into());
        return None;
    }
    if text.starts_with('/') { Some(text) } else { within_fleet(r, node, path, text) }
}

fn playbook_name(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Option<String> {
    let text = r.text(node, path)?;
    within_fleet(r, node, path, text)
}

fn within_fleet(r: &mut ConfigReader, node: &ConfigNode, path: &str, text: String) -> Option<String> {
    let text = text.strip_prefix("./").unwrap_or(&text).to_owned();
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        r.fault(node, format!("`{path}` must be a path below the fleet directory"));
        return None;
    }
    Some(text)
}

fn check_name(r: &mut ConfigReader, name: &str, path: &str) {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty()
        || name.len() > 63
        || !name.chars().all(ok)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    {
        fault_at(r, path, format!("`{name}` can't be a name")).hint =
            Some("at most 63 letters, digits, `_`, `-` and `.`, a letter or digit first".into());
    }
}

fn fault_at<'r>(r: &'r mut ConfigReader, path: &str, message: impl Into<String>) -> &'r mut Fault {
    let at = r.places.get(path).copied().unwrap_or_default();
    r.faults.push(Fault::error(r.file, at.line, at.column, message));
    r.faults.last_mut().expect("one was pushed")
}

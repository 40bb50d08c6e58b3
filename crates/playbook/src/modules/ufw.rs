//! The `ufw` module: rules, defaults and state of the firewall ufw.
//!
//! `ufw` itself decides whether a command changes something. In check mode it runs with
//! `--dry-run`, as in Ansible.

use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message};
use crate::lang::word_split;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};

const RULE_FILES: &str = "/lib/ufw/user.rules /lib/ufw/user6.rules /etc/ufw/user.rules /etc/ufw/user6.rules \
    /var/lib/ufw/user.rules /var/lib/ufw/user6.rules";

/// The programs, and the commands that were run.
struct Firewall {
    ufw: String,
    grep: String,
    commands: Vec<String>,
}

/// Whether a command may change the firewall.
#[derive(Clone, Copy, PartialEq)]
enum CommandKind {
    Reads,
    /// Like `Reads`; a failure is no error.
    Searches,
    Changes,
}

impl Firewall {
    fn execute(&mut self, call: &mut ModuleCall, line: String, kind: CommandKind) -> Result<String, String> {
        let words = word_split::split_words(&line).map_err(|why| format!("{line}: {why}"))?;
        let argv: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let done = match kind {
            CommandKind::Changes => call.run_or_predict(&argv, |_| {})?,
            CommandKind::Reads | CommandKind::Searches => call.run_quietly(&argv)?,
        };
        self.commands.push(line);
        if !done.success() && kind != CommandKind::Searches {
            return Err(failure_message("ufw", &done));
        }
        Ok(done.stdout)
    }

    /// The lines of the rules in the files of ufw.
    fn rules(&mut self, call: &mut ModuleCall) -> Result<String, String> {
        let line = format!("{} -h '^### tuple' {RULE_FILES}", self.grep);
        self.execute(call, line, CommandKind::Searches)
    }

    fn status(&mut self, call: &mut ModuleCall) -> Result<String, String> {
        let line = format!("{} status verbose", self.ufw);
        self.execute(call, line, CommandKind::Reads)
    }

    /// A command that changes the firewall. `words` may have empty texts.
    fn line(&self, dry: bool, words: &[String]) -> String {
        let begin = [self.ufw.clone(), if dry { "--dry-run".into() } else { String::new() }];
        let all = begin.iter().chain(words).filter(|word| !word.is_empty()).map(String::as_str);
        all.collect::<Vec<_>>().join(" ")
    }
}

pub fn ufw(call: &mut ModuleCall) -> ModuleResult {
    let (state, default) = (call.text(&["state"]), call.text(&["default", "policy"]));
    let (rule, logging) = (call.text(&["rule"]), call.text(&["logging"]));
    if [&state, &default, &rule, &logging].iter().all(|command| command.is_none()) {
        return Err("ufw needs `state`, `default`, `rule` or `logging`".into());
    }
    call.env.push(("LANG".into(), "C".into()));
    let mut firewall =
        Firewall { ufw: call.find_program("ufw")?, grep: call.find_program("grep")?, commands: Vec::new() };
    let checks = call.ground.node.is_check_mode();
    let before = firewall.status(call)?;
    let rules_before = firewall.rules(call)?;
    let mut changed = false;
    if let Some(state) = state {
        changed |= set_state(call, &mut firewall, &state, &before)?;
    }
    if let Some(value) = default {
        changed |= set_default(call, &mut firewall, &value, &before)?;
    }
    if let Some(verdict) = rule {
        changed |= set_rule(call, &mut firewall, &verdict, &rules_before)?;
    }
    if let Some(level) = logging {
        changed |= set_logging(call, &mut firewall, &level, &before)?;
    }
    if checks {
        if changed && let Some(would) = call.ground.node.predicted_state_mut() {
            would.mark_unknown();
        }
        let out = TaskOutcome { changed, ..TaskOutcome::default() };
        return Ok(out.with_result(json!({"commands": firewall.commands})));
    }
    let after = firewall.status(call)?;
    if !changed {
        let rules = firewall.rules(call)?;
        changed = before != after || rules_before != rules;
    }
    let out = TaskOutcome { changed, ..TaskOutcome::default() };
    Ok(out.with_result(json!({"commands": firewall.commands, "msg": after.trim_end()})))
}

fn set_state(call: &mut ModuleCall, firewall: &mut Firewall, state: &str, before: &str) -> Result<bool, String> {
    let verb = match state {
        "enabled" => "enable",
        "disabled" => "disable",
        "reloaded" => "reload",
        _ => "reset",
    };
    let always = matches!(state, "reloaded" | "reset");
    if call.ground.node.is_check_mode() {
        // `inactive` contains `active`, so the blank counts.
        let active = before.contains(" active");
        return Ok(always || state == "disabled" && active || state == "enabled" && !active);
    }
    let line = firewall.line(false, &["-f".to_owned(), verb.to_owned()]);
    firewall.execute(call, line, CommandKind::Changes)?;
    Ok(always)
}

fn set_default(call: &mut ModuleCall, firewall: &mut Firewall, value: &str, before: &str) -> Result<bool, String> {
    let direction = call.text(&["direction"]);
    if !matches!(direction.as_deref(), None | Some("incoming" | "outgoing" | "routed")) {
        return Err("for `default`, `direction` must be incoming, outgoing or routed".into());
    }
    if call.ground.node.is_check_mode() {
        let wanted = format!("({})", direction.as_deref().unwrap_or("incoming"));
        let line = before.lines().find_map(|line| line.trim().strip_prefix("Default: ")).unwrap_or_default();
        let now = line.split(", ").find_map(|part| part.strip_suffix(&wanted)).map(str::trim);
        return Ok(!now.is_some_and(|now| now == value || now == "disabled"));
    }
    let words = ["default".to_owned(), value.to_owned(), direction.unwrap_or_default()];
    let line = firewall.line(false, &words);
    firewall.execute(call, line, CommandKind::Changes)?;
    Ok(false)
}

fn set_logging(call: &mut ModuleCall, firewall: &mut Firewall, level: &str, before: &str) -> Result<bool, String> {
    let line = before.lines().find_map(|line| line.trim().strip_prefix("Logging: ")).unwrap_or_default();
    let (now, rest) = line.split_once(' ').unwrap_or((line, ""));
    let now_level = rest.trim_matches(['(', ')']);
    let changed = match (now, level) {
        ("on" | "off", "off") => now != "off",
        ("off", _) => true,
        ("on", level) => level != "on" && level != now_level,
        _ => true,
    };
    if !call.ground.node.is_check_mode() {
        let line = firewall.line(false, &["logging".to_owned(), level.to_owned()]);
        firewall.execute(call, line, CommandKind::Changes)?;
    }
    Ok(changed)
}

fn set_rule(call: &mut ModuleCall, firewall: &mut Firewall, verdict: &str, rules: &str) -> Result<bool, String> {
    let direction = call.text(&["direction"]);
    if !matches!(direction.as_deref(), None | Some("in" | "out")) {
        return Err("for a rule, `direction` must be in or out".into());
    }
    let (inside, outside) = (call.text(&["interface_in", "if_in"]), call.text(&["interface_out", "if_out"]));
    let routes = call.flag("route", false);
    if !routes && inside.is_some() && outside.is_some() {
        return Err("only route rules can combine interface_in and interface_out".into());
    }
    let deletes = call.flag("delete", false);
    let when = |holds: bool, word: &str| if holds { word.to_owned() } else { String::new() };
    let given = |value: Option<String>| value.filter(|value| !value.is_empty());
    let with = |begin: &str, value: Option<String>| given(value).map_or_else(String::new, |v| format!("{begin} {v}"));
    let mut words = vec![when(routes, "route"), when(deletes, "delete")];
    if let Some(number) = given(call.text(&["insert"])).filter(|_| !deletes) {
        words.push(with("insert", insert_position(call, firewall, &number)?));
    }
    words.push(verdict.to_owned());
    words.push(direction.unwrap_or_default());
    words.push(with("on", call.text(&["interface", "if"])));
    words.push(with("in on", inside));
    words.push(with("out on", outside));
    words.push(when(call.flag("log", false), "log"));
    let (from, to) = (
        given(call.text(&["from_ip", "from", "src"])).unwrap_or_else(|| "any".into()),
        given(call.text(&["to_ip", "dest", "to"])).unwrap_or_else(|| "any".into()),
    );
    words.push(with("from", Some(from.clone())));
    words.push(with("port", call.text(&["from_port"])));
    words.push(with("to", Some(to.clone())));
    words.push(with("port", call.text(&["to_port", "port"])));
    words.push(with("proto", call.text(&["proto", "protocol"])));
    words.push(given(call.text(&["name", "app"])).map(|name| format!("app '{name}'")).unwrap_or_default());
    let version = firewall.execute(call, format!("{} --version", firewall.ufw), CommandKind::Reads)?;
    let comment = call.text(&["comment"]).filter(|comment| !comment.is_empty() && takes_comments(&version));
    words.push(comment.map(|comment| format!("comment '{comment}'")).unwrap_or_default());
    let checks = call.ground.node.is_check_mode();
    let kind = if checks { CommandKind::Reads } else { CommandKind::Changes };
    let line = firewall.line(checks, &words);
    let said = firewall.execute(call, line, kind)?;
    Ok(checks && dry_run_changes(&said, rules, &from, &to))
}

/// Whether the rules that `ufw --dry-run` would write differ from the present ones. For a rule with
/// addresses, ufw shows only the rules of their family.
fn dry_run_changes(said: &str, rules: &str, from: &str, to: &str) -> bool {
    if !said.is_empty() && said.lines().all(|line| line.contains("Skipping")) {
        return false;
    }
    let has_v4 = |text: &str| text.split([' ', '/']).any(|word| word.parse::<Ipv4Addr>().is_ok());
    let has_v6 = |text: &str| text.split([' ', '/']).any(|word| word.parse::<Ipv6Addr>().is_ok());
    let pick = |text: &str, fits: &dyn Fn(&str) -> bool| -> Vec<String> {
        text.lines().filter(|line| fits(line)).map(str::to_owned).collect()
    };
    let dry = pick(said, &|line| line.starts_with("### tuple")).join("\n");
    if has_v4(from) || has_v4(to) {
        pick(rules, &has_v4) != pick(&dry, &has_v4)
    } else if has_v6(from) || has_v6(to) {
        pick(rules, &has_v6) != pick(&dry, &has_v6)
    } else {
        pick(rules, &|_| true) != pick(&dry, &|_| true)
    }
}

/// Whether this version of ufw has comments, as since 0.35.
fn takes_comments(version: &str) -> bool {
    let numbers = version.lines().next().unwrap_or_default().trim_start_matches("ufw").trim();
    let mut numbers = numbers.split('.').map(|number| number.trim().parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (0, 35)
}

/// The number of a new rule. None: the rule is added at the end.
fn insert_position(call: &mut ModuleCall, firewall: &Firewall, number: &str) -> Result<Option<String>, String> {
    let number: i64 = number.trim().parse().map_err(|_| format!("`insert` is not a number: {number}"))?;
    let relative = call.text(&["insert_relative_to"]).unwrap_or_else(|| "zero".into());
    if relative == "zero" {
        return Ok(Some(number.to_string()));
    }
    let done = call.run_quietly(&[&firewall.ufw, "status", "numbered"])?;
    let rule = |line: &str| {
        let number = line.strip_prefix('[')?.split_once(']')?.0.trim().parse::<i64>().ok()?;
        Some((number, line.contains("(v6)")))
    };
    let rules: Vec<(i64, bool)> = done.stdout.lines().filter_map(rule).collect();
    let last = rules.iter().map(|(number, _)| *number).max().unwrap_or_default();
    let last_v4 = rules.iter().filter(|(_, v6)| !v6).map(|(number, _)| *number).max();
    let begin = match relative.as_str() {
        "first-ipv4" => 1,
        "last-ipv4" => last_v4.unwrap_or(1),
        "first-ipv6" => last_v4.map_or(1, |last| last + 1),
        _ if rules.iter().any(|(_, v6)| *v6) => last,
        _ => last + 1,
    };
    let position = number + begin;
    // ufw refuses a number above the last one.
    Ok((position <= last).then(|| position.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_is_compared_with_the_rules_of_its_family() {
        let rules =
            "### tuple ### allow any 22 0.0.0.0/0 any 0.0.0.0/0 in\n### tuple ### allow any 22 ::/0 any ::/0 in\n";
        assert!(!dry_run_changes(
            "Skipping adding existing rule\nSkipping adding existing rule (v6)\n",
            rules,
            "any",
            "any"
        ));
        assert!(!dry_run_changes(&format!("*filter\n{rules}"), rules, "any", "any"));
        let more = "### tuple ### allow any 22 0.0.0.0/0 any 0.0.0.0/0 in\n### tuple ### allow any 80 10.0.0.1 any 0.0.0.0/0 in\n";
        assert!(dry_run_changes(more, rules, "any", "10.0.0.1"));
        assert!(takes_comments("ufw 0.36.2\nCopyright") && !takes_comments("ufw 0.33"));
    }
}

//! The `iptables` module: one rule, the policy of a chain or a chain itself, in the running kernel.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success};
use crate::run::event::AttributeChange;
use serde_json::{Value, json};

/// How an option becomes arguments of the program.
#[derive(Clone, Copy)]
enum RulePart {
    /// `FLAG VALUE`, or `! FLAG VALUE` if the value begins with an exclamation mark.
    Value(&'static str, &'static str),
    /// `FLAG A,B` for a list.
    List(&'static str, &'static str),
}

/// The beginning of a rule.
const BEGIN: &[RulePart] =
    &[RulePart::Value("protocol", "-p"), RulePart::Value("source", "-s"), RulePart::Value("destination", "-d")];
/// The options between the jump and the marks for DSCP.
const MIDDLE: &[RulePart] = &[
    RulePart::Value("log_prefix", "--log-prefix"),
    RulePart::Value("log_level", "--log-level"),
    RulePart::Value("to_destination", "--to-destination"),
    RulePart::List("destination_ports", "--dports"),
    RulePart::Value("to_source", "--to-source"),
    RulePart::Value("goto", "-g"),
    RulePart::Value("in_interface", "-i"),
    RulePart::Value("out_interface", "-o"),
    RulePart::Value("fragment", "-f"),
    RulePart::Value("set_counters", "-c"),
    RulePart::Value("source_port", "--source-port"),
    RulePart::Value("destination_port", "--destination-port"),
    RulePart::Value("to_ports", "--to-ports"),
];

/// The arguments of a rule while they are collected.
struct RuleArguments<'c, 'a, 'g> {
    call: &'c ModuleCall<'a, 'g>,
    /// The target of the rule, which logging options may set.
    jump: Option<String>,
    matches: Vec<String>,
    words: Vec<String>,
}

impl RuleArguments<'_, '_, '_> {
    fn text(&self, name: &str) -> Option<String> {
        self.call.text(&[name])
    }

    fn push(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
    }

    fn value(&mut self, flag: &str, value: Option<&str>) {
        match value.map(|value| (value, value.strip_prefix('!'))) {
            None => {}
            Some((_, Some(rest))) => self.push(&["!", flag, rest]),
            Some((value, None)) => self.push(&[flag, value]),
        }
    }

    fn part(&mut self, part: RulePart) {
        match part {
            RulePart::Value(option, flag) => self.value(flag, self.text(option).as_deref()),
            RulePart::List(option, flag) => self.list(option, flag),
        }
    }

    fn list(&mut self, option: &str, flag: &str) {
        let items = self.call.list(&[option]);
        if items.is_empty() {
            return;
        }
        if option == "destination_ports" {
            self.push(&["-m", "multiport"]);
        }
        self.push(&[flag, &items.join(",")]);
    }

    /// Adds `-m MODULE` unless the task names the module in `match`.
    fn load(&mut self, module: &str) {
        if !self.matches.iter().any(|name| name == module) {
            self.push(&["-m", module]);
        }
    }

    fn tcp_flags(&mut self) {
        let Some(Value::Object(flags)) = self.call.args.get("tcp_flags") else { return };
        let csv = |name: &str| match flags.get(name) {
            Some(Value::Array(items)) => Some(items.iter().map(super::text_of).collect::<Vec<_>>().join(",")),
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        if let (Some(mask), Some(set)) = (csv("flags"), csv("flags_set")) {
            self.push(&["--tcp-flags", &mask, &set]);
        }
    }

    fn connection_state(&mut self) {
        let states = self.call.list(&["ctstate"]).join(",");
        let has = |name: &str| self.matches.iter().any(|m| m == name);
        let (conntrack, state) = (has("conntrack"), has("state"));
        if states.is_empty() {
            return;
        }
        if !conntrack && !state {
            self.push(&["-m", "conntrack"]);
        }
        self.push(&[if state && !conntrack { "--state" } else { "--ctstate" }, &states]);
    }

    /// The marks for DSCP, which need a jump.
    fn dscp(&mut self) {
        for (option, flag) in [("set_dscp_mark", "--set-dscp"), ("set_dscp_mark_class", "--set-dscp-class")] {
            let Some(mark) = self.text(option) else { continue };
            self.value(flag, Some(&mark));
            if self.jump.as_deref().is_some_and(|jump| !jump.eq_ignore_ascii_case("dscp")) {
                self.push(&["-j", "DSCP"]);
            }
        }
    }

    fn syn(&mut self) {
        match self.text("syn").as_deref() {
            Some("match") => self.push(&["--syn"]),
            Some("negate") => self.push(&["!", "--syn"]),
            _ => {}
        }
    }

    fn ranges_and_sets(&mut self) {
        let (from, to) = (self.text("src_range"), self.text("dst_range"));
        if from.is_some() || to.is_some() {
            self.load("iprange");
        }
        self.value("--src-range", from.as_deref());
        self.value("--dst-range", to.as_deref());
        if let Some(set) = self.text("match_set") {
            self.load("set");
            self.value("--match-set", Some(&set));
            if let Some(flags) = self.text("match_set_flags") {
                self.push(&[&flags]);
            }
        }
    }

    fn limits_and_owners(&mut self) {
        let (limit, burst) = (self.text("limit"), self.text("limit_burst"));
        if limit.is_some() || burst.is_some() {
            self.push(&["-m", "limit"]);
        }
        self.value("--limit", limit.as_deref());
        self.value("--limit-burst", burst.as_deref());
        for (option, flag) in [("uid_owner", "--uid-owner"), ("gid_owner", "--gid-owner")] {
            if let Some(owner) = self.text(option) {
                self.push(&["-m", "owner"]);
                self.value(flag, Some(&owner));
            }
        }
    }

    fn end(&mut self, family: &str) {
        let reject = self.text("reject_with");
        if self.jump.is_none() && reject.is_some() {
            self.push(&["-j", "REJECT"]);
        }
        self.value("--reject-with", reject.as_deref());
        let icmp = if family == "ipv6" { "--icmpv6-type" } else { "--icmp-type" };
        self.value(icmp, self.text("icmp_type").as_deref());
        if let Some(comment) = self.text("comment") {
            self.push(&["-m", "comment"]);
            self.value("--comment", Some(&comment));
        }
    }
}

/// The arguments of the rule for a family of addresses. `jump` is the target of the rule.
fn rule_words(call: &ModuleCall, family: &str, jump: Option<String>) -> Vec<String> {
    let matches = call.list(&["match"]);
    let mut rule = RuleArguments { call, jump, matches, words: Vec::new() };
    BEGIN.iter().for_each(|part| rule.part(*part));
    for module in rule.matches.clone() {
        rule.value("-m", Some(&module));
    }
    rule.tcp_flags();
    let jump = rule.jump.clone();
    rule.value("-j", jump.as_deref());
    if jump.is_some_and(|jump| jump.eq_ignore_ascii_case("tee")) {
        rule.part(RulePart::Value("gateway", "--gateway"));
    }
    MIDDLE.iter().for_each(|part| rule.part(*part));
    rule.dscp();
    rule.syn();
    rule.connection_state();
    rule.ranges_and_sets();
    rule.limits_and_owners();
    rule.end(family);
    rule.words
}

/// A program, the table and the chain of the task.
struct ChainTarget {
    program: String,
    table: String,
    chain: Option<String>,
    wait: Option<String>,
}

impl ChainTarget {
    fn argv(&self, action: &str, number: Option<&str>, rest: &[String]) -> Vec<String> {
        let mut argv = vec![self.program.clone(), "-t".into(), self.table.clone(), action.into()];
        argv.extend(self.chain.clone());
        argv.extend(number.map(str::to_owned));
        argv.extend(self.wait.iter().flat_map(|wait| ["-w".to_owned(), wait.clone()]));
        argv.extend(rest.iter().cloned());
        argv
    }

    fn prediction_key(&self, what: &str) -> String {
        let chain = self.chain.as_deref().unwrap_or_default();
        format!("{} {} {chain} {what}", self.program, self.table)
    }
}

pub fn iptables(call: &mut ModuleCall) -> ModuleResult {
    let version = call.text(&["ip_version"]).unwrap_or_else(|| "ipv4".into());
    let (flush, chain) = (call.flag("flush", false), call.text(&["chain"]));
    if !flush && chain.is_none() {
        return Err("iptables needs `chain` unless it has `flush`".into());
    }
    let marked = ["set_dscp_mark", "set_dscp_mark_class"].iter().any(|name| call.text(&[name]).is_some());
    let mut jump = call.text(&["jump"]);
    if marked && jump.is_none() {
        return Err("`set_dscp_mark` and `set_dscp_mark_class` need `jump`".into());
    }
    if jump.as_deref().is_some_and(|jump| jump.eq_ignore_ascii_case("tee")) && call.text(&["gateway"]).is_none() {
        return Err("`jump: TEE` needs `gateway`".into());
    }
    let shown = rule_words(call, &version, jump.clone()).join(" ");
    if ["log_prefix", "log_level"].iter().any(|name| call.text(&[name]).is_some()) {
        match jump.as_deref() {
            None => jump = Some("LOG".into()),
            Some("LOG") => {}
            Some(_) => return Err("Logging options can only be used with the LOG jump target.".into()),
        }
    }
    let families: &[&str] = match version.as_str() {
        "both" => &["ipv4", "ipv6"],
        "ipv6" => &["ipv6"],
        _ => &["ipv4"],
    };
    let mut out = TaskOutcome::default();
    for family in families {
        let program = call.find_program(if *family == "ipv6" { "ip6tables" } else { "iptables" })?;
        let wait = call.text(&["wait"]).filter(|wait| !wait.is_empty());
        let wait = if wait.is_some() && takes_seconds(call, &program)? { wait } else { None };
        let table = call.text(&["table"]).unwrap_or_else(|| "filter".into());
        let target = ChainTarget { program, table, chain: chain.clone(), wait };
        let rule = rule_words(call, family, jump.clone());
        apply(call, &target, &rule, shown.is_empty(), &mut out)?;
    }
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    Ok(out.with_result(json!({
        "ip_version": version, "table": call.text(&["table"]).unwrap_or_else(|| "filter".into()), "chain": chain,
        "flush": flush, "rule": shown, "state": state, "chain_management": call.flag("chain_management", false),
        "wait": call.text(&["wait"]),
    })))
}

/// Whether the option `-w` of the program takes seconds, as since version 1.6.0.
fn takes_seconds(call: &ModuleCall, program: &str) -> Result<bool, String> {
    let done = call.run_quietly(&[program, "--version"])?;
    require_success(&format!("{program} --version"), &done)?;
    let text = done.stdout.split_once('v').map_or("", |(_, version)| version);
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or_default());
    Ok((numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (1, 6))
}

fn apply(
    call: &mut ModuleCall,
    target: &ChainTarget,
    rule: &[String],
    whole_chain: bool,
    out: &mut TaskOutcome,
) -> Result<(), String> {
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if call.flag("flush", false) {
        out.changed = true;
        return change(call, target, "-F", None, &[], ("flush", ""));
    }
    if let Some(policy) = call.text(&["policy"]) {
        let now = chain_policy(call, target)?.ok_or("Can't detect current policy")?;
        if now != policy {
            out.changed = true;
            out.attributes.push(AttributeChange::new("policy", now, policy.clone()));
            change(call, target, "-P", None, std::slice::from_ref(&policy), ("policy", &policy))?;
        }
        return Ok(());
    }
    if whole_chain {
        let there = is_there(call, target, "chain", "-L", &[])?;
        if there != present {
            out.changed = true;
            // Ansible reports the change, and makes it only with `chain_management`.
            if call.flag("chain_management", false) {
                let state = if present { "present" } else { "absent" };
                change(call, target, if present { "-N" } else { "-X" }, None, &[], ("chain", state))?;
            }
        }
        return Ok(());
    }
    let key = rule.join(" ");
    if is_there(call, target, &key, "-C", rule)? == present {
        return Ok(());
    }
    out.changed = true;
    let state = if present { "present" } else { "absent" };
    out.attributes.push(AttributeChange::new("rule", if present { "absent" } else { "present" }, state));
    let inserts = call.text(&["action"]).as_deref() == Some("insert");
    let number = call.text(&["rule_num"]).filter(|_| inserts && present);
    let action = match (present, inserts) {
        (false, _) => "-D",
        (true, true) => "-I",
        (true, false) => "-A",
    };
    change(call, target, action, number.as_deref(), rule, (&key, state))
}

/// Whether a rule or chain exists, also by the prediction of check mode.
fn is_there(
    call: &ModuleCall,
    target: &ChainTarget,
    what: &str,
    action: &str,
    rest: &[String],
) -> Result<bool, String> {
    let key = target.prediction_key(what);
    if let Some(told) = call.predicted_text(&key) {
        return Ok(told == "present");
    }
    let mut argv = target.argv(action, None, rest);
    argv.extend((action == "-L" && call.flag("numeric", false)).then(|| "--numeric".to_owned()));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    Ok(call.run_quietly(&argv)?.success())
}

fn chain_policy(call: &ModuleCall, target: &ChainTarget) -> Result<Option<String>, String> {
    let key = target.prediction_key("policy");
    if let Some(told) = call.predicted_text(&key) {
        return Ok(Some(told));
    }
    let mut argv = target.argv("-L", None, &[]);
    argv.extend(call.flag("numeric", false).then(|| "--numeric".to_owned()));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = call.run_quietly(&argv)?;
    require_success(&target.program, &done)?;
    let first = done.stdout.lines().next().unwrap_or_default();
    let rest = first.split_once("(policy ").map(|(_, rest)| rest);
    Ok(rest.map(|rest| rest.chars().take_while(char::is_ascii_uppercase).collect()))
}

fn change(
    call: &mut ModuleCall,
    target: &ChainTarget,
    action: &str,
    number: Option<&str>,
    rest: &[String],
    (what, state): (&str, &str),
) -> Result<(), String> {
    let argv = target.argv(action, number, rest);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let key = target.prediction_key(what);
    let done = call.run_or_predict(&argv, |would| would.set_text(&key, state))?;
    require_success(&argv.join(" "), &done)
}

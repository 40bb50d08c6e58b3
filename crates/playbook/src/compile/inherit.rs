//! Keywords that plays, roles, blocks and tasks share. Each is applied as in Ansible or rejected by
//! name.

use super::context::InheritedKeywords;
use super::python_module::is_usual_collection;
use super::{Compiler, Context, HINT_ANSIBLE, module_specs, options};
use crate::lang::hosts::LOCAL;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::{Delegation, TaskPrivileges};
use crate::template::expr;
use crate::vars::scope::with_trace;
use crate::vars::var_map;
use crate::vars::variable_scope::OMIT;
use remoor_model::did_you_mean;
use serde_json::Value;
use std::rc::Rc;

/// Modules that never access the host.
const NEED_NO_HOST: [&str; 5] = ["assert", "debug", "fail", "include_vars", "set_fact"];

impl Compiler<'_> {
    /// Reads the keywords that a play, role, block or task hands down. The caller handles `when`
    /// and `vars`, and has already put the variables into the context.
    pub(super) fn inherit(&mut self, file: &str, node: &SpannedNode, context: &mut Context) {
        for (key, value) in node.map().unwrap_or_default() {
            self.keyword(file, key, value, context);
        }
        self.delegation(file, node, context);
    }

    pub(super) fn keyword(&mut self, file: &str, key: &SpannedKey, value: &SpannedNode, context: &mut Context) {
        let at = (key.line, key.column);
        let word = key.text.as_str();
        match word {
            "tags" => {
                let tags = self.tags(file, value, context);
                context.keywords.tags.extend(tags);
            }
            "environment" => {
                self.check_markup(file, value);
                let maps = value.list().unwrap_or(std::slice::from_ref(value));
                context.keywords.environment.extend(maps.iter().map(SpannedNode::json));
            }
            "ignore_errors" => {
                self.check_markup(file, value);
                context.keywords.ignore_errors = Some(value.json());
            }
            "no_log" => context.keywords.no_log = self.no_log(file, value, context),
            "any_errors_fatal" => context.keywords.fatal = self.known_bool(file, word, value, context),
            "check_mode" => context.keywords.check_mode = Some(self.truth(file, word, value)),
            "diff" => context.keywords.diff = Some(self.truth(file, word, value)),
            "run_once" => context.keywords.run_once = self.known_bool(file, word, value, context),
            "delegate_facts" => context.keywords.delegate_facts = self.known_bool(file, word, value, context),
            // This keyword has no effect in the plan of one node, because a node can always reach
            // itself. `plan::schedule` handles `ignore_unreachable` of plays.
            "ignore_unreachable" => {
                self.known_bool(file, word, value, context);
            }
            "timeout" => context.keywords.timeout = self.number(file, word, value),
            "notify" => {
                self.check_markup(file, value);
                let items = value.list().unwrap_or(std::slice::from_ref(value));
                context.keywords.notify.extend(items.iter().filter_map(SpannedNode::text));
            }
            "throttle" => {
                let texts = self.known_texts(file, word, value, context);
                match texts.first().and_then(|text| text.trim().parse().ok()) {
                    Some(limit) if limit == 0 || self.options.delegates => context.keywords.throttle = limit,
                    None if self.options.delegates => {
                        self.fault(file, at, "`throttle` is a number of hosts that is known before the run");
                    }
                    _ => self.fault_hint(file, at, "`throttle` works only during `remoor play`, because the nodes of a fleet do not wait for each other", HINT_ANSIBLE),
                }
            }
            "debugger" if value.text().is_none_or(|text| text != "never") => {
                self.fault_hint(file, at, "`debugger` is not part of the language", HINT_ANSIBLE);
            }
            "module_defaults" => self.module_defaults(file, value, context),
            "collections" => context.keywords.collections = self.collections(file, value),
            "become" | "sudo" | "become_user" | "sudo_user" | "become_method" | "become_flags" | "become_exe" => {
                self.elevation(file, key, value, context);
            }
            "connection" => {
                let texts = self.known_texts(file, word, value, context);
                match texts.first().map(|t| t.trim_start_matches("ansible.builtin.")) {
                    Some("ssh" | "smart" | "paramiko") => context.keywords.local = false,
                    Some("local") if self.is_local() => {}
                    Some("local") if self.options.delegates => context.keywords.local = true,
                    Some("local") => {
                        let message = format!("`connection: local`, and {} is not this machine", self.host.name);
                        let hint = format!(
                            "`remoor play --connection local` makes every host this machine; else {HINT_ANSIBLE}"
                        );
                        self.fault_hint(file, at, message, hint);
                    }
                    _ => {
                        let message = "`connection` other than ssh and local is not part of the language";
                        self.fault_hint(file, at, message, HINT_ANSIBLE);
                    }
                }
            }
            // `user` is not among these keywords, because in a task it is a module. `play.rs` reads
            // `user` of a play.
            "remote_user" => self.login_user(file, at, value, context),
            "port" => self.port(file, at, value, context),
            _ => {}
        }
    }

    /// Reads a boolean. Markup is accepted too, because it may result in a boolean.
    fn truth(&mut self, file: &str, key: &str, node: &SpannedNode) -> Value {
        if node.text().is_some_and(|text| var_map::has_markup(&text)) {
            self.check_markup(file, node);
            return node.json();
        }
        Value::Bool(self.boolean(file, key, node))
    }

    fn tags(&mut self, file: &str, node: &SpannedNode, context: &Context) -> Vec<String> {
        let mut out = Vec::new();
        for item in node.list().unwrap_or(std::slice::from_ref(node)) {
            match item.text() {
                Some(text) if var_map::has_markup(&text) => {
                    let texts = self.known_texts(file, "tags", item, context);
                    out.extend(texts.iter().flat_map(|t| t.split(',')).map(|t| t.trim().to_owned()));
                }
                _ => out.extend(self.word_list(file, "tags", item)),
            }
        }
        out.retain(|tag| !tag.is_empty());
        out
    }

    /// Reads `no_log`. A value that is only known during a run counts as true.
    fn no_log(&mut self, file: &str, node: &SpannedNode, context: &Context) -> bool {
        if !node.text().is_some_and(|text| var_map::has_markup(&text)) {
            return self.boolean(file, "no_log", node);
        }
        self.check_markup(file, node);
        let value = crate::template::expr::render_json(&self.known_scope(context), &node.json());
        match value {
            Ok(Value::String(text)) if text.is_empty() => false,
            Ok(value) => var_map::boolean(&value) != Some(false),
            Err(_) => true,
        }
    }

    /// Reads a number of seconds or tries. Markup is accepted too, because it may result in a
    /// number.
    pub(super) fn number(&mut self, file: &str, key: &str, node: &SpannedNode) -> Option<Value> {
        self.check_markup(file, node);
        let json = node.json();
        let good =
            json.is_number() || json.as_str().is_some_and(|s| var_map::has_markup(s) || s.parse::<f64>().is_ok());
        if !good {
            self.fault(file, (node.line, node.column), format!("`{key}` takes a number, found {}", node.kind()));
        }
        Some(json)
    }

    fn elevation(&mut self, file: &str, key: &SpannedKey, value: &SpannedNode, context: &mut Context) {
        let at = (key.line, key.column);
        let word = key.text.as_str();
        if word.starts_with("sudo") {
            self.warn(
                file,
                at,
                format!("`{word}` is an old spelling"),
                format!("write `{}`", word.replace("sudo", "become")),
            );
        }
        let late = self.known_late(value, context);
        if matches!(word, "become" | "sudo") {
            context.keywords.elevated = late.is_some() || self.known_bool(file, word, value, context);
            context.keywords.elevated_if = late;
            return;
        }
        let text = match &value.data {
            SpannedData::Null => String::new(),
            _ if word.ends_with("_user") && (late.is_some() || is_evaluated_by_run(value)) => {
                value.text().unwrap_or_default()
            }
            _ => self.known_texts(file, word, value, context).pop().unwrap_or_default(),
        };
        match (word, text.trim().trim_start_matches("ansible.builtin.")) {
            ("become_user" | "sudo_user", user) => {
                context.keywords.become_user =
                    Some(user.to_owned()).filter(|user| !matches!(user.as_str(), "" | "root"));
            }
            ("become_method", "sudo" | "")
            | ("become_flags", "" | "-H -S -n" | "-H -n" | "-H")
            | ("become_exe", "" | "sudo") => {}
            (_, text) => {
                self.fault_hint(file, at, format!("`{word}` `{text}` is not part of the language"), HINT_ANSIBLE);
            }
        }
    }

    /// Reads `remote_user`. As in Ansible, a variable of the host has precedence. Only a run with a
    /// controller has a login, in which another user can replace the login user.
    fn login_user(&mut self, file: &str, at: (u32, u32), value: &SpannedNode, context: &mut Context) {
        context.login_user = None;
        if self.is_set_for_host(&["ansible_user", "ansible_ssh_user"]) || self.is_local() {
            return;
        }
        let hint = "set `ansible_user` in the inventory";
        if self.known_late(value, context).is_some() {
            self.fault_hint(file, at, "`remote_user` must be known before the run", hint);
            return;
        }
        let user = self.known_texts(file, "remote_user", value, context).pop().unwrap_or_default().trim().to_owned();
        if user.is_empty() || user == OMIT || self.options.remote_user == Some(user.as_str()) {
            return;
        }
        if !self.options.delegates {
            self.fault_hint(file, at, "`remote_user` must be the same as in the inventory", hint);
        } else if value.text().is_some_and(|text| var_map::has_markup(&text)) {
            // A task could change the variable, and the task would run as the wrong user.
            self.fault_hint(file, at, "a `remote_user` other than the login user must be a fixed name", hint);
        } else {
            context.login_user = Some(user);
        }
    }

    /// Checks `port`. As in Ansible, a variable of the host has precedence.
    fn port(&mut self, file: &str, at: (u32, u32), value: &SpannedNode, context: &Context) {
        self.known_texts(file, "port", value, context);
        if !self.is_set_for_host(&["ansible_port", "ansible_ssh_port"]) && !self.is_local() {
            let message = "`port` must be the same as in the inventory";
            self.fault_hint(file, at, message, "set `ansible_port` in the inventory");
        }
    }

    fn is_set_for_host(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.host.vars.get(*name).is_some_and(|value| !value.is_null()))
    }

    /// The privileges of a task with these keywords. A task of another login user runs as this
    /// user, unless it has `become`, because the login of the run can become any user.
    pub(super) fn privileges(&mut self, at: (u32, u32), context: &Context) -> TaskPrivileges {
        let InheritedKeywords { elevated, elevated_if, become_user, delegate_to, local, .. } = &context.keywords;
        let usual = TaskPrivileges {
            elevated: *elevated,
            elevated_if: elevated_if.clone(),
            become_user: become_user.clone().filter(|_| *elevated),
        };
        // A task on the controller needs no login.
        let here = *local || delegate_to.as_ref().is_some_and(|to| LOCAL.contains(&to.as_str()));
        let Some(user) = context.login_user.as_ref().filter(|_| !here) else { return usual };
        if elevated_if.is_some() || delegate_to.is_some() {
            let word = if elevated_if.is_some() { "`become` that only the run knows" } else { "`delegate_to`" };
            let message = format!("a task of another `remote_user` cannot have {word}");
            self.fault_hint(&context.file, at, message, "use `become_user`");
            return usual;
        }
        if *elevated {
            return usual;
        }
        TaskPrivileges { elevated: true, elevated_if: None, become_user: Some(user.clone()) }
    }

    /// The text of a value with markup that only the node can evaluate. A name without a value may
    /// be a fact or a result, also if `default` replaces it.
    fn known_late(&self, value: &SpannedNode, context: &Context) -> Option<String> {
        let text = value.text().filter(|text| var_map::has_markup(text))?;
        let (known, trace) = with_trace(|| expr::render_json(&self.known_scope(context), &value.json()));
        let missed = trace.missed.iter().any(|name| !expr::is_function(name));
        (known.is_err() || missed || trace.unknown).then_some(text)
    }

    /// Whether the host is the machine on which the run starts.
    pub(super) fn is_local(&self) -> bool {
        self.options.here
            || LOCAL.contains(&self.host.name.as_str())
            || self.host.vars.get("ansible_connection").and_then(Value::as_str) == Some("local")
    }

    /// Reads `delegate_to`. A task that is delegated to its own host needs no delegation. A task
    /// can be delegated to another host only if the run has a controller.
    fn delegation(&mut self, file: &str, node: &SpannedNode, context: &mut Context) {
        let Some(to) = node.get("delegate_to") else { return };
        context.refused_delegation = None;
        if to.data == SpannedData::Null {
            context.keywords.delegate_to = None;
            context.delegated_here = false;
            return;
        }
        let at = (to.line, to.column);
        let text = to.text().unwrap_or_default();
        let name = crate::template::expr::render_text(&self.known_scope(context), &text);
        let own = [Some(self.host.name.as_str()), self.host.vars.get("inventory_hostname").and_then(Value::as_str)];
        let here = name
            .as_ref()
            .is_ok_and(|name| own.contains(&Some(name.as_str())) || LOCAL.contains(&name.as_str()) && self.is_local());
        context.keywords.delegate_to = (!here).then(|| text.clone());
        context.delegated_here = here;
        if here {
            return;
        }
        if !self.options.delegates {
            let shown = name.unwrap_or(text);
            let message = format!("`delegate_to` another host (`{shown}`) is not part of the language");
            context.refused_delegation = Some((file.to_owned(), at, message));
            context.keywords.delegate_to = None;
            return;
        }
        if var_map::has_markup(&text) {
            self.check_markup(file, to);
        } else if !LOCAL.contains(&text.as_str()) && self.options.hosts.is_some_and(|all| !all.hosts.contains(&text)) {
            let near = did_you_mean(&text, self.options.hosts.iter().flat_map(|all| &all.hosts).map(String::as_str));
            let message = format!("`delegate_to`: `{text}` is not a host of the inventory");
            if needs_no_host(node) && !context.keywords.delegate_facts {
                // As in Ansible, such a task has its effect on the host of the play.
                context.keywords.delegate_to = None;
                self.warn(file, at, message, near.unwrap_or_else(|| "remove it".to_owned()));
            } else {
                self.fault(file, at, message).hint = near;
            }
        }
    }

    /// Refuses a delegated task of a fleet. A task that needs no host, such as `assert`, has its
    /// effect on the host of the play, as in Ansible.
    pub(super) fn refuse_delegation(&mut self, module: &str, context: &Context) {
        let is_idle = NEED_NO_HOST.contains(&module) && !context.keywords.delegate_facts;
        if let Some((file, at, message)) = context.refused_delegation.as_ref().filter(|_| !is_idle) {
            self.fault_hint(file, *at, message.clone(), HINT_ANSIBLE);
        }
    }

    /// The delegation of a task with these keywords.
    pub(super) fn task_delegation(&self, context: &Context) -> Option<Delegation> {
        let keywords = &context.keywords;
        let local = keywords.local.then(|| LOCAL[0].to_owned());
        let to = local.or_else(|| keywords.delegate_to.clone())?;
        Some(Delegation { to, facts: keywords.delegate_facts && keywords.delegate_to.is_some() })
    }

    /// Reads the keyword `collections`. Without a source of modules, collections that may give the
    /// short names of modules another meaning are rejected.
    pub(super) fn collections(&mut self, file: &str, node: &SpannedNode) -> Vec<String> {
        let names = self.word_list(file, "collections", node);
        for name in &names {
            if self.options.modules.is_none() && !is_usual_collection(name) {
                let message = format!("collection `{name}` may give modules another meaning");
                self.fault_hint(file, (node.line, node.column), message, HINT_ANSIBLE);
            }
        }
        names
    }

    fn module_defaults(&mut self, file: &str, node: &SpannedNode, context: &mut Context) {
        for map in node.list().unwrap_or(std::slice::from_ref(node)) {
            let Some(pairs) = map.map() else {
                let message = format!("`module_defaults` takes maps, found {}", map.kind());
                self.fault(file, (map.line, map.column), message);
                continue;
            };
            for (key, given) in pairs {
                let at = (key.line, key.column);
                let short = module_specs::short_name(&key.text);
                let Some(found) = module_specs::find(short) else {
                    if self.options.modules.is_some() && !short.starts_with("group/") {
                        self.check_markup(file, given);
                        context.keywords.module_defaults.insert(key.text.clone(), Rc::new(given.clone()));
                    } else if short.starts_with("group/") {
                        self.fault_hint(file, at, "groups of modules are not part of the language", HINT_ANSIBLE);
                    } else if !module_specs::is_foreign(short) && !short.contains('.') {
                        let near = did_you_mean(short, module_specs::MODULES.iter().map(|m| m.name));
                        let fault = self.fault(file, at, format!("unknown module `{}`", key.text));
                        fault.hint = near;
                    }
                    continue;
                };
                for (option, _) in given.map().unwrap_or_default() {
                    // The tasks that take such a default report it, or run as Python.
                    let refused = options::is_refused(found, &option.text) || options::is_common(found, &option.text);
                    if !found.options.contains(&option.text.as_str()) && !refused {
                        let message = format!("unknown option `{}` of {}", option.text, found.name);
                        let near = did_you_mean(&option.text, found.options.iter().copied());
                        let fault = self.fault(file, (option.line, option.column), message);
                        fault.hint = near;
                    }
                }
                self.check_markup(file, given);
                context.keywords.module_defaults.insert(found.name.to_owned(), Rc::new(given.clone()));
            }
        }
    }
}

/// Whether the module of a task never accesses the host.
fn needs_no_host(node: &SpannedNode) -> bool {
    let mut keys = node.map().into_iter().flatten().map(|(key, _)| module_specs::short_name(&key.text));
    keys.any(|key| NEED_NO_HOST.contains(&key))
}

/// Whether the run evaluates the user of a task, because a task may set a variable that has a value
/// before the run too. Lookups are evaluated before the run if possible.
fn is_evaluated_by_run(user: &SpannedNode) -> bool {
    let looks_up = |text: &String| ["lookup(", "query(", "q("].iter().any(|call| text.contains(call));
    user.text().filter(|text| var_map::has_markup(text)).is_some_and(|text| !looks_up(&text))
}

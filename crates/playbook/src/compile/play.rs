//! Compiles plays: their hosts, variables, and tasks in order.

use super::compiler::PlayRoles;
use super::context::InheritedKeywords;
use super::include::CHOICES_MAX;
use super::playbook::PlaySource;
use super::{Compiler, Context, HINT_ANSIBLE, assets, include_vars, module_specs};
use crate::filters;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::schedule::{PlayKeys, Schedule};
use crate::plan::{Play, VarsFile};
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map;
use remoor_model::did_you_mean;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The version of Ansible whose documentation remoor follows. Playbooks compare it in conditions.
const ANSIBLE: (u32, u32, u32) = (2, 19, 0);

impl Compiler<'_> {
    /// Compiles a play. None if it does not select this host or has an error, which is recorded.
    pub(super) fn play(&mut self, index: usize, source: &PlaySource) -> Option<Play> {
        self.current_play.base = assets::parent(&source.file);
        self.load_plugins(&assets::parent(&source.file));
        self.current_play.files.clear();
        self.current_play.roles = PlayRoles::default();
        let node = source.node()?;
        let file = source.file.as_str();
        // The variables of the play may select its hosts. If the play does not select this host,
        // the plan must not contain them, because they may be secrets of other hosts.
        let layers = self.parts.layers.len();
        let (context, lookup_files) = self.collect_lookup_files(|compiler| compiler.play_context(index, source));
        let mut context = context?;
        let keys = self.play_keys(index, source, &context)?;
        if !self.selects_host(file, node, &keys) {
            self.parts.layers.truncate(layers);
            return None;
        }
        for (key, found) in source.lookup_files.clone().into_iter().chain(lookup_files) {
            found.into_iter().for_each(|(place, value)| self.add_placed_lookup_file(key.clone(), place, value));
        }
        let mut magic = Map::new();
        magic.insert(
            "playbook_dir".into(),
            json!(match self.playbook_path(&self.current_play.base) {
                dir if dir.is_empty() => ".".to_owned(),
                dir => dir,
            }),
        );
        magic.insert("ansible_play_name".into(), json!(keys.name));
        let tags = if self.options.tags.is_empty() { vec!["all".to_owned()] } else { self.options.tags.to_vec() };
        magic.insert("ansible_run_tags".into(), json!(tags));
        magic.insert("ansible_skip_tags".into(), json!(self.options.skip_tags));
        magic.insert("ansible_verbosity".into(), json!(0));
        if !self.host.vars.contains_key("ansible_connection") {
            magic.insert("ansible_connection".into(), json!(if self.is_local() { "local" } else { "ssh" }));
        }
        context.layers.play_vars.extend(self.layer(magic));
        let mut others = self.place_among_others(&keys);
        others.extend(self.settings_of_the_run());
        others.extend(self.login_variables(&keys));
        let others = self.layer(others);
        self.parts.optional_layers.extend(&others);
        context.layers.play_vars.extend(&others);
        if let Some(files) = node.get("vars_files") {
            self.vars_files(file, files, &mut context);
        }
        self.inherit(file, node, &mut context);
        self.refuse_other_login(file, node, &mut context);
        self.own_keys(file, node, &context);
        self.resolve_computed_lookups(&context, None, false);
        let from = self.diagnostics.faults.len();
        let roles = node.get("roles").map(|roles| self.roles(file, roles, &context)).unwrap_or_default();
        let mut sections = Vec::new();
        for (key, lead) in [("pre_tasks", Vec::new()), ("tasks", roles), ("post_tasks", Vec::new())] {
            let mut steps = lead;
            if let Some(tasks) = node.get(key) {
                steps.extend(self.tasks(tasks, &context));
            }
            sections.push(steps);
        }
        let mut handlers = std::mem::take(&mut self.current_play.handlers);
        if let Some(own) = node.get("handlers") {
            let mut context = context.clone();
            context.keywords.when.clear();
            handlers.extend(self.handlers(own, &context));
        }
        self.set_role_names(&others);
        let force = node.get("force_handlers").is_some_and(|f| self.known_bool(file, "force_handlers", f, &context));
        let mut play = Play {
            index: keys.index,
            name: keys.name,
            place: keys.place,
            defaults: std::mem::take(&mut self.current_play.defaults),
            vars: context.layers.play_vars,
            files: std::mem::take(&mut self.current_play.files),
            exports: std::mem::take(&mut self.current_play.exports),
            force_handlers: force,
            sections,
            handlers,
        };
        if self.diagnostics.faults.len() == from {
            self.check_notifications(&mut play);
        }
        Some(play)
    }

    /// Applies or rejects keywords that only plays have and that concern a single host.
    fn own_keys(&mut self, file: &str, node: &SpannedNode, context: &Context) {
        for (key, value) in node.map().unwrap_or_default() {
            let at = (key.line, key.column);
            match key.text.as_str() {
                "strategy" => {
                    let texts = self.known_texts(file, "strategy", value, context);
                    // With each of these, the hosts of a batch proceed independently.
                    let known = ["linear", "free", "host_pinned"];
                    if !texts.first().is_some_and(|text| known.contains(&module_specs::short_name(text))) {
                        let message = "`strategy` other than linear and free is not part of the language";
                        self.fault_hint(file, at, message, HINT_ANSIBLE);
                    }
                }
                "user" => {
                    let key = SpannedKey { text: "remote_user".into(), ..key.clone() };
                    let mut context = context.clone();
                    self.keyword(file, &key, value, &mut context);
                    self.refuse_other_login(file, node, &mut context);
                }
                "gather_facts" => {
                    self.known_bool(file, "gather_facts", value, context);
                }
                "gather_subset" => {
                    self.word_list(file, "gather_subset", value);
                    self.warn(file, at, "`gather_subset` has no effect", "all facts are always available at no cost");
                }
                _ => {}
            }
        }
    }

    /// Refuses a play whose `remote_user` is not the login user of the host, because a host has one
    /// login.
    fn refuse_other_login(&mut self, file: &str, node: &SpannedNode, context: &mut Context) {
        let key = |(key, _): &&(SpannedKey, SpannedNode)| matches!(key.text.as_str(), "remote_user" | "user");
        let given = node.map().unwrap_or_default().iter().find(key);
        if let (Some(_), Some((key, _))) = (context.login_user.take(), given) {
            let message = "`remote_user` must be the same in all plays of a host, because a host has one login";
            self.fault_hint(file, (key.line, key.column), message, "set `ansible_user` in the inventory");
        }
    }

    /// The variables with the login user, which Ansible sets if the play or the inventory names it.
    fn login_variables(&self, keys: &PlayKeys) -> Map<String, Value> {
        let names = ["ansible_user", "ansible_ssh_user"];
        let of_host = names.iter().find_map(|name| self.host.vars.get(*name)).filter(|user| !user.is_null());
        let of_play = keys.remote_user.as_deref().or(self.options.remote_user);
        let Some(user) = of_host.cloned().or_else(|| of_play.map(Value::from)) else {
            return Map::new();
        };
        let missing = names.into_iter().filter(|name| !self.host.vars.contains_key(*name));
        missing.map(|name| (name.to_owned(), user.clone())).collect()
    }

    /// Determines whether this host is the only one in the play, and whether it runs the `run_once`
    /// tasks of its batch. Returns the variables that list the other hosts. They list all hosts of
    /// the play, because failed hosts are not known at compile time. The run removes hosts that
    /// failed or were unreachable.
    fn place_among_others(&mut self, keys: &PlayKeys) -> Map<String, Value> {
        let own = self.host.name.as_str();
        (self.current_play.alone, self.current_play.first) = (true, true);
        let (mut all, mut batch) = (vec![own.to_owned()], vec![own.to_owned()]);
        if let Some(hosts) = self.options.hosts
            && let Ok(schedule) = Schedule::for_play(keys, hosts, &BTreeSet::new())
        {
            let batches = schedule.batches();
            all = batches.concat().into_iter().map(str::to_owned).collect();
            let beside = batches.iter().find(|batch| batch.contains(&own));
            batch = beside.into_iter().flatten().map(|host| (*host).to_owned()).collect();
            self.current_play.alone = all.len() < 2;
            self.current_play.first = schedule.run_once_host(own).is_none_or(|first| first == own);
        }
        let vars = json!({
            "ansible_play_hosts": all, "ansible_play_hosts_all": all, "play_hosts": batch, "ansible_play_batch": batch,
        });
        vars.as_object().cloned().unwrap_or_default()
    }

    /// The variables with the settings of a run that `remoor play` does not set. They have the
    /// values of a run of Ansible without options and configuration.
    fn settings_of_the_run(&self) -> Map<String, Value> {
        let (major, minor, revision) = ANSIBLE;
        let full = format!("{major}.{minor}.{revision}");
        let settings = json!({
            "ansible_version": {
                "full": full, "string": full, "major": major, "minor": minor, "revision": revision,
            },
            "ansible_diff_mode": false,
            "ansible_forks": 5,
            "ansible_inventory_sources": [],
            "ansible_config_file": null,
            "ansible_playbook_python": "/usr/bin/python3",
        });
        let settings = settings.as_object().cloned().unwrap_or_default();
        settings.into_iter().filter(|(name, _)| !self.host.vars.contains_key(name)).collect()
    }

    /// Adds the names of the roles of the play that has just been compiled to the layer `to`.
    fn set_role_names(&mut self, to: &[u32]) {
        let PlayRoles { listed, dependencies } = std::mem::take(&mut self.current_play.roles);
        let all: BTreeSet<&String> = listed.iter().chain(&dependencies).collect();
        let names = json!({
            "ansible_play_role_names": listed, "role_names": listed, "ansible_dependent_role_names": dependencies,
            "ansible_role_names": all,
        });
        let layer = to.first().and_then(|at| self.parts.layers.get_mut(*at as usize));
        if let (Some(layer), Value::Object(names)) = (layer, names) {
            layer.extend(names);
        }
    }

    /// The keywords of a play, without compiling it.
    pub(super) fn outline_play(&mut self, index: usize, source: &PlaySource) -> Option<PlayKeys> {
        self.current_play.base = assets::parent(&source.file);
        self.load_plugins(&assets::parent(&source.file));
        let context = self.play_context(index, source)?;
        self.play_keys(index, source, &context)
    }

    /// The context in which a play's tasks are compiled: the variables of the play, and the tags
    /// and conditions of the `import_playbook` entries that lead to it.
    fn play_context(&mut self, index: usize, source: &PlaySource) -> Option<Context> {
        let node = source.node()?;
        let file = source.file.as_str();
        let at = (node.line, node.column);
        let Some(pairs) = node.map() else {
            self.fault(file, at, format!("a play is a map, found {}", node.kind()));
            return None;
        };
        for (key, _) in pairs {
            self.known_key(file, key, module_specs::PLAY_KEYS, "play");
        }
        if node.get("hosts").is_none() {
            self.fault(file, at, "a play needs `hosts`");
            return None;
        }
        let mut context = Context {
            file: file.to_owned(),
            open: vec![file.to_owned()],
            keywords: InheritedKeywords {
                tags: source.tags.clone(),
                when: source.when.clone(),
                elevated: self.options.elevated,
                ..InheritedKeywords::default()
            },
            ..Context::default()
        };
        let mut vars = node.get("vars").map(|vars| self.vars(file, vars)).unwrap_or_default();
        vars.extend(source.vars.clone());
        vars.extend(self.prompted_vars(index, file, node));
        context.layers.play_vars.extend(self.layer(vars));
        Some(context)
    }

    pub(super) fn known_key(&mut self, file: &str, key: &SpannedKey, known: &[&str], what: &str) -> bool {
        if known.contains(&key.text.as_str()) {
            return true;
        }
        let at = (key.line, key.column);
        if module_specs::has_word(module_specs::UNSUPPORTED_KEYWORDS, &key.text) || key.text.starts_with("with_") {
            self.fault_hint(file, at, format!("`{}` is not part of the language", key.text), HINT_ANSIBLE);
        } else {
            let fault = self.fault(file, at, format!("unknown {what} keyword `{}`", key.text));
            fault.hint = did_you_mean(&key.text, known.iter().copied());
        }
        false
    }

    /// Whether the play's patterns select this host.
    fn selects_host(&mut self, file: &str, node: &SpannedNode, keys: &PlayKeys) -> bool {
        let at = node.get("hosts").map_or((0, 0), |hosts| (hosts.line, hosts.column));
        let selected = self.known_hosts().select(&keys.hosts);
        match selected {
            Ok(selected) => selected.hosts.contains(&self.host.name),
            Err(message) => {
                self.fault(file, at, format!("`hosts`: {message}"));
                false
            }
        }
    }

    /// The variables that are known before the run.
    pub(super) fn known_scope(&self, context: &Context) -> ExprScope {
        let chain = &context.layers;
        let layer = |i: &u32| Some(Arc::new(var_map::VarMap::from_trusted(self.parts.layers.get(*i as usize)?)));
        let over = chain.play_vars.iter().chain(&chain.role_vars).chain(&chain.vars).chain(&chain.role_params);
        let defaults = self.current_play.defaults.iter().chain(&chain.defaults);
        let mut layers: Vec<_> = defaults.filter_map(layer).collect();
        layers.push(self.inventory.clone());
        layers.extend(over.filter_map(layer));
        layers.push(Arc::new(var_map::VarMap::from_trusted(&self.options.extra_vars)));
        if let Some(plugins) = self.plugins_variable() {
            let plugins = Map::from_iter([(filters::PLUGINS.to_owned(), plugins)]);
            layers.push(Arc::new(var_map::VarMap::from_trusted(&plugins)));
        }
        ExprScope::new(layers, BTreeSet::new())
    }

    /// The variables that an import may use. Variables of the host are not among them, so that a
    /// playbook has the same structure for all hosts.
    pub(super) fn early_scope(&self, context: &Context) -> ExprScope {
        let chain = &context.layers;
        let over = chain.play_vars.iter().chain(&chain.role_vars).chain(&chain.vars).chain(&chain.role_params);
        let mut layers: Vec<_> = (chain.defaults.iter().chain(over))
            .filter_map(|i| self.parts.layers.get(*i as usize))
            .map(|l| Arc::new(var_map::VarMap::from_trusted(l)))
            .collect();
        layers.push(Arc::new(var_map::VarMap::from_trusted(&self.options.extra_vars)));
        ExprScope::new(layers, BTreeSet::new())
    }

    /// Reads `vars_files`. Each item is a file, or a list of which the first existing file is used.
    /// If the name of a file depends on the node, the node selects it. The node then also selects
    /// all following files, because they must keep their higher precedence.
    fn vars_files(&mut self, file: &str, node: &SpannedNode, context: &mut Context) {
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        for item in items.iter().filter(|item| item.data != SpannedData::Null) {
            let at = (item.line, item.column);
            let mut names = Vec::new();
            let mut known = self.current_play.files.is_empty();
            for choice in item.list().unwrap_or(std::slice::from_ref(item)) {
                let Some(name) = choice.text() else {
                    self.fault(file, at, format!("`vars_files` takes paths, found {}", choice.kind()));
                    continue;
                };
                match expr::render_text(&self.known_scope(context), &name) {
                    Ok(name) => names.push(self.strip_root(&name).to_owned()),
                    Err(e) if e.kind() == minijinja::ErrorKind::UndefinedError => {
                        known = false;
                        names.push(name);
                    }
                    Err(e) => {
                        self.fault(file, at, format!("`vars_files`: {}", expr::explain(&e)));
                    }
                }
            }
            let found = self.named_files(&names);
            let first = names.iter().find_map(|name| found.get(name));
            let count = found.len();
            match first {
                Some(path) if known => {
                    let layer = self.vars_layer(path, (file, at));
                    context.layers.play_vars.push(layer);
                }
                _ if !known && (1..=CHOICES_MAX).contains(&count) => {
                    let mut chosen = VarsFile { names, ..VarsFile::default() };
                    for (name, path) in found {
                        chosen.choices.insert(name, self.vars_layer(&path, (file, at)));
                    }
                    self.current_play.files.push(chosen);
                }
                _ if names.is_empty() => {}
                _ => {
                    let what = if count > CHOICES_MAX {
                        "could refer to too many files"
                    } else {
                        "is not in the fleet directory"
                    };
                    self.fault(file, at, format!("{} {what}", names.join(", nor ")));
                }
            }
        }
    }

    /// The variable files that these names could refer to, by rendered name.
    fn named_files(&self, names: &[String]) -> BTreeMap<String, String> {
        let beside = assets::join(&self.current_play.base, "vars").unwrap_or_default();
        let dirs = [self.current_play.base.clone(), beside, String::new()];
        let mut out = BTreeMap::new();
        for name in names {
            if var_map::has_markup(name) {
                for dir in &dirs[..2] {
                    let found = assets::matching_files(self.files, dir, name);
                    let found = found.into_iter().filter(|(_, path)| include_vars::is_vars(path) && self.shape(path).1);
                    found.for_each(|(name, path)| {
                        out.entry(name).or_insert(path);
                    });
                }
                continue;
            }
            let there = dirs.iter().filter_map(|dir| assets::join(dir, name));
            out.extend(there.into_iter().find(|path| self.files.get(path).is_some()).map(|path| (name.clone(), path)));
        }
        out
    }
}

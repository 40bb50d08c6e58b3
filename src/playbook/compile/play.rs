//! Plays and roles: which hosts, which variables, which tasks in which order, which handlers.

use super::playbook::Source;
use super::{Compiler, Context, ELSEWHERE, assets, spec};
use crate::playbook::names::nearest;
use crate::playbook::plan::{Handler, Play, Step};
use crate::playbook::schedule::PlayKeys;
use crate::playbook::scope::Scope;
use crate::playbook::yaml::{Data, Key, Node};
use crate::playbook::{data, expr};
use serde_json::Map;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Compiler<'_> {
    /// A play's part of the plan; None where it does not mean this host, or after its fault was noted.
    pub(super) fn play(&mut self, index: usize, source: &Source) -> Option<Play> {
        self.base = assets::parent(&source.file);
        let node = source.node()?;
        let file = source.file.as_str();
        let mut context = self.opened(source)?;
        let keys = self.play_keys(index, source, &context)?;
        if !self.meant(file, node, &keys) {
            return None;
        }
        if let Some(files) = node.get("vars_files") {
            self.vars_files(file, files, &mut context);
        }
        self.inherit(file, node, &mut context);
        let mut play = Play {
            index: keys.index,
            name: keys.name,
            place: keys.place,
            defaults: Vec::new(),
            vars: context.play_vars.clone(),
            sections: Vec::new(),
            handlers: Vec::new(),
        };
        let from = self.faults.len();
        let roles = node.get("roles").map(|roles| self.roles(file, roles, &context, &mut play)).unwrap_or_default();
        for (key, lead) in [("pre_tasks", Vec::new()), ("tasks", roles), ("post_tasks", Vec::new())] {
            let mut steps = lead;
            if let Some(tasks) = node.get(key) {
                steps.extend(self.tasks(tasks, &context));
            }
            play.sections.push(steps);
        }
        if let Some(handlers) = node.get("handlers") {
            let handlers = self.handlers(handlers, &context);
            play.handlers.extend(handlers);
        }
        if self.faults.len() == from {
            self.check_notifications(&play);
        }
        Some(play)
    }

    /// The same of a play that is only looked at.
    pub(super) fn outlined(&mut self, index: usize, source: &Source) -> Option<PlayKeys> {
        self.base = assets::parent(&source.file);
        let context = self.opened(source)?;
        self.play_keys(index, source, &context)
    }

    /// What a play's tasks begin with: its variables, and what its importers say.
    fn opened(&mut self, source: &Source) -> Option<Context> {
        let node = source.node()?;
        let file = source.file.as_str();
        let at = (node.line, node.column);
        let Some(pairs) = node.map() else {
            self.fault(file, at, format!("a play is a map, found {}", node.kind()));
            return None;
        };
        for (key, _) in pairs {
            self.known_key(file, key, spec::PLAY_KEYS, "play");
        }
        if node.get("hosts").is_none() {
            self.fault(file, at, "a play needs `hosts`");
            return None;
        }
        let mut context = Context {
            file: file.to_owned(),
            open: vec![file.to_owned()],
            tags: source.tags.clone(),
            when: source.when.clone(),
            elevated: self.options.elevated,
            ..Context::default()
        };
        let mut vars = node.get("vars").map(|vars| self.vars(file, vars)).unwrap_or_default();
        vars.extend(source.vars.clone());
        context.play_vars.extend(self.layer(vars));
        Some(context)
    }

    pub(super) fn known_key(&mut self, file: &str, key: &Key, known: &[&str], what: &str) -> bool {
        if known.contains(&key.text.as_str()) {
            return true;
        }
        let at = (key.line, key.column);
        if spec::has(spec::KEYS_ELSEWHERE, &key.text) || key.text.starts_with("with_") {
            self.fault_hint(file, at, format!("`{}` is not part of the language", key.text), ELSEWHERE);
        } else {
            let fault = self.fault(file, at, format!("unknown {what} keyword `{}`", key.text));
            fault.hint = nearest(&key.text, known.iter().copied()).map(|n| format!("did you mean `{n}`?"));
        }
        false
    }

    /// What plays, blocks and tasks hand down alike.
    pub(super) fn inherit(&mut self, file: &str, node: &Node, context: &mut Context) {
        if let Some(tags) = node.get("tags") {
            context.tags.extend(self.word_list(file, "tags", tags));
        }
        if let Some(environment) = node.get("environment") {
            self.check_markup(file, environment);
            let maps = environment.list().unwrap_or(std::slice::from_ref(environment));
            context.environment.extend(maps.iter().map(Node::json));
        }
        if let Some(b) = node.get("become") {
            context.elevated = self.boolean(file, "become", b);
        }
        if let Some(user) = node.get("become_user").filter(|u| u.text().as_deref() != Some("root")) {
            self.fault_hint(
                file,
                (user.line, user.column),
                "`become_user` other than root is not part of the language",
                ELSEWHERE,
            );
        }
    }

    /// Whether the play's patterns mean this host.
    fn meant(&mut self, file: &str, node: &Node, keys: &PlayKeys) -> bool {
        let at = node.get("hosts").map_or((0, 0), |hosts| (hosts.line, hosts.column));
        match self.inventory().select(&keys.hosts) {
            Ok(selected) => selected.hosts.contains(&self.host.name),
            Err(message) => {
                self.fault(file, at, format!("`hosts`: {message}"));
                false
            }
        }
    }

    /// The variables that are known before any node is asked.
    pub(super) fn known_scope(&self, context: &Context) -> Scope {
        let mut layers = vec![Arc::new(data::VarMap::trusted(&self.host.vars))];
        for &i in context.play_vars.iter().chain(&context.vars) {
            layers.extend(self.layers.get(i as usize).map(|l| Arc::new(data::VarMap::trusted(l))));
        }
        layers.push(Arc::new(data::VarMap::trusted(&self.options.extra_vars)));
        Scope::new(layers, BTreeSet::new())
    }

    fn vars_files(&mut self, file: &str, node: &Node, context: &mut Context) {
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        for item in items {
            let at = (item.line, item.column);
            let Some(name) = item.text() else {
                self.fault_hint(file, at, format!("`vars_files` takes paths, found {}", item.kind()), ELSEWHERE);
                continue;
            };
            let name = match expr::render_text(&self.known_scope(context), &name) {
                Ok(name) => name,
                Err(e) => {
                    self.fault(file, at, format!("`vars_files`: {}", expr::explain(&e)));
                    continue;
                }
            };
            let Some(path) = assets::join(&self.base, &name) else {
                self.fault(file, at, format!("{name} lies outside the fleet directory"));
                continue;
            };
            if let Some(vars) = self.yaml(&path, (file, at)) {
                let vars = self.vars(&path, &vars);
                context.play_vars.extend(self.layer(vars));
            }
        }
    }

    fn roles(&mut self, file: &str, node: &Node, context: &Context, play: &mut Play) -> Vec<Step> {
        let Some(items) = node.list() else {
            self.fault(file, (node.line, node.column), format!("`roles` is a list, found {}", node.kind()));
            return Vec::new();
        };
        let mut steps = Vec::new();
        for item in items {
            steps.extend(self.role(file, item, context, play).unwrap_or_default());
        }
        steps
    }

    fn role(&mut self, file: &str, item: &Node, context: &Context, play: &mut Play) -> Option<Vec<Step>> {
        let at = (item.line, item.column);
        let mut own = context.clone();
        let mut params = Map::new();
        let name = match (&item.data, item.text()) {
            (Data::Map(pairs), _) => {
                for (key, value) in pairs {
                    match key.text.as_str() {
                        "role" | "name" | "tags" | "become" | "become_user" | "environment" => {}
                        "vars" => params.extend(self.vars(file, value)),
                        "when" => own.when.extend(self.conditions(file, "when", value)),
                        word if spec::has(spec::KEYS_ELSEWHERE, word) => {
                            self.known_key(file, key, &[], "role");
                        }
                        _ => {
                            self.check_markup(file, value);
                            params.insert(key.text.clone(), value.json());
                        }
                    }
                }
                self.inherit(file, item, &mut own);
                item.get("role").or(item.get("name")).and_then(Node::text)
            }
            (_, name) => name,
        };
        let Some(name) = name else {
            self.fault(file, at, "a role needs a name");
            return None;
        };
        let places = [
            assets::join(&self.base, &format!("roles/{name}")),
            Some(format!("roles/{name}")),
            Some(format!("playbooks/roles/{name}")),
        ];
        let files = self.files;
        let Some(dir) = places.into_iter().flatten().find(|dir| files.under(dir).next().is_some()) else {
            self.fault(file, at, format!("role `{name}` is not in the fleet directory (looked for roles/{name})"));
            return None;
        };
        let meta = format!("{dir}/meta/main.yml");
        if files.get(&meta).is_some()
            && let Some(node) = self.yaml(&meta, (file, at))
            && let Some(needs) = node.get("dependencies").filter(|d| d.list().is_some_and(|l| !l.is_empty()))
        {
            self.fault_hint(
                &meta,
                (needs.line, needs.column),
                "`dependencies` of roles are not part of the language",
                "list those roles in the play before this one",
            );
        }
        own.role = Some((name, dir.clone()));
        let defaults = self.role_vars(&dir, "defaults", (file, at));
        own.defaults.extend(&defaults);
        play.defaults.extend(defaults);
        let vars = self.role_vars(&dir, "vars", (file, at));
        own.vars.extend(&vars);
        play.vars.extend(vars);
        own.vars.extend(self.layer(params));
        let mut steps = Vec::new();
        if let Some(path) = self.role_file(&dir, "tasks") {
            steps = self.task_file(&path, &own, (file, at));
        }
        if let Some(path) = self.role_file(&dir, "handlers")
            && let Some(node) = self.yaml(&path, (file, at))
        {
            let inner = Context { file: path, ..own };
            let handlers = self.handlers(&node, &inner);
            for handler in handlers {
                if !play.handlers.iter().any(|h| h.names == handler.names) {
                    play.handlers.push(handler);
                }
            }
        }
        Some(steps)
    }

    fn role_file(&self, dir: &str, part: &str) -> Option<String> {
        ["yml", "yaml"].iter().map(|ext| format!("{dir}/{part}/main.{ext}")).find(|path| self.files.get(path).is_some())
    }

    fn role_vars(&mut self, dir: &str, part: &str, from: (&str, (u32, u32))) -> Vec<u32> {
        let Some(path) = self.role_file(dir, part) else { return Vec::new() };
        let Some(node) = self.yaml(&path, from) else { return Vec::new() };
        let vars = self.vars(&path, &node);
        self.layer(vars)
    }

    fn handlers(&mut self, node: &Node, context: &Context) -> Vec<Handler> {
        let context = Context { handler: true, when: Vec::new(), ..context.clone() };
        let mut out = Vec::new();
        let items = node.list().unwrap_or_default();
        if node.list().is_none() && node.data != Data::Null {
            self.fault(&context.file, (node.line, node.column), format!("handlers are a list, found {}", node.kind()));
        }
        for item in items {
            let listen = item.get("listen").map(|l| self.word_list(&context.file, "listen", l)).unwrap_or_default();
            for step in self.task(item, &context) {
                let Step::Task(task) = step else {
                    self.fault_hint(
                        &context.file,
                        (item.line, item.column),
                        "a handler is one task",
                        "write its tasks one by one",
                    );
                    continue;
                };
                let mut names = vec![task.name.clone()];
                if let Some((role, _)) = &context.role {
                    names.push(format!("{role} : {}", task.name));
                }
                out.push(Handler { names, listen: listen.clone(), task: *task });
            }
        }
        out
    }

    /// Every fixed name in `notify` must be some handler's.
    fn check_notifications(&mut self, play: &Play) {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for handler in &play.handlers {
            known.extend(handler.names.iter().map(String::as_str));
            known.extend(handler.listen.iter().map(String::as_str));
        }
        if known.iter().any(|name| data::has_markup(name)) {
            return;
        }
        let mut missing = Vec::new();
        super::closure::each_task(play, &mut |task| {
            for name in task.notify.iter().filter(|n| !data::has_markup(n) && !known.contains(n.as_str())) {
                let near = nearest(name, known.iter().copied()).map(|n| format!("did you mean `{n}`?"));
                missing.push((task.place.clone(), name.clone(), near));
            }
        });
        for (place, name, near) in missing {
            self.fault(&place.file, (place.line, 1), format!("no handler is called `{name}`")).hint = near;
        }
    }
}

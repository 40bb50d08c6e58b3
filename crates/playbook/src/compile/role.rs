//! Compiles roles: their directories, files, dependencies, and the variables that their tasks see.
//!
//! The tasks of a role see these variables, in ascending precedence: first the defaults of its
//! dependencies, of the roles that depend on it, and of the role itself. Then come the variables in
//! `vars/` of these roles, in the same order. Then come the `vars:` given with the role's name.
//!
//! Parameters written next to the role's name take precedence over registered results.

use super::task::{TaskModule, is_literal};
use super::{Compiler, Context, HINT_ANSIBLE, Role, assets, include, include_vars, module_specs};
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::plan::{Block, Choices, DynamicInclude, Exports, PlanStep, RejectedChoices, RoleRun, SourcePlace};
use crate::vars::var_map;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum depth of role dependencies.
const DEPTH_MAX: usize = 20;
/// Parts of a role whose file may have another name than `main`.
const PARTS: [(&str, &str); 4] =
    [("tasks_from", "tasks"), ("vars_from", "vars"), ("defaults_from", "defaults"), ("handlers_from", "handlers")];

/// A reference to a role, by a play, another role or a task.
#[derive(Default)]
struct RoleRequest {
    name: String,
    vars: Map<String, Value>,
    /// Parameters written next to the role's name.
    params: Map<String, Value>,
    /// The file name for each part of the role in `PARTS`.
    from: BTreeMap<String, String>,
    /// Whether a task refers to the role, and not a play or another role.
    by_task: bool,
    /// Whether the argument specs of the role are not checked.
    unchecked: bool,
    /// Whether the role may run more than once. None: its `meta/main.yml` decides.
    duplicates: Option<bool>,
    /// The `when` and `tags` of the reference. Two runs of the role differ if these differ.
    beside: Value,
}

/// A compiled role, for the play or for the roles that depend on it.
#[derive(Default)]
struct RoleResult {
    steps: Vec<PlanStep>,
    defaults: Vec<u32>,
    exports: Vec<u32>,
}

impl Compiler<'_> {
    /// Compiles `roles:` of a play.
    pub(super) fn roles(&mut self, file: &str, node: &SpannedNode, context: &Context) -> Vec<PlanStep> {
        let Some(items) = node.list() else {
            if node.data != SpannedData::Null {
                self.fault(file, (node.line, node.column), format!("`roles` is a list, found {}", node.kind()));
            }
            return Vec::new();
        };
        let mut steps = Vec::new();
        for item in items {
            let given = self.listed_role(file, item, context);
            steps.extend(given.steps);
            self.current_play.defaults.extend(given.defaults);
            self.current_play.exports.extend(given.exports);
        }
        steps
    }

    /// Compiles a role in a list. A role that cannot be compiled becomes a step that fails when it
    /// is reached.
    fn listed_role(&mut self, file: &str, item: &SpannedNode, context: &Context) -> RoleResult {
        let from = self.diagnostics.faults.len();
        let given = self.role_in_list(file, item, context).unwrap_or_default();
        let context = Context { file: file.to_owned(), ..context.clone() };
        RoleResult { steps: self.or_refusal(from, item, &context, given.steps), ..given }
    }

    /// Compiles a role in the list of a play or of another role.
    fn role_in_list(&mut self, file: &str, item: &SpannedNode, context: &Context) -> Option<RoleResult> {
        let at = (item.line, item.column);
        let mut own = context.clone();
        let mut asked = RoleRequest::default();
        let name = match (&item.data, item.text()) {
            (SpannedData::Map(pairs), _) => {
                if let Some(vars) = item.get("vars") {
                    asked.vars = self.vars(file, vars);
                }
                let mut beside = Map::new();
                for (key, value) in pairs {
                    let word = key.text.as_str();
                    if matches!(word, "when" | "tags") {
                        beside.insert(word.to_owned(), value.json());
                    }
                    if matches!(word, "role" | "name" | "vars" | "when") || module_specs::BLOCK_KEYS.contains(&word) {
                        continue;
                    }
                    if matches!(word, "src" | "scm" | "version") {
                        self.fault_hint(
                            file,
                            (key.line, key.column),
                            format!("`{word}` of a role to be fetched is not part of the language"),
                            HINT_ANSIBLE,
                        );
                        continue;
                    }
                    if module_specs::has_word(module_specs::UNSUPPORTED_KEYWORDS, word) {
                        self.known_key(file, key, &[], "role");
                        continue;
                    }
                    self.check_markup(file, value);
                    asked.params.insert(word.to_owned(), value.json());
                }
                asked.beside = Value::Object(beside);
                self.inherit(file, item, &mut own);
                if let Some(when) = item.get("when") {
                    own.keywords.when.extend(self.conditions(file, "when", when));
                }
                item.get("role").or(item.get("name")).and_then(SpannedNode::text)
            }
            (_, name) => name,
        };
        let Some(name) = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()) else {
            self.fault(file, at, "a role needs a name");
            return None;
        };
        asked.name = match crate::template::expr::render_text(&self.early_scope(&own), &name) {
            Ok(name) => name,
            Err(e) => {
                let message =
                    format!("the name of a role must be known before the run: {}", crate::template::expr::explain(&e));
                self.fault_hint(file, at, message, "use include_role");
                return None;
            }
        };
        self.role(file, at, asked, &own)
    }

    /// Compiles `import_role`. The role is read at compile time, and the whole play sees its
    /// variables.
    pub(super) fn import_role(&mut self, node: &SpannedNode, call: &TaskModule, own: &Context) -> Vec<PlanStep> {
        let at = (call.key.line, call.key.column);
        self.reject_ineffective_keywords(node, call, &own.file, &include::INHERITED, "use include_role");
        if self.no_handler(call, own) {
            return Vec::new();
        }
        let args = self.args(&own.file, call.spec, call.key, &call.args, node.get("args"), None);
        if args.contains_key("apply") {
            self.fault(&own.file, at, "`apply` is for include_role").hint =
                Some("write its keywords on the task itself".into());
        }
        let scope = self.early_scope(own);
        let Ok(Value::Object(args)) = crate::template::expr::render_json(&scope, &Value::Object(args)) else {
            let hint = "use include_role; only variables of the play and extra vars are known this early";
            self.fault_hint(&own.file, at, "import_role takes fixed names", hint);
            return Vec::new();
        };
        let public = args.get("public").is_none_or(is_true);
        let asked = self.role_request(&args, own, node);
        if asked.name.is_empty() {
            return Vec::new();
        }
        let given = self.role(&own.file, at, asked, own).unwrap_or_default();
        if !public {
            return given.steps;
        }
        if own.dynamic {
            return exporting_block(given, &own.file, node.line);
        }
        self.current_play.defaults.extend(given.defaults);
        self.current_play.exports.extend(given.exports);
        given.steps
    }

    /// Compiles `include_role` with every role that it could select.
    pub(super) fn include_role(
        &mut self,
        node: &SpannedNode,
        call: &TaskModule,
        own: &Context,
        around: &Context,
    ) -> Vec<PlanStep> {
        let file = own.file.clone();
        let at = (call.key.line, call.key.column);
        self.reject_ineffective_keywords(
            node,
            call,
            &file,
            &["loop", "loop_control"],
            "write it into `apply:` of the include",
        );
        if self.no_handler(call, own) {
            return Vec::new();
        }
        let mut args = call.args.clone();
        let (rest, apply) = include::split_option(&mut args, "apply");
        let call = TaskModule { args: rest, python: None, ..*call };
        let task = self.base_task(node, &call, own);
        let Some(inner) = self.include_context(own, around, apply.as_ref()) else { return Vec::new() };
        let public = task.args.get("public").is_some_and(is_true);
        let (mut choices, mut refused) = (Choices::new(), RejectedChoices::new());
        let all = self.role_choices(&file, at, &task.args, &inner);
        let chosen = all.len() > 1;
        for args in all {
            let asked = self.role_request(&args, own, node);
            let choice = crate::plan::role_choice(&args);
            let before = self.diagnostics.faults.len();
            let given = self.role(&file, at, asked, &inner).unwrap_or_default();
            if let Some(why) = chosen.then(|| self.rejected_choice(before, task.id, &choice)).flatten() {
                refused.insert(choice, why);
                continue;
            }
            let steps = if public { exporting_block(given, &file, node.line) } else { given.steps };
            choices.insert(choice, steps);
        }
        if !self.is_selected(&own.keywords.tags) || own.keywords.run_once && !self.current_play.first {
            return Vec::new();
        }
        vec![PlanStep::Include(Box::new(DynamicInclude { task, choices, refused }))]
    }

    fn no_handler(&mut self, call: &TaskModule, own: &Context) -> bool {
        if own.handler {
            let at = (call.key.line, call.key.column);
            self.fault(&own.file, at, format!("{} cannot be a handler", call.spec.name));
        }
        own.handler
    }

    /// Reads the options of a task that refers to a role.
    fn role_request(&mut self, args: &Map<String, Value>, own: &Context, node: &SpannedNode) -> RoleRequest {
        let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
        let vars = node.get("vars").map(|vars| match vars.json() {
            Value::Object(map) => map,
            _ => Map::new(),
        });
        let from = PARTS.iter().filter_map(|(option, part)| Some(((*part).to_owned(), text(option)?))).collect();
        RoleRequest {
            name: text("name").or(text("role")).unwrap_or_default(),
            vars: vars.unwrap_or_default(),
            params: Map::new(),
            from,
            by_task: true,
            unchecked: args.get("rolespec_validate").is_some_and(|validate| !is_true(validate)),
            duplicates: Some(args.get("allow_duplicates").is_none_or(is_true)),
            beside: json!([own.keywords.when.len(), own.keywords.tags]),
        }
    }

    /// Returns the options of the include for each target that it could select: each role, with
    /// each of its task files.
    fn role_choices(
        &mut self,
        file: &str,
        at: (u32, u32),
        args: &Map<String, Value>,
        inner: &Context,
    ) -> Vec<Map<String, Value>> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(name) = text("name").or(text("role")) else { return Vec::new() };
        if let Some((option, _)) =
            PARTS.iter().skip(1).find(|(option, _)| text(option).is_some_and(|t| !is_literal(&t)))
        {
            self.fault_hint(file, at, format!("`{option}` takes a fixed name"), HINT_ANSIBLE);
            return Vec::new();
        }
        let mut names = BTreeSet::new();
        let by_path = ["role_path", "playbook_dir"].iter().any(|dir| name.contains(dir));
        let path = || crate::template::expr::render_text(&self.known_scope(inner), &name).ok();
        if is_literal(&name) {
            names.insert(name.clone());
        } else if let Some(path) = by_path.then(path).flatten() {
            names.insert(path);
        } else {
            for root in self.role_roots(inner) {
                for (found, _) in assets::matching_files(self.files, &root, &format!("{name}/*")) {
                    let parts = name.matches('/').count() + 1;
                    names.insert(found.split('/').take(parts).collect::<Vec<_>>().join("/"));
                }
            }
            names.retain(|name| self.role_dir(name, inner).is_some());
        }
        let mut out = Vec::new();
        for role in names {
            let mut own = args.clone();
            own.remove("role");
            own.insert("name".into(), json!(role));
            let Some(from) = text("tasks_from").filter(|from| !is_literal(from)) else {
                out.push(own);
                continue;
            };
            let Some(dir) = self.role_dir(&role, inner) else { continue };
            for (found, _) in assets::matching_files(self.files, &format!("{dir}/tasks"), &format!("{from}*")) {
                if inner.open.contains(&format!("{dir}/tasks/{found}")) {
                    continue;
                }
                let plain = found.trim_end_matches(".yml").trim_end_matches(".yaml");
                for found in [plain, &found] {
                    own.insert("tasks_from".into(), json!(found));
                    out.push(own.clone());
                }
            }
        }
        if out.is_empty() || out.len() > include::CHOICES_MAX {
            let message =
                format!("`{name}` could refer to {} roles, expected 1 to {}", out.len(), include::CHOICES_MAX);
            self.fault(file, at, message);
            return Vec::new();
        }
        out
    }

    /// Directories in which roles are searched.
    fn role_roots(&self, context: &Context) -> Vec<String> {
        let mut out = vec![
            assets::join(&self.current_play.base, "roles").unwrap_or_default(),
            "roles".into(),
            "playbooks/roles".into(),
        ];
        out.extend(context.role.as_ref().map(|role| assets::parent(&role.dir)));
        out.push(self.current_play.base.clone());
        out
    }

    /// Where the fleet directory may have the role of a collection (`namespace.collection.role`).
    fn collection_role_dirs(&self, name: &str) -> Vec<String> {
        let [namespace, collection, role] = name.split('.').collect::<Vec<_>>()[..] else { return Vec::new() };
        let inner = format!("ansible_collections/{namespace}/{collection}/roles/{role}");
        let roots = [&format!("{}/collections", self.current_play.base), "collections", ""].map(str::to_owned);
        roots.iter().filter_map(|root| assets::join(root, &inner)).collect()
    }

    fn role_dir(&self, name: &str, context: &Context) -> Option<String> {
        let files = self.files;
        let parts = ["tasks", "handlers", "vars", "defaults", "meta", "files", "templates", "library", "module_utils"];
        let roots = self.role_roots(context);
        let by_path = name.contains('/').then(|| assets::join("", self.strip_root(name))).flatten();
        let plain = roots.iter().filter_map(|root| assets::join(root, name)).chain(by_path);
        let found = plain.chain(self.collection_role_dirs(name)).find(|dir| {
            !dir.is_empty()
                && files
                    .paths_below(dir)
                    .any(|path| parts.contains(&path[dir.len() + 1..].split('/').next().unwrap_or_default()))
        });
        // As in Ansible, a directory without any part of a role is a role that does nothing.
        let empty = || {
            let mut dirs =
                roots.iter().filter(|root| root.ends_with("roles")).filter_map(|root| assets::join(root, name));
            dirs.find(|dir| !dir.is_empty() && files.paths_below(dir).next().is_some())
        };
        found.or_else(empty)
    }

    /// Compiles a role with its dependencies, for one reference to it.
    fn role(&mut self, file: &str, at: (u32, u32), asked: RoleRequest, context: &Context) -> Option<RoleResult> {
        let name = asked.name.clone();
        let Some(dir) = self.role_dir(&name, context) else {
            let message = format!("role `{name}` is not in the fleet directory (looked for roles/{name})");
            let fault = self.fault(file, at, message);
            fault.hint = name
                .contains('.')
                .then(|| format!("roles of collections are not part of the language; {HINT_ANSIBLE}"));
            return None;
        };
        let meta_file = format!("{dir}/meta/main.yml");
        if context.needing.contains(&dir) && !asked.by_task || context.needing.len() > DEPTH_MAX {
            self.fault(file, at, format!("role `{name}` needs itself: {} -> {dir}", context.needing.join(" -> ")));
            return None;
        }
        if !self.opens(file, at) {
            return None;
        }
        self.load_plugins(&dir);
        let part = |part: &str| asked.from.get(part).map_or("main", String::as_str);
        let own_defaults = self.role_vars(&dir, "defaults", part("defaults"), (file, at));
        let own_vars = self.role_vars(&dir, "vars", part("vars"), (file, at));
        let named = self.layer(asked.vars.clone());
        let lookups = std::mem::take(&mut self.parts.computed_lookups);
        let mut magic = asked.params.clone();
        magic.extend(names_of_role(&name, &dir));
        magic.insert("role_path".into(), json!(self.playbook_path(&dir)));
        let parents = context.role.as_ref().filter(|_| asked.by_task).map(Role::names_with_parents).unwrap_or_default();
        if !parents.is_empty() {
            let (names, dirs): (Vec<&String>, Vec<String>) =
                parents.iter().map(|(name, dir)| (name, self.playbook_path(dir))).unzip();
            magic.insert("ansible_parent_role_names".into(), json!(names));
            magic.insert("ansible_parent_role_paths".into(), json!(dirs));
        }
        let params = self.layer(magic);
        if !parents.is_empty() {
            self.parts.layers_with_parents.extend(&params);
        }
        let dependency = !asked.by_task && !context.needing.is_empty();
        match dependency {
            true => drop(self.current_play.roles.dependencies.insert(name.clone())),
            false if !context.dynamic => self.current_play.roles.listed.push(name.clone()),
            false => {}
        }
        // The dependencies have this context: they see the variables of this role and of the roles
        // that depend on it.
        let mut outer = context.clone();
        outer.layers.chain_vars.extend(named.iter().chain(&own_vars));
        outer.layers.chain_defaults.extend(&own_defaults);
        outer.layers.role_params.extend(&params);
        outer.needing.push(dir.clone());
        outer.role = Some(Role { name: name.clone(), dir: dir.clone(), parents });
        let mut given = RoleResult::default();
        let meta = self.files.get(&meta_file).and_then(|_| self.yaml(&meta_file, (file, at)));
        let mut once = !asked.duplicates.unwrap_or(false);
        if let Some(meta) = meta.as_deref() {
            once &= asked.duplicates.is_some() || !self.meta_allows(&meta_file, meta);
            for needed in meta.get("dependencies").and_then(SpannedNode::list).unwrap_or_default() {
                let inner = self.listed_role(&meta_file, needed, &outer);
                given.steps.extend(inner.steps);
                given.defaults.extend(inner.defaults);
                given.exports.extend(inner.exports);
            }
        }
        let mut own = context.clone();
        own.role = outer.role;
        if let Some(node) = meta.as_deref().and_then(|meta| meta.get("collections")) {
            let more = std::mem::take(&mut own.keywords.collections);
            own.keywords.collections = [self.word_list(&meta_file, "collections", node), more].concat();
        }
        own.layers.defaults = [&given.defaults[..], &context.layers.chain_defaults, &own_defaults].concat();
        own.layers.role_vars = [&context.layers.chain_vars[..], &given.exports, &own_vars, &named].concat();
        own.layers.chain_vars = outer.layers.chain_vars;
        own.layers.chain_defaults = outer.layers.chain_defaults;
        own.layers.role_params = outer.layers.role_params;
        self.parts.computed_lookups = lookups;
        self.resolve_computed_lookups(&own, None, false);
        let tasks = part("tasks").to_owned();
        let mut block = match asked.unchecked {
            true => Vec::new(),
            false => self.argument_specs(&dir, meta.as_deref(), &tasks, &own, &asked.params, (file, at)),
        };
        self.role_handlers(&dir, part("handlers"), &own, (file, at));
        let key = json!([dir, asked.params, asked.vars, asked.from, asked.by_task, asked.beside]).to_string();
        match self.role_file(&dir, "tasks", &tasks) {
            Some(path) => block.extend(self.task_file(&path, &own, (file, at))),
            None if tasks != "main" => {
                self.fault(file, at, format!("role `{name}` has no tasks/{tasks}"));
            }
            None => {}
        }
        if !block.is_empty() {
            let place = SourcePlace { file: file.to_owned(), line: at.0 };
            let role = Some(RoleRun { name, once: once.then_some(key) });
            given.steps.push(PlanStep::Block(Block { place, block, role, ..Block::default() }));
        }
        given.defaults.extend(own_defaults);
        given.exports.extend(own_vars);
        Some(given)
    }

    /// Whether a role's `meta` allows it to run more than once.
    fn meta_allows(&mut self, file: &str, meta: &SpannedNode) -> bool {
        for (key, value) in meta.map().unwrap_or_default() {
            match key.text.as_str() {
                "galaxy_info" | "allow_duplicates" | "dependencies" | "argument_specs" => {}
                "collections" => drop(self.collections(file, value)),
                _ => {
                    let message = format!("unknown keyword `{}` of a role's meta", key.text);
                    self.warn(file, (key.line, key.column), message, "Ansible refuses it too");
                }
            }
        }
        meta.get("allow_duplicates").is_some_and(|allow| self.boolean(file, "allow_duplicates", allow))
    }

    /// Finds `dir/part/name` with one of the usual extensions.
    pub(super) fn role_file(&self, dir: &str, part: &str, name: &str) -> Option<String> {
        let base = assets::join(&format!("{dir}/{part}"), name)?;
        [".yml", ".yaml", ".json", ""]
            .iter()
            .map(|ext| format!("{base}{ext}"))
            .find(|path| self.files.get(path).is_some())
    }

    /// Makes layers of a role's variable files, and returns their indices. `name` is a file, or a
    /// directory such as `main` whose files all count.
    fn role_vars(&mut self, dir: &str, part: &str, name: &str, from: (&str, (u32, u32))) -> Vec<u32> {
        if let Some(path) = self.role_file(dir, part, name) {
            return vec![self.vars_layer(&path, from)];
        }
        let below = format!("{dir}/{part}/{name}");
        let files = self.files;
        let paths: Vec<&str> = files.paths_below(&below).filter(|p| include_vars::is_vars(p)).collect();
        if paths.is_empty() && name != "main" {
            self.fault(from.0, from.1, format!("{below} is not in the fleet directory"));
        }
        paths.into_iter().map(|path| self.vars_layer(path, from)).collect()
    }
}

fn exporting_block(given: RoleResult, file: &str, line: u32) -> Vec<PlanStep> {
    let exports = Some(Exports { defaults: given.defaults, vars: given.exports });
    let place = SourcePlace { file: file.to_owned(), line };
    vec![PlanStep::Block(Block { place, block: given.steps, exports, ..Block::default() })]
}

fn is_true(value: &Value) -> bool {
    var_map::boolean(value) == Some(true)
}

/// The variables with the names of the role `name` in the directory `dir`.
fn names_of_role(name: &str, dir: &str) -> Map<String, Value> {
    let mut out = Map::new();
    let (mut short, mut full) = (name, name.to_owned());
    if let Some(collection) = collection_of(dir) {
        short = dir.rsplit('/').next().unwrap_or_default();
        full = format!("{collection}.{short}");
        out.insert("ansible_collection_name".into(), json!(collection));
    }
    out.insert("role_name".into(), json!(short));
    out.insert("ansible_role_name".into(), json!(full));
    out
}

/// The collection (`namespace.name`) that contains the role in the directory `dir`.
fn collection_of(dir: &str) -> Option<String> {
    let parts: Vec<&str> = dir.split('/').collect();
    let [.., root, namespace, name, "roles", _] = parts[..] else { return None };
    (root == "ansible_collections").then(|| format!("{namespace}.{name}"))
}

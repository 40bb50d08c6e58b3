//! Checks lookups in templates. Files that they read are added to the plan, so that the node has
//! the same files as the manager.

use super::{Compiler, HINT_ANSIBLE, assets};
use crate::filters;
use crate::lang::hosts;
use crate::plan::RepeatKind;
use crate::template::expr;
use crate::template::lint::{self, Lookup};
use crate::vars::var_map;
use base64::Engine as _;
use remoor_model::did_you_mean;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum size in bytes of a file that a lookup reads.
const FILE_MAX: usize = 1 << 20;

/// Names of lookups without their collection that ansible-core still knows.
const MOVED: &str = "aws_secret aws_ssm collection_version consul_kv credstash dig dnstxt etcd etcd3 filetree gcp_storage_file \
    hashi_vault hiera k8s keyring lastpass nios onepassword onepassword_raw passwordstore redis shelvefile";

/// The lookups that read or find files.
pub(super) const FILE_KINDS: [&str; 4] = ["file", "fileglob", "first_found", "template"];

/// What lookups of files have found, by the kind of the lookup and its term. Each has the places
/// whose lookups found it, see `filters::lookup_place`.
pub(super) type LookupFiles = BTreeMap<String, Vec<(String, Value)>>;

impl Compiler<'_> {
    /// Checks the lookups in a text of `file`, and adds the files that they read.
    pub(super) fn check_lookups(&mut self, file: &str, at: (u32, u32), text: &str) {
        self.check_fixed_lookups(file, at, text);
        self.note_computed_lookups(file, at, text);
    }

    /// Like `check_lookups`, but leaves out lookups of files whose names are computed.
    pub(super) fn check_fixed_lookups(&mut self, file: &str, at: (u32, u32), text: &str) {
        for lookup in lint::lookups(text) {
            let name = filters::short_name(&lookup.name);
            if FILE_KINDS.contains(&name) {
                for term in fixed_terms(&lookup).into_iter().flatten() {
                    match self.include_lookup(file, at, name, term) {
                        Err((message, hint)) if !self.options.delegates => self.fault(file, at, message).hint = hint,
                        Err((message, _)) if matches!(name, "file" | "template") && !term.starts_with(['/', '~']) => {
                            self.parts.asks_for_files = true;
                            let hint = "the controller searches the file again when a task needs it";
                            self.warn(file, at, message, hint);
                        }
                        Err(_) => self.parts.asks_for_files = true,
                        Ok(()) => {}
                    }
                }
            } else {
                self.check_lookup_name(file, at, name);
            }
        }
    }

    /// Checks that a lookup of this name exists, and that the controller can answer it.
    pub(super) fn check_lookup_name(&mut self, file: &str, at: (u32, u32), name: &str) {
        let own = filters::LOOKUPS.iter().any(|(own, _)| *own == name);
        let asked = filters::LOOKUPS_ASKED.contains(&name) || !own && self.is_plugin_lookup(name);
        match (own || asked, asked && !self.options.delegates) {
            (true, false) => {}
            (true, true) => {
                self.fault_hint(file, at, format!("lookup `{name}` {}", filters::ONLY_IN_PLAY), HINT_ANSIBLE);
            }
            (false, _) => {
                let near = did_you_mean(name, filters::LOOKUPS.iter().map(|(own, _)| *own));
                let hint = near.unwrap_or_else(|| HINT_ANSIBLE.to_owned());
                self.fault_hint(file, at, format!("lookup `{name}` is not part of the language"), hint);
            }
        }
    }

    /// Whether a plugin may have this name: one of a collection, or one in a directory
    /// `lookup_plugins` of the playbook or a role.
    fn is_plugin_lookup(&self, name: &str) -> bool {
        let end = format!("lookup_plugins/{name}.py");
        name.split('.').count() > 2
            || MOVED.split_whitespace().any(|moved| moved == name)
            || self.files.0.keys().any(|path| path.ends_with(&end))
    }

    /// Adds what a lookup of the kind `kind` finds for `term`. The error has a message and a hint.
    pub(super) fn include_lookup(
        &mut self,
        file: &str,
        at: (u32, u32),
        kind: &str,
        term: &str,
    ) -> Result<(), (String, Option<String>)> {
        let name = self.strip_root(term).to_owned();
        let ansible = || Some(HINT_ANSIBLE.to_owned());
        if name.starts_with('/') || name.starts_with("~/") {
            return Err((format!("lookup `{kind}`: `{term}` is outside the fleet directory"), ansible()));
        }
        let mut dirs = self.lookup_dirs(file, if kind == "template" { "templates" } else { "files" });
        let found = match kind {
            "fileglob" => self.glob_files(&dirs, &name).map_err(|e| (format!("lookup `{kind}`: {e}"), None))?,
            _ => self.first_of(&dirs, &name).into_iter().collect(),
        };
        let value = match (kind, found.first()) {
            ("fileglob" | "first_found", None) if self.options.delegates => {
                return Err((format!("lookup `{kind}`: `{term}` is not there yet"), None));
            }
            ("fileglob" | "first_found", _) => json!(found),
            (_, Some(path)) => {
                let path = path.clone();
                self.lookup_content(kind, &path, at).map_err(|message| (message, None))?
            }
            (_, None) => {
                dirs.retain(|dir| !dir.is_empty() && !dir.starts_with('/'));
                let hint = format!("looked in {}", dirs.join(", "));
                return Err((format!("`{term}` is not in the fleet directory"), Some(hint)));
            }
        };
        self.add_lookup_file(format!("{kind} {term}"), file, value);
        Ok(())
    }

    /// The path and the content of a file that a lookup reads.
    pub(super) fn lookup_content(&mut self, kind: &str, path: &str, at: (u32, u32)) -> Result<Value, String> {
        let content = self.content(path).unwrap_or_default();
        if content.len() > FILE_MAX {
            return Err(format!("lookup `{kind}`: {path} is larger than {FILE_MAX} bytes"));
        }
        let text = std::str::from_utf8(&content).map(str::to_owned);
        let text = text.map_err(|_| format!("lookup `{kind}`: {path} is not UTF-8 text"))?;
        if kind == "template" {
            self.check_once(path, |compiler| {
                if let Err(e) = compiler.check_template(&text) {
                    compiler.template_fault(path, expr::place_of(&e, &text, &compiler.parts.plugin_uses), &e);
                }
                compiler.check_fixed_lookups(path, (0, 0), &text);
            });
            self.note_computed_lookups(path, at, &text);
        }
        Ok(json!({"path": path, "content": base64::engine::general_purpose::STANDARD.encode(&text)}))
    }

    /// Calls `read`, and returns what its lookups found. The plan does not contain these files yet.
    pub(super) fn collect_lookup_files<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> (T, LookupFiles) {
        let before = std::mem::take(&mut self.parts.lookup_files);
        let out = read(self);
        let found = std::mem::replace(&mut self.parts.lookup_files, before);
        if !found.is_empty() {
            // A later check of the same template must find the lookups of the template again.
            self.cache.checked.clear();
        }
        (out, found)
    }

    /// Adds what a lookup in `file` found: a file, or the paths of files. `key` is the kind of the
    /// lookup and its term.
    pub(super) fn add_lookup_file(&mut self, key: String, file: &str, value: Value) {
        let place = filters::lookup_place(file);
        self.add_placed_lookup_file(key, place, value);
    }

    pub(super) fn add_placed_lookup_file(&mut self, key: String, place: String, value: Value) {
        let found = self.parts.lookup_files.entry(key).or_default();
        if !found.iter().any(|(known, _)| *known == place) {
            found.push((place, value));
        }
    }

    /// The directories that a lookup in `file` searches, in order of preference.
    pub(super) fn lookup_dirs(&self, file: &str, sub: &str) -> Vec<String> {
        let mut dirs = Vec::new();
        let (own, place) = (assets::parent(file), filters::lookup_place(file));
        if place != own {
            dirs.extend([format!("{place}/{sub}"), place]);
        }
        dirs.extend([
            assets::join(&own, sub).unwrap_or_default(),
            own,
            assets::join(&self.current_play.base, sub).unwrap_or_default(),
            self.current_play.base.clone(),
        ]);
        dirs
    }

    /// The files that match a pattern, sorted by path. Only the first of `dirs` that contains such
    /// files is used.
    fn glob_files(&self, dirs: &[String], pattern: &str) -> Result<Vec<String>, String> {
        let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let fits = hosts::wildcard(name)?;
        for dir in dirs.iter().filter_map(|dir| assets::join(dir, folder)) {
            let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
            let here =
                self.files.paths_below(&dir).filter(|path| assets::parent(path) == dir && fits.is_match(&base(path)));
            let found: Vec<String> = here.map(str::to_owned).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The file of this name in the first directory that has it. A name that a variable such as
    /// `role_path` begins is a path in the fleet directory.
    pub(super) fn first_of(&self, dirs: &[String], name: &str) -> Option<String> {
        let whole = assets::join("", name);
        let paths = dirs.iter().filter_map(|dir| assets::join(dir, name)).chain(whole);
        paths.into_iter().find(|path| self.files.get(path).is_some())
    }

    /// The extra variables, including the files that lookups read. A name that means different
    /// files in different places has one key for each place.
    pub(super) fn extra(&self) -> Map<String, Value> {
        let mut extra = self.options.extra_vars.clone();
        let mut files = Map::new();
        for (key, found) in &self.parts.lookup_files {
            let same = found.iter().all(|(_, value)| Some(value) == found.first().map(|(_, first)| first));
            for (place, value) in found {
                let key = if same { key.clone() } else { filters::placed_key(key, place) };
                files.insert(key, value.clone());
            }
        }
        if self.parts.asks_for_files {
            files.insert(filters::BY_CONTROLLER.to_owned(), json!(true));
        }
        if !files.is_empty() {
            extra.insert(filters::LOOKUP_FILES.to_owned(), Value::Object(files));
        }
        extra.extend(self.plugins_variable().map(|plugins| (filters::PLUGINS.to_owned(), plugins)));
        extra
    }
}

/// The names of a lookup of files. None: they are computed.
pub(super) fn fixed_terms(lookup: &Lookup) -> Option<&Vec<String>> {
    let named = |option: &&str| lookup.arguments.iter().any(|argument| argument.split('=').next() == Some(option));
    let terms = lookup.terms.as_ref().filter(|terms| !terms.iter().any(|term| var_map::has_markup(term)))?;
    (!terms.is_empty() && !["files", "paths"].iter().any(named)).then_some(terms)
}

/// Parses a text that is a single lookup of files with literal names. Returns the kind of the
/// lookup, the names, and whether the lookup gives a list.
pub(super) fn of_files(text: &str) -> Option<(RepeatKind, Vec<String>, bool)> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (call, rest) = inner.split_once('(')?;
    let whole = rest.find(')').is_some_and(|at| at + 1 == rest.len());
    let wants = rest.contains("wantlist");
    let [one] = <[Lookup; 1]>::try_from(lint::lookups(text)).ok()?;
    let kind = match one.name.trim_start_matches("ansible.builtin.") {
        "fileglob" => RepeatKind::FileGlob,
        "first_found" => RepeatKind::FirstFound,
        _ => return None,
    };
    let other_options = rest.contains('=') && !wants;
    (whole && !other_options).then_some((kind, one.terms?, wants || call.trim() != "lookup"))
}

/// The text files that lookups read from the fleet directory.
pub(super) fn texts(extra: &Map<String, Value>) -> Vec<String> {
    let given = extra.get(filters::LOOKUP_FILES).and_then(Value::as_object).into_iter().flat_map(Map::values);
    let content = given.filter_map(|file| file.get("content")?.as_str());
    let decoded = content.filter_map(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    decoded.filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{CompileOptions, HostContext, compile, review};
    use remoor_model::FileSet;
    use serde_json::{Map, Value, json};

    /// The content of the file that a `copy` task with `content: text` would write, or the error.
    fn rendered_content(text: &str) -> String {
        let tasks = format!("- copy: {{dest: /c, content: \"{text}\"}}\n");
        let files = [
            ("site.yml", "- hosts: all\n  vars: {name: web}\n  roles: [r]\n"),
            ("roles/r/tasks/main.yml", tasks.as_str()),
            ("roles/r/files/plain.txt", "{{ not rendered }}\n\n"),
            ("roles/r/templates/part.j2", "{{ name | upper }}\n{{ lookup('file', 'plain.txt') }}\n"),
            ("roles/r/templates/loop.j2", "{{ lookup('template', 'loop.j2') }}"),
            ("top.txt", "top"),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let Value::Object(vars) = json!({"inventory_hostname": "h"}) else { panic!() };
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        let told =
            |faults: Vec<remoor_model::Fault>| faults.iter().map(|f| f.message.clone()).collect::<Vec<_>>().join("; ");
        match compile(&files, "site.yml", &host, &CompileOptions::default()) {
            Err(faults) => told(faults),
            Ok(compiled) => {
                let (files, faults) = review(&compiled.plan, &Map::new(), &files, &[]);
                files.get("/c").map_or_else(|| told(faults), |f| String::from_utf8_lossy(&f.content).into_owned())
            }
        }
    }

    #[test]
    fn files_are_taken_along() {
        for (text, want) in [
            ("{{ lookup('file', 'plain.txt') }}", "{{ not rendered }}"),
            ("{{ lookup('file', 'plain.txt', rstrip=false) }}", "{{ not rendered }}\n\n"),
            ("{{ lookup('template', 'part.j2') }}", "WEB\n{{ not rendered }}\n"),
            (
                "{{ lookup('template', 'part.j2', template_vars=dict(name='own'), convert_data=false) }}",
                "OWN\n{{ not rendered }}\n",
            ),
            ("{{ query('file', 'plain.txt', 'top.txt') | join('+') }}", "{{ not rendered }}+top"),
            ("{{ query('fileglob', '*.txt') | join('+') }}", "roles/r/files/plain.txt"),
            (
                "{{ lookup('fileglob', 'none*', '../templates/*.j2') }}",
                "roles/r/templates/loop.j2,roles/r/templates/part.j2",
            ),
            ("{{ lookup('first_found', ['none', 'plain.txt']) | basename }}", "plain.txt"),
            ("{{ query('first_found', 'none', skip=true) | length }}", "0"),
            ("{{ lookup('file', 'pl' ~ 'ain' + '.txt') }}", "{{ not rendered }}"),
            ("{{ lookup('file', role_path ~ '/files/plain.txt') }}", "{{ not rendered }}"),
            ("{{ query('fileglob', '*.t' ~ 'xt') | join('+') }}", "roles/r/files/plain.txt"),
            ("{{ lookup('first_found', ['none.txt', name ~ '.txt'], skip=true, wantlist=true) | length }}", "0"),
            (
                "{{ lookup('first_found', dict(files=[name, 'plain.txt'], paths=['x', 'files'])) }}",
                "roles/r/files/plain.txt",
            ),
            ("{{ lookup('first_found', files='gone,plain.txt', paths='x:files') }}", "roles/r/files/plain.txt"),
        ] {
            assert_eq!(rendered_content(text), want, "{text}");
        }
        for (text, want) in [
            ("{{ lookup('file', 'gone.txt') }}", "`gone.txt` is not in the fleet directory"),
            ("{{ lookup('file', '/etc/hosts') }}", "is outside the fleet directory"),
            ("{{ lookup('file', missing) }}", "an argument of a lookup is undefined"),
            ("{{ lookup('file', name) }}", "`web` is not in the fleet directory"),
            ("{{ lookup('file', dict(a=1)) }}", "takes names that are known before the run"),
            ("{{ lookup('flie', 'x') }}", "lookup `flie` is not part of the language"),
            ("{{ query('fileglob', ansible_hostname ~ '*') }}", "only the node knows the pattern `**`"),
            ("{{ query('fileglob', '/etc/*') }}", "is outside the fleet directory"),
            ("{{ lookup('first_found', ['none', 'gone']) }}", "none of the files exists"),
            ("{{ lookup('template', 'loop.j2') }}", "more than 10 nested templates"),
            ("{{ lookup('template', 'part.j2', template_vars=1) }}", "`template_vars` takes a map"),
        ] {
            let got = rendered_content(text);
            assert!(got.contains(want), "{text}\nwant {want}\ngot  {got}");
        }
    }

    /// The plan of two roles whose files have the same names.
    fn plan_of_roles(delegates: bool) -> Result<crate::Plan, Vec<remoor_model::Fault>> {
        let role = "- {copy: {dest: '/{{ role_name }}', content: \"{{ lookup('file', 'n') }} {{ key }} {{ q('first_found', 'n') }}\"}}\n\
                    - {copy: {dest: '/{{ role_name }}-{{ item }}', content: \"{{ lookup('file', item ~ '.x') }}\"}, loop: [one, two]}\n";
        let fact = "- {copy: {dest: /fact, content: \"{{ lookup('file', params.name) }}\"}, vars: {params: {name: '{{ ansible_os_family }}.x'}}}\n\
                    - {copy: {dest: /found, content: \"{{ lookup('first_found', found) | basename }}\"}, vars: {found: {files: ['{{ ansible_os_family }}.x', two.x], paths: [files]}}}\n";
        let files = [
            (
                "site.yml",
                "- hosts: all\n  roles: [a, b]\n  tasks: [{copy: {dest: /top, content: '{{ of_group }}'}}]\n"
                    .to_owned(),
            ),
            ("files/top.txt", "from the top".to_owned()),
            ("roles/a/tasks/main.yml", format!("{role}{fact}")),
            ("roles/b/tasks/main.yml", role.to_owned()),
            ("roles/a/defaults/main.yml", "key: \"{{ lookup('file', key_name) }}\"\nkey_name: n.key\n".to_owned()),
            ("roles/a/files/n", "of a".to_owned()),
            ("roles/b/files/n", "of b".to_owned()),
            ("roles/a/files/n.key", "key".to_owned()),
            ("roles/a/files/one.x", "1a".to_owned()),
            ("roles/a/files/two.x", "2a".to_owned()),
            ("roles/b/files/one.x", "1b".to_owned()),
            ("roles/b/files/two.x", "2b".to_owned()),
            ("roles/a/files/Debian.x", "debian".to_owned()),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.into_bytes())).into());
        let vars = json!({"inventory_hostname": "h", "of_group": "{{ lookup('file', 'to' ~ 'p.txt') }}"});
        let vars = vars.as_object().cloned().unwrap();
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        compile(&files, "site.yml", &host, &CompileOptions { delegates, ..CompileOptions::default() }).map(|c| c.plan)
    }

    #[test]
    fn each_role_has_its_own_files_and_a_fact_selects_one() {
        let plan = plan_of_roles(false).unwrap();
        let facts = json!({"ansible_os_family": "Debian", "ansible_facts": {"os_family": "Debian"}});
        let (files, faults) = review(&plan, facts.as_object().unwrap(), &FileSet::default(), &[]);
        assert_eq!(faults, []);
        let content = |path: &str| String::from_utf8_lossy(&files[path].content).into_owned();
        for (path, want) in [
            ("/a", "of a key ['roles/a/files/n']"),
            ("/b", "of b key ['roles/b/files/n']"),
            ("/a-one", "1a"),
            ("/b-two", "2b"),
            ("/fact", "debian"),
            ("/found", "Debian.x"),
            ("/top", "from the top"),
        ] {
            assert_eq!(content(path), want, "{path}");
        }
        let other = json!({"ansible_os_family": "Suse", "ansible_facts": {"os_family": "Suse"}});
        let (files, faults) = review(&plan, other.as_object().unwrap(), &FileSet::default(), &[]);
        assert_eq!(String::from_utf8_lossy(&files["/found"].content), "two.x");
        assert!(faults.iter().any(|fault| fault.message.contains("does not contain `Suse.x`")), "{faults:?}");
    }

    #[test]
    fn the_controller_finds_files_that_the_plan_does_not_contain() {
        let tasks = "- hosts: all\n  tasks:\n    - {copy: {dest: /a, content: \"{{ lookup('file', '/etc/x') }}\"}}\n    \
                     - {copy: {dest: /b, content: \"{{ lookup('file', 'later') }}{{ q('first_found', 'x' ~ 1) }}\"}}\n";
        let files = FileSet(files_of(tasks));
        let Value::Object(vars) = json!({"inventory_hostname": "h"}) else { panic!() };
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        let options = CompileOptions { delegates: true, ..CompileOptions::default() };
        let compiled = compile(&files, "site.yml", &host, &options).unwrap();
        assert_eq!(compiled.warnings.len(), 1, "{:?}", compiled.warnings);
        let (files, faults) = review(&compiled.plan, &Map::new(), &files, &[]);
        assert_eq!((files.len(), faults), (0, Vec::new()));
        assert!(compile(&FileSet(files_of(tasks)), "site.yml", &host, &CompileOptions::default()).is_err());
    }

    fn files_of(playbook: &str) -> std::collections::BTreeMap<String, Vec<u8>> {
        [("site.yml".to_owned(), playbook.as_bytes().to_vec())].into()
    }
}

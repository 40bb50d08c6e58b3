//! Tests imported playbooks, and the keywords of plays that concern all hosts.

use super::tests::{compile_files, files, host, names};
use super::*;
use crate::plan::schedule::{HostOrder, Portion};

fn compile_faults(list: &[(&str, &str)]) -> String {
    let faults = outline(&files(list), "site.yml", &Map::new(), &PromptAnswers::new(), None).unwrap_err();
    faults.iter().map(|f| format!("{f}\n")).collect()
}

#[test]
fn imported_playbooks_are_opened_with_what_the_import_says() {
    let site = "\
- import_playbook: sub/a.yml
  vars: {who: site, more: 1}
  tags: outer
  when: port == 80
- hosts: db
  tasks: [{name: none, debug: }]
- ansible.builtin.import_playbook: '{{ which }}.yml'
  vars: {which: last}
";
    let list = [
        ("site.yml", site),
        (
            "sub/a.yml",
            "- hosts: web\n  vars: {who: a, own: 2}\n  tasks: [{name: first, debug: {msg: '{{ who }}'}, tags: inner}]\n- import_playbook: b.yml\n  vars: {who: a}\n",
        ),
        ("sub/b.yml", "- hosts: web\n  roles: [r]\n"),
        ("sub/roles/r/tasks/main.yml", "- {name: second, debug: }\n"),
        ("last.yml", "- hosts: all\n  tasks: [{name: third, debug: }]\n"),
    ];
    let plan = compile_files(&list, &[]).plan;
    assert_eq!(names(&plan), ["first", "second", "third"]);
    assert_eq!(plan.plays.iter().map(|p| p.index).collect::<Vec<_>>(), [0, 1, 3]);
    let vars = |play: usize| plan.layers[plan.plays[play].vars[0] as usize].clone();
    assert_eq!(serde_json::json!(vars(0)), serde_json::json!({"who": "site", "own": 2, "more": 1}));
    assert_eq!(serde_json::json!(vars(1)), serde_json::json!({"who": "site", "more": 1}));
    let mut tasks = Vec::new();
    plan.plays[0].each_task(&mut |t| tasks.push((t.tags.clone(), t.when.len())));
    assert_eq!(tasks, [(vec!["outer".to_owned(), "inner".to_owned()], 1)]);
    assert_eq!(names(&compile_files(&list, &["outer"]).plan), ["first", "second"]);
    let all = outline(&files(&list), "site.yml", &Map::new(), &PromptAnswers::new(), None).unwrap();
    assert_eq!(all.iter().map(|k| (k.index, k.hosts.join(","))).collect::<Vec<_>>().len(), 4);
}

#[test]
fn keys_of_many_hosts_are_read_and_checked() {
    let text = "\
- hosts: ['{{ target }}', 'db:!old']
  vars: {step: 30%}
  serial: [1, '{{ step }}']
  max_fail_percentage: 25
  any_errors_fatal: yes
  ignore_unreachable: true
  order: reverse_sorted
";
    let mut extra = Map::new();
    extra.insert("target".into(), serde_json::json!("web"));
    let keys =
        outline(&files(&[("site.yml", text)]), "site.yml", &extra, &PromptAnswers::new(), None).unwrap().remove(0);
    assert_eq!(keys.hosts, ["web", "db:!old"]);
    assert_eq!(keys.serial, [Portion::Hosts(1), Portion::Percent(30.0)]);
    assert_eq!((keys.max_fail_percentage, keys.order), (Some(25.0), HostOrder::ReverseSorted));
    assert!(keys.any_errors_fatal && keys.ignore_unreachable);
    let text = "- hosts: all\n  serial: many\n  order: shuffle\n  max_fail_percentage: x\n- hosts: []\n- {serial: 1}\n- hosts: '{{ nowhere }}'\n- import_playbook: none.yml\n- import_playbook: site.yml\n- 1\n";
    expect_test::expect![[r#"
        site.yml:2:11: `serial` takes numbers and percentages, found `many`
        site.yml:3:10: `shuffle` is not a supported `order`
          hint: run this playbook with ansible-playbook
        site.yml:4:24: `max_fail_percentage` takes a number
        site.yml:5:10: `hosts` names no host
        site.yml:6:3: a play needs `hosts`
        site.yml:7:10: `hosts`: `nowhere` is undefined
        site.yml:8:20: none.yml is not in the directory of the playbook
        site.yml:9:20: site.yml imports itself: site.yml -> site.yml
        site.yml:10:3: a play is a map, found a number
    "#]]
    .assert_eq(&compile_faults(&[("site.yml", text)]));
}

#[test]
fn a_play_means_the_hosts_that_its_patterns_mean() {
    let table = [
        ("web", true),
        ("all[0]", false),
        ("all[1]", true),
        ("db:&web", true),
        ("!web", false),
        ("~w1$", true),
        ("localhost", false),
    ];
    let mut host = host();
    host.vars.insert("groups".into(), serde_json::json!({"all": ["w0", "w1"], "web": ["w1"], "db": ["w0", "w1"]}));
    for (pattern, meant) in table {
        let text = format!("- hosts: '{pattern}'\n  tasks: [{{name: t, debug: }}]\n");
        let plan = compile(&files(&[("site.yml", &text)]), "site.yml", &host, &CompileOptions::default()).unwrap().plan;
        assert_eq!(!plan.plays.is_empty(), meant, "{pattern}");
    }
}

#[test]
fn a_play_knows_its_hosts_and_its_place() {
    let mut hosts = InventoryNames { hosts: ["w1", "w2", "w3"].map(str::to_owned).into(), ..InventoryNames::default() };
    hosts.groups.insert("web".into(), hosts.hosts.clone());
    let text =
        "- hosts: web\n  serial: 2\n  connection: local\n  tasks: [{debug: {msg: '{{ ansible_play_batch }}'}}]\n";
    let set = files(&[("plays/site.yml", text)]);
    let options = CompileOptions { hosts: Some(&hosts), root: "/p", here: true, ..CompileOptions::default() };
    let compiled = |set: &FileSet, options: &CompileOptions| compile(set, "plays/site.yml", &host(), options);
    let plan = compiled(&set, &options).unwrap().plan;
    let told = |name: &str| plan.layers.iter().find_map(|layer| layer.get(name)).cloned();
    assert_eq!(told("ansible_play_batch"), Some(serde_json::json!(["w1", "w2"])));
    assert_eq!(told("ansible_play_name"), Some("web".into()));
    assert_eq!(told("playbook_dir"), Some("/p/plays".into()));
    // A variable that is not read is left out. Otherwise each new host would change the plan.
    assert_eq!(told("ansible_play_hosts"), None);
    let faults = compiled(&set, &CompileOptions { here: false, ..options.clone() }).unwrap_err();
    assert!(faults[0].message.contains("w1 is not this machine"), "{faults:?}");
    assert!(faults[0].hint.as_ref().is_some_and(|hint| hint.contains("--connection local")), "{faults:?}");

    // Tasks can name files by `playbook_dir` and `role_path`.
    let text = "- hosts: all\n  vars: {conf: '{{ playbook_dir }}/conf'}\n  roles: [r]\n  tasks:\n    - copy: {src: '{{ playbook_dir }}/conf/a', dest: /a}\n    - copy: {src: '{{ conf }}/a', dest: /b}\n    - {import_tasks: '{{ playbook_dir }}/more.yml'}\n";
    let set = files(&[
        ("plays/site.yml", text),
        ("plays/more.yml", "[]"),
        ("plays/conf/a", "a"),
        ("plays/roles/r/tasks/main.yml", "- copy: {src: '{{ role_path }}/files/own', dest: /c}\n"),
        ("plays/roles/r/files/own", "own"),
        ("plays/roles/s/files/own", "other"),
    ]);
    for root in ["/p", ""] {
        let plan = compiled(&set, &CompileOptions { root, ..CompileOptions::default() }).unwrap().plan;
        let made = crate::review(&plan, &Map::new(), &set, &[]).0;
        let content = |path: &str| String::from_utf8_lossy(&made[path].content).into_owned();
        assert_eq!(["/a", "/b", "/c"].map(content), ["a", "a", "own"], "{root}");
    }
}

#[test]
fn what_must_be_known_before_the_run_may_be_a_default_of_the_role() {
    let list = [
        ("site.yml", "- hosts: all\n  roles: [r]\n"),
        ("roles/r/defaults/main.yml", "rooted: yes\n"),
        ("roles/r/tasks/main.yml", "- {name: one, debug: , become: '{{ rooted }}'}\n"),
    ];
    let mut elevated = Vec::new();
    compile_files(&list, &[]).plan.each_task(&mut |t| elevated.push(t.privileges.elevated));
    assert_eq!(elevated, [true]);
}

#[test]
fn what_a_template_may_not_name_is_found_where_it_is() {
    let list = [
        ("site.yml", "- hosts: all\n  tasks:\n    - template: {src: a.j2, dest: /tmp/a}\n"),
        ("a.j2", "{# vault #}\none\n  {{ 60 |\n  vault }}\n"),
    ];
    let faults = compile(&files(&list), "site.yml", &host(), &CompileOptions::default()).unwrap_err();
    let fault = faults.first().unwrap().to_string();
    assert!(fault.starts_with("a.j2:3:3: filter `vault` is not part of the language"), "{fault}");
    assert!(fault.ends_with("hint: use `provisioner: ansible`"), "{fault}");
}

/// What the tasks of `site.yml` write, as Ansible writes it: variables about the play and its
/// roles, and loops whose items are known before the run.
#[test]
fn a_play_knows_its_roles_and_the_settings_of_the_run() {
    let text = "\
- hosts: all
  roles: [{role: a}, sub/b]
  tasks:
    - import_role: {name: c}
    - copy:
        dest: /names
        content: '{{ [ansible_play_role_names, role_names, ansible_dependent_role_names, ansible_role_names | sort] }}'
    - copy:
        dest: /settings
        content: '{{ [ansible_version.major, ansible_diff_mode, ansible_forks, ansible_run_tags, ansible_skip_tags, ansible_inventory_sources, ansible_config_file is none, ansible_limit is defined] }}'
    - copy: {dest: '/{{ item }}', content: '{{ item }}'}
      with_file: [one.txt, '{{ second }}.txt', it's.txt]
      vars: {second: two}
    - copy: {dest: '/host-{{ item }}', content: ''}
      with_inventory_hostnames: ['{{ more }}:!w2']
      vars: {more: all}
";
    let inner = "- include_role: {name: d}\n";
    let set = files(&[
        ("site.yml", text),
        ("roles/a/meta/main.yml", "dependencies: [e]\n"),
        ("roles/a/tasks/main.yml", "[]"),
        ("roles/sub/b/tasks/main.yml", inner),
        ("roles/c/tasks/main.yml", "[]"),
        ("roles/d/tasks/main.yml", "- copy: {dest: /parents, content: '{{ ansible_parent_role_names }}'}\n"),
        ("roles/e/tasks/main.yml", "[]"),
        ("files/one.txt", "first\n"),
        ("files/two.txt", "second\n"),
        ("files/it's.txt", "third\n"),
    ]);
    let mut hosts = InventoryNames { hosts: ["w1", "w2", "w3"].map(str::to_owned).into(), ..InventoryNames::default() };
    hosts.limit = Some(["w1".to_owned()].into());
    let options = CompileOptions { hosts: Some(&hosts), ..CompileOptions::default() };
    let plan = compile(&set, "site.yml", &host(), &options).unwrap().plan;
    let (made, faults) = crate::review(&plan, &Map::new(), &set, &[]);
    assert!(faults.is_empty(), "{faults:?}");
    let content = |path: &str| String::from_utf8_lossy(&made[path].content).into_owned();
    let listed = r#"["a", "sub/b", "c"]"#;
    assert_eq!(content("/names"), format!(r#"[{listed}, {listed}, ["e"], ["a", "c", "e", "sub/b"]]"#));
    assert_eq!(content("/settings"), r#"[2, false, 5, ["all"], [], [], true, false]"#);
    assert_eq!(content("/parents"), r#"["sub/b"]"#);
    assert_eq!([content("/first"), content("/second"), content("/third")], ["first", "second", "third"]);
    let written: Vec<&String> = made.keys().filter(|path| path.starts_with("/host-")).collect();
    assert_eq!(written, ["/host-w1", "/host-w3"]);
}

#[test]
fn the_variables_of_another_host_contain_the_version_of_ansible() {
    let text = "- hosts: all\n  tasks: [{copy: {dest: /v, content: '{{ hostvars.w2.ansible_version.major }}'}}]\n";
    let set = files(&[("site.yml", text)]);
    let mut host = host();
    host.vars.insert("hostvars".to_owned(), serde_json::json!({"w2": {}}));
    let plan = compile(&set, "site.yml", &host, &CompileOptions::default()).unwrap().plan;
    let (made, faults) = crate::review(&plan, &Map::new(), &set, &[]);
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(made["/v"].content, b"2");
}

/// The desired state of a fleet must not change because of variables that nobody reads.
#[test]
fn a_plan_has_the_parents_of_a_role_only_if_it_reads_them() {
    let layers = |content: &str| {
        let task = format!("- copy: {{dest: /parents, content: '{content}'}}\n");
        let set = files(&[
            ("site.yml", "- hosts: all\n  roles: [b]\n"),
            ("roles/b/tasks/main.yml", "- include_role: {name: d}\n"),
            ("roles/d/tasks/main.yml", &task),
        ]);
        let plan = compile(&set, "site.yml", &host(), &CompileOptions::default()).unwrap().plan;
        serde_json::to_string(&plan.layers).unwrap()
    };
    assert!(!layers("{{ role_name }}").contains("ansible_parent_role"));
    let read = layers("{{ ansible_parent_role_paths }}");
    assert!(read.contains("ansible_parent_role_paths") && !read.contains("ansible_parent_role_names"), "{read}");
}

#[test]
fn a_loop_over_files_needs_names_that_are_known_before_the_run() {
    let site = |terms: &str, key: &str| {
        format!("- hosts: all\n  tasks:\n    - debug: {{msg: '{{{{ item }}}}'}}\n      {key}: {terms}\n")
    };
    for (key, terms, want) in [
        ("with_file", "[gone.txt]", "`gone.txt` is not in the fleet directory"),
        ("with_file", "['a''b\"c']", "contains both kinds of quotes"),
        ("with_file", "'{{ result.stdout }}'", "`with_file` must be known before the run"),
        ("with_inventory_hostnames", "'all[9]'", "the position is out of range"),
    ] {
        let text = site(terms, key);
        let faults = compile(&files(&[("site.yml", &text)]), "site.yml", &host(), &CompileOptions::default());
        let told = faults.map(|_| String::new()).unwrap_or_else(|faults| faults[0].to_string());
        assert!(told.contains(want), "{key}: {terms}: {told}");
    }
}

#[test]
fn prompted_variables_have_their_answers_or_defaults() {
    let text = "\
- hosts: '{{ target }}'
  vars_prompt:
    - {name: target, default: db, private: false}
    - {name: user, prompt: Who?, confirm: true}
    - {name: version, default: '{{ port }}'}
    - {name: out}
    - {name: enabled, default: yes}
  tasks:
    - copy: {dest: /out, content: '{{ user }} {{ version }} {{ out }} {{ target }} {{ [enabled] }}'}
- hosts: all
  vars_prompt: {name: user, default: other}
  tasks:
    - copy: {dest: /second, content: '{{ user }}'}
";
    let set = files(&[("site.yml", text)]);
    let extra: Map<String, Value> = [("out".to_owned(), "given".into())].into_iter().collect();
    let prompts = vars_prompts(&set, "site.yml", &extra, None);
    let asked: Vec<_> =
        prompts.iter().map(|p| (p.play, p.name.as_str(), p.text.as_str(), p.private, p.confirm)).collect();
    let user = (0, "user", "Who?", true, true);
    let version = (0, "version", "version", true, false);
    let enabled = (0, "enabled", "enabled", true, false);
    let (target, other) = ((0, "target", "target", false, false), (1, "user", "user", true, false));
    assert_eq!(asked, [target, user, version, enabled, other]);
    assert_eq!(prompts[0].default, Some("db".into()));
    let hashed = "- {hosts: all, vars_prompt: [{name: pw, encrypt: sha256_crypt, salt: abc, salt_size: 4}]}\n";
    let hash = vars_prompts(&files(&[("site.yml", hashed)]), "site.yml", &extra, None)[0].hash.clone().unwrap();
    assert_eq!((hash.salt.as_deref(), hash.salt_size), (Some("abc"), 4));
    assert!(hash.hash("secret", "abc").unwrap().starts_with("$5$rounds=535000$abc$"));
    let answers = |target: &str| -> PromptAnswers {
        let own = [("target", target), ("user", "{% endraw %}{{ x }}")];
        [(0, own.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())].into()
    };
    let hosts = |answers: &PromptAnswers| outline(&set, "site.yml", &extra, answers, None).unwrap()[0].hosts.clone();
    assert_eq!((hosts(&PromptAnswers::new()), hosts(&answers("web"))), (vec!["db".to_owned()], vec!["web".to_owned()]));
    let prompted = answers("all");
    let options = CompileOptions { extra_vars: extra.clone(), prompted, ..CompileOptions::default() };
    let plan = compile(&set, "site.yml", &host(), &options).unwrap().plan;
    let made = crate::review(&plan, &Map::new(), &set, &[]).0;
    let content = |path: &str| String::from_utf8_lossy(&made[path].content).into_owned();
    // An answer is no template, but a default is one. An extra variable takes precedence. A default
    // is a text, as if a person had entered it.
    assert_eq!(content("/out"), "{% endraw %}{{ x }} 80 given all ['True']");
    assert_eq!(content("/second"), "other");
    let wrong =
        "- hosts: all\n  vars_prompt:\n    - {prompt: a}\n    - {name: b, privat: false, encrypt: bcrypt}\n    - c\n";
    expect_test::expect![[r#"
        site.yml:3:7: an entry of `vars_prompt` needs the name of a variable as `name`
        site.yml:4:17: unknown option `privat` of vars_prompt
          hint: did you mean `private`?
        site.yml:4:41: the value `bcrypt` of `encrypt` of vars_prompt is not part of the language
          hint: use sha512_crypt or sha256_crypt
        site.yml:5:7: `vars_prompt` takes a list of maps, found a text
    "#]]
    .assert_eq(&compile_faults(&[("site.yml", wrong)]));
}

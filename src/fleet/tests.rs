//! Small complete fleets: the parts of the manifest and the summary that come from check files, and
//! the findings of lint about templates.

use super::{
    ClusterContext, PhaseWork, PlanScope, context, expected_files, lint, list_check_files, manifest, summary, work,
};
use expect_test::expect;
use remoor_config::Fleet;
use remoor_model::{CheckFile, GenerationSeq, JobVars, NodeManifest, Phase, Sha256};
use serde_json::{Map, json};
use std::fs;

const CONFIG: &str = "version: 1
inventory: inventory.yml
groups:
  web: {services: [app, db], provision: playbooks/provision.yml, cleanup: playbooks/cleanup.yml}
services:
  app: {files: [/etc/app.conf], exclude: [/etc/app.d/local]}
  db: {files: [/etc/db.conf]}
";
const INVENTORY: &str = "web: {hosts: {w1: {port: 80}}}\n";
const PROVISION: &str = "- hosts: all
  tasks:
    - template: {src: app.conf.tera, dest: /etc/app.conf}
";

pub(super) fn fleet(more: &[(&str, &str)]) -> Fleet {
    let dir = tempfile::tempdir().unwrap();
    let all = [
        ("remoor.yml", CONFIG),
        ("inventory.yml", INVENTORY),
        ("playbooks/provision.yml", PROVISION),
        (
            "playbooks/cleanup.yml",
            "- hosts: all\n  tasks: [{file: {path: /etc/app.conf, state: absent}}, {file: {path: /x, state: absent}}]\n",
        ),
        ("templates/app.conf.tera", "port={{ port }}\n"),
    ];
    for (name, text) in all.iter().chain(more) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Fleet::load(dir.path()).unwrap()
}

fn lint_output(more: &[(&str, &str)]) -> String {
    lint(&fleet(more)).iter().map(|fault| format!("{fault}\n")).collect()
}

fn manifest_of(fleet: &Fleet) -> NodeManifest {
    let context = context(fleet, "w1", &ClusterContext::default()).unwrap();
    let expected = expected_files(fleet, "w1", &context, &Map::new(), &JobVars::new()).unwrap();
    manifest(fleet, "w1", GenerationSeq(1), &context, &expected).unwrap()
}

/// The variables of the job change the rendered files, with which the node's files are compared.
/// The desired state stays that of the fleet.
#[test]
fn a_jobs_variables_are_stronger_than_the_fleets_and_the_plays() {
    let fleet = fleet(&[("playbooks/provision.yml", &PROVISION.replace("tasks:", "vars: {port: 81}\n  tasks:"))]);
    let of_job =
        ClusterContext { vars: JobVars::from([("port".to_owned(), json!(8080))]), ..ClusterContext::default() };
    let scope = PlanScope { extra: of_job.vars.clone().into_iter().collect(), ..PlanScope::default() };
    for (known, scope, text) in
        [(ClusterContext::default(), PlanScope::default(), "port=81\n"), (of_job, scope, "port=8080\n")]
    {
        let context = context(&fleet, "w1", &known).unwrap();
        let expected = expected_files(&fleet, "w1", &context, &Map::new(), &known.vars).unwrap();
        assert_eq!(expected["/etc/app.conf"].sha256, Sha256::digest(text.as_bytes()), "{text}");
        let Ok(PhaseWork::Plan { plan, .. }) = work(&fleet, "w1", &known, Phase::Provision, &scope) else {
            panic!("a plan")
        };
        assert_eq!(remoor_playbook::predict_files(&plan, &Map::new()), expected);
    }
    let inventory =
        ClusterContext { vars: JobVars::from([("port".to_owned(), json!(1))]), ..ClusterContext::default() };
    assert_eq!(context(&fleet, "w1", &inventory).unwrap().get("port"), Some(&json!(1)), "over the inventory's");
}

#[test]
fn each_check_file_is_listed_with_what_chose_it_or_did_not() {
    let files = [
        (
            "checks/all.yml",
            "remoor: {service: app}\nport:\n  tcp:{{ vars.port }}: {listening: true, title: it answers}\n",
        ),
        ("checks/other.yml", "remoor: {service: app, roles: [api, manager]}\nport: {tcp:1: {listening: true}}\n"),
        (
            "checks/own.yml",
            "remoor: {service: db, roles: [api, web], when: vars.port == 80}\nport: {tcp:2: {listening: true}}\n",
        ),
        ("checks/role.yml", "remoor: {service: db, roles: [worker]}\nport: {tcp:3: {listening: true}}\n"),
        ("checks/stranger.yml", "remoor: {service: ftp}\nport: {tcp:4: {listening: true}}\n"),
        ("checks/when.yml", "remoor: {service: db, when: vars.port != 80}\nport: {tcp:5: {listening: true}}\n"),
    ];
    let listed = list_check_files(&fleet(&files), "w1", &ClusterContext::default(), &Map::new()).unwrap();
    let told = |file: &CheckFile| {
        let checks: Vec<&str> = file.checks.iter().map(|c| c.check.as_str()).collect();
        format!("{} {} {} {}\n", file.file, file.applies, checks.join(" "), file.why)
    };
    expect![[r#"
        checks/all.yml true port:tcp:80 for all roles
        checks/other.yml false  its roles are api, manager; the node's are web and worker
        checks/own.yml true port:tcp:2 role web, `vars.port == 80`
        checks/role.yml true port:tcp:3 role worker
        checks/stranger.yml false  the services of web are app, db
        checks/when.yml false  `vars.port != 80` is false
    "#]]
    .assert_eq(&listed.iter().map(told).collect::<String>());
    assert_eq!(listed[0].text, "\nport:\n  tcp:80: {listening: true, title: it answers}\n");
    assert_eq!((listed[0].checks[0].line, listed[0].checks[0].title.as_deref()), (3, Some("it answers")));
}

#[test]
fn a_check_that_nobody_asks_or_that_asks_in_vain_is_a_fault() {
    let config = CONFIG
        .replace("  db: {files: [/etc/db.conf]}\n", "  db: {files: [/etc/db.conf], provisioned: false}\n  idle: {}\n");
    let checks = "remoor: {service: db}
port:
  tcp:1: {listening: true, meta: {remoor: {on-fail: alert}}}
  tcp:2: {listening: true, meta: {remoor: {severity: warning}}}
  tcp:3: {listening: true}
";
    expect![[r#"
        checks/db.yml:5:1: `port:tcp:3` asks for a re-setup of db, which is not provisioned
          hint: write `meta: {remoor: {on-fail: alert}}`, or leave `provisioned: false` out of remoor.yml
        checks/ftp.yml:1:1: remoor.yml has no service ftp
          hint: its services: app, db, idle
        remoor.yml:8:3: warning: no group has the service `idle`
    "#]]
    .assert_eq(&lint_output(&[
        ("remoor.yml", &config),
        ("checks/db.yml", checks),
        ("checks/ftp.yml", "remoor: {service: ftp}\nport: {tcp:4: {listening: true}}\n"),
    ]));
    // A check of a provisioned service may request a re-setup.
    assert_eq!(lint_output(&[("checks/db.yml", checks)]), "");
}

#[test]
fn a_check_file_for_managers_or_for_a_role_that_nobody_has_is_not_passed_over() {
    let bogus = "remoor: {service: app, roles: [manager]}\nport: {tcp:1: {bogus: true}}\n";
    let told = lint_output(&[("checks/app.yml", bogus)]);
    assert!(told.starts_with("checks/app.yml:2:") && told.contains(": on a manager: "), "{told}");
    assert!(lint(&fleet(&[("checks/app.yml", bogus)])).iter().all(|fault| !fault.warning), "{told}");
    // Lint does not know which of the two hosts is a manager. Perhaps the affected host is a
    // worker, so the fault is only a warning.
    let of_w1 = "remoor: {service: app, roles: [manager]}\nport: {\"tcp:{{ vars.port }}\": {listening: true}}\n";
    let two = ("inventory.yml", "web: {hosts: {w1: {port: 80}, w2: {}}}\n");
    let faults = lint(&fleet(&[two, ("checks/app.yml", of_w1), ("templates/app.conf.tera", "")]));
    assert!(faults.len() == 1 && faults[0].warning && faults[0].file == "checks/app.yml", "{faults:?}");

    let of = |roles: &str| lint_output(&[("checks/app.yml", &format!("remoor: {{service: app, roles: [{roles}]}}\n"))]);
    assert_eq!(of("web") + &of("worker, manager"), "");
    expect![[r#"
        checks/app.yml:1:1: `roles`: remoor.yml has no group managr
          hint: did you mean `manager`?
        checks/app.yml:1:1: `roles`: remoor.yml has no group webb
          hint: did you mean `web`?
        checks/app.yml:1:1: warning: `roles`: remoor.yml has no group edge
          hint: known here: web, manager, worker
    "#]]
    .assert_eq(&(of("webb, managr") + &of("web, edge")));
}

#[test]
fn a_check_file_adds_to_what_is_hashed() {
    let header = "remoor:
  service: app
  digest: {include: [/etc/app.d/, /etc/app.conf], exclude: [/etc/app.d/cache], secret: [/etc/app.d/key], normalize: ['^# by', '^Date:']}
";
    let config = CONFIG.replace("files: [/etc/app.conf],", "files: [/etc/app.conf], normalize: ['^# by'],");
    let fleet = fleet(&[
        ("remoor.yml", &config),
        ("checks/app.yml", header),
        // A check file for another role adds nothing to the manifest.
        ("checks/other.yml", "remoor: {service: app, roles: [manager], digest: {include: [/etc/manager]}}\n"),
    ]);
    let manifest = manifest_of(&fleet);
    let app = manifest.services.iter().find(|s| s.name.as_str() == "app").unwrap();
    assert_eq!(app.files, ["/etc/app.conf", "/etc/app.d/"]);
    assert_eq!(app.exclude, ["/etc/app.d/local", "/etc/app.d/cache"]);
    assert_eq!(app.secret, ["/etc/app.d/key"]);
    assert_eq!(app.normalize, ["^# by", "^Date:"]);
    assert_eq!(manifest.services.iter().find(|s| s.name.as_str() == "db").unwrap().files, ["/etc/db.conf"]);
}

/// A file of a check with `secret: true` is secret in the manifest and in the plan. Characters such
/// as `[` in its path are not read as a glob.
#[test]
fn a_file_of_a_secret_check_is_secret_everywhere() {
    let checks = "remoor: {service: app}
file:
  /etc/app.d/key[1]: {exists: true, meta: {remoor: {secret: true}}}
  /etc/app.d/plain: {exists: true}
";
    let fleet = fleet(&[("checks/app.yml", checks)]);
    let app = manifest_of(&fleet).services.into_iter().find(|s| s.name.as_str() == "app").unwrap();
    let secrets = |path: &str| {
        let globs = app.secret.iter().map(|glob| globset::Glob::new(glob).unwrap().compile_matcher());
        globs.filter(|glob| glob.is_match(path)).count()
    };
    assert_eq!(["key[1]", "key1", "plain"].map(|name| secrets(&format!("/etc/app.d/{name}"))), [1, 0, 0]);
    let Ok(PhaseWork::Plan { secret, .. }) =
        work(&fleet, "w1", &ClusterContext::default(), Phase::Provision, &PlanScope::default())
    else {
        panic!("a plan")
    };
    assert!(secret.contains(&app.secret[0]), "{secret:?}");
}

#[test]
fn patterns_that_can_not_be_used_together_are_a_fault() {
    let patterns: Vec<String> = (0..33).map(|n| format!("'^{n}'")).collect();
    let header = format!("remoor: {{service: app, digest: {{normalize: [{}]}}}}\n", patterns.join(", "));
    expect_test::expect![[r#"
        remoor.yml: `normalize` of the service `app`: more than 32 patterns
    "#]]
    .assert_eq(&lint_output(&[("checks/app.yml", &header)]));
}

#[test]
fn a_check_file_adds_to_the_dependencies() {
    let summary_of = |fleet: &Fleet| summary(fleet, &ClusterContext::default()).unwrap();
    let plain = summary_of(&fleet(&[]));
    assert!(plain.services.values().all(|s| s.depends_on.is_empty()));
    let more = summary_of(&fleet(&[("checks/app.yml", "remoor: {service: app, depends-on: [db]}\n")]));
    assert_eq!(more.services["app"].depends_on, ["db".into()]);
    expect_test::expect![[r#"
        checks/app.yml:1:1: `depends-on`: remoor.yml has no service dp
          hint: its services: app, db
        checks/db.yml:1:1: `depends-on`: app depends on db already
    "#]]
    .assert_eq(&lint_output(&[
        ("checks/app.yml", "remoor: {service: app, depends-on: [db, dp]}\n"),
        ("checks/db.yml", "remoor: {service: db, depends-on: [app]}\n"),
    ]));
}

#[test]
fn an_undefined_name_in_a_tera_file_is_a_fault_with_its_place() {
    let template = |text: &str| lint_output(&[("templates/app.conf.tera", text)]);
    assert_eq!(template("port={{ port }} {{ nowhere | default(value=1) }}\n"), "");
    // A fact is known only on the node, so lint does not report it as undefined.
    assert_eq!(template("host={{ ansible_hostname }}\n"), "");
    let told = template("port={{ port }}\nhost={{ prt }}\n");
    assert!(told.starts_with("templates/app.conf.tera:2:") && told.contains("Variable `prt` is not defined"), "{told}");
    assert!(told.contains("hint: "), "{told}");
    let told = template("{{ inventory_hostname | replace(\".\", \"-\") }}\n");
    assert!(told.contains("by name only: `replace(from=\".\", to=\"-\")`"), "{told}");
}

#[test]
fn a_template_that_a_later_task_edits_is_recorded_only() {
    let edited = format!("{PROVISION}    - lineinfile: {{path: /etc/app.conf, line: more=1}}\n");
    let more = [("playbooks/provision.yml", edited.as_str())];
    let fleet = fleet(&more);
    let context = context(&fleet, "w1", &ClusterContext::default()).unwrap();
    assert!(expected_files(&fleet, "w1", &context, &Map::new(), &JobVars::new()).unwrap().is_empty());
    expect_test::expect![[r#"
        playbooks/provision.yml:4:1: warning: /etc/app.conf is changed here after a template made it, so its final content cannot be predicted
          hint: put the line into the template; otherwise drift of the file is reported, but not repaired
    "#]]
    .assert_eq(&lint_output(&more));
}

/// With the facts of a run, the manager renders the same content as the run, even if the plan omits
/// some tasks.
#[test]
fn with_the_facts_of_a_run_the_same_bytes_are_rendered() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let provision = format!(
        "- hosts: all\n  tasks:\n    - template: {{src: app.conf.tera, dest: {}}}\n    - template: {{src: b.j2, dest: {}}}\n",
        at("app.conf"),
        at("b.conf")
    );
    let fleet = fleet(&[
        ("playbooks/provision.yml", &provision),
        ("templates/app.conf.tera", "host={{ ansible_hostname }} port={{ port }}\n"),
        ("templates/b.j2", "{{ ansible_facts.kernel }} {{ ansible_date_time.epoch }}\n"),
    ]);
    let context = context(&fleet, "w1", &ClusterContext::default()).unwrap();
    let files = |facts: &Map<String, serde_json::Value>| {
        expected_files(&fleet, "w1", &context, facts, &JobVars::new()).unwrap()
    };
    assert!(files(&Map::new()).is_empty(), "without facts nothing is known");
    let plan = super::compile(&fleet, "w1", &context, Phase::Provision, &PlanScope::default()).unwrap();
    let options = remoor_playbook::PlaybookRunOptions { journal: dir.path().join("journal"), ..Default::default() };
    let end = remoor_playbook::run(&plan, &options, &remoor_playbook::CancelToken::new(), &mut |_| {});
    assert_eq!(end.failure, None);
    assert!(end.facts.contains_key("ansible_hostname") && !end.facts.contains_key("ansible_env"));
    assert!(end.facts["ansible_facts"].get("env").is_none() && !end.facts.contains_key("ansible_memtotal_mb"));
    let rendered = files(&end.facts);
    for name in ["app.conf", "b.conf"] {
        assert_eq!(rendered[&at(name)].content, fs::read(at(name)).unwrap(), "{name}");
    }
    // A different host name gives a different content, so the manager really uses the facts.
    let mut other = end.facts.clone();
    other.insert("ansible_hostname".to_owned(), json!("elsewhere"));
    assert_ne!(files(&other)[&at("app.conf")].sha256, rendered[&at("app.conf")].sha256);
}

/// The first phase of an attempt on w1 that is rejected before the attempt begins, with the reason.
fn first_rejected_phase(fleet: &Fleet, services: &[&str]) -> Option<(Phase, String)> {
    let services = services.iter().map(|name| (*name).into()).collect();
    let scope = PlanScope { services, extra: Map::new() };
    [Phase::Cleanup, Phase::Provision].into_iter().find_map(|phase| {
        let faults = work(fleet, "w1", &ClusterContext::default(), phase, &scope).err()?;
        Some((phase, faults.iter().map(|fault| format!("{fault}\n")).collect()))
    })
}

#[test]
fn what_would_be_taken_down_and_left_down_is_refused_before() {
    let config = CONFIG.replace("provision: playbooks/provision.yml, ", "");
    let alone = [("remoor.yml", config.as_str())];
    expect_test::expect![[r#"
        remoor.yml:4:30: the group `web` has a `cleanup` and no `provision` playbook: its hosts would be cleaned up and not set up again
          hint: add `provision: playbooks/...yml` to the group web, or remove `cleanup`
    "#]]
    .assert_eq(&lint_output(&alone));
    assert!(summary(&fleet(&alone), &ClusterContext::default()).is_err());
    let (phase, why) = first_rejected_phase(&fleet(&alone), &[]).unwrap();
    assert!(phase == Phase::Provision && why.contains("group web has no provision playbook"), "{why}");

    let idle = "- hosts: all\n  tasks: [{debug: {msg: hello}}]\n  handlers: [{name: h, command: x}]\n";
    let idle = [("playbooks/provision.yml", idle)];
    expect_test::expect![[r#"
        remoor.yml:4:30: provisioning by playbooks/provision.yml would set nothing up: no task of it is for w1
          hint: add the tasks that undo its cleanup, or take `cleanup` out of the group
    "#]]
    .assert_eq(&lint_output(&idle));
    assert_eq!(first_rejected_phase(&fleet(&idle), &[]).unwrap().0, Phase::Provision);
    assert_eq!(first_rejected_phase(&fleet(&[]), &[]), None);
}

#[test]
fn a_scoped_provisioning_that_selects_nothing_is_refused_before() {
    let config = CONFIG.replace("/etc/app.d/local]}", "/etc/app.d/local], tags: [contiv_network]}");
    let tagged = |task: &str, tag: &str| format!("- hosts: all\n  tasks:\n    - {task}\n      tags: [{tag}]\n");
    let down = tagged("file: {path: /etc/app.conf, state: absent}", "contiv_network");
    let up = |tag: &str| tagged("template: {src: app.conf.tera, dest: /etc/app.conf}", tag);
    let with = |provision: &str| {
        fleet(&[("remoor.yml", &config), ("playbooks/cleanup.yml", &down), ("playbooks/provision.yml", provision)])
    };
    let typo = with(&up("contiv-network"));
    let (phase, why) = first_rejected_phase(&typo, &["app"]).unwrap();
    assert_eq!(phase, Phase::Provision);
    expect_test::expect![[r#"
        remoor.yml:6:3: provisioning by playbooks/provision.yml would set nothing up: no task of it is for w1 with the tags contiv_network
          hint: tag the tasks that set the service up, or name their tags in `tags` of the service

    "#]]
    .assert_eq(&format!("{why}\n"));
    let told = lint(&typo).iter().map(|f| format!("{f}\n")).collect::<String>();
    assert_eq!(told.replacen("warning: ", "", 1), why, "lint warns of the same");
    assert_eq!(first_rejected_phase(&typo, &[]), None, "the whole group is set up all the same");
    // For the service db there is neither cleanup nor provisioning. Nothing is lost, but the
    // attempt would have no effect.
    assert!(first_rejected_phase(&typo, &["db"]).is_some());
    assert!(!lint(&typo).iter().any(|fault| fault.message.contains("tags db")));
    for right in [up("contiv_network"), up("always"), up("[never, contiv_network]")] {
        let right = with(&right.replace("[[", "[").replace("]]", "]"));
        assert_eq!(first_rejected_phase(&right, &["app"]), None);
        assert!(lint(&right).iter().all(|fault| fault.warning || !fault.message.contains("contiv_network")));
    }
    // A task with only the tag `always` does not set anything up.
    let said = up("contiv-network") + "    - debug: {msg: hello}\n      tags: [always]\n";
    assert!(first_rejected_phase(&with(&said), &["app"]).is_some());
}

#[test]
fn a_template_that_can_never_be_rendered_is_refused_before() {
    let told = |name: &str, text: &str| {
        let provision = PROVISION.replace("app.conf.tera", name.rsplit('/').next().unwrap());
        let more = [("playbooks/provision.yml", provision.as_str()), (name, text)];
        let refused = first_rejected_phase(&fleet(&more), &[]);
        let told = lint_output(&more);
        // A template is rejected only if lint reports a fault, not if lint reports a warning.
        let fault = told.lines().next().is_some_and(|line| !line.contains(" warning: "));
        assert_eq!(refused.is_some(), fault, "{text}: {told} {refused:?}");
        assert!(refused.is_none_or(|(phase, why)| phase == Phase::Provision && told.starts_with(&why)), "{told}");
        told
    };
    for name in ["templates/a.j2", "templates/a.tera"] {
        let told = |text: &str| told(name, text);
        for good in [
            "{{ port }} {{ ansible_hostname }} {{ ansible_facts.kernel }} {{ node.addr }} {{ remoor_attempt }}\n",
            "{% if prt is defined %}{{ prt }}{% endif %}{{ ansible_fqdn }}\n",
            "{% for peer in peers %}{{ peer.name }}{% endfor %}{{ ansible_fqdn }}\n",
        ] {
            assert_eq!(told(good), "", "{good}");
        }
        for (bad, at) in [
            ("port={{ port }}\nx={{ prt }}\n", "2:6"),
            // Lint does not know the value of a fact, but it still checks the text after the fact.
            ("{{ ansible_hostname }}\n {{ prt }}\n", "2:5"),
        ] {
            let told = told(bad);
            assert!(told.starts_with(&format!("{name}:{at}: ")), "{told}");
            assert!(told.contains("`prt`") && told.contains("hint: did you mean `port`?"), "{told}");
        }
        let field = told("{{ node.adr }}\n");
        assert!(field.starts_with(&format!("{name}:1:")) && field.contains("adr"), "{field}");
        let perhaps = told("{% if ansible_os_family == 'Debian' %}{{ prt }}{% endif %}\n");
        assert!(perhaps.contains("warning") && perhaps.contains("`prt`"), "{perhaps}");
        let near = told("{{ ansible_hostnme }}\n");
        assert!(near.contains("did you mean `ansible_hostname`?"), "{near}");
    }
}

#[test]
fn texts_of_playbooks_that_can_never_be_rendered_are_refused_before() {
    let told = |tasks: &str| {
        let provision = format!("{PROVISION}{tasks}");
        let more = [("playbooks/provision.yml", provision.as_str())];
        let told = lint_output(&more);
        let fault = told.lines().next().is_some_and(|line| !line.contains(" warning: "));
        assert_eq!(first_rejected_phase(&fleet(&more), &[]).is_some(), fault, "{told}");
        told
    };
    for good in [
        "    - command: echo {{ port }} {{ ansible_hostname }}\n",
        "    - {command: id, register: who}\n    - {copy: {content: '{{ who.stdout }}', dest: /x}, when: who.rc == 0}\n",
        "    - {set_fact: {mine: '{{ ansible_kernel }}'}}\n    - copy: {content: '{{ mine }}', dest: /x}\n",
        "    - {copy: {content: '{{ item }}', dest: '/x/{{ item }}'}, loop: [a, b]}\n",
        "    - {copy: {content: '{{ item }}', dest: /x}, loop: '{{ ansible_interfaces }}'}\n",
        "    - {copy: {content: '{{ nowhere }}', dest: /x}, when: port == 81}\n",
        "    - {copy: {content: '{{ nowhere | default(1) }}', dest: /x}}\n",
    ] {
        assert_eq!(told(good), "", "{good}");
    }
    for (bad, at) in [
        ("    - copy:\n        content: a {{ prt }}\n        dest: /x\n", "5:23"),
        ("    - command: echo {{ prt }}\n", "4:24"),
        ("    - {command: id, when: prt == 1}\n", "4:27"),
        ("    - {command: id, loop: '{{ prt }}'}\n", "4:31"),
        ("    - {command: 'id {{ item }} {{ prt }}', loop: [1]}\n", "4:35"),
        ("    - assert: {that: prt == 1}\n", "4:22"),
        ("    - {command: id, environment: {A: '{{ prt }}'}}\n", "4:42"),
    ] {
        let told = told(bad);
        assert!(told.starts_with(&format!("playbooks/provision.yml:{at}: ")), "{bad}{told}");
        assert!(told.contains("hint: did you mean `port`?") && !told.contains("warning"), "{told}");
    }
    for perhaps in [
        "    - {copy: {content: '{{ prt }}', dest: /x}, when: ansible_os_family == 'RedHat'}\n",
        "    - {copy: {content: '{{ prt }}', dest: /x}, ignore_errors: true}\n",
        "    - {block: [{command: '{{ prt }}'}], rescue: [{command: id}]}\n",
        "    - {block: [{command: id}], rescue: [{command: '{{ prt }}'}]}\n",
    ] {
        let told = told(perhaps);
        assert!(told.contains("warning: ") && told.contains("did you mean `port`?"), "{perhaps}{told}");
    }
}

/// A template that a run may be able to render causes only a warning, because a rejection would
/// leave a node unrepaired.
#[test]
fn what_a_run_may_render_is_never_refused() {
    let may = |files: &[(&str, &str)], what: &str| {
        let refused = first_rejected_phase(&fleet(files), &[]);
        assert!(refused.is_none(), "{what}: {refused:?}");
    };
    let provision = PROVISION.replace("app.conf.tera", "a.j2");
    for text in [
        "{% if ansible_os_family == 'Debian' %}{% set user='www' %}{% else %}{% set user='apache' %}{% endif %}{{ user }}\n",
        "{% set prt = prt | default(80) %}{{ prt }} {{ ansible_hostname }}\n",
        "{{ ansible_hostname }} {{ proxy.host | default('') }}\n",
        "{% if docker.tls is defined %}{{ docker.tls }}{% endif %}{{ ansible_hostname }}\n",
        "{{ port | default(prt) }} {{ ansible_hostname }}\n",
        "{{ node.tls.key | default('') }} {{ ansible_hostname }}\n",
        "{% macro line(prt) %}{{ prt }}{% endmacro %}{{ line(1) }} {{ ansible_hostname }}\n",
    ] {
        may(&[("playbooks/provision.yml", &provision), ("templates/a.j2", text)], text);
    }
    let setup =
        [("playbooks/setup-a.yml", "- set_fact: {packages: [x]}\n"), ("playbooks/setup-b.yml", "- command: id\n")];
    for tasks in [
        "    - include_tasks: 'setup-{{ ansible_os_family }}.yml'\n    - {copy: {content: '{{ packages }}', dest: /x}}\n",
        "    - {command: id, loop: '{{ prt }}', when: ansible_os_family == 'RedHat'}\n",
        "    - {command: id, notify: vip}\n  handlers:\n    - {name: vip, command: 'echo {{ prt }}'}\n",
        "    - {command: id, register: port}\n    - {copy: {content: '{{ port.stdout }}', dest: /x}}\n",
    ] {
        let provision = format!("{PROVISION}{tasks}");
        let files: Vec<(&str, &str)> =
            [("playbooks/provision.yml", provision.as_str())].into_iter().chain(setup).collect();
        may(&files, tasks);
    }
}

/// If a playbook run may change a variable, no content is expected for files that depend on the
/// variable. This is so even if an earlier task has set it.
#[test]
fn what_may_be_set_in_a_run_is_not_taken_for_what_it_was() {
    let tasks = "    - {set_fact: {found: false}}\n    - {command: id, register: r}\n    \
        - {set_fact: {found: true}, loop: '{{ r.stdout_lines }}'}\n    \
        - {copy: {content: a, dest: /etc/app.if}, when: found}\n    - {copy: {content: b, dest: /etc/app.not}, when: not found}\n";
    let fleet = fleet(&[("playbooks/provision.yml", &format!("{PROVISION}{tasks}"))]);
    let context = context(&fleet, "w1", &ClusterContext::default()).unwrap();
    let files = expected_files(&fleet, "w1", &context, &Map::new(), &JobVars::new()).unwrap();
    assert_eq!(
        files.keys().filter(|path| path.starts_with("/etc/app.")).map(String::as_str).collect::<Vec<_>>(),
        ["/etc/app.conf"]
    );
}

#[test]
fn secret_is_what_services_checks_and_no_log_say() {
    let config = CONFIG.replace("app: {", "app: {secret: [/etc/app.key], ");
    let checks = "remoor: {service: app, digest: {secret: [/etc/app.d/key]}}
file:
  /etc/token: {exists: true, meta: {remoor: {secret: true}}}
  /etc/open: {exists: true}
";
    let provision = format!("{PROVISION}    - {{copy: {{content: x, dest: '/etc/hidden[1]'}}, no_log: true}}\n");
    let fleet = fleet(&[("remoor.yml", &config), ("checks/app.yml", checks), ("playbooks/provision.yml", &provision)]);
    let done = work(&fleet, "w1", &ClusterContext::default(), Phase::Provision, &PlanScope::default()).unwrap();
    let PhaseWork::Plan { secret, .. } = done else { panic!("{done:?}") };
    let secrets = remoor_playbook::Secrets::new(&secret);
    let told = ["/etc/app.key", "/etc/app.d/key", "/etc/token", "/etc/hidden[1]", "/etc/open", "/etc/app.conf"];
    let hidden: Vec<&str> = told.into_iter().filter(|path| secrets.is_secret_name(path.as_ref())).collect();
    assert_eq!(hidden, told[..4]);
}

/// The plans of all hosts share the large variables. Such a plan has the same hash as a plan with
/// copies. The desired state of a node must not depend on the storage of its plan.
#[test]
fn a_plan_with_shared_variables_has_the_hash_of_a_plan_with_copies() {
    let tasks = "    - debug: {msg: '{{ peers }} {{ groups.web }} {{ hostvars[inventory_hostname].port }}'}\n";
    let fleet = fleet(&[("playbooks/provision.yml", &format!("{PROVISION}{tasks}"))]);
    let context = context(&fleet, "w1", &ClusterContext::default()).unwrap();
    let plan = super::compile(&fleet, "w1", &context, Phase::Provision, &PlanScope::default()).unwrap();
    assert_eq!(plan.shared.keys().collect::<Vec<_>>(), ["groups", "hostvars", "peers"]);
    let mut copied = plan.clone();
    for (name, value) in std::mem::take(&mut copied.shared) {
        copied.vars.insert(name, value.json().clone());
    }
    assert_eq!(plan.sha256(), copied.sha256());
    assert_eq!(plan.sha256(), Sha256::digest(&serde_json::to_vec(&copied).unwrap()), "as in earlier versions");
    let other = context_of(&fleet, "w1", "10.9.9.9");
    let other = super::compile(&fleet, "w1", &other, Phase::Provision, &PlanScope::default()).unwrap();
    assert_ne!(plan.sha256(), other.sha256(), "another address");
}

fn context_of(fleet: &Fleet, host: &str, address: &str) -> super::NodeVariables {
    let addresses = [(host.to_owned(), address.to_owned())].into();
    context(fleet, host, &ClusterContext { addresses, ..ClusterContext::default() }).unwrap()
}

#[test]
fn a_fleet_that_is_applied_again_is_compiled_again_only_in_another_context() {
    let dir = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(remoor_host::disk::BlobStore::new(dir.path()).unwrap());
    let (cache, fleet) = (super::FleetCache::new(store, super::VaultDirectory::default()), fleet(&[]));
    let blob = Sha256::digest(b"the files");
    let known = ClusterContext::default();
    let summarize = |known: &ClusterContext| cache.summarize(blob, &fleet.files, known).unwrap().1;
    let first = summarize(&known);
    assert!(std::sync::Arc::ptr_eq(&first, &summarize(&known)));
    assert_eq!(*first, summary(&fleet, &known).unwrap());
    let moved = ClusterContext { addresses: [("w1".to_owned(), "10.9.9.9".to_owned())].into(), ..known };
    assert!(!std::sync::Arc::ptr_eq(&first, &summarize(&moved)));
    assert_eq!(*summarize(&moved), summary(&fleet, &moved).unwrap());
}

/// A check file receives a large variable only if the file names it.
#[test]
fn checks_read_the_large_variables_by_name_or_as_a_whole() {
    let rendered = |text: &str| {
        let file = format!("remoor: {{service: app}}\nfile:\n  {text}\n");
        let fleet = fleet(&[("checks/large.yml", &file)]);
        let checks = manifest_of(&fleet).services.into_iter().flat_map(|service| service.checks);
        checks.filter(|check| check.file == "checks/large.yml").map(|check| check.text).collect::<String>()
    };
    for text in [
        "/{{ peers | length }}: {exists: true}",
        "/{{ vars.peers | length }}: {exists: true}",
        "/{{ vars['peers'] | length }}: {exists: true}",
        "/{% for name, value in vars %}{% if name == 'pe' ~ 'ers' %}{{ value | length }}{% endif %}{% endfor %}: {exists: true}",
    ] {
        assert!(rendered(text).contains("/1:"), "{text}: {}", rendered(text));
    }
}

#[test]
fn an_attempt_with_a_refused_task_is_rejected_before_it_begins_and_a_cleanup_has_none() {
    let refused = "- {hosts: all, tasks: [{pacman: {name: x}, when: ansible_os_family == 'Archlinux'}]}\n";
    let (up, down) = ("playbooks/provision.yml", "playbooks/cleanup.yml");
    let provision = fleet(&[(up, &format!("{PROVISION}{refused}"))]);
    assert!(lint(&provision).iter().all(|fault| fault.warning), "a condition may keep the task away");
    let (phase, why) = first_rejected_phase(&provision, &[]).unwrap();
    assert!(phase == Phase::Provision && why.contains("pacman"), "{why}");
    assert!(lint(&fleet(&[(down, refused)])).iter().any(|fault| !fault.warning && fault.message.contains("pacman")));
    let asks = |keys: &str| format!("- {{hosts: all, vars_prompt: [{{{keys}}}], tasks: [{{debug: }}]}}\n");
    assert!(lint_output(&[(up, &asks("name: pw"))]).contains("but a fleet can ask nobody"));
    assert!(lint_output(&[(up, &asks("name: pw, default: x, encrypt: sha512_crypt"))]).contains("possible only with"));
}

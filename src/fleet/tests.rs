//! Small whole fleets: what check files add to the manifest and the summary, and what lint says of templates.

use super::{Known, context, expected_files, lint, manifest, summary};
use crate::config::Fleet;
use crate::model::{GenerationSeq, Manifest};
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

fn fleet(more: &[(&str, &str)]) -> Fleet {
    let dir = tempfile::tempdir().unwrap();
    let all = [
        ("remoor.yml", CONFIG),
        ("inventory.yml", INVENTORY),
        ("playbooks/provision.yml", PROVISION),
        ("playbooks/cleanup.yml", "- hosts: all\n  tasks: [{file: {path: /etc/app.conf, state: absent}}]\n"),
        ("templates/app.conf.tera", "port={{ port }}\n"),
    ];
    for (name, text) in all.iter().chain(more) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Fleet::load(dir.path()).unwrap()
}

fn linted(more: &[(&str, &str)]) -> String {
    lint(&fleet(more)).iter().map(|fault| format!("{fault}\n")).collect()
}

fn manifest_of(fleet: &Fleet) -> Manifest {
    let context = context(fleet, "w1", &Known::default()).unwrap();
    let expected = expected_files(fleet, "w1", &context, &Map::new()).unwrap();
    manifest(fleet, "w1", GenerationSeq(1), &context, &expected).unwrap()
}

#[test]
fn a_check_file_adds_to_what_is_hashed() {
    let header = "remoor:
  service: app
  digest: {include: [/etc/app.d/, /etc/app.conf], exclude: [/etc/app.d/cache], secret: [/etc/app.d/key]}
";
    let fleet = fleet(&[
        ("checks/app.yml", header),
        // Of another role: it adds nothing.
        ("checks/other.yml", "remoor: {service: app, roles: [manager], digest: {include: [/etc/manager]}}\n"),
    ]);
    let manifest = manifest_of(&fleet);
    let app = manifest.services.iter().find(|s| s.name.as_str() == "app").unwrap();
    assert_eq!(app.files, ["/etc/app.conf", "/etc/app.d/"]);
    assert_eq!(app.exclude, ["/etc/app.d/local", "/etc/app.d/cache"]);
    assert_eq!(app.secret, ["/etc/app.d/key"]);
    assert_eq!(manifest.services.iter().find(|s| s.name.as_str() == "db").unwrap().files, ["/etc/db.conf"]);
}

#[test]
fn a_check_file_adds_to_the_dependencies() {
    let summary_of = |fleet: &Fleet| summary(fleet, &Known::default()).unwrap();
    let plain = summary_of(&fleet(&[]));
    assert!(plain.services.values().all(|s| s.depends_on.is_empty()));
    let more = summary_of(&fleet(&[("checks/app.yml", "remoor: {service: app, depends-on: [db]}\n")]));
    assert_eq!(more.services["app"].depends_on, ["db".into()]);
    expect_test::expect![[r#"
        checks/app.yml:1:1: `depends-on`: remoor.yml has no service dp
          hint: its services: app, db
        checks/db.yml:1:1: `depends-on`: app depends on db already
    "#]]
    .assert_eq(&linted(&[
        ("checks/app.yml", "remoor: {service: app, depends-on: [db, dp]}\n"),
        ("checks/db.yml", "remoor: {service: db, depends-on: [app]}\n"),
    ]));
}

#[test]
fn an_undefined_name_in_a_tera_file_is_a_fault_with_its_place() {
    let template = |text: &str| linted(&[("templates/app.conf.tera", text)]);
    assert_eq!(template("port={{ port }} {{ nowhere | default(value=1) }}\n"), "");
    // A fact is known on the node only.
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
    let context = context(&fleet, "w1", &Known::default()).unwrap();
    assert!(expected_files(&fleet, "w1", &context, &Map::new()).unwrap().is_empty());
    expect_test::expect![[r#"
        playbooks/provision.yml:4:1: warning: /etc/app.conf is edited here after a template made it, so what it is to be is not known beforehand
          hint: put the line into the template; as it is, drift of the file is reported, not repaired
    "#]]
    .assert_eq(&linted(&more));
}

/// What the manager renders with the facts of a run is what that run wrote, also where the plan sets some of it aside.
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
    let context = context(&fleet, "w1", &Known::default()).unwrap();
    let files = |facts: &Map<String, serde_json::Value>| expected_files(&fleet, "w1", &context, facts).unwrap();
    assert!(files(&Map::new()).is_empty(), "without facts nothing is known");
    let plan =
        super::compile(&fleet, "w1", &context, crate::model::Phase::Provision, &super::Scope::default()).unwrap();
    let options = crate::playbook::RunOptions { journal: dir.path().join("journal"), ..Default::default() };
    let end = crate::playbook::run(&plan, &options, &crate::playbook::Cancel::new(), &mut |_| {});
    assert_eq!(end.failure, None);
    assert!(end.facts.contains_key("ansible_hostname") && !end.facts.contains_key("ansible_env"));
    assert!(end.facts["ansible_facts"].get("env").is_none() && !end.facts.contains_key("ansible_memtotal_mb"));
    let rendered = files(&end.facts);
    for name in ["app.conf", "b.conf"] {
        assert_eq!(rendered[&at(name)].content, fs::read(at(name)).unwrap(), "{name}");
    }
    // Another host name, another content: facts are read, not guessed.
    let mut other = end.facts.clone();
    other.insert("ansible_hostname".to_owned(), json!("elsewhere"));
    assert_ne!(files(&other)[&at("app.conf")].sha256, rendered[&at("app.conf")].sha256);
}

//! A fleet with encrypted content: the generation, the manifest and the summary contain no
//! plaintext.

use super::tests::fleet;
use super::{ClusterContext, PhaseWork, PlanScope, context, expected_files, lint, manifest, summary, work};
use remoor_config::Fleet;
use remoor_model::{GenerationSeq, JobVars, Phase, Sha256};
use remoor_vault::{Vault, VaultPassword};
use serde_json::Map;
use std::sync::Arc;

const TOKEN: &str = include_str!("../../crates/vault/fixtures/token.txt");
/// Sets `db` and `greeting`.
const VARS: &str = include_str!("../../crates/vault/fixtures/vars.yml");
const PROVISION: &str = "- hosts: all
  tasks:
    - {copy: {content: \"token={{ token }}\\n\", dest: /etc/app.conf}}
    - {copy: {content: \"pw={{ db.password }}\\n\", dest: /etc/db.conf}}
    - {copy: {content: \"port={{ port }}\\n\", dest: /etc/app.open}}
";
const PLAIN: [&str; 2] = ["s3cr{{ 1+1 }}et", "filesecret1"];

fn read_encrypted(checks: &str) -> Fleet {
    let token = TOKEN.trim().replace('\n', "\n  ");
    fleet(&[
        ("playbooks/provision.yml", PROVISION),
        ("group_vars/web.yml", &format!("token: !vault |\n  {token}\n")),
        ("host_vars/w1.yml", VARS),
        ("checks/app.yml", checks),
    ])
}

const CHECKS: &str = "remoor: {service: app}\nfile:\n  /etc/app.open: {exists: true}\n";

fn open_fleet(fleet: Fleet) -> Fleet {
    let password = VaultPassword::new("default", b"hunter2 pass".to_vec());
    fleet.with_vault(Arc::new(Vault::new(vec![password], "")), false)
}

#[test]
fn a_generation_holds_ciphertext_and_a_manager_with_the_password_opens_it() {
    let fleet = read_encrypted(CHECKS);
    let stored = rmp_serde::to_vec_named(&fleet.files).unwrap();
    // What `apply` uploads is what the manager loads.
    let fleet = open_fleet(Fleet::from_files(&rmp_serde::from_slice(&stored).unwrap()).unwrap());
    let known = ClusterContext::default();
    let Ok(PhaseWork::Plan { plan, secret, .. }) = work(&fleet, "w1", &known, Phase::Provision, &PlanScope::default())
    else {
        panic!("a plan")
    };
    let context = context(&fleet, "w1", &known).unwrap();
    let expected = expected_files(&fleet, "w1", &context, &Map::new(), &JobVars::new()).unwrap();
    assert_eq!(expected["/etc/app.conf"].content, b"token=s3cr{{ 1+1 }}et\n");
    assert_eq!(expected["/etc/db.conf"].content, b"pw=filesecret1\n");
    let secrets = remoor_playbook::Secrets::new(&secret);
    let names = ["/etc/app.conf", "/etc/db.conf", "/etc/app.open"].map(|path| secrets.is_secret_name(path.as_ref()));
    assert_eq!(names, [true, true, false]);

    let manifest = manifest(&fleet, "w1", GenerationSeq(1), &context, &expected).unwrap();
    let globs = &manifest.services[0].secret;
    assert!(globs.contains(&"/etc/app.conf".to_owned()) && !globs.contains(&"/etc/app.open".to_owned()), "{globs:?}");
    let made = summary(&fleet, &known).unwrap();
    let texts = [
        String::from_utf8_lossy(&stored).into_owned(),
        serde_json::to_string(&manifest).unwrap(),
        serde_json::to_string(&made).unwrap(),
        serde_json::to_string(&fleet.vars("w1").unwrap().0).unwrap(),
    ];
    for plain in PLAIN {
        assert!(texts.iter().all(|text| !text.contains(plain)), "{plain}");
        // A guess of the plaintext gives no hash that is stored.
        let guess = Sha256::digest(serde_json::to_string(&plan).unwrap().as_bytes());
        assert_ne!(plan.sha256(), guess);
    }
    assert_eq!(made, summary(&open_fleet(read_encrypted(CHECKS)), &known).unwrap(), "all managers agree");
}

#[test]
fn a_manager_without_the_password_refuses_and_lint_only_warns() {
    let without =
        |lint: bool| read_encrypted(CHECKS).with_vault(Arc::new(Vault::new(Vec::new(), "write DIR/vault/ID")), lint);
    let known = ClusterContext::default();
    let text = |faults: Vec<remoor_model::Fault>| faults.iter().map(|fault| format!("{fault}\n")).collect::<String>();
    let faults = text(summary(&without(false), &known).unwrap_err());
    assert!(faults.contains("host_vars/w1.yml:1:1: is encrypted by ansible-vault (vault id `default`)"), "{faults}");
    assert!(faults.contains("hint: write DIR/vault/ID"), "{faults}");
    let refused = work(&without(false), "w1", &known, Phase::Provision, &PlanScope::default());
    assert!(text(refused.unwrap_err()).contains("host_vars/w1.yml"));
    let notes = lint(&without(true));
    assert!(notes.iter().all(|fault| fault.warning), "{}", text(notes));
    let notes = text(notes);
    assert!(notes.contains("host_vars/w1.yml") && notes.contains("the variable `token` is encrypted"), "{notes}");
    assert!(notes.contains("counts as unknown"), "{notes}");
}

#[test]
fn check_files_can_not_read_encrypted_variables() {
    let checks = "remoor: {service: app, template: tera}\ncommand:\n  'test {{ vars.token }}': {exit-status: 0}\n";
    let faults = summary(&open_fleet(read_encrypted(checks)), &ClusterContext::default()).unwrap_err();
    let text = faults.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("checks/app.yml") && text.contains("token"), "{text}");
    assert!(PLAIN.iter().all(|plain| !text.contains(plain)), "{text}");
}

//! Encrypted content: it is opened for the plan, and nothing that is shown contains it. The files
//! were written by ansible-vault of ansible-core 2.19; their password is `hunter2 pass`, and that
//! of the vault id `prod` is `other`.

use super::*;
use remoor_model::Fault;
use remoor_vault::{Vault, VaultPassword, seal, seal_variable};

const TOKEN: &str = include_str!("../../../vault/fixtures/token.txt");
const PROD: &str = include_str!("../../../vault/fixtures/prod.txt");
const VARS: &str = include_str!("../../../vault/fixtures/vars.yml");
const KEY: &str = include_str!("../../../vault/fixtures/key.txt");
const TASKS: &str = include_str!("../../../vault/fixtures/tasks.yml");

const SITE: &str = "
- hosts: all
  vars_files: [secret.yml]
  vars:
    token: !vault |
      TOKEN
  tasks:
    - {name: 'uses {{ token }}', copy: {content: \"token={{ token }}\\n\", dest: '{{ dir }}/token'}}
    - {name: user, copy: {content: \"pw={{ db.password }} {{ greeting }}\\n\", dest: '{{ dir }}/db', mode: '0644'}}
    - {name: key, copy: {src: key.txt, dest: '{{ dir }}/key', mode: '0644'}}
    - {name: sealed key, copy: {src: key.txt, dest: '{{ dir }}/sealed', decrypt: false}}
    - {name: template, template: {src: t.j2, dest: '{{ dir }}/t', mode: '0644'}}
    - {name: lookup, copy: {content: \"{{ lookup('file', 'key.txt') }}\", dest: '{{ dir }}/lookup'}}
    - {name: open, copy: {content: \"nothing secret\\n\", dest: '{{ dir }}/open'}}
    - {name: echo, command: \"echo '{{ token }}' {{ api }}\", register: said}
    - {name: shown, debug: {msg: '{{ said.stdout }} {{ token | b64encode }}'}}
    - import_tasks: more.yml
";

/// The plan of a playbook with encrypted content, or the faults.
fn compile_site(dir: &Path, passwords: &[(&str, &str)], lint: bool, site: &str) -> Result<Compiled, Vec<Fault>> {
    let site = site.replace("TOKEN", &TOKEN.trim().replace('\n', "\n      "));
    let files = [
        ("site.yml", site.as_str()),
        ("secret.yml", VARS),
        ("files/key.txt", KEY),
        ("templates/t.j2", "token: {{ token }}\n"),
        ("more.yml", TASKS),
    ];
    let files = files.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect();
    let vars =
        json!({"dir": dir.display().to_string(), "inventory_hostname": "w1", "api": seal(PROD), "unread": seal(PROD)});
    let host = HostContext {
        name: "w1".into(),
        vars: vars.as_object().unwrap().clone(),
        origins: [("api".to_owned(), "group_vars/all.yml".to_owned())].into(),
        ..HostContext::default()
    };
    let passwords = passwords.iter().map(|(id, secret)| VaultPassword::new(id, secret.as_bytes().to_vec())).collect();
    let vault = Vault::new(passwords, "use --vault-id");
    let access = VaultAccess { vault: &vault, may_stay_encrypted: lint };
    compile(&FileSet(files), "site.yml", &host, &CompileOptions { vault: Some(access), ..CompileOptions::default() })
}

const BOTH: [(&str, &str); 2] = [("default", "hunter2 pass"), ("prod", "other")];
const SECRETS: [&str; 5] =
    ["s3cr{{ 1+1 }}et", "prodsecret", "filesecret1", "key-material-0001", "czNjcnt7IDErMSB9fWV0"];

#[test]
fn secrets_reach_files_and_nothing_that_is_shown() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let plan = compile_site(d, &BOTH, false, SITE).unwrap_or_else(|f| panic!("{f:#?}")).plan;
    assert!(!format!("{:?}", plan.secrets).contains("prodsecret"));
    let ran = go(&plan, &options(d)).assert_success();
    let read = |name: &str| std::fs::read_to_string(d.join(name)).unwrap();
    assert_eq!(read("token"), "token=s3cr{{ 1+1 }}et\n", "a text of !vault is no template, as in Ansible");
    assert_eq!(read("db"), "pw=filesecret1 hello w1\n", "the values of an encrypted file may be templates");
    assert_eq!((read("key").as_str(), read("lookup").as_str()), ("key-material-0001\n", "key-material-0001"));
    assert_eq!(read("t"), "token: s3cr{{ 1+1 }}et\n");
    assert_eq!(read("sealed"), KEY);
    let text = ran.text();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let diffs: Vec<(String, bool)> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Task(done) if done.module == "copy" || done.module == "template" => {
                Some((done.name.clone(), done.diff.is_some()))
            }
            _ => None,
        })
        .collect();
    let shown: Vec<&str> = diffs.iter().filter(|(_, diff)| *diff).map(|(name, _)| name.as_str()).collect();
    // The name of an encrypted file hides the diff, also if the file is copied as it is.
    assert_eq!(shown, ["open"], "{diffs:?}");
    assert!(text.contains("uses ********") && text.contains("hidden by no_log"), "{text}");
    let hidden = no_log_files(&plan, &Map::new());
    for name in ["token", "db", "key", "t", "lookup"] {
        assert!(hidden.contains(&d.join(name).display().to_string()), "{name}");
    }
    assert!(!hidden.contains(&d.join("open").display().to_string()));
}

#[test]
fn the_hash_of_a_plan_needs_the_password_to_be_guessed() {
    let dir = TempDir::new().unwrap();
    let plan = compile_site(dir.path(), &BOTH, false, SITE).unwrap().plan;
    let again = compile_site(dir.path(), &BOTH, false, SITE).unwrap().plan;
    assert_eq!(plan.sha256(), again.sha256());
    let guessed = Plan { secrets: PlanSecrets::default(), ..plan.clone() };
    assert_ne!(plan.sha256(), guessed.sha256(), "the plaintext alone does not give the hash");
}

#[test]
fn a_missing_password_is_a_fault_before_the_run_and_a_warning_of_lint() {
    let dir = TempDir::new().unwrap();
    let text = |faults: Vec<Fault>| faults.iter().map(|fault| format!("{fault}\n")).collect::<String>();
    let faults = text(compile_site(dir.path(), &[("default", "hunter2 pass")], false, SITE).unwrap_err());
    assert!(faults.contains("group_vars/all.yml: the variable `api` is encrypted"), "{faults}");
    assert!(faults.contains("(vault id `prod`)") && faults.contains("use --vault-id"), "{faults}");
    assert!(!faults.contains("unread"), "a variable that the plan does not need: {faults}");
    let faults = text(compile_site(dir.path(), &[], false, SITE).unwrap_err());
    for place in ["secret.yml:1:1", "files/key.txt:1:1", "more.yml:1:1", "site.yml:6:"] {
        assert!(faults.contains(place), "{place}: {faults}");
    }
    assert!(faults.contains("there is no vault password") && !faults.contains("warning"), "{faults}");
    let known = compile_site(dir.path(), &[], true, SITE).unwrap_or_else(|faults| panic!("{}", text(faults)));
    assert_eq!(known.unopened.iter().collect::<Vec<_>>(), ["more.yml", "secret.yml"]);
    assert_eq!(known.unopened_tasks.iter().collect::<Vec<_>>(), ["more.yml"]);
    let notes = text(known.unknown);
    assert!(notes.contains("secret.yml:1:1: warning: is encrypted") && notes.contains("counts as unknown"), "{notes}");
    let (_, found) = review(&known.plan, &Map::new(), &FileSet::default(), &[]);
    let undefined = downgrade_undefined(found, &known.unopened);
    assert!(undefined.iter().all(|fault| fault.warning), "{}", text(undefined));
}

#[test]
fn a_fault_does_not_show_a_secret() {
    let dir = TempDir::new().unwrap();
    let site = "
- hosts: all
  vars_files: [secret.yml]
  vars:
    token: !vault |
      TOKEN
  tasks:
    - {file: {path: '/x', state: '{{ token }}'}}
    - {copy: {content: '{{ (db.password ~ api) | int }}', dest: /x, mode: '{{ token }}'}}
    - {assert: {that: [\"db.password == 'x'\"], fail_msg: '{{ db.password }}'}}
";
    let shown = match compile_site(dir.path(), &BOTH, false, site) {
        Err(faults) => format!("{faults:?}"),
        Ok(compiled) => {
            let (_, faults) = review(&compiled.plan, &Map::new(), &FileSet::default(), &[]);
            format!("{faults:?}") + &go(&compiled.plan, &options(dir.path())).text()
        }
    };
    for secret in SECRETS {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    assert!(shown.contains("********"), "{shown}");
}

/// The plan of a host for a playbook with plays of other hosts, as JSON and with its secrets.
fn plan_of_host(name: &str, site: &str) -> Plan {
    let indented = |text: &str, indent: &str| text.trim().replace('\n', &format!("\n{indent}"));
    let site = site.replace("TOKEN", &indented(TOKEN, "        ")).replace("PROD", &indented(PROD, "        "));
    let files = [
        ("site.yml", site.as_str()),
        ("other.yml", "- {hosts: db, tasks: [{debug: {msg: '{{ given }}'}}]}\n"),
        ("files/key.txt", KEY),
    ];
    let files = files.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect();
    let vars = json!({"inventory_hostname": name, "groups": {"all": ["web1", "db"]}});
    let host = HostContext { name: name.into(), vars: vars.as_object().unwrap().clone(), ..HostContext::default() };
    let passwords = BOTH.iter().map(|(id, secret)| VaultPassword::new(id, secret.as_bytes().to_vec())).collect();
    let vault = Vault::new(passwords, "");
    let access = VaultAccess { vault: &vault, may_stay_encrypted: false };
    let options = CompileOptions { vault: Some(access), ..CompileOptions::default() };
    compile(&FileSet(files), "site.yml", &host, &options).unwrap_or_else(|faults| panic!("{faults:#?}")).plan
}

#[test]
fn the_secrets_of_another_play_stay_away_from_a_host() {
    let site = "
- hosts: db
  vars:
    db_pw: !vault |
        TOKEN
    key: \"{{ lookup('file', 'key.txt') }}\"
  tasks:
    - {debug: {msg: '{{ db_pw }} {{ key }}'}}
- import_playbook: other.yml
  vars:
    given: \"{{ lookup('file', 'key.txt') }}\"
- hosts: web1
  vars:
    own: !vault |
        PROD
  tasks:
    - {debug: {msg: '{{ own }}'}}
- {hosts: web1, tasks: [{debug: {msg: 'nothing'}}]}
";
    let plan = |name: &str| serde_json::to_string(&plan_of_host(name, site)).unwrap();
    // The node also gets no file that a lookup of the other play reads, in base64.
    let key = "a2V5LW1hdGVyaWFsLTAwMDE";
    let (web, db) = (plan("web1"), plan("db"));
    assert!(db.contains("s3cr{{ 1+1 }}et") && db.contains(key) && !db.contains("prodsecret"), "{db}");
    assert!(web.contains("prodsecret") && !web.contains("s3cr{{ 1+1 }}et") && !web.contains(key), "{web}");
    assert!(!web.contains("czNjcnt7IDErMSB9fWV0") && !web.contains("db_pw") && !web.contains("files/key.txt"), "{web}");
    // Without the play of the host, the plan has no secret, so its hash needs no key of a secret.
    let (own, open) = (site.find("- hosts: web1").unwrap(), site.find("- {hosts: web1").unwrap());
    let plan = plan_of_host("web1", &format!("{}{}", &site[..own], &site[open..]));
    assert!(plan.secrets.is_empty() && plan.layers.iter().all(|layer| !layer.contains_key("db_pw")), "{plan:?}");
}

#[test]
fn more_secrets_than_can_be_hidden_are_a_fault_before_the_run() {
    let all: Vec<String> = (0..21_000).map(|number| format!("password {number}")).collect();
    let vault = Vault::new(vec![VaultPassword::new("default", b"hunter2 pass".to_vec())], "");
    let file = vault.keep_file(VARS, [("all".to_owned(), json!(all))].into_iter().collect());
    let site = "- {hosts: all, tasks: [{debug: {msg: '{{ passwords[20999] }}'}}]}\n";
    let files = FileSet([("site.yml".to_owned(), site.as_bytes().to_vec())].into());
    let vars = json!({"inventory_hostname": "w1", "passwords": seal_variable(&file, "all")});
    let host = HostContext { name: "w1".into(), vars: vars.as_object().unwrap().clone(), ..HostContext::default() };
    let access = VaultAccess { vault: &vault, may_stay_encrypted: false };
    let options = CompileOptions { vault: Some(access), ..CompileOptions::default() };
    let faults = compile(&files, "site.yml", &host, &options).unwrap_err();
    let text = faults.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("more than 20000 secret texts") && text.contains("hint: encrypt a large value"), "{text}");
}

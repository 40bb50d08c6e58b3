//! Packed modules as files of a generation: what is stored, what managers compile from it, limits,
//! and damaged files. A small source of modules stands for ansible-core.

use super::*;
use crate::fleet::{PhaseWork, lint, lint_strictly, summary, work};
use remoor_playbook::{PYTHON_PLAN_VERSION, Plan};
use remoor_vault::{Vault, VaultPassword};
use serde_json::json;
use std::fs;

/// A file of tasks, encrypted with `ansible-vault`.
const TASKS: &str = include_str!("../../../crates/vault/fixtures/module_tasks.yml");
const CONFIG: &str = "version: 1
inventory: inventory.yml
groups:
  web: {services: [app], provision: provision.yml, cleanup: cleanup.yml}
services:
  app: {files: [/etc/app.conf]}
";
const CLEANUP: &str = "- hosts: all\n  tasks: [{file: {path: /etc/app.conf, state: absent}}]\n";
const PROVISION: &str = "- hosts: all
  tasks:
    - {copy: {content: x, dest: /etc/app.conf}, tags: app}
    - {acme.tools.own: {text: x}, tags: app}
    - {acme.tools.other: , tags: other}
    - {acme.tools.gone: , when: wanted | bool}
  vars: {wanted: false}
";

fn fleet(more: &[(&str, &str)]) -> Fleet {
    let dir = tempfile::tempdir().unwrap();
    let all = [
        ("remoor.yml", CONFIG),
        ("inventory.yml", "web: {hosts: {w1: }}\n"),
        ("provision.yml", PROVISION),
        ("cleanup.yml", CLEANUP),
    ];
    for (name, text) in all.iter().chain(more) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Fleet::load(dir.path()).unwrap()
}

/// A source whose modules have archives of the given size. `acme.tools.gone` is not there.
#[derive(Debug)]
struct Shelf(usize);

impl ModuleSource for Shelf {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        match request.name.as_str() {
            "acme.tools.gone" => return Err(ModuleRefusal::NotFound("no such module".into())),
            "acme.fails.x" => {
                let why = "a syntax error in /srv/somebody/.ansible/collections/x.py, line 3 ('/opt/y/lib')";
                return Err(ModuleRefusal::Failed(why.into()));
            }
            "acme.none.x" => return Err(ModuleRefusal::NoCollection("acme.none".into())),
            "acme.core.x" => return Err(ModuleRefusal::NoCore("/opt/somebody/bin/python3 has none".into())),
            _ => {}
        }
        let archive = request.name.as_bytes().repeat(self.0);
        let module = PythonModule {
            sha256: Sha256::digest(&archive).to_string(),
            entry: "entry".into(),
            core: "2.19.1".into(),
            min_python: "3.8".into(),
            ..PythonModule::default()
        };
        let origin = ModuleOrigin { file: format!("{}.py", request.name), ..ModuleOrigin::default() };
        Ok(Arc::new(PackedModule { name: request.name.clone(), module, origin, archive }))
    }
}

fn stored_fleet(more: &[(&str, &str)]) -> Fleet {
    let mut fleet = fleet(more);
    store_modules(&mut fleet, &Shelf(100)).unwrap();
    fleet
}

fn provision_plan(fleet: &Fleet, scope: &PlanScope) -> Result<Plan, Vec<Fault>> {
    match work(fleet, "w1", &ClusterContext::default(), Phase::Provision, scope)? {
        PhaseWork::Plan { plan, .. } => Ok(plan),
        other => panic!("{other:?}"),
    }
}

fn texts(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn a_manager_compiles_with_the_stored_modules() {
    let without_gone = PROVISION.replace("    - {acme.tools.gone: , when: wanted | bool}\n", "");
    let local = stored_fleet(&[("provision.yml", &without_gone)]);
    // A manager has only the files of the generation.
    let manager = Fleet::from_files(&local.files).unwrap();
    let plan = provision_plan(&manager, &PlanScope::default()).unwrap();
    assert_eq!(plan.version, PYTHON_PLAN_VERSION);
    let names: Vec<&String> = plan.modules.keys().collect();
    assert_eq!(names, ["acme.tools.other", "acme.tools.own"]);
    let own = &plan.modules["acme.tools.own"];
    assert_eq!(plan.blobs[&own.sha256].0, b"acme.tools.own".repeat(100));
    // The plan of one service has only the modules of its tasks.
    let scope = PlanScope { services: vec!["app".into()], ..PlanScope::default() };
    let part = provision_plan(&manager, &scope).unwrap();
    assert_eq!(part.modules.keys().collect::<Vec<_>>(), ["acme.tools.own"]);
    assert_eq!(part.blobs.len(), 1, "no archive of the other module");
    // The desired state follows the content of a module.
    let desired = |fleet: &Fleet| summary(fleet, &ClusterContext::default()).unwrap().hosts["w1"].desired;
    let mut other = fleet(&[("provision.yml", &without_gone)]);
    store_modules(&mut other, &Shelf(101)).unwrap();
    assert_eq!(desired(&manager), desired(&local));
    assert_ne!(desired(&manager), desired(&other), "other archives");
}

#[test]
fn equal_input_gives_equal_files() {
    let (one, mut two) = (stored_fleet(&[]), stored_fleet(&[]));
    assert_eq!(one.files, two.files);
    store_modules(&mut two, &Shelf(100)).unwrap();
    assert_eq!(one.files, two.files, "a second call replaces the files of the first");
    let names: Vec<&str> = one.files.paths_below(MODULES_DIR).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let index: serde_json::Value = serde_json::from_slice(one.files.get(INDEX_FILE).unwrap()).unwrap();
    assert_eq!(index["answers"].as_array().unwrap().len(), 3, "{index}");
    let (name, module) = index["modules"].as_object().unwrap().iter().next().unwrap();
    assert!(name.starts_with("acme.tools.other-"), "{name}");
    assert_eq!(
        (&module["module"]["core"], &module["origin"]["file"]),
        (&json!("2.19.1"), &json!("acme.tools.other.py"))
    );
}

#[test]
fn a_fleet_with_native_modules_only_gets_no_file() {
    let native =
        stored_fleet(&[("provision.yml", "- hosts: all\n  tasks: [{copy: {content: x, dest: /etc/app.conf}}]\n")]);
    assert_eq!(native.files.paths_below(".remoor").collect::<Vec<_>>(), [remoor_config::INVENTORY_FILE]);
    // A generation of an earlier version has no archives.
    let faults = provision_plan(&fleet(&[]), &PlanScope::default()).unwrap_err();
    assert!(texts(&faults).contains("module `acme.tools.own` is not in this generation"), "{faults:?}");
}

#[test]
fn a_module_of_the_library_is_never_replaced_by_the_native_one() {
    let tasks = "- hosts: all\n  tasks: [{hostname: {name: x}}]\n";
    let files = [("provision.yml", tasks), ("library/hostname.py", "raise SystemExit\n")];
    let faults = texts(&provision_plan(&fleet(&files), &PlanScope::default()).unwrap_err());
    assert!(faults.contains("module `hostname` is not in this generation"), "{faults}");
    let plan = provision_plan(&stored_fleet(&files), &PlanScope::default()).unwrap();
    assert_eq!(plan.modules.keys().collect::<Vec<_>>(), ["hostname"]);
}

/// The encrypted file contains a task of the module `acme.tools.own`. Its password is `hunter2
/// pass`.
#[test]
fn modules_of_encrypted_tasks_are_packed_with_the_password_and_missed_with_a_warning_without() {
    let site = "- hosts: all\n  tasks: [{import_tasks: more.yml}]\n";
    let with = |passwords: Vec<VaultPassword>| {
        let fleet = fleet(&[("provision.yml", site), ("more.yml", TASKS)]);
        let mut fleet = fleet.with_vault(Arc::new(Vault::new(passwords, "")), true);
        let warnings = texts(&store_modules(&mut fleet, &Shelf(1)).unwrap());
        let archives = fleet.files.paths_below(MODULES_DIR).filter(|path| path.ends_with(".zip")).count();
        assert!(fleet.files.get("more.yml").unwrap().starts_with(b"$ANSIBLE_VAULT"));
        (archives, warnings)
    };
    let (archives, warnings) = with(vec![VaultPassword::new("default", b"hunter2 pass".to_vec())]);
    assert_eq!((archives, warnings.as_str()), (1, ""));
    let (archives, warnings) = with(Vec::new());
    assert!(archives == 0 && warnings.contains("more.yml: warning: is encrypted and was not opened"), "{warnings}");
    assert!(warnings.contains("hint: name the password with --vault-password-file"), "{warnings}");
}

#[test]
fn a_module_that_cannot_be_packed_is_a_warning() {
    let tasks = "- hosts: all\n  tasks: [{acme.fails.x: , when: inventory_hostname == 'no'}, {command: 'true'}]\n";
    let mut fleet = fleet(&[("provision.yml", tasks)]);
    let warnings = texts(&store_modules(&mut fleet, &Shelf(1)).unwrap());
    let why = "a syntax error in .../x.py, line 3 ('.../lib')";
    assert!(warnings.contains("1 module cannot be packed") && warnings.contains(why), "{warnings}");
    // No directory of the operator's machine becomes part of a generation.
    let index = fleet.files.text(INDEX_FILE).unwrap();
    assert!(index.contains(why) && !index.contains("somebody") && !index.contains("/opt"), "{index}");
    assert_eq!(without_directories("no a/b, nor x.py in /a/b/, /c"), "no a/b, nor x.py in .../b, .../c");
}

#[test]
fn lint_names_the_tasks_that_need_python() {
    let told = texts(&lint(&stored_fleet(&[])));
    let want = "provision.yml:4:1: warning: module `acme.tools.own` is not native: the node needs Python 3.8 or newer, \
                and the machine of `remoor apply` needs ansible-core (found 2.19.1)";
    assert!(told.contains(want), "{told}");
    let late = "no run with this inventory reaches it: module `acme.tools.gone` was not found";
    assert!(told.contains(late), "{told}");
    let strict = lint_strictly(&stored_fleet(&[]));
    assert!(strict.iter().any(|fault| !fault.warning && fault.message.contains("acme.tools.gone")), "{strict:?}");
}

#[test]
fn refusals_are_stored_without_names_of_this_machine() {
    let tasks =
        "- hosts: all\n  tasks:\n    - {acme.core.x: , when: inventory_hostname == 'no'}\n    - {command: 'true'}\n";
    let mut fleet = fleet(&[("provision.yml", tasks)]);
    let warnings = texts(&store_modules(&mut fleet, &Shelf(1)).unwrap());
    assert!(
        warnings.contains("warning: 1 module cannot be packed") && warnings.contains("no ansible-core"),
        "{warnings}"
    );
    assert!(
        warnings.contains("provision.yml:3:") && warnings.contains("no run with this inventory reaches it"),
        "{warnings}"
    );
    let index = fleet.files.text(INDEX_FILE).unwrap();
    assert!(index.contains("no-core") && !index.contains("somebody"), "{index}");
    let faults = texts(&provision_plan(&fleet, &PlanScope::default()).unwrap_err());
    assert!(faults.contains("the machine that applied the fleet has none"), "{faults}");
    // A native module replaces none of a collection that is not installed.
    let tasks =
        "- hosts: all\n  collections: [acme.none]\n  tasks: [{command: 'true'}, {acme.none.x: , when: false}]\n";
    let mut fleet = self::fleet(&[("provision.yml", tasks)]);
    let warnings = texts(&store_modules(&mut fleet, &Shelf(1)).unwrap());
    assert!(warnings.contains("the collection acme.none is not installed"), "{warnings}");
}

/// A variable of a job may select tasks that no host reached when the fleet was applied.
#[test]
fn a_module_that_is_not_stored_is_refused() {
    let site = "- hosts: all\n  vars: {part: a}\n  tasks: [{import_tasks: 'tasks/{{ part }}.yml'}]\n";
    let parts = [("tasks/a.yml", "- {acme.tools.own: }\n"), ("tasks/b.yml", "- {acme.tools.other: }\n")];
    let fleet = stored_fleet(&[("provision.yml", site), parts[0], parts[1]]);
    let usual = provision_plan(&fleet, &PlanScope::default()).map_err(|faults| texts(&faults)).unwrap();
    assert_eq!(usual.modules.len(), 1);
    let extra = json!({"part": "b"}).as_object().cloned().unwrap();
    let faults = provision_plan(&fleet, &PlanScope { extra, ..PlanScope::default() }).unwrap_err();
    assert!(texts(&faults).contains("`acme.tools.other` is not in this generation"), "{faults:?}");
}

#[test]
fn a_cleanup_has_native_modules_only() {
    let cleanup = CLEANUP.replace("tasks: [", "tasks: [{acme.tools.own: }, ");
    let faults = lint(&stored_fleet(&[("cleanup.yml", &cleanup)]));
    let found = faults.iter().find(|fault| fault.file == "cleanup.yml" && !fault.warning).unwrap();
    assert!(found.message.contains("module `acme.tools.own` is not part of the language"), "{found}");
}

#[test]
fn number_and_size_of_modules_are_bounded() {
    let three = ArchiveLimits { requests: 3, archive: 1000, all: 2000 };
    let refused = |limits: ArchiveLimits, size: usize| {
        let mut fleet = fleet(&[]);
        store_within(&mut fleet, &Shelf(size), limits).unwrap();
        let archives = fleet.files.paths_below(MODULES_DIR).filter(|path| path.ends_with(".zip")).count();
        (archives, texts(&lint(&fleet)))
    };
    assert_eq!(refused(three, 50).0, 2, "within the limits");
    let (archives, told) = refused(three, 100);
    assert!(archives == 0 && told.contains("it has 1400 bytes, and the limit is 1000"), "{told}");
    let (archives, told) = refused(ArchiveLimits { all: 1000, ..three }, 50);
    assert!(archives == 1 && told.contains("have 1500 bytes, and the limit is 1000"), "{told}");
    let (archives, told) = refused(ArchiveLimits { requests: 1, ..three }, 50);
    assert!(archives == 1 && told.contains("is not in this generation"), "{told}");
}

/// An upload that `remoor apply` has not made.
#[test]
fn damaged_archives_are_refused() {
    let path = stored_fleet(&[]).files.paths_below(MODULES_DIR).find(|path| path.ends_with(".zip")).unwrap().to_owned();
    let damage = |damage: &dyn Fn(&mut FileSet)| {
        let mut files = stored_fleet(&[]).files;
        damage(&mut files);
        let fleet = Fleet::from_files(&files).unwrap();
        texts(&summary(&fleet, &ClusterContext::default()).unwrap_err())
    };
    let told = damage(&|files| drop(files.0.insert(path.clone(), b"other".to_vec())));
    assert!(told.contains("is not the module that the index describes"), "{told}");
    let told = damage(&|files| drop(files.0.remove(&path)));
    assert!(told.contains(&format!("{path}: is missing")), "{told}");
    let told = damage(&|files| drop(files.0.insert(format!("{MODULES_DIR}/own.zip"), Vec::new())));
    assert!(told.contains("own.zip: is not in the index"), "{told}");
    let told = damage(&|files| drop(files.0.insert(INDEX_FILE.to_owned(), b"{".to_vec())));
    assert!(told.contains("index.json: can't be read"), "{told}");
    let told = damage(&|files| {
        let text = files.text(INDEX_FILE).unwrap().replace("\"version\": 1", "\"version\": 2");
        files.0.insert(INDEX_FILE.to_owned(), text.into_bytes());
    });
    assert!(told.contains("has version 2, but this manager supports version 1"), "{told}");
}

//! Modules that run as Python. A small module stands for those that ansible-core packs; its archive
//! has the parts of `module_utils` that the runner uses.

use super::*;
use crate::{ModuleRefusal, ModuleRequest, ModuleSource, PYTHON_PLAN_VERSION, PackedModule, PythonModule};
use remoor_model::Sha256;
use std::process::Command;
use std::sync::Arc;

const PROBE: &str = r#"
import json, os, sys, time
from ansible.module_utils import basic
args = json.loads(basic._ANSIBLE_ARGS)["ANSIBLE_MODULE_ARGS"]
kind = args.get("kind")
if kind == "hangs":
    time.sleep(600)
if kind == "silent":
    sys.stderr.write("broken library\n")
    sys.exit(3)
if kind == "long":
    print('{"text": "' + "x" * (6 << 20) + '"}')
    sys.exit(0)
if kind == "noisy":
    print("a library says hello")
info = os.stat(_modlib_path)
private = os.stat(os.path.dirname(_modlib_path))
print(json.dumps({
    "changed": kind != "same", "args": args, "input": sys.stdin.read(), "mode": oct(info.st_mode & 0o7777),
    "dir_mode": oct(private.st_mode & 0o7777), "argv": len(sys.argv), "env": os.environ.get("GIVEN"),
    "ansible_facts": {"probe_fact": 7}, "path": "/x/y", "diff": {"before": "a\n", "after": "b\n"},
    "warnings": ["take care"], "invocation": {"module_args": args},
}))
sys.exit(0)
"#;

#[derive(Debug)]
struct Probe {
    min_python: &'static str,
    archive: Vec<u8>,
}

impl Probe {
    /// None: this machine has no Python.
    fn new(dir: &Path, min_python: &'static str) -> Option<Self> {
        std::fs::write(dir.join("probe.py"), PROBE).unwrap();
        let make = "import zipfile, sys
with zipfile.ZipFile('p.zip', 'w') as z:
    z.write('probe.py')
    for name, text in (('', ''), ('module_utils/', ''), ('module_utils/basic', '_ANSIBLE_ARGS = None\\n')):
        z.writestr('ansible/' + (name if name.endswith('basic') else name + '__init__') + '.py', text)";
        let done = Command::new("python3").args(["-c", make]).current_dir(dir).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: THIS MACHINE HAS NO PYTHON 3: MODULES THAT RUN AS PYTHON ARE NOT TESTED");
            return None;
        }
        Some(Self { min_python, archive: std::fs::read(dir.join("p.zip")).unwrap() })
    }
}

impl ModuleSource for Probe {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        let mut name = "acme.tools.probe".to_owned();
        match request.name.as_str() {
            "kubernetes.core.k8s" | "ansible.posix.patch" => name.clone_from(&request.name),
            "apt_repository" => name = format!("ansible.builtin.{}", request.name),
            "probe" | "acme.tools.probe" | "lineinfile" | "ansible.posix.mount" => {}
            "acme.none.x" => return Err(ModuleRefusal::NoCollection("acme.none".into())),
            "acme.tools.action" => return Err(ModuleRefusal::ActionPlugin(request.name.clone())),
            _ => return Err(ModuleRefusal::NotFound("nowhere".into())),
        }
        let module = PythonModule {
            sha256: Sha256::digest(&self.archive).to_string(),
            entry: "probe".into(),
            core: "2.18.1".into(),
            min_python: self.min_python.into(),
            internals: ["check_mode", "no_log", "module_name", "remote_tmp"].map(str::to_owned).into(),
            facts: true,
            ..PythonModule::default()
        };
        let archive = self.archive.clone();
        Ok(Arc::new(PackedModule { name, module, archive, ..PackedModule::default() }))
    }
}

fn compile_tasks(
    source: &dyn ModuleSource,
    vars: serde_json::Value,
    text: &str,
) -> Result<Plan, Vec<remoor_model::Fault>> {
    let host = HostContext { name: "w1".into(), vars: vars.as_object().unwrap().clone(), ..HostContext::default() };
    let set = BTreeMap::from([("site.yml".to_owned(), format!("- hosts: all\n  tasks:\n{text}").into_bytes())]);
    let options = CompileOptions { modules: Some(source), ..CompileOptions::default() };
    compile(&FileSet(set), "site.yml", &host, &options).map(|done| done.plan)
}

#[test]
fn a_module_gets_its_arguments_and_its_result_is_taken_over() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let text = "    - name: probe
      acme.tools.probe: {kind: noisy, list: [1, '{{ who }}'], left: '{{ omit }}'}
      environment: {GIVEN: here}
      register: r
    - assert:
        that:
          - r.changed and not r.failed and r.msg is undefined and probe_fact == 7
          - r.args.list == [1, 'me'] and r.args.left is undefined and r.env == 'here'
          - r.input == '' and r.argv == 1
          - r.dir_mode == '0o700'
          - r.args._ansible_module_name == 'acme.tools.probe' and not r.args._ansible_check_mode
          - r.ansible_facts.probe_fact == 7 and r.invocation is undefined
    - {name: quiet, probe: {kind: same}}
";
    let plan = compile_tasks(&source, json!({"who": "me"}), text).unwrap();
    assert_eq!((plan.version, plan.modules.len(), plan.blobs.len()), (PYTHON_PLAN_VERSION, 1, 1));
    let read: Plan = rmp_serde::from_slice(&rmp_serde::to_vec_named(&plan).unwrap()).unwrap();
    assert_eq!(read.sha256(), plan.sha256());
    let ran = go(&read, &options(dir.path())).assert_success();
    assert_eq!((ran.end.changed, ran.end.failed), (1, 0), "{}", ran.text());
    assert!(ran.text().contains("take care") && ran.text().contains("+b"), "{}", ran.text());
    let check = PlaybookRunOptions { check: true, ..options(dir.path()) };
    let text = "    - {probe: {}, register: r}\n    - {assert: {that: r.args._ansible_check_mode}}\n";
    go(&compile_tasks(&source, json!({}), text).unwrap(), &check).assert_success();
    let left = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().count();
    assert_eq!(left(&dir.path().join("half-made")), 0, "archives are removed at the end");
}

#[test]
fn a_module_without_a_result_fails_and_says_why() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    for (task, why) in [
        ("probe: {kind: silent}", "exited with code 3 without a result: broken library"),
        ("probe: {kind: long}", "more than 4 MiB"),
        ("{probe: {kind: hangs}, timeout: 1}", "longer than the `timeout`"),
    ] {
        let ran = go(&compile_tasks(&source, json!({}), &format!("    - {task}\n")).unwrap(), &options(dir.path()));
        let message = ran.end.failure.unwrap().message;
        assert!(message.contains(why), "{message}");
    }
    let old = Probe { min_python: "9.1", ..source };
    let ran = go(&compile_tasks(&old, json!({}), "    - probe:\n").unwrap(), &options(dir.path()));
    let message = ran.end.failure.unwrap().message;
    assert!(message.contains("ansible-core 2.18.1 need at least Python 9.1"), "{message}");
}

#[test]
fn a_node_without_python_is_reported_before_the_first_task() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let vars = json!({"ansible_python_interpreter": "/no/such/python", "here": false});
    let touch = format!("    - copy: {{content: x, dest: {}}}\n", dir.path().join("touched").display());
    let text = format!("{touch}    - probe:\n");
    let ran = go(&compile_tasks(&source, vars.clone(), &text).unwrap(), &options(dir.path()));
    let failure = ran.end.failure.unwrap();
    assert!(failure.message.contains("site.yml:4: the module acme.tools.probe needs Python"), "{failure:?}");
    assert!(!dir.path().join("touched").exists());
    let text = format!("{touch}    - {{probe: , when: here}}\n");
    go(&compile_tasks(&source, vars, &text).unwrap(), &options(dir.path())).assert_success();
}

#[test]
fn a_python_that_an_earlier_task_installs_is_found_when_the_module_runs() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let own = dir.path().join("env/bin/py").display().to_string();
    let vars = json!({"ansible_python_interpreter": own, "nothing": []});
    let make = |dest: &str| {
        format!(
            "    - file: {{path: {}, state: directory}}
    - copy: {{dest: '{dest}', mode: '0755', content: \"#!/bin/sh\\nexec /usr/bin/env $(printf pyth)on3 \\\"$@\\\"\\n\"}}\n",
            dir.path().join("env/bin").display()
        )
    };
    let module = "    - {probe: {}, register: r}\n    - assert: {that: r.changed}\n";
    // A loop over no items needs no Python.
    let idle = "    - {probe: , loop: '{{ nothing }}'}\n";
    let text = format!("{idle}{}{module}", make(&own));
    go(&compile_tasks(&source, vars.clone(), &text).unwrap(), &options(dir.path())).assert_success();
    std::fs::remove_dir_all(dir.path().join("env")).unwrap();
    let other = TempDir::new().unwrap();
    let elsewhere = format!("    - copy: {{dest: '{}', content: x}}\n", other.path().join("other").display());
    let ran = go(&compile_tasks(&source, vars.clone(), &format!("{elsewhere}{module}")).unwrap(), &options(dir.path()));
    assert_eq!(ran.end.failure.unwrap().task, "before the first task");
    // The task says why it failed if no task has installed the Python after all.
    let other = "    - command: echo python\n      register: r\n";
    let ran = go(&compile_tasks(&source, vars, &format!("{other}{module}")).unwrap(), &options(dir.path()));
    let failure = ran.end.failure.unwrap();
    assert!(
        failure.task == "acme.tools.probe" && failure.message.contains("does not start on this node"),
        "{failure:?}"
    );
}

/// The user of a task may own the Python, so the check before the first task does not start it.
#[test]
fn only_the_task_itself_starts_the_python_of_another_user() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let (python, started) = (dir.path().join("python"), dir.path().join("started"));
    std::fs::write(&python, format!("#!/bin/sh\ntouch {}\nexit 1\n", started.display())).unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let vars = json!({"ansible_python_interpreter": python.display().to_string()});
    let stop = "    - fail: {msg: stop}\n";
    let run = |more: &str| {
        let text = format!("{stop}    - {{probe: {more}}}\n");
        go(&compile_tasks(&source, vars.clone(), &text).unwrap(), &options(dir.path())).end.failure.unwrap()
    };
    assert_eq!(run(", become: true, become_user: nobody").task, "fail stop");
    assert!(!started.exists());
    assert_eq!(run("").task, "before the first task");
    assert!(started.exists());
}

#[test]
fn modules_that_cannot_be_packed_are_faults_with_the_next_step() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    for (task, message, hint) in [
        ("acme.none.x:", "the collection acme.none is not installed", "ansible-galaxy collection install acme.none"),
        ("acme.tools.action:", "has an action plugin (acme.tools.action)", "provisioner"),
        ("nowhere_to_be_found:", "was not found: nowhere", "library"),
        ("coppy: {dest: /x}", "unknown module or keyword `coppy`", "copy"),
    ] {
        let faults = compile_tasks(&source, json!({}), &format!("    - {task}\n")).unwrap_err();
        assert!(faults[0].message.contains(message), "{faults:?}");
        assert!(faults[0].hint.as_deref().is_some_and(|text| text.contains(hint)), "{faults:?}");
    }
}

/// A task that sets an option or a value which the native module lacks runs as Python. Other tasks
/// of the module stay native.
#[test]
fn what_a_native_module_lacks_runs_as_python() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let text = "    - {lineinfile: {path: /x, line: a, attributes: +i}, register: r}
    - {assert: {that: r.args.attributes == '+i' and r.args.line == 'a'}}
    - ansible.posix.mount: path=/x state=ephemeral src=/y fstype=ext4
    - lineinfile: {path: /x}
      args: {attributes: +a}
";
    let plan = compile_tasks(&source, json!({}), text).unwrap();
    assert_eq!(plan.python_tasks().len(), 3);
    go(&plan, &options(dir.path())).assert_success();
    let native = "    - {lineinfile: {path: /x, line: a, unsafe_writes: true, seuser: u}}
    - {lineinfile: {path: /x, line: a, attributes: no}}
    - {ansible.posix.mount: {path: /x, state: unmounted}}
";
    assert!(compile_tasks(&source, json!({}), native).unwrap().python_tasks().is_empty());
    for (task, why) in [
        ("lineinfile: {path: /x, lines: a}", "unknown option `lines` of lineinfile"),
        ("copy: {content: a, dest: /x, attributes: +i}", "`attributes` of copy is not part of the language"),
        ("file: {path: /x, attributes: +i}", "`attributes` of file is not part of the language"),
    ] {
        let faults = compile_tasks(&source, json!({}), &format!("    - {task}\n")).unwrap_err();
        assert!(faults[0].message.contains(why), "{faults:?}");
    }
}

#[test]
fn options_that_name_files_of_the_controller_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(probe) = Probe::new(dir.path(), "3.7") else { return };
    for (task, refused) in [
        ("kubernetes.core.k8s: {definition: {}, src: remote.yml, kubeconfig: k}", None),
        ("kubernetes.core.k8s: {template: t.j2}", Some("template")),
        ("kubernetes.core.k8s: {src: a.yml}, vars: {ansible_connection: local}", None),
        ("ansible.posix.patch: {src: /a, dest: /b, remote_src: true}", None),
        ("ansible.posix.patch: {src: a, dest: /b}", Some("src")),
    ] {
        let done = compile_tasks(&probe, json!({}), &format!("    - {{{task}}}\n"));
        assert_eq!(done.is_err(), refused.is_some(), "{task}");
        let Err(faults) = done else { continue };
        let option = refused.unwrap();
        assert!(faults[0].message.starts_with(&format!("`{option}` of ")), "{faults:?}");
    }
    let local = json!({"ansible_connection": "local"});
    for (src, refused) in [("a.yml", true), ("/a.yml", false), ("'{{ role_path }}/a.yml'", false)] {
        let text = format!("    - kubernetes.core.k8s: {{src: {src}}}\n      vars: {{role_path: /r}}\n");
        assert_eq!(compile_tasks(&probe, local.clone(), &text).is_err(), refused, "{src}");
    }
}

#[test]
fn a_value_of_a_variable_selects_the_python_module() {
    let dir = TempDir::new().unwrap();
    let Some(source) = Probe::new(dir.path(), "3.5") else { return };
    let text =
        "    - {apt_repository: {repo: '{{ repos[found] }}'}, register: r, vars: {found: \"{{ 'ppa' | trim }}\"}}
    - {assert: {that: r.args.repo == 'ppa:a/b' and r.args._ansible_module_name == 'ansible.builtin.apt_repository'}}
    - {apt_repository: {repo: '{{ item }}'}, loop: ['ppa:c/d', broken], register: both, ignore_errors: true}
    - {assert: {that: \"both.results[0].args.repo == 'ppa:c/d' and 'Invalid repository' in both.results[1].msg\"}}
";
    let vars = json!({"repos": {"ppa": "ppa:a/b", "deb": "deb http://x y z"}});
    let plan = compile_tasks(&source, vars, text).unwrap();
    assert_eq!(plan.modules.keys().collect::<Vec<_>>(), ["ansible.builtin.apt_repository"]);
    go(&plan, &options(dir.path())).assert_success();
    let plain = json!({"repos": {"deb": "deb http://x y z"}});
    let text = "    - {apt_repository: {repo: '{{ repos.deb }}'}}\n";
    assert!(compile_tasks(&source, plain, text).unwrap().modules.is_empty(), "no value needs it");
    let ppa = json!({"name": "ppa:a/b"});
    let text = "    - {apt_repository: {repo: 'deb {{ name }} x'}}\n";
    assert!(compile_tasks(&source, ppa, text).unwrap().modules.is_empty(), "the text begins in another way");
}

//! Tests of Ansible runs. Some need no Ansible: they check the files that are written for Ansible,
//! and the errors if Ansible is missing. The others run real Ansible on this machine with
//! `connection: local`. They find it on the PATH or by `REMOOR_ANSIBLE_PLAYBOOK`.

use super::*;
use std::ffi::OsString;

const CONFIG: &str = "version: 1\ninventory: inventory.yml\nvars: {colour: red}\nssh: {user: root, identity: /keys/id}\n\
                      groups:\n  web: {services: [], provision: site.yml, cleanup: gone.yml, provisioner: ansible, \
                      vars: {colour: blue}}\n";

pub(super) fn fleet(inventory: &str, files: &[(&str, &str)]) -> Arc<Fleet> {
    let dir = tempfile::tempdir().expect("a folder");
    let empty = [("site.yml", "[]\n"), ("gone.yml", "[]\n")];
    for (name, text) in empty.iter().chain(&[("remoor.yml", CONFIG), ("inventory.yml", inventory)]).chain(files) {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    Arc::new(Fleet::load(dir.path()).expect("a fleet"))
}

pub(super) fn a_play(fleet: Arc<Fleet>) -> AnsibleRun {
    AnsibleRun {
        fleet,
        host: "w1".to_owned(),
        playbook: "site.yml".to_owned(),
        tags: Vec::new(),
        extra: Map::from_iter([("remoor_job".to_owned(), json!(7))]),
        known: BTreeMap::new(),
        keys: Keys::default(),
        mark: "c1/w1/1/7".to_owned(),
        timeout: Duration::from_secs(120),
    }
}

#[test]
fn only_recorded_host_keys_are_accepted_whatever_the_user_configures() {
    let text = "web:\n  hosts:\n    w1: {ansible_host: h1, ansible_port: 2222, ansible_ssh_args: -o StrictHostKeyChecking=no}\n    \
                w2: {ansible_become_password: hunter2 x, ansible_password: '{{ asked }}'}\n";
    let mut play = a_play(fleet(text, &[]));
    let known = AnsibleNode {
        addr: Some("10.0.0.9".to_owned()),
        host_keys: vec!["ssh-ed25519 AAAA".to_owned()],
        vars: Map::from_iter([("remoor_node_id".to_owned(), json!(4))]),
    };
    play.known.insert("w1".to_owned(), known);
    let dir = tempfile::tempdir().unwrap();
    let PreparedRun { job, hide } = prepare("ansible-playbook", &play, dir.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("known_hosts"), "[10.0.0.9]:2222 ssh-ed25519 AAAA\n");
    let extra: Value = serde_json::from_str(&read("extra.json")).unwrap();
    let args = extra["ansible_ssh_args"].as_str().unwrap();
    assert!(args.starts_with("-o StrictHostKeyChecking=yes -o UserKnownHostsFile='/"), "{args}");
    assert_eq!((&extra["ansible_host_key_checking"], &extra["remoor_job"]), (&json!(true), &json!(7)));
    let hosts: Value = serde_json::from_str::<Value>(&read("inventory.json")).unwrap()["all"]["hosts"].take();
    let w1 = &hosts["w1"];
    assert_eq!(
        (&w1["ansible_host"], &w1["ansible_port"], &w1["colour"]),
        (&json!("10.0.0.9"), &json!(2222), &json!("blue"))
    );
    assert_eq!((&w1["remoor_node_id"], &hosts["w2"]["ansible_host"]), (&json!(4), &json!("w2")));
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("extra.json"), mode("inventory.json"), mode("fleet"), mode("fleet/site.yml")),
        (0o600, 0o600, 0o700, 0o600)
    );
    assert_eq!(hide, ["hunter2 x"]);
    let shown = format!("{:?} {:?}", job.argv, job.env);
    assert!(!shown.contains("hunter2") && !shown.contains("remoor_job"), "{shown}");
    assert_eq!(job.argv[3..5], ["--limit", "w1"]);
    assert_eq!(job.argv[job.argv.len() - 2..], ["--", "site.yml"]);
}

/// The identity files that ssh uses with the command line that Ansible builds.
fn identities(args: &str, identity: Option<&str>, host: &str) -> Option<Vec<String>> {
    // These paths contain no quotes, so the removal of all quotes equals the result of shlex.
    let words = args.split(' ').map(|word| word.replace('\'', ""));
    let mut ssh = std::process::Command::new("ssh");
    ssh.arg("-G").args(words).args(identity.map(|file| format!("-oIdentityFile=\"{file}\""))).arg(host);
    let told = match ssh.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: there is no ssh to say which keys it would offer (Debian: openssh-client)");
            return None;
        }
        told => told.unwrap(),
    };
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told = String::from_utf8(told.stdout).unwrap();
    Some(told.lines().filter_map(|line| line.strip_prefix("identityfile ")).map(str::to_owned).collect())
}

#[test]
fn the_cluster_key_is_offered_last_and_only_to_hosts_of_the_inventory() {
    let text = "web:\n  hosts:\n    w1: {ansible_host: 10.0.0.1}\n    w2: {ansible_host: 10.0.0.2}\n";
    let keys = || Keys {
        with_identity: vec!["/var/lib/remoor/ssh.key".into()],
        without_identity: vec!["/root/.ssh/id_rsa".into(), "/var/lib/remoor/ssh.key".into()],
    };
    let args_of = |config: &str, keys: Keys| {
        let config = config.to_owned()
            + "groups:\n  web: {services: [], provision: site.yml, cleanup: gone.yml, provisioner: ansible}\n";
        let files = [("remoor.yml", config.as_str()), ("own", "Host 10.0.0.2\n  IdentityFile /own\n")];
        let play = AnsibleRun { keys, ..a_play(fleet(text, &files)) };
        let dir = tempfile::tempdir().unwrap();
        prepare("ansible-playbook", &play, dir.path()).unwrap();
        let extra: Value =
            serde_json::from_str(&std::fs::read_to_string(dir.path().join("extra.json")).unwrap()).unwrap();
        (extra["ansible_ssh_args"].as_str().unwrap().to_owned(), dir)
    };
    let head = "version: 1\ninventory: inventory.yml\n";
    let (args, _dir) = args_of(head, Keys::default());
    assert!(!args.contains("-F "), "without a key of the cluster all is as it was: {args}");
    let with_config = format!("{head}ssh: {{config: own}}\n");
    let (args, dir) = args_of(&with_config, Keys::default());
    assert!(args.starts_with(&format!("-F '{}' ", dir.path().join("fleet/own").display())), "{args}");

    let (args, _dir) = args_of(&with_config, keys());
    let Some(offered) = identities(&args, None, "10.0.0.2") else { return };
    assert_eq!(offered, ["/own", "/root/.ssh/id_rsa", "/var/lib/remoor/ssh.key"]);
    let offered = identities(&args, None, "jump.example.org").unwrap();
    assert!(!offered.contains(&"/var/lib/remoor/ssh.key".to_owned()), "{offered:?}");
    let (args, _dir) = args_of(&format!("{head}ssh: {{identity: /keys/id}}\n"), keys());
    let offered = identities(&args, Some("/keys/id"), "10.0.0.1").unwrap();
    assert_eq!(
        (offered.first(), offered.last()),
        (Some(&"/keys/id".to_owned()), Some(&"/var/lib/remoor/ssh.key".to_owned()))
    );
    assert!(!offered.contains(&"/root/.ssh/id_rsa".to_owned()), "{offered:?}");
}

#[test]
fn a_manager_without_ansible_says_what_is_missing() {
    let runs = tempfile::tempdir().unwrap();
    let play = a_play(fleet("web: {hosts: {w1: {}}}\n", &[]));
    let error =
        play_with("ansible-playbook-of-nobody", &play, runs.path(), &CancelToken::new(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, PlayError::Plan(text) if text.contains("apt-get install ansible-core")), "{error}");
    assert_eq!(std::fs::read_dir(folder(runs.path())).unwrap().count(), 0, "the run's folder is left");
    let error = play_with(
        "true",
        &AnsibleRun { playbook: "no.yml".to_owned(), ..play },
        runs.path(),
        &CancelToken::new(),
        &mut |_| {},
    );
    assert!(matches!(error, Err(PlayError::Plan(text)) if text.contains("no.yml")));
    sweep(runs.path());
    assert!(!folder(runs.path()).exists());
}

#[test]
fn an_ansible_that_is_missing_old_or_broken_is_found_before_anything_is_run() {
    for (says, rc, wanted) in [
        ("ansible-playbook [core 2.14.0]\n  config file = None\n", 0, ""),
        ("ansible-playbook [core 3.0.1]\n", 0, ""),
        ("ansible-playbook [core 2.19.0b1]\n", 0, ""),
        (
            "ansible-playbook [core 2.13.13]\n",
            0,
            "is 2.13, and remoor needs ansible-core 2.14 or newer; next: apt-get install ansible-core",
        ),
        ("ansible-playbook 2.9.27\n", 0, "is 2.9, and"),
        ("Hello\nworld\n", 0, "is `Hello`, and"),
        ("", 0, "is ``, and"),
        ("No module named ansible\n", 1, "No module named ansible; next: apt-get"),
    ] {
        let tail = says.lines().map(str::to_owned).collect();
        let done = Finished { rc: Some(rc), stdout: says.to_owned(), tail, ..Finished::default() };
        let told = fits(PROGRAM, &done).map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(told.is_empty(), wanted.is_empty(), "{says}: {told}");
        assert!(told.contains(wanted), "{says}: {told}");
    }
    let runs = tempfile::tempdir().unwrap();
    let play = a_play(fleet("web: {hosts: {w1: {}}}\n", &[]));
    let asked = ready_with("ansible-playbook-of-nobody", &play, true, runs.path(), &CancelToken::new());
    assert!(matches!(&asked, Err(PlayError::Plan(text)) if text.contains("apt-get install ansible-core")), "{asked:?}");
}

#[test]
fn leftovers_of_a_crash_are_removed_and_killed() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let runs = tempfile::tempdir().unwrap();
    let word = format!("run-crashed-{}", std::process::id());
    std::fs::create_dir_all(folder(runs.path()).join(&word)).unwrap();
    std::fs::write(folder(runs.path()).join(&word).join("extra.json"), "{}").unwrap();
    let mut left =
        std::process::Command::new("sleep").arg("600").env(files::RUN_ID_VAR, &word).process_group(0).spawn().unwrap();
    // Its environment becomes readable soon after the start of the program.
    while !leftover_processes::has_run_id(left.id() as i32, &word) {
        std::thread::yield_now();
    }
    sweep(runs.path());
    assert!(left.wait().unwrap().signal().is_some());
    assert!(!folder(runs.path()).exists());
}

/// Path of ansible-playbook. Prints a message if the program is missing.
pub(super) fn ansible() -> Option<String> {
    let named = std::env::var_os("REMOOR_ANSIBLE_PLAYBOOK");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        || std::env::split_paths(&path).map(|d| d.join(PROGRAM).into_os_string()).find(|p| Path::new(p).is_file());
    let found: Option<OsString> = named.or_else(on_path);
    if found.is_none() {
        eprintln!("SKIPPED: RUNS OF REAL ANSIBLE: there is no {PROGRAM} here");
    }
    found.map(|f| f.to_string_lossy().into_owned())
}

/// Runs `tasks` on this machine. Returns the result and the events.
fn run(program: &str, tasks: &str, edit: impl FnOnce(&mut AnsibleRun)) -> (Result<(), PlayError>, Vec<String>) {
    let site = format!("- hosts: web\n  gather_facts: false\n  tasks:\n{tasks}");
    let inventory = "web: {hosts: {w1: {ansible_connection: local, place: '{{ remoor_place }}'}}}\n";
    let mut play = a_play(fleet(inventory, &[("site.yml", &site), ("note.j2", "{{ colour }} {{ remoor_job }}\n")]));
    play.extra.insert("ansible_python_interpreter".to_owned(), json!("{{ ansible_playbook_python }}"));
    edit(&mut play);
    let (runs, mut lines) = (tempfile::tempdir().unwrap(), Vec::new());
    let ended = play_with(program, &play, runs.path(), &CancelToken::new(), &mut |event| lines.push(event.to_string()));
    assert_eq!(std::fs::read_dir(folder(runs.path())).unwrap().count(), 0, "the run's folder is left");
    (ended, lines)
}

#[test]
fn real_ansible_does_what_the_users_playbook_says() {
    let Some(program) = ansible() else { return };
    let place = tempfile::tempdir().unwrap();
    let at = json!(place.path());
    let tasks = "    - template: {src: note.j2, dest: '{{ place }}/note'}\n      tags: [note]\n    - file: {path: '{{ place }}/other', state: touch}\n      tags: [other]\n";
    let (ended, lines) = run(&program, tasks, |play| {
        play.tags = vec!["note".to_owned()];
        play.extra.insert("remoor_place".to_owned(), at.clone());
    });
    assert!(ended.is_ok(), "{ended:?}\n{}", lines.join("\n"));
    assert_eq!(std::fs::read_to_string(place.path().join("note")).unwrap(), "blue 7\n");
    assert!(!place.path().join("other").exists(), "a task without the tag was run");
    let recap = "w1: 0 ok, 1 changed, 0 skipped, 0 failed, 0 ignored, 0 unreachable";
    assert!(lines.iter().any(|l| l.contains(recap)), "{lines:?}");
    assert!(lines.iter().any(|l| l.contains("\"status\":\"changed\"")), "{lines:?}");
    assert!(!lines.iter().any(|l| l.contains("\\u001b")), "colours: {lines:?}");
}

/// The report of a failed task has the same form as that of a native playbook, with the location of
/// the task.
#[test]
fn a_failure_of_real_ansible_is_reported_with_task_file_and_line() {
    let Some(program) = ansible() else { return };
    let tasks = "    - block:\n        - command: sh -c 'exit 9'\n      rescue:\n        - debug: {msg: rescued}\n    \
                 - name: luck\n      command: sh -c 'echo no {{ item }}; echo why >&2; exit {{ item }}'\n      loop: [0, 3]\n";
    let (ended, lines) = run(&program, tasks, |_| {});
    let Err(PlayError::Failed { why, rc: Some(3), tail }) = ended else { panic!("{ended:?}\n{}", lines.join("\n")) };
    assert_eq!(why, "site.yml:8: luck: non-zero return code");
    assert_eq!(tail, ["no 3", "why"]);
    let recap = "0 ok, 1 changed, 0 skipped, 2 failed, 0 ignored, 0 unreachable";
    let recap = recap.replace("0 ok", "1 ok");
    assert!(lines.iter().any(|l| l.contains(&recap)), "{lines:?}");
}

#[test]
fn no_log_values_and_passwords_never_appear_in_output_of_real_ansible() {
    let Some(program) = ansible() else { return };
    let tasks = "    - name: 'with {{ word }}'\n      command: echo {{ word }} {{ item }}\n      loop: ['{{ word }}']\n      \
                 no_log: true\n      vars: {word: geheim-1}\n    - debug: {msg: 'it is {{ ansible_become_password }}'}\n    \
                 - command: sh -c 'echo geheim-2 {{ remoor_key }}; exit 4'\n      no_log: true\n";
    let (ended, lines) = run(&program, tasks, |play| {
        let inventory = "web: {hosts: {w1: {ansible_connection: local, ansible_become_password: geheim-3}}}\n";
        let site = play.fleet.files.text("site.yml").unwrap().to_owned();
        play.fleet = fleet(inventory, &[("site.yml", &site)]);
        play.extra.insert("remoor_key".to_owned(), json!("geheim-4"));
    });
    let Err(PlayError::Failed { why, rc, tail }) = ended else { panic!("{ended:?}\n{}", lines.join("\n")) };
    let all = format!("{why} {tail:?} {}", lines.join("\n"));
    assert!(!all.contains("geheim"), "{all}");
    assert_eq!((why.as_str(), rc), ("site.yml:10: command: hidden by no_log", Some(2)));
    assert!(lines.iter().any(|l| l.contains("it is ********")), "{lines:?}");
}

#[test]
fn a_playbook_that_real_ansible_refuses_is_found_before_anything_is_run() {
    let Some(program) = ansible() else { return };
    let runs = tempfile::tempdir().unwrap();
    for (site, said) in [
        ("- hosts: web\n  tasks: []\n", None),
        ("- hosts: web\n  tasks:\n    - no_such_module: {a: 1}\n", Some("no_such_module")),
        ("- hosts: web\n  roles: [nobodys]\n", Some("nobodys")),
        ("- hosts: web\n  tasks:\n   - debug: {msg: x\n", Some("site.yml")),
    ] {
        // The fleet's own reader would reject some of these playbooks before Ansible is called.
        let mut play = a_play(fleet("web: {hosts: {w1: {ansible_connection: local}}}\n", &[]));
        let mut files = Fleet::clone(&play.fleet);
        files.files.0.insert("site.yml".to_owned(), site.into());
        play.fleet = Arc::new(files);
        let asked = ready_with(&program, &play, true, runs.path(), &CancelToken::new());
        match (asked, said) {
            (Ok(()), None) => {}
            (Err(PlayError::Plan(text)), Some(said)) => {
                assert!(text.contains(said) && !text.contains(&runs.path().display().to_string()), "{text}");
                let ran = play_with(&program, &play, runs.path(), &CancelToken::new(), &mut |_| {});
                assert!(matches!(&ran, Err(PlayError::Plan(text)) if text.contains(said)), "{ran:?}");
            }
            (asked, _) => panic!("{site}: {asked:?}"),
        }
    }
    assert_eq!(std::fs::read_dir(folder(runs.path())).unwrap().count(), 0, "the runs' folders are left");
}

/// Ansible's workers have their own sessions, so they do not end with the process group of
/// ansible-playbook.
#[test]
fn running_tasks_of_real_ansible_are_killed_with_it() {
    let Some(program) = ansible() else { return };
    let place = tempfile::tempdir().unwrap();
    let pid = place.path().join("pid");
    let text = "trap '' TERM HUP INT; echo $$ >pid.new; mv pid.new pid; while :; do sleep 300; done";
    let tasks = "    - name: stubborn\n      command: {argv: [sh, -c, '{{ text }}'], chdir: '{{ place }}'}\n";
    let site = format!("- hosts: web\n  gather_facts: false\n  tasks:\n{tasks}");
    let inventory = "web: {hosts: {w1: {ansible_connection: local}}}\n";
    let mut play = a_play(fleet(inventory, &[("site.yml", &site)]));
    play.extra.insert("ansible_python_interpreter".to_owned(), json!("{{ ansible_playbook_python }}"));
    play.extra.insert("place".to_owned(), json!(place.path()));
    play.extra.insert("text".to_owned(), json!(text));
    let (runs, cancel) = (tempfile::tempdir().unwrap(), CancelToken::new());
    let (stop, wanted) = (cancel.clone(), pid.clone());
    let watcher = std::thread::spawn(move || {
        let deadline = std::time::Instant::now() + Duration::from_secs(100);
        while !wanted.exists() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        stop.cancel();
    });
    let ended = play_with(&program, &play, runs.path(), &cancel, &mut |_| {});
    watcher.join().unwrap();
    let Err(PlayError::Failed { why, .. }) = &ended else { panic!("{ended:?}") };
    assert_eq!(why, "ansible-playbook was cancelled in: stubborn");
    let pid = std::fs::read_to_string(&pid).expect("the command began");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'), "it runs on: {stat}");
    assert_eq!(std::fs::read_dir(folder(runs.path())).unwrap().count(), 0, "the run's folder is left");
}

/// The fence of the next attempt finds processes that still run by `REMOOR_ATTEMPT`. Variables that
/// the playbook itself sets in `environment` are kept.
#[test]
fn what_real_ansible_starts_carries_its_attempt() {
    let Some(program) = ansible() else { return };
    let say = "shell: echo \"is $REMOOR_ATTEMPT $OWN\"";
    let sites = [
        ("site.yml", "{OWN: mine}", "is c1/w1/1/7 mine"),
        ("site.yml", "[{OWN: mine}]", "is c1/w1/1/7 mine"),
        ("plays/site.yml", "'{{ own }}'", "is c1/w1/1/7 mine"),
    ];
    for (playbook, environment, said) in sites {
        let site = format!(
            "- hosts: web\n  gather_facts: false\n  vars: {{own: {{OWN: mine}}}}\n  environment: {environment}\n  tasks:\n    - {say}\n      \
             register: said\n    - debug: {{msg: '{{{{ said.stdout }}}}'}}\n"
        );
        let (ended, lines) = run(&program, "    []\n", |play| {
            let mut fleet = Fleet::clone(&play.fleet);
            fleet.files.0.insert(playbook.to_owned(), site.into());
            play.fleet = Arc::new(fleet);
            play.playbook = playbook.to_owned();
        });
        assert!(ended.is_ok() && lines.iter().any(|l| l.contains(said)), "{ended:?}\n{}", lines.join("\n"));
    }
}

#[test]
fn a_run_of_real_ansible_that_matches_no_host_or_times_out_fails() {
    let Some(program) = ansible() else { return };
    let (ended, _) = run(&program, "    - debug: {msg: x}\n", |play| play.playbook = "gone.yml".to_owned());
    assert!(ended.is_err(), "an empty playbook passed");
    let site = "- hosts: db\n  tasks: []\n";
    let (ended, lines) = run(&program, "    []\n", |play| {
        let mut fleet = Fleet::clone(&play.fleet);
        fleet.files.0.insert("site.yml".to_owned(), site.into());
        play.fleet = Arc::new(fleet);
    });
    assert!(
        matches!(&ended, Err(PlayError::Failed { why, .. }) if why.contains("no play for w1")),
        "{ended:?} {lines:?}"
    );
    let (ended, _) = run(&program, "    - command: sleep 600\n", |play| play.timeout = Duration::from_secs(8));
    assert!(matches!(&ended, Err(PlayError::Failed { why, .. }) if why.contains("longer than 8 s")), "{ended:?}");
}

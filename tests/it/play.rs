//! `remoor play` as a process on this machine: its exit codes, its output, and the end of its
//! executor.

use crate::local::{LONG, remoor};
use crate::time_limit::{BoundedChild, BoundedCommand, TimeLimit};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

/// A directory with a playbook, and the command that plays it. All state is in this directory.
struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    fn new(tasks: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ground = Self { dir };
        ground.write("site.yml", &format!("- hosts: all\n  gather_facts: no\n  tasks:\n{tasks}"));
        ground
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect(name);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = remoor();
        command.current_dir(self.dir.path()).args(["play", "site.yml", "--connection", "local", "-e"]);
        let vars = serde_json::json!({"remoor_state_dir": self.path("state"), "dir": self.dir.path()});
        command.arg(vars.to_string()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn play(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(args).bounded_output();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&self.dir.path().display().to_string(), "DIR");
        (status.code(), text(&stdout), text(&stderr))
    }

    fn events(&self, args: &[&str]) -> (Option<i32>, Vec<Value>) {
        let (code, text, talk) = self.play(&[args, &["-o", "json"]].concat());
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}; {talk}"));
        (code, text.lines().map(line).collect())
    }
}

/// Reads lines of `child` until one contains `mark`, and returns all lines. After [`LONG`] the
/// child is killed, which ends its output.
fn read_until(child: &Child, lines: &mut impl BufRead, mark: &str) -> String {
    let _limit = TimeLimit::start(child, LONG);
    let mut all = String::new();
    while !all.contains(mark) {
        assert!(lines.read_line(&mut all).expect("a line") > 0, "no {mark}: {all}");
    }
    all
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

const COPY: &str = "    - {name: write, copy: {content: \"{{ text | default('a') }}\\n\", dest: '{{ dir }}/x'}}\n";

#[test]
fn success_is_0_and_the_recap_equals_ansibles() {
    let tasks = "    - {name: twice, command: 'true', loop: [1, 2]}\n    - {command: 'true', when: false}\n    \
                 - {command: 'false', ignore_errors: yes}\n    - block: [{command: 'false'}]\n      rescue: [{debug: {msg: saved}}]\n";
    let ground = Ground::new(&format!("{COPY}{tasks}"));
    let (code, text, talk) = ground.play(&["--diff"]);
    assert_eq!((code, talk.as_str()), (Some(0), ""), "{text}");
    let recap = "localhost                  : ok=4    changed=3    unreachable=0    failed=0    skipped=1    rescued=1    ignored=1    unknown=0\n";
    assert!(text.ends_with(&format!("\nPLAY RECAP\n{recap}")), "{text}");
    for shown in ["localhost  changed   write (", "+a\n", "twice [2]", "ignored ", "rc=1"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    let (_, text, _) = ground.play(&[]);
    assert!(text.contains("localhost  ok        write (") && !text.contains("+a"), "{text}");
    let audit = fs::read_to_string(ground.path("state/runs.log")).expect("an audit");
    assert_eq!(audit.lines().filter(|l| l.contains(" play ") && l.ends_with(" done")).count(), 2, "{audit}");
}

#[test]
fn a_playbook_that_does_not_compile_is_2_with_every_place_and_without_changes() {
    let ground = Ground::new(&format!("{COPY}    - {{nonsense: {{}}}}\n    - {{copy: {{dest: /x, contnet: a}}}}\n"));
    ground.write("hosts", "web1\nweb2\n");
    let (code, text, talk) = ground.play(&["-i", "hosts"]);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{talk}");
    assert!(talk.starts_with("error: 3 faults; no host was changed\ncaused by: site.yml:5:8: "), "{talk}");
    assert!(!ground.path("x").exists() && !ground.path("state").exists());
    // Templates are checked too. A template that can never be rendered is an error. A template
    // whose failure the playbook ignores is only a warning.
    ground.write(
        "site.yml",
        &format!("- hosts: all\n  tasks:\n{COPY}    - {{template: {{src: x.j2, dest: '{{{{ dir }}}}/y'}}}}\n"),
    );
    ground.write("x.j2", "a\n{{ nosuch }}\n");
    let (code, text, talk) = ground.play(&[]);
    assert!(code == Some(2) && text.is_empty() && talk.contains("x.j2:2") && talk.contains("`nosuch`"), "{talk}");
    assert!(!ground.path("x").exists() && !ground.path("state").exists());
    let doubt = "    - {template: {src: x.j2, dest: '{{ dir }}/y'}, ignore_errors: true}\n";
    ground.write("site.yml", &format!("- hosts: all\n  tasks:\n{doubt}"));
    let (code, text, talk) = ground.play(&[]);
    assert!(code == Some(0) && text.contains("ignored ") && talk.contains("x.j2:2"), "{text}{talk}");
    ground.write("site.yml", "- hosts: db\n  tasks: [{debug: {}}]\n");
    let (code, _, talk) = ground.play(&["-i", "hosts"]);
    assert!(code == Some(2) && talk.contains("matches a host") && talk.contains("2 hosts"), "{talk}");
    for (args, word) in [
        (&["-i", "none"][..], "none: the inventory could not be read"),
        (&["-e", "x"], "`x` is not KEY=VALUE"),
        (&["-i", "web1 ansible_connection=winrm,"], "is not a host name"),
    ] {
        let (code, _, talk) = ground.play(args);
        assert!(code == Some(2) && talk.contains(word), "{args:?}: {talk}");
    }
}

#[test]
fn a_task_that_fails_is_5_and_says_where() {
    let ground = Ground::new("    - {name: bad, shell: 'echo one; echo two; exit 7'}\n    - {command: touch later}\n");
    let (code, events) = ground.events(&[]);
    assert_eq!(code, Some(5));
    assert!(events.iter().all(|event| event["version"] == 1));
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names[0], "run-start");
    assert_eq!(names.last(), Some(&"run-end"));
    let end = events.iter().find(|event| event["event"] == "host-end").expect("an exit");
    assert_eq!(
        (&end["state"], &end["failure"]["rc"], &end["failure"]["line"]),
        (&"failed".into(), &7.into(), &4.into())
    );
    assert_eq!(events.last().expect("the end")["recap"]["localhost"]["failed"], 1);
    let (_, text, _) = ground.play(&[]);
    for shown in ["failed    bad rc=7", "    | two", "stopped: the task at site.yml:4 failed"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
}

#[test]
fn large_output_long_lines_and_non_text_bytes_are_passed_on_with_a_limit() {
    let ground = Ground::new(
        "    - {shell: 'seq 200000; head -c 1000000 /dev/zero | tr \"\\0\" x; echo; head -c 3000 /dev/urandom'}\n",
    );
    let (code, text, talk) = ground.play(&["-v"]);
    assert_eq!(code, Some(0), "{talk}");
    assert!(text.len() < 4 << 20, "{} bytes", text.len());
    assert!(text.contains("more lines]"), "what was left out is said");
}

#[test]
fn a_killed_executor_is_reported_as_unknown_and_does_not_end_the_tool() {
    let ground = Ground::new("    - {name: suicide, shell: 'echo begun; kill -9 $PPID'}\n");
    let (code, text, _) = ground.play(&["-v"]);
    assert_eq!(code, Some(5), "{text}");
    assert!(
        text.contains("localhost  UNKNOWN: the executor ended: signal: 9") && text.contains("unknown=1\n"),
        "{text}"
    );
    let audit = fs::read_to_string(ground.path("state/runs.log")).expect("an audit");
    assert!(audit.ends_with(" started\n"), "{audit}");
}

#[test]
fn ctrl_c_lets_the_task_finish_and_a_second_ctrl_c_ends_it() {
    let ground = Ground::new(
        "    - {name: long, shell: 'echo begun; while [ ! -e {{ dir }}/go ]; do sleep 0.05; done; echo x >> {{ dir }}/done'}\n    \
         - {name: many, shell: 'echo y >> {{ dir }}/many', loop: '{{ range(2000) | list }}'}\n",
    );
    for (twice, wanted) in [(false, "1"), (true, "2")] {
        let mut child = ground.command(&["-v"]).spawn().expect("remoor runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        read_until(&child, &mut lines, "begun");
        let mut talk = BufReader::new(child.stderr.take().expect("a pipe"));
        signal(&child, Signal::INT);
        read_until(&child, &mut talk, "running tasks finish");
        if twice {
            signal(&child, Signal::INT);
        } else {
            fs::write(ground.path("go"), "").expect("go");
        }
        let text = read_until(&child, &mut lines, "PLAY RECAP");
        assert_eq!(child.bounded_wait().code(), Some(130), "{wanted}: {text}");
        assert_eq!(ground.path("done").exists(), !twice, "{text}");
        let _ = fs::remove_file(ground.path("go"));
        let _ = fs::remove_file(ground.path("done"));
        // A few tasks may have started before the cancellation reached the executor.
        let many = fs::read_to_string(ground.path("many")).unwrap_or_default().lines().count();
        assert!(many < 2000, "{many}");
    }
}

#[test]
fn a_locked_node_is_4_and_the_holder_is_named() {
    let ground =
        Ground::new("    - {name: long, shell: 'echo begun; while [ ! -e {{ dir }}/go ]; do sleep 0.05; done'}\n");
    let mut first = ground.command(&["-v"]).spawn().expect("remoor runs");
    let mut lines = BufReader::new(first.stdout.take().expect("a pipe"));
    read_until(&first, &mut lines, "begun");
    let (code, text, _) = ground.play(&[]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("refused: remoor play, process ") && text.contains("holds the node"), "{text}");
    fs::write(ground.path("go"), "").expect("go");
    assert!(first.bounded_wait().success());
    fs::write(ground.path("state/identity.json"), "{}").expect("a mark");
    let (code, text, _) = ground.play(&[]);
    assert!(code == Some(4) && text.contains("--force"), "{text}");
    assert_eq!(ground.play(&["--force"]).0, Some(0));
}

impl Ground {
    /// Has an inventory of three hosts. All are this machine, each with its own state directory.
    fn with_three_hosts() -> Self {
        let ground = Self::new("");
        let state = |i: u8| ground.path(&format!("s{i}")).display().to_string();
        let hosts: String = (1..=3).map(|i| format!("h{i} remoor_state_dir={} n={i}\n", state(i))).collect();
        ground.write("hosts", &format!("{hosts}[odd]\nh1\nh3\n"));
        ground
    }

    /// Plays a playbook on the three hosts. Returns the exit code, the lines that the hosts wrote
    /// into `log`, and the output.
    fn play_and_read_log(&self, playbook: &str, args: &[&str]) -> (Option<i32>, String, String) {
        self.write("site.yml", playbook);
        let _ = fs::remove_file(self.path("log"));
        let dir = format!("dir={}", self.dir.path().display());
        let mut command = remoor();
        command.current_dir(self.dir.path()).args(["play", "site.yml", "-i", "hosts", "-c", "local", "-e", &dir]);
        let Output { status, stdout, stderr } = command.args(args).bounded_output();
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code(), fs::read_to_string(self.path("log")).unwrap_or_default().replace('\n', " "), text)
    }
}

#[test]
fn hosts_begin_each_play_together_in_batches_without_failed_hosts() {
    let ground = Ground::with_three_hosts();
    let log = "shell: 'echo {{ inventory_hostname }}.{{ x }} >> {{ dir }}/log'";
    let two = format!(
        "- {{name: one, hosts: all, serial: 1, vars: {{x: 1}}, tasks: [{{{log}}}, {{set_fact: {{kept: '{{{{ n }}}}'}}}}]}}\n\
         - {{name: two, hosts: odd, vars: {{x: '{{{{ kept }}}}'}}, tasks: [{{{log}}}]}}\n"
    );
    let (code, log_text, text) = ground.play_and_read_log(&two, &["-f", "1"]);
    assert_eq!((code, log_text.as_str()), (Some(0), "h1.1 h2.1 h3.1 h1.1 h3.3 "), "{text}");
    assert!(text.contains("PLAY [one] on 3 hosts\n") && text.contains("PLAY [two] on 2 hosts\n"), "{text}");
    let (code, log_text, _) = ground.play_and_read_log(&two, &["--limit", "odd:!h1"]);
    assert_eq!((code, log_text.as_str()), (Some(0), "h3.1 h3.3 "));
    let failing = |keys: &str| {
        format!(
            "- {{hosts: all, serial: 1, vars: {{x: 1}}{keys}, tasks: [{{{log}}}, {{fail: {{}}, when: n == 1}}]}}\n\
             - {{hosts: all, vars: {{x: 2}}, tasks: [{{{log}}}]}}\n"
        )
    };
    let (code, log_text, text) = ground.play_and_read_log(&failing("").replace("serial: 1", "serial: 2"), &["-f", "1"]);
    assert_eq!((code, log_text.as_str()), (Some(5), "h1.1 h2.1 h3.1 h2.2 h3.2 "), "{text}");
    // The remaining hosts do not find the failed hosts in `ansible_play_hosts`.
    let names = failing("").replace("serial: 1", "serial: 2");
    let names =
        names.replace("{{ inventory_hostname }}", "{{ ansible_play_hosts | join }}/{{ ansible_play_batch | join }}");
    let (_, log_text, text) = ground.play_and_read_log(&names, &["-f", "1"]);
    assert_eq!(log_text, "h1h2h3/h1h2.1 h2h3/h2.1 h2h3/h3.1 h2h3/h2h3.2 h2h3/h2h3.2 ", "{text}");
    // A batch without remaining hosts ends the whole run, as in Ansible.
    let (code, log_text, text) = ground.play_and_read_log(&failing(""), &[]);
    assert_eq!((code, log_text.as_str()), (Some(5), "h1.1 "), "{text}");
    assert!(
        text.contains("ended early: no host of the batch is left") && text.contains("h3  stopped: not begun"),
        "{text}"
    );
    let (code, log_text, text) =
        ground.play_and_read_log(&failing(", any_errors_fatal: true").replace("serial: 1", "serial: 2"), &["-f", "1"]);
    assert_eq!((code, log_text.as_str()), (Some(5), "h1.1 "), "{text}");
    assert!(text.contains("any_errors_fatal is set"), "{text}");
}

#[test]
fn localhost_is_this_machine_and_limits_are_patterns() {
    let ground = Ground::with_three_hosts();
    let both = "- {hosts: all, tasks: [{shell: 'echo all >> {{ dir }}/log'}]}\n- {hosts: localhost, tasks: [{shell: 'echo here >> {{ dir }}/log'}]}\n- {hosts: nobody, tasks: [{debug: {}}]}\n";
    let state = format!("remoor_state_dir={}", ground.path("own").display());
    let (code, log, text) = ground.play_and_read_log(both, &["-l", "h2", "-e", &state]);
    assert_eq!((code, log.as_str()), (Some(0), "all "), "{text}");
    assert!(text.contains("no host or group is called `nobody`"), "{text}");
    ground.write("lim", "h3\n\nh1\n");
    let (code, log, text) = ground.play_and_read_log(both, &["-l", "@lim", "-e", &state, "-f", "1"]);
    assert_eq!((code, log.as_str()), (Some(0), "all all "), "{text}");
    for (limit, word) in [("web", "no host or group is called `web`"), ("h1:!h1", "no host of the inventory is left")] {
        let (code, log, text) = ground.play_and_read_log(both, &["-l", limit]);
        assert!(code == Some(2) && log.is_empty() && text.contains(word), "{text}");
    }
}

#[test]
fn handlers_left_pending_by_a_failure_are_reported_and_run_the_next_time() {
    let ground = Ground::new(
        "    - {copy: {content: a, dest: '{{ dir }}/x'}, notify: restart}\n    \
         - {fail: {msg: later}, when: (bad | default(0)) | int == 1}\n  \
         handlers:\n    - {name: restart, command: 'true'}\n",
    );
    let (code, text, talk) = ground.play(&["-e", "bad=1"]);
    assert_eq!(code, Some(5), "{text}{talk}");
    assert!(text.contains("localhost  handlers not run: restart"), "{text}");
    let (code, text, _) = ground.play(&[]);
    assert!(code == Some(0) && text.contains("handler restart"), "{text}");
}

#[test]
fn check_mode_changes_nothing_and_exits_with_1_if_anything_would_change() {
    let ground = Ground::new(COPY);
    let (code, text, talk) = ground.play(&["--check", "--diff"]);
    assert!(code == Some(0) && text.contains("changed   write") && text.contains("+a\n"), "{text}{talk}");
    assert!(!ground.path("x").exists());
    assert_eq!(ground.play(&["--check", "--exit-code"]).0, Some(1));
    assert_eq!(ground.play(&[]).0, Some(0));
    assert_eq!(ground.play(&["-C", "--exit-code"]).0, Some(0));
    let (code, text, _) = ground.play(&["-C", "--exit-code", "-e", "text=b"]);
    assert!(code == Some(1) && text.contains("changed=1"), "{text}");
    ground.write("site.yml", "- hosts: all\n  tasks: [{command: touch y, changed_when: false}]\n");
    assert_eq!(ground.play(&["--check", "--exit-code"]).0, Some(0), "the script itself says that it changes nothing");
    ground.write("site.yml", "- hosts: all\n  tasks: [{command: touch y}]\n");
    let (code, text, _) = ground.play(&["--check", "--exit-code"]);
    assert!(code == Some(1) && !ground.path("y").exists(), "{text}");
    let (code, text, _) = ground.play(&["--tags", "none"]);
    assert!(code == Some(0) && text.contains("ok=0 "), "{text}");
}

#[test]
fn tags_select_and_skip_tasks() {
    let ground = Ground::new(
        "    - {name: one, debug: {msg: x}, tags: [a]}\n    - {name: two, debug: {msg: x}, tags: [a, b]}\n    \
         - {name: three, debug: {msg: x}}\n",
    );
    for (args, want) in [
        (&["-t", "a"][..], "one two"),
        (&["-t", "a", "--skip-tags", "b"], "one"),
        (&["--skip-tags", "a,b"], "three"),
        (&["-t", "untagged"], "three"),
    ] {
        let (code, events) = ground.events(args);
        let names: Vec<&str> =
            events.iter().filter(|e| e["event"] == "task").filter_map(|e| e["name"].as_str()).collect();
        assert_eq!((code, names.join(" ").as_str()), (Some(0), want), "{args:?}");
    }
}

/// Reads the output of a terminal until it contains `mark`. Returns it with `mark`.
fn read_screen(child: &Child, screen: &mut impl Read, mark: &str) -> String {
    let _limit = TimeLimit::start(child, LONG);
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&all).contains(mark) {
        assert!(screen.read(&mut byte).expect("a byte") > 0, "no {mark}: {}", String::from_utf8_lossy(&all));
        all.extend(byte);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn variables_are_asked_for_at_a_terminal_and_have_defaults_without_one() {
    let ground = Ground::new("    - {copy: {content: '{{ who }} {{ secret }} {{ pw }}', dest: '{{ dir }}/x'}}\n");
    let site = fs::read_to_string(ground.path("site.yml")).expect("site.yml");
    let prompts = "  vars_prompt:\n    - {name: who, private: false, default: nobody}\n    - {name: secret, prompt: The secret, confirm: true}\n    - {name: pw, default: word, encrypt: sha512_crypt, salt: abc}\n";
    ground.write("site.yml", &site.replacen("  tasks:", &format!("{prompts}  tasks:"), 1));
    let (code, _, talk) = ground.play(&["-e", "secret=given"]);
    assert_eq!(code, Some(0), "{talk}");
    assert!(talk.contains("nobody can be asked for `who`") && !talk.contains("`secret`"), "{talk}");
    let written = || fs::read_to_string(ground.path("x")).expect("x");
    assert!(written().starts_with("nobody given $6$rounds=656000$abc$"), "{}", written());

    let vars = serde_json::json!({"remoor_state_dir": ground.path("state"), "dir": ground.dir.path()});
    ground.write("vars.json", &vars.to_string());
    let program = remoor().get_program().to_str().expect("a path").to_owned();
    let line = format!("{program} play site.yml --connection local -e @vars.json");
    // `script` gives the program a terminal.
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).current_dir(ground.dir.path());
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    let (mut keys, mut screen) = (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
    let mut shown = String::new();
    let (secret, again) = (("The secret: ", "s3cret\n"), ("confirm The secret: ", "s3cret\n"));
    for (mark, answer) in [("who [nobody]: ", "me\n"), secret, again, ("pw [word]: ", "\n")] {
        shown += &read_screen(&child, &mut screen, mark);
        keys.write_all(answer.as_bytes()).expect("the terminal reads");
    }
    shown += &read_screen(&child, &mut screen, "failed=0");
    drop(keys);
    assert!(child.bounded_wait().success(), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(written().starts_with("me s3cret $6$rounds=656000$abc$"), "{}", written());
}

#[test]
fn a_task_that_runs_once_gives_its_result_to_all_hosts_of_the_batch() {
    let ground = Ground::with_three_hosts();
    let text = "\
- hosts: all
  gather_facts: no
  serial: [3, 1]
  tasks:
    - {command: 'false', when: inventory_hostname == fails | default('')}
    - {shell: 'echo x >> {{ dir }}/count; echo {{ inventory_hostname }}', run_once: true, register: r}
    - {shell: 'echo {{ inventory_hostname }} of {{ r.stdout }} >> {{ dir }}/log'}
- hosts: all
  gather_facts: no
  serial: 2
  tasks:
    - {command: 'echo {{ inventory_hostname }}', run_once: true, register: r, no_log: true}
    - {shell: 'echo {{ inventory_hostname }} of {{ r.stdout }} >> {{ dir }}/log'}
    - {shell: 'exit 3', run_once: true, when: stops is defined, no_log: true}
    - {shell: 'echo {{ inventory_hostname }} ends >> {{ dir }}/log', when: stops is defined}
";
    let sorted = |log: String| {
        let words: Vec<&str> = log.split_whitespace().collect();
        let mut lines: Vec<String> = words.chunks(3).map(|line| line.join(" ")).collect();
        lines.sort();
        lines.join(", ")
    };
    // With one fork, the host that runs the tasks has ended the play before the others begin.
    for forks in ["1", "5"] {
        let (code, log, shown) = ground.play_and_read_log(text, &["-f", forks]);
        assert_eq!(code, Some(0), "{shown}");
        assert_eq!(sorted(log), "h1 of h1, h1 of h1, h2 of h1, h2 of h1, h3 of h1, h3 of h3", "{shown}");
    }
    // The next host runs the tasks if the first one has failed.
    let (code, log, shown) = ground.play_and_read_log(text, &["-e", "fails=h1"]);
    assert_eq!(code, Some(5), "{shown}");
    assert_eq!(sorted(log), "h2 of h2, h2 of h2, h3 of h2, h3 of h3", "{shown}");
    // A failure of the task ends the play for all hosts, and is a failure of one host.
    let (code, log, shown) = ground.play_and_read_log(text, &["-e", "stops=yes"]);
    assert_eq!((code, log.contains("ends")), (Some(5), false), "{shown}");
    assert_eq!(shown.matches("failed=1").count(), 1, "{shown}");
}

/// Facts and variables that later plays read of other hosts.
const SHARED: &str = "\
- hosts: all
  gather_facts: no
  tasks:
    - {set_fact: {mine: '{{ inventory_hostname }}!', given: own}}
    - {set_fact: {given: 'from {{ inventory_hostname }}', markup: \"{{ '{' ~ '{ mine }' ~ '}' }}\"}, delegate_to: h2, delegate_facts: true, when: n == 1}
    - {command: 'echo out', register: r}
- hosts: odd
  gather_facts: no
  tasks:
    - {shell: \"echo {{ groups['all'] | map('extract', hostvars, 'mine') | join }} {{ hostvars.h2.given }} {{ hostvars.h1.r.stdout }} >> {{ dir }}/log\"}
- hosts: h2
  gather_facts: no
  tasks:
    - {shell: \"echo '{{ given }} {{ markup }}' {{ hostvars.h1.ansible_kernel == ansible_kernel }} >> {{ dir }}/log\"}
    - {set_fact: {given: changed}}
- hosts: h2
  gather_facts: no
  tasks:
    - {shell: 'echo {{ given }} >> {{ dir }}/log'}
";

/// As in Ansible, a host reads what the others have set earlier in the same play. h1 is slow, and
/// h3 begins only because h2 waits for it.
const SAME_PLAY: &str = "\
- hosts: all
  vars: {token: '{{ hostvars[groups.all[0]].join.stdout }}'}
  tasks:
    - {shell: 'sleep 0.5; echo token', register: join, when: n == 1}
    - block:
        - {set_fact: {late: 'of {{ inventory_hostname }}'}}
      when: n == 3
    - shell: \"echo {{ token }} {{ hostvars.h3.late }} {{ hostvars.h1.late | default('unset') }} {{ groups.all | map('extract', hostvars, ['ansible_facts', 'kernel']) | unique | length }} >> {{ dir }}/log\"
      when: n == 2
    - {set_fact: {late: changed}}
";

/// Each host sees only itself in the task, although all hosts run at the same time.
const THROTTLED: &str = "\
- hosts: all
  gather_facts: no
  tasks:
    - shell: 'mkdir {{ dir }}/busy && sleep 0.2 && rmdir {{ dir }}/busy && echo {{ item }} >> {{ dir }}/log'
      throttle: '{{ most }}'
      loop: [1, 2]
";

#[test]
fn hosts_read_what_others_have_set_and_wait_for_the_limit_of_a_task() {
    let ground = Ground::with_three_hosts();
    let shared = "h1!h2!h3! from h1 out h1!h2!h3! from h1 out from h1 {{ mine }} True changed ";
    let same = "token of h3 unset 1 ";
    for (playbook, args, expected) in [
        (SHARED, ["-f", "1"], shared),
        (SAME_PLAY, ["-f", "1"], same),
        (SAME_PLAY, ["-f", "3"], same),
        (THROTTLED, ["-e", "most=1"], "1 2 1 2 1 2 "),
    ] {
        let (code, log, text) = ground.play_and_read_log(playbook, &args);
        assert_eq!((code, log.as_str()), (Some(0), expected), "{text}");
    }
}

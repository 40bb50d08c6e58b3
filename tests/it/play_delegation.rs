//! `remoor play` with tasks that another host runs: `delegate_to`, `local_action`,
//! `connection: local`, over SSH to a separate sshd on loopback. The recorded values are those of
//! ansible-core 2.19 with the same playbooks and the same sshd.

use crate::play_ssh::{Server, run_to_end};
use std::fs;

/// Starts the sshd, and adds this machine to the inventory.
fn start() -> Option<Server> {
    let server = Server::start()?;
    // Only a shell that sshd has started finds this program.
    server.program("where", "echo host");
    let (hosts, dir) = (fs::read_to_string(server.path("hosts")).expect("hosts"), server.dir().display());
    let own =
        ["localhost", "127.0.0.1"].map(|name| format!("{name} ansible_connection=local remoor_state_dir={dir}/s0\n"));
    server.write("hosts", &(hosts + &own.concat()));
    Some(server)
}

/// Plays `tasks` on h1. Returns the exit code, the output, and the lines of the file `out`.
fn play(server: &Server, keys: &str, tasks: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let text = format!("- hosts: h1\n  gather_facts: no\n{keys}  tasks:\n{tasks}");
    let (code, text) = run_to_end(&mut server.command_for(&text, args));
    (code, text, fs::read_to_string(server.path("out")).unwrap_or_default())
}

const WHERE: &str = "where 2>/dev/null || echo controller";

#[test]
fn a_delegated_task_runs_on_its_host_with_the_variables_of_the_other() {
    let Some(server) = start() else { return };
    server.write("t.j2", "{{ inventory_hostname }} {{ here.stdout }} {{ added.x | default('none') }}\n");
    let tasks = format!(
        r#"
    - {{shell: '{WHERE}', register: here}}
    - {{shell: '{WHERE}', delegate_to: localhost, register: there}}
    - {{local_action: shell where || echo controller, register: action}}
    - {{shell: '{WHERE}', connection: local, register: local}}
    - {{shell: '{WHERE}', delegate_to: '{{{{ target }}}}', register: computed, vars: {{target: h2}}}}
    - {{shell: '{WHERE}', delegate_to: 127.0.0.1, register: address}}
    - {{set_fact: {{added: {{x: '{{{{ there.stdout }}}}'}}}}, delegate_to: localhost}}
    - {{template: {{src: t.j2, dest: '{{{{ dir }}}}/templated'}}, delegate_to: localhost, register: templated}}
    - {{copy: {{content: '{{{{ added.x }}}}', dest: '{{{{ dir }}}}/copied'}}, delegate_to: h2, register: copied}}
    - {{set_fact: {{own: 1}}, delegate_to: h2, delegate_facts: true}}
    - {{shell: 'echo {{{{ item }}}} {{{{ idx }}}}; {WHERE}', delegate_to: '{{{{ item }}}}', loop: [h2, localhost], loop_control: {{index_var: idx}}, register: looped}}
    - {{command: 'false', delegate_to: localhost, ignore_errors: true, register: failed}}
    - {{command: 'echo 1', delegate_to: localhost, changed_when: false, failed_when: judged.stdout != '1', register: judged}}
    - {{shell: 'echo x >> {{{{ dir }}}}/tries; wc -l < {{{{ dir }}}}/tries', delegate_to: localhost, register: tried, until: tried.stdout | int > 2, retries: 5, delay: 0}}
    - {{command: 'echo no', delegate_to: localhost, when: here.rc != 0, register: skipped}}
    - block: [{{command: sh -c 'exit 3', delegate_to: localhost}}]
      rescue: [{{set_fact: {{rescued: '{{{{ ansible_failed_result.rc }}}}'}}}}]
    - copy:
        dest: '{{{{ dir }}}}/out'
        content: |
          {{{{ [here, there, action, local, computed, address] | map(attribute='stdout') | join(' ') }}}}
          {{{{ templated.changed }}}} {{{{ copied.changed }}}}
          {{{{ own | default('unset') }}}} {{{{ hostvars.h2.own }}}}
          {{{{ looped.results | map(attribute='stdout_lines') | map('join', ' ') | join(', ') }}}}
          {{{{ failed.rc }}}} {{{{ failed is failed }}}} {{{{ judged is changed }}}} {{{{ tried.attempts }}}}
          {{{{ skipped is skipped }}}} {{{{ rescued }}}}
"#
    );
    let (code, text, out) = play(&server, "", &tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        out,
        "host controller controller controller host controller\nTrue True\nunset 1\nh2 0 host, localhost 1 controller\n\
         1 True False 3\nTrue 3\n",
        "{text}"
    );
    assert_eq!(fs::read_to_string(server.path("templated")).expect("a file"), "h1 host controller\n");
    assert_eq!(fs::read_to_string(server.path("copied")).expect("a file"), "controller");
    // All tasks on h2 and all tasks on this machine have one session each.
    let runs = |state: &str| server.audit(state).lines().filter(|line| line.ends_with("started")).count();
    assert_eq!((runs("s1"), runs("s2"), server.counts().0), (1, 3, 2), "{text}");
}

#[test]
fn check_mode_and_become_apply_to_the_delegated_task() {
    let Some(server) = start() else { return };
    let tasks = "    - {copy: {content: x, dest: '{{ dir }}/out'}, delegate_to: localhost}
    - {command: 'touch {{ dir }}/out', delegate_to: localhost, register: r}
    - {debug: {msg: 'unknown {{ r.rc }}'}, delegate_to: localhost}
";
    let (code, text, out) = play(&server, "", tasks, &["--check", "--diff"]);
    assert!(code == Some(0) && out.is_empty() && !server.path("out").exists(), "{text}");
    assert!(text.contains("+x"), "the diff of the delegated task is shown: {text}");

    server.program("sudo", &format!("echo \"$1 $2\" >> {}/asked; shift 2; exec \"$@\"", server.dir().display()));
    server.program("id", "echo 1000");
    let tasks = "    - {command: 'true'}
    - {shell: 'echo x > {{ dir }}/out', delegate_to: h2, become: true}
";
    // The first login uploads the program.
    assert_eq!(play(&server, "", tasks, &[]).0, Some(0));
    fs::remove_file(server.path("asked")).expect("sudo was asked");
    let (code, text, out) = play(&server, "", tasks, &[]);
    assert_eq!((code, out.as_str()), (Some(0), "x\n"), "{text}");
    assert_eq!(fs::read_to_string(server.path("asked")).expect("asked"), "-n --\n", "only on h2: {text}");
}

#[test]
fn a_play_with_a_local_connection_needs_no_login() {
    let Some(server) = start() else { return };
    let tasks = format!("    - {{shell: '({WHERE}; echo {{{{ inventory_hostname }}}}) > {{{{ dir }}}}/out'}}\n");
    let (code, text, out) = play(&server, "  connection: local\n", &tasks, &[]);
    assert_eq!((code, out.as_str()), (Some(0), "controller\nh1\n"), "{text}");
    assert_eq!(server.counts(), (0, 0), "{text}");
}

#[test]
fn a_delegated_task_that_cannot_run_fails_alone() {
    let Some(server) = start() else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let hosts = fs::read_to_string(server.path("hosts")).expect("hosts");
    server.write("hosts", &hosts.replace("h3 ", &format!("h3 ansible_port={port} ")));
    let tasks = "    - {command: 'true', delegate_to: '{{ \"h\" ~ 3 }}', ignore_errors: true, register: away}
    - {command: 'true', delegate_to: '{{ \"h\" ~ 9 }}', ignore_errors: true, register: unknown}
    - {copy: {content: '{{ away.msg }} | {{ unknown.msg }}', dest: '{{ dir }}/out'}}
";
    let (code, text, out) = play(&server, "", tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    let (away, unknown) = out.split_once(" | ").unwrap_or_default();
    assert!(away.starts_with("delegated to h3: "), "{out}");
    assert_eq!(unknown, "`delegate_to`: `h9` is not a host of the inventory");

    let (code, text, _) = play(&server, "", "    - {command: 'true', delegate_to: h9}\n", &[]);
    assert!(code == Some(2) && text.contains("`h9` is not a host of the inventory"), "{text}");
}

/// Only the run knows the name of a file that `tempfile` makes on the controller.
#[test]
fn a_file_that_the_run_has_made_on_the_controller_is_sent_and_another_is_not() {
    let Some(server) = start() else { return };
    fs::create_dir(server.path("pki")).expect("a directory");
    server.write("pki/below", "below\n");
    server.write(".secret", "s\n");
    let tasks = r#"
    - {tempfile: {state: directory}, delegate_to: localhost, register: tmp}
    - {copy: {content: 'made {{ 1 + 1 }}', dest: '{{ tmp.path }}/made'}, delegate_to: localhost}
    - {copy: {content: '{% raw %}{{ inventory_hostname }}{% endraw %}', dest: '{{ tmp.path }}/t.j2'}, delegate_to: localhost}
    - {set_fact: {path: '{{ tmp.path }}/made'}}
    - {copy: {src: '{{ path }}', dest: '{{ dir }}/copied'}}
    - {template: {src: '{{ tmp.path }}/t.j2', dest: '{{ dir }}/templated'}}
    - {shell: 'echo /etc/hostname', register: r}
    - {copy: {src: '{{ item }}', dest: '{{ dir }}/x'}, loop: ['{{ r.stdout }}', '/etc/..{{ r.stdout }}', '{{ dir }}/{{ ".secret" if r.rc == 0 }}'], register: refused, ignore_errors: true}
    - {copy: {src: '{{ dir }}/bel{{ r.rc }}w', dest: '{{ dir }}/x'}, register: missing, ignore_errors: true}
    - {copy: {src: "{{ dir }}/pki/{{ 'below' if r.rc == 0 else 'x' }}", dest: '{{ dir }}/y'}}
    - {file: {path: '{{ tmp.path }}', state: absent}, delegate_to: localhost}
    - copy:
        dest: '{{ dir }}/out'
        content: |
          {{ refused.results | map(attribute='msg') | map('regex_search', 'is not sent') | list }}
          {{ missing is failed }}
"#;
    let (code, text, out) = play(&server, "", tasks, &[]);
    assert_eq!((code, out.as_str()), (Some(0), "['is not sent', 'is not sent', 'is not sent']\nTrue\n"), "{text}");
    let read = |name: &str| fs::read_to_string(server.path(name)).expect("a file");
    assert_eq!((read("copied").as_str(), read("templated").as_str(), read("y").as_str()), ("made 2", "h1", "below\n"));
    assert!(!server.path("x").exists());
}

/// All sessions of a run share the lock of a host.
#[test]
fn a_host_runs_delegated_tasks_during_its_own_run() {
    let Some(server) = start() else { return };
    let text = "- hosts: [h1, h2]
  tasks:
    - {shell: 'echo {{ inventory_hostname }} >> {{ dir }}/began; while [ $(wc -l < {{ dir }}/began) -lt 2 ]; do sleep 0.05; done', delegate_to: h2}
";
    let (code, text) = run_to_end(&mut server.command_for(text, &[]));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(server.audit("s2").lines().filter(|line| line.ends_with("done")).count(), 2, "{text}");
}

//! `remoor play` with tasks that change the inventory for later plays: `add_host` and `group_by`,
//! over SSH to a separate sshd on loopback. The expected values are those of ansible-core 2.19 with
//! the same playbook.

use crate::play_ssh::{Server, run_to_end};
use std::fs;

const SITE: &str = "\
- hosts: [h1, h2]
  gather_facts: no
  tasks:
    - {set_fact: {color: \"{{ 'red' if inventory_hostname == 'h1' else 'blue' }}\"}}
    - {include_vars: more.yml}
    - {group_by: {key: 'color {{ color }}', parents: [colors]}, register: g}
    - {add_host: {name: 'new{{ item }}', groups: 'added,more', number: '{{ item }}', from: '{{ inventory_hostname }}', text: '{{ raw }}', remoor_state_dir: '{{ dir }}/n{{ item }}'}, loop: [1, 2], register: a}
    - {add_host: {name: new1, groups: [added], number: 1}, register: b}
    - {add_host: {name: new9, groups: [added]}, when: inventory_hostname == 'h2', register: w}
    - {shell: 'echo {{ g.changed }} {{ g.add_group }} {{ g.parent_groups }} >> {{ dir }}/out-{{ inventory_hostname }}'}
    - shell: 'echo {{ a.changed }} {{ b.changed }} {{ w is skipped }} {{ a.results[1].add_host.host_name }} >> {{ dir }}/out-h1'
      when: inventory_hostname == 'h1'
- hosts: color-red
  gather_facts: no
  tasks: [{shell: 'echo red {{ color }} {{ file_var }} {{ included }} {{ group_names }} >> {{ dir }}/out-{{ inventory_hostname }}'}]
- hosts: added
  gather_facts: no
  tasks:
    - {shell: 'echo {{ number }} {{ from }} {{ hostvars.h2.color }} {{ groups.added }} {{ file_var | default(1) }} {{ text | length }} >> {{ dir }}/out-{{ inventory_hostname }}'}
    - {group_by: {key: again}}
- hosts: again:h2
  gather_facts: no
  tasks: [{shell: 'echo last {{ g.changed | default(2) }} {{ ansible_play_hosts | sort }} >> {{ dir }}/out-{{ inventory_hostname }}'}]
";

fn start() -> Option<Server> {
    let server = Server::start()?;
    fs::create_dir(server.path("group_vars")).expect("a directory");
    server.write("group_vars/colors.yml", "file_var: of colors\n");
    server.write("more.yml", "included: '{{ color }} included'\nraw: !unsafe '{{ 7 * 7 }}'\n");
    Some(server)
}

fn read_out(server: &Server, host: &str) -> String {
    let text = fs::read_to_string(server.path(&format!("out-{host}"))).unwrap_or_default();
    text.replace(['\'', '"', '[', ']'], "")
}

/// Runs the playbook and compares what its tasks have written.
fn run_site(arguments: &[&str], written: bool) {
    let Some(server) = start() else { return };
    let (code, text) = run_to_end(&mut server.command_for(SITE, arguments));
    assert_eq!(code, Some(0), "{text}");
    for host in ["h1", "h2", "new1", "new2"] {
        let line = text.lines().find(|line| line.starts_with(&format!("{host} ")) && line.contains("ok="));
        assert!(line.is_some_and(|line| line.contains("failed=0")), "{host}: {text}");
    }
    assert!(
        !text.lines().any(|line| line.starts_with("new9 ")) && !text.contains("stopped") && !text.contains("CANCELLED"),
        "{text}"
    );
    if !written {
        return;
    }
    let red = "True color-red colors\nTrue False True new2\nred red of colors red included color-red, colors\n";
    assert_eq!(read_out(&server, "h1"), red, "{text}");
    assert_eq!(read_out(&server, "h2"), "True color-blue colors\nlast True h2, new1, new2\n", "{text}");
    for number in [1, 2] {
        let own = format!("{number} h1 blue new1, new2 1 11\nlast 2 h2, new1, new2\n");
        assert_eq!(read_out(&server, &format!("new{number}")), own, "{text}");
    }
}

#[test]
fn later_plays_run_on_the_hosts_and_groups_that_a_play_has_added() {
    run_site(&[], true);
}

#[test]
fn check_mode_predicts_the_plays_of_added_hosts() {
    run_site(&["--check"], false);
}

#[test]
fn only_a_host_with_a_new_plan_logs_in_again() {
    let Some(server) = start() else { return };
    let text = "- hosts: [h1, h2]\n  gather_facts: no\n  tasks: [{group_by: {key: g}, when: inventory_hostname == 'h1'}]\n\
                - hosts: g\n  gather_facts: no\n  tasks: [{shell: 'echo done >> {{ dir }}/out-{{ inventory_hostname }}'}]\n";
    assert_eq!(run_to_end(&mut server.command_for(text, &[])).0, Some(0));
    let before = server.counts().0;
    let (code, text) = run_to_end(&mut server.command_for(text, &[]));
    assert_eq!((code, server.counts().0 - before), (Some(0), 3), "{text}");
    assert_eq!(
        (read_out(&server, "h1"), read_out(&server, "h2")),
        ("done\ndone\n".to_owned(), String::new()),
        "{text}"
    );
}

#[test]
fn a_play_without_a_change_needs_no_further_login() {
    let Some(server) = start() else { return };
    let text = "- hosts: h1\n  tasks: [{add_host: {name: h7}, when: inventory_hostname == 'h2'}]\n- hosts: h1\n  tasks: [{command: 'true'}]\n";
    assert_eq!(run_to_end(&mut server.command_for(text, &[])).0, Some(0));
    let before = server.counts().0;
    let (code, text) = run_to_end(&mut server.command_for(text, &[]));
    assert_eq!((code, server.counts().0 - before), (Some(0), 1), "{text}");
}

#[test]
fn a_result_of_a_host_does_not_choose_how_another_host_is_reached() {
    let Some(server) = start() else { return };
    let play = |options: &str| {
        let tasks = format!("[{{command: echo local, register: r}}, {{add_host: {{{options}}}}}]");
        run_to_end(&mut server.command_for(&format!("- hosts: h1\n  gather_facts: no\n  tasks: {tasks}\n"), &[]))
    };
    let (code, text) = play("name: new, ansible_connection: '{{ r.stdout }}'");
    assert!(code == Some(5) && text.contains("only the playbook may choose `ansible_connection`"), "{text}");
    let (code, text) = play("name: 'a b'");
    assert!(code == Some(5) && text.contains("`a b` cannot be the name of a host or group"), "{text}");
    assert_eq!(play("name: h2, other: 1, ansible_user: root").0, Some(0));
    // Later plays trust the variables of the inventory.
    let (code, text) = play("name: h2, other: '{{ r.stdout }}'");
    assert!(code == Some(5) && text.contains("only the playbook may choose `other`"), "{text}");
}

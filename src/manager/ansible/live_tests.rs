//! Tests of real Ansible with a real sshd on loopback, which has its own host key. They check which
//! host keys are accepted and how an unreachable host is reported.

use super::tests::{a_play, ansible, fleet};
use super::*;
use remoor_exec::ssh::testing::TestSshd;
use std::fs;

#[test]
fn real_ansible_enters_a_host_by_its_recorded_key_and_no_other() {
    let Some(program) = ansible() else { return };
    let Some(server) = TestSshd::start() else { return };
    let note = server.path("note");
    let site = format!(
        "- hosts: web\n  gather_facts: false\n  tasks:\n    - name: note\n      copy: {{content: x, dest: '{}'}}\n",
        note.display()
    );
    let inventory = format!(
        "web: {{hosts: {{w1: {{ansible_host: 127.0.0.1, ansible_port: {}, ansible_user: {}, ansible_ssh_common_args: \
         '-o StrictHostKeyChecking=no'}}}}}}\n",
        server.port(),
        server.user()
    );
    let run = |host_key: &str, identity: &str| {
        let mut play = a_play(fleet(&inventory, &[("site.yml", &site)]));
        play.extra.insert("ansible_python_interpreter".to_owned(), json!("{{ ansible_playbook_python }}"));
        let identity = server.path(identity);
        play.extra.insert("ansible_ssh_private_key_file".to_owned(), json!(identity));
        let host_keys = vec![server.read(host_key).trim().to_owned()];
        play.known.insert("w1".to_owned(), AnsibleNode { host_keys, ..AnsibleNode::default() });
        let (runs, mut events) = (tempfile::tempdir().unwrap(), Vec::new());
        let ended =
            play_with(&program, &play, runs.path(), &CancelToken::new(), &mut |event| events.push(event.to_string()));
        (ended, events.join("\n"))
    };
    for (host_key, identity, said) in
        [("stranger.pub", "user", "Host key verification failed"), ("host.pub", "stranger", "Permission denied")]
    {
        let (ended, events) = run(host_key, identity);
        let Err(PlayError::Failed { why, .. }) = ended else { panic!("{ended:?}\n{events}") };
        assert!(why.starts_with("site.yml:4: note: Ansible can't reach w1: ") && why.contains(said), "{why}\n{events}");
        assert!(events.contains("0 failed, 0 ignored, 1 unreachable"), "{events}");
        assert!(!note.exists(), "somebody was let in");
    }
    let (ended, events) = run("host.pub", "user");
    assert!(ended.is_ok(), "{ended:?}\n{events}\n{}", server.read("log"));
    assert_eq!(fs::read_to_string(&note).unwrap(), "x");
}

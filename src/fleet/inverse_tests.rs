//! Small fleets. The cleanup of each omits an item that the provisioning created, names the item in
//! another way, or can't be checked.

use crate::fleet::lint;
use remoor_config::Fleet;
use std::fs;
use std::path::Path;

const CONFIG: &str = "version: 1
inventory: inventory.yml
groups:
  web: {services: [app], provision: up.yml, cleanup: down.yml}
services:
  app: {files: [/etc/own.conf], state: [/var/lib/app, '/srv/{{ site }}/*.db']}
";

/// The warnings of a fleet, one per line. `up` has the tasks of its provisioning playbook, `down`
/// those of its cleanup playbook.
fn warnings(up: &str, down: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let play = |tasks: &str| format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}");
    for (name, text) in [
        ("remoor.yml", CONFIG.to_owned()),
        ("inventory.yml", "web: {hosts: {w1: {site: one, conf: /etc/app, gone: [/etc/a, /etc/b]}}}\n".to_owned()),
        ("up.yml", play(up)),
        ("down.yml", play(down)),
        ("templates/x.tera", "x\n".to_owned()),
        ("files/down.sh", "#!/bin/sh\nrm -f /etc/by-script\n".to_owned()),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    lint(&Fleet::load(dir.path()).unwrap()).iter().map(|fault| fault.to_string()).collect()
}

fn created_warning(path: &str) -> String {
    format!("    - copy: {{content: x, dest: '{path}'}}\n")
}

const ANY: &str = "    - file: {path: /etc/other, state: absent}\n";

#[test]
fn what_a_cleanup_forgets_is_named_with_its_place() {
    let up = "    - template: {src: x.tera, dest: '{{ conf }}/{{ item }}.conf'}
      loop: [a, b]
    - file: {path: /etc/link, src: /etc/app, state: link}
    - systemd: {name: app.service, enabled: true}
    - service: {name: helper, state: started}
    - shell: |
        iptables -C INPUT -p tcp --dport 8080 -j ACCEPT || iptables -I INPUT -p tcp --dport 8080 -j ACCEPT
      changed_when: false
    - command: ufw allow 9090/tcp
      changed_when: false
    - shell: systemctl -q enable --now third.service fourth && echo fifth
      changed_when: false
    - cron: {name: x, job: /bin/true, user: root, cron_file: app-cron}
    - apt: {name: app, state: present}
";
    let down = "    - file: {path: /etc/app/a.conf, state: absent}\n";
    expect_test::expect![[r#"
        up.yml:4:1: warning: /etc/app/b.conf is made here, and down.yml does not mention it
          hint: remove it there; to keep it, list it in `state` of its service in remoor.yml
        up.yml:6:1: warning: /etc/link is made here, and down.yml does not mention it
          hint: remove it there; to keep it, list it in `state` of its service in remoor.yml
        up.yml:7:1: warning: the unit app is started here, and down.yml does not mention it
          hint: stop and disable it there
        up.yml:8:1: warning: the unit helper is started here, and down.yml does not mention it
          hint: stop and disable it there
        up.yml:9:1: warning: the firewall is opened for port 8080 here, and down.yml does not mention it
          hint: close it there
        up.yml:12:1: warning: the firewall is opened for port 9090 here, and down.yml does not mention it
          hint: close it there
        up.yml:14:1: warning: the unit fourth is started here, and down.yml does not mention it
          hint: stop and disable it there
        up.yml:14:1: warning: the unit third is started here, and down.yml does not mention it
          hint: stop and disable it there
        up.yml:16:1: warning: /etc/cron.d/app-cron is made here, and down.yml does not mention it
          hint: remove it there; to keep it, list it in `state` of its service in remoor.yml"#]]
    .assert_eq(&warnings(up, down).join("\n"));
}

#[test]
fn what_is_unpacked_cloned_mounted_and_named_is_asked_for_too() {
    let up = "    - unarchive: {src: /x.tgz, dest: /opt/app, remote_src: true}
    - unarchive: {src: /x.tgz, dest: /, creates: /srv/tool/bin, remote_src: true}
    - git: {repo: 'https://example.invalid/r', dest: /srv/code/}
    - mount: {path: /mnt/data, src: /dev/sdb1, fstype: ext4, state: mounted}
    - get_url: {url: 'https://example.invalid/a/tool.tgz?x=/y', dest: /usr/local/lib/}
    - user: {name: deploy}
    - group: {name: operators, state: present}
    - cron: {name: nightly job, job: /bin/true}
    - user: {name: root, shell: /bin/bash}
    - group: {name: old, state: absent}
    - git: {repo: 'https://example.invalid/r', dest: /srv/looked-at, clone: false}
    - mount: {path: /mnt/other, state: unmounted}
";
    expect_test::expect![[r#"
        up.yml:4:1: warning: /opt/app gets what is unpacked here, and down.yml does not mention it
        up.yml:5:1: warning: /srv/tool/bin is unpacked here, and down.yml does not mention it
        up.yml:6:1: warning: /srv/code is cloned here, and down.yml does not mention it
        up.yml:7:1: warning: /mnt/data is mounted here, and down.yml does not mention it
        up.yml:8:1: warning: /usr/local/lib/tool.tgz is made here, and down.yml does not mention it
        up.yml:9:1: warning: the user deploy is made here, and down.yml does not mention it
        up.yml:10:1: warning: the group operators is made here, and down.yml does not mention it
        up.yml:11:1: warning: the cron entry nightly job is made here, and down.yml does not mention it"#]]
    .assert_eq(&warnings(up, ANY).iter().map(|fault| fault.lines().next().unwrap()).collect::<Vec<_>>().join("\n"));
}

/// Each cleanup in this test removes, or may remove, the item that the provisioning created.
#[test]
fn what_a_cleanup_names_in_any_words_is_mentioned() {
    let unit = "    - systemd: {name: app.service, state: started}\n";
    let port = "    - command: iptables -A INPUT -p tcp --dport 8080 -j ACCEPT\n      changed_when: false\n";
    let conf = &created_warning("/etc/app/x.conf");
    let unpacked = "    - unarchive: {src: /x.tgz, dest: /opt/app, remote_src: true}\n";
    let mounted = "    - mount: {path: /mnt/data, src: /dev/sdb1, fstype: ext4, state: mounted}\n";
    let user = "    - user: {name: deploy}\n";
    let entry = "    - cron: {name: nightly job, job: /bin/true}\n";
    for (up, down) in [
        (conf.as_str(), "    - file: {path: /etc/app/x.conf, state: absent}\n"),
        (conf, "    - file: {path: '{{ conf }}/', state: absent}\n"),
        (conf, "    - file: {path: '/etc/{{ item }}', state: absent}\n      loop: [app]\n"),
        (conf, "    - shell: rm -rf /etc/app\n"),
        (conf, "    - command: rm -f {{ item }}/x.conf\n      loop: ['{{ conf }}']\n"),
        (conf, "    - shell: cd /etc/app && rm -f x.conf\n"),
        (conf, "    - shell: rm -f /etc/app/*.conf\n"),
        (conf, "    - shell: find /etc -name '*.conf' -delete\n"),
        (conf, "    - command: /opt/app/uninstall.sh\n"),
        (conf, "    - apt: {name: app, state: absent, purge: true}\n"),
        (
            conf,
            "    - command: ls /etc\n      register: found\n    - file: {path: '{{ item }}', state: absent}\n      loop: '{{ found.stdout_lines }}'\n",
        ),
        (
            &created_warning("/etc/a"),
            "    - file: {path: '{{ item }}', state: absent}\n      with_items: '{{ gone }}'\n",
        ),
        (unit, "    - service: {name: app, state: stopped}\n"),
        (unit, "    - systemd: {name: '{{ item }}', enabled: false}\n      loop: [app, other]\n"),
        (unit, "    - shell: for u in app other; do systemctl stop $u; done\n"),
        (unit, "    - command: systemctl disable --now app.service\n"),
        (unit, "    - file: {path: /etc/systemd/system/multi-user.target.wants/app.service, state: absent}\n"),
        (unit, "    - yum: {name: app, state: absent}\n"),
        (
            "    - command: systemctl enable app\n      changed_when: false\n",
            "    - systemd: {name: app, state: stopped, enabled: false}\n",
        ),
        (
            "    - cron: {name: x, job: y, user: root, cron_file: app}\n",
            "    - file: {path: /etc/cron.d/app, state: absent}\n",
        ),
        (unpacked, "    - file: {path: /opt/app, state: absent}\n"),
        (unpacked, "    - file: {path: /opt/app/app-1.2, state: absent}\n"),
        (unpacked, "    - shell: rm -rf /opt/app/bin\n"),
        (mounted, "    - mount: {path: /mnt/data, state: absent}\n"),
        (mounted, "    - command: umount /mnt/data\n"),
        (user, "    - user: {name: deploy, state: absent, remove: true}\n"),
        (user, "    - user: {name: '{{ item }}', state: absent}\n      loop: [deploy]\n"),
        (user, "    - command: userdel deploy\n"),
        (entry, "    - cron: {name: nightly job, state: absent}\n"),
        (entry, "    - command: crontab -r -u root\n"),
        (entry, "    - file: {path: /var/spool/cron/crontabs/root, state: absent}\n"),
        (port, "    - command: iptables -D INPUT -p tcp --dport 8080 -j ACCEPT\n"),
        (port, "    - command: iptables -F INPUT\n"),
    ] {
        let all = warnings(up, down);
        assert!(all.iter().all(|told| !told.contains("does not mention")), "{up}{down}{all:?}");
        // A cleanup that names only another item causes a warning.
        let all = warnings(up, ANY);
        assert!(all.iter().any(|told| told.contains("does not mention")), "{up}{all:?}");
    }
}

#[test]
fn what_stays_by_intent_and_what_only_the_node_can_tell_is_left_out() {
    for up in [
        created_warning("/var/lib/app/id"),
        created_warning("/srv/one/x.db"),
        created_warning("/run/app.pid"),
        created_warning("/etc/t").replace("\n", "\n      when: ansible_facts.os_family == 'RedHat'\n"),
        created_warning("/etc/t").replace("\n", "\n      when: site == 'two'\n"),
        created_warning("{{ lookup('env', 'X') }}"),
        created_warning("/etc/t") + "    - file: {path: /etc/t, state: absent}\n",
        "    - file: {path: /etc/dir, state: directory}\n".to_owned(),
        "    - lineinfile: {path: /etc/hosts, line: x}\n".to_owned(),
        "    - service: {name: cron, state: restarted}\n".to_owned(),
        "    - shell: iptables -L -n | grep 8080\n      changed_when: false\n".to_owned(),
    ] {
        let told = warnings(&up, ANY);
        assert!(told.iter().all(|told| !told.contains("does not mention")), "{up}{told:?}");
    }
    // A cleanup without any effect is intended, so it causes no warning.
    assert_eq!(warnings(&created_warning("/etc/t"), "    - debug: {msg: nothing}\n").join(""), "");
}

/// The cleanup of each shipped service mentions everything that its provisioning creates.
#[test]
fn the_shipped_playbooks_forget_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    for folder in ["playbooks", "templates"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        for file in fs::read_dir(root.join(folder)).unwrap().map(|f| f.unwrap().path()) {
            fs::copy(&file, dir.path().join(folder).join(file.file_name().unwrap())).unwrap();
        }
    }
    let read = |name: &str| fs::read_to_string(root.join("tests/fleets/five").join(name)).unwrap();
    let clock = "  clock:\n    services: [chrony]\n    provision: playbooks/chrony.yml\n    cleanup: playbooks/chrony-cleanup.yml\n";
    let service = "  chrony: {files: [/etc/chrony/chrony.conf], units: [chrony.service]}\n";
    let config = read("remoor.yml").replacen("groups:\n", &format!("groups:\n{clock}"), 1);
    let config = config.replacen("services:\n  etcd:", &format!("services:\n{service}  etcd:"), 1);
    let host = "    clock:\n      hosts:\n        c1: {ansible_host: 10.77.1.16, chrony_servers: [10.0.0.1], chrony_allow: [10.77.1.0/24]}\n";
    let inventory = read("inventory.yml").replacen("  children:\n", &format!("  children:\n{host}"), 1);
    fs::write(dir.path().join("remoor.yml"), config).unwrap();
    fs::write(dir.path().join("inventory.yml"), inventory).unwrap();
    let linted = || lint(&Fleet::load(dir.path()).unwrap());
    assert_eq!(linted(), Vec::new());
    // Lint warns if one task is removed from the cleanups.
    for (file, line, said) in [
        ("chrony-cleanup.yml", "        dest: /etc/chrony/chrony.conf\n", "/etc/chrony/chrony.conf is made"),
        ("cleanup.yml", "        path: /etc/nginx/conf.d\n", "/etc/nginx/conf.d/healthz.conf is made"),
        ("cleanup.yml", "        - /etc/etcd-proxy-contiv.env\n", "/etc/etcd-proxy-contiv.env is made"),
    ] {
        let path = dir.path().join("playbooks").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(line), "{file}");
        fs::write(&path, text.replace(line, &line.replace("/etc/", "/other/"))).unwrap();
        assert!(linted().iter().any(|fault| fault.message.contains(said)), "{file}: {:?}", linted());
        fs::write(&path, text).unwrap();
    }
}

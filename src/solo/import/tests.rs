//! Whole imports: playbooks and inventories in temporary directories become fleets that lint.

use super::*;
use crate::fleet;
use remoor_config::Fleet;

const SITE: &str = "\
- hosts: web
  roles: [{role: nginx, tags: nginx}]
- hosts: all
  tasks:
    - {apt: {name: [chrony, 'curl=7']}, tags: base}
    - {lineinfile: {path: /etc/hosts, line: '10.0.0.1 db'}, tags: base}
    - {user: {name: deploy}, tags: base}
    - {command: /usr/local/bin/setup, tags: base}
";
const NGINX: &str = "\
- {package: {name: nginx, state: present}}
- {template: {src: site.j2, dest: '/etc/nginx/conf.d/{{ site }}.conf', mode: '0644'}, notify: reload nginx}
- {file: {path: /srv/www, state: directory}}
- {file: {path: /etc/nginx/extra, state: directory}}
- {service: {name: nginx, state: started, enabled: true}}
- {copy: {content: x, dest: /etc/yum.conf}, when: ansible_os_family == 'RedHat'}
";

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// A directory with a playbook, and a request to import it.
fn project() -> (tempfile::TempDir, ImportRequest) {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[
            ("repo/site.yml", SITE),
            ("repo/group_vars/all.yml", "site: main\n"),
            ("repo/roles/nginx/tasks/main.yml", NGINX),
            ("repo/roles/nginx/templates/site.j2", "listen {{ port }}\n"),
            ("repo/roles/nginx/handlers/main.yml", "- {name: reload nginx, service: {name: nginx, state: reloaded}}\n"),
            ("inv/hosts", "[web]\nw1\nw2\n[db]\nd1\n[other]\nd1\n"),
            ("inv/group_vars/web.yml", "port: 80\n"),
        ],
    );
    let request = ImportRequest {
        playbook: dir.path().join("repo/site.yml"),
        inventory: vec![dir.path().join("inv/hosts").display().to_string()],
        into: dir.path().join("fleet"),
        facts: None,
    };
    (dir, request)
}

fn lint_text(dir: &Path) -> String {
    let faults = Fleet::load(dir).map_or_else(|faults| faults, |loaded| fleet::lint(&loaded));
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn a_playbook_becomes_a_fleet_that_lints() {
    let (_dir, request) = project();
    let summary = import(&request).unwrap();
    assert_eq!(lint_text(&request.into), "");
    let groups: Vec<_> = summary.groups.iter().map(|(name, hosts)| (name.as_str(), hosts.join(" "))).collect();
    assert_eq!(groups, [("db", "d1".to_owned()), ("web", "w1 w2".to_owned())]);
    let unknown: Vec<_> = summary.unknown.iter().map(|fault| (fault.file.as_str(), fault.line)).collect();
    assert_eq!(unknown, [("site.yml", 8)], "{:?}", summary.unknown);
    let fleet = Fleet::load(&request.into).unwrap();
    let config = &fleet.config;
    let nginx = &config.services["nginx"];
    assert_eq!(nginx.files, ["/etc/nginx/conf.d/main.conf"]);
    assert_eq!(
        (nginx.state.join(" "), nginx.tags.join(" ")),
        ("/srv/www /var/lib/nginx".to_owned(), "nginx".to_owned())
    );
    let site = &config.services["site"];
    assert_eq!((site.files.join(" "), site.keep.join(" ")), ("/etc/hosts".to_owned(), "/etc/hosts".to_owned()));
    let cleanup = fs::read_to_string(request.into.join("remoor-cleanup.yml")).unwrap();
    for step in ["Stop nginx.service (roles/nginx/tasks/main.yml:5)", "Remove /etc/nginx/conf.d/main.conf (roles/"] {
        assert!(cleanup.contains(step), "{step}:\n{cleanup}");
    }
    assert!(!cleanup.contains("/srv/www") && !cleanup.contains("/etc/hosts") && !cleanup.contains("yum.conf"));
    let checks = fs::read_to_string(request.into.join("checks/nginx.yml")).unwrap();
    assert!(checks.contains("0644") && checks.contains("running: true") && !checks.contains("yum"), "{checks}");
}

/// The tasks of a playbook for all hosts, imported; the texts of the cleanup and of `remoor.yml`.
fn import_tasks(tasks: &str) -> (ImportSummary, String, String) {
    let (dir, request) = project();
    let indented: String = tasks.lines().map(|line| format!("    {line}\n")).collect();
    write(dir.path(), &[("repo/site.yml", &format!("- hosts: web\n  tasks:\n{indented}"))]);
    write(dir.path(), &[("repo/files/www/index.html", "x"), ("repo/files/motd", "x"), ("repo/templates/a.j2", "x")]);
    let summary = import(&request).unwrap();
    let read = |name: &str| fs::read_to_string(request.into.join(name)).unwrap();
    assert!(!lint_text(&request.into).contains("error"), "{}", lint_text(&request.into));
    (summary, read("remoor-cleanup.yml"), read("remoor.yml"))
}

#[test]
fn a_cleanup_removes_only_files_that_every_run_writes_and_nobody_needs() {
    let tasks = "\
- {copy: {src: www/, dest: /var/www/html}}
- {copy: {src: motd, dest: /etc}}
- {get_url: {url: 'http://x/tool', dest: /usr/local/bin}}
- {file: {path: /opt/exporter, state: directory}}
- {copy: {src: motd, dest: /opt/exporter}}
- {copy: {content: x, dest: /etc/ssh/sshd_config}}
- {copy: {content: x, dest: /etc/sudoers.d/deploy}}
- {template: {src: a.j2, dest: /etc/resolv.conf}}
- {copy: {content: x, dest: /root/.ssh/authorized_keys}}
- {stat: {path: /etc/old}, register: old}
- {copy: {content: x, dest: /etc/when.conf}, when: old.stat.exists}
- {copy: {content: x, dest: /etc/checked.conf}, check_mode: true}
- {copy: {content: x, dest: /etc/ignored.conf}, ignore_errors: true}
- {file: {path: /etc/hosts, state: touch}}
- {copy: {content: x, dest: /var/lib/app/data.db}}
- {copy: {content: x, dest: /etc/once.conf, force: false}}
- {file: {src: /usr/share/zoneinfo/UTC, dest: /etc/localtime, state: link}}
- {copy: {content: x, dest: /etc/gone.conf}}
- {file: {path: /etc/gone.conf, state: absent}}
- {service: {name: ssh, state: restarted, enabled: true}}
- {service: {name: systemd-networkd, state: started}}
- {service: {name: exim4, state: stopped, enabled: false}}
- {cron: {name: backup, user: deploy, job: /bin/true}}
- {copy: {content: x, dest: /etc/app.conf}}
- {copy: {src: motd, dest: /etc/app/motd}}
- {template: {src: a.j2, dest: /etc/app/a}}
- {service: {name: app, state: started}}
";
    let (_, cleanup, config) = import_tasks(tasks);
    let removed: Vec<&str> = cleanup.lines().filter_map(|line| line.trim().strip_prefix("path: ")).collect();
    assert_eq!(removed, ["/etc/app/a", "/etc/app/motd", "/etc/app.conf"], "{cleanup}");
    let stopped: Vec<&str> = cleanup.lines().filter_map(|line| line.trim().strip_prefix("- name: Stop ")).collect();
    assert!(stopped.len() == 1 && stopped[0].starts_with("app.service"), "{stopped:?}");
    assert!(!cleanup.contains("cron"), "{cleanup}");
    assert!(config.contains("/var/lib/app/data.db"), "{config}");
}

/// The files and the data of the service that `tasks` become, and the lines of the tasks whose
/// effect is not known.
fn import_paths(tasks: &str) -> (String, String, Vec<u32>) {
    let (summary, _, config) = import_tasks(tasks);
    let config: Value = serde_saphyr::from_str(&config).unwrap();
    let list = |field: &str| {
        let paths = config["services"]["site"][field].as_array().cloned().unwrap_or_default();
        paths.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
    };
    (list("files"), list("state"), summary.unknown.iter().map(|fault| fault.line).collect())
}

#[test]
fn an_option_that_only_a_run_knows_hides_the_path_only_if_it_decides_about_it() {
    let tasks = "\
- {command: cat /etc/machine-id, register: id, changed_when: false}
- {copy: {content: '{{ id.stdout }}', dest: /etc/a.conf, owner: '{{ ansible_hostname }}'}}
- {lineinfile: {path: /etc/b.conf, line: 'id {{ id.stdout }}'}}
- {copy: {content: x, dest: '/etc/{{ id.stdout }}.conf'}}
- {file: {path: /etc/c.conf, state: '{{ id.stdout }}'}}
";
    let (files, _, unknown) = import_paths(tasks);
    assert_eq!((files.as_str(), unknown), ("/etc/a.conf /etc/b.conf", vec![6, 7]));
}

#[test]
fn removed_files_are_watched_and_a_cleanup_keeps_them() {
    let tasks = "\
- {copy: {content: x, dest: /etc/gone.conf}}
- {file: {path: /etc/gone.conf, state: absent}}
- {file: {path: /etc/nginx/sites-enabled/default, state: absent}}
- {file: {path: /var/lib/app/old, state: absent}}
- {file: {path: /etc/back.conf, state: absent}}
- {copy: {content: x, dest: /etc/back.conf}}
";
    let (files, _, unknown) = import_paths(tasks);
    assert_eq!(files, "/etc/back.conf /etc/gone.conf /etc/nginx/sites-enabled/default");
    assert!(unknown.is_empty());
    let (_, cleanup, config) = import_tasks(tasks);
    assert!(cleanup.contains("Remove /etc/back.conf") && !cleanup.contains("gone.conf"), "{cleanup}");
    assert!(config.contains("keep:\n    - /etc/gone.conf\n    - /etc/nginx/sites-enabled/default\n"), "{config}");
}

#[test]
fn homes_crontabs_and_copied_directories_are_found() {
    let tasks = "\
- {user: {name: deploy}}
- {user: {name: app, home: /srv/app/, system: true}}
- {user: {name: daemon2, system: true, create_home: false}}
- {user: {name: nobody2, home: /, create_home: false}}
- {user: {name: gone, state: absent}}
- {cron: {name: backup, user: deploy, job: /bin/true}}
- {copy: {src: www/, dest: /usr/local/share/www}}
- {copy: {src: www, dest: /usr/local/share}}
- {copy: {src: www/, dest: /srv/html/}}
";
    let (files, state, unknown) = import_paths(tasks);
    assert_eq!(files, "/srv/html/index.html /usr/local/share/www/index.html /var/spool/cron/crontabs/deploy");
    assert_eq!(state, ["/home", "/deploy /srv/app"].concat());
    assert_eq!(unknown, [8], "the entry of the crontab stays listed");
}

#[test]
fn a_package_with_a_unit_of_its_name_has_its_data_below_var_lib() {
    let tasks = "\
- {apt: {name: [redis-server, nano, cron]}}
- {service: {name: redis-server, state: started}}
- {service: {name: other, state: started}}
- {service: {name: cron, state: stopped}}
";
    assert_eq!(import_paths(tasks).1, "/var/lib/redis");
}

#[test]
fn commands_and_foreign_modules_show_some_of_their_files() {
    let tasks = "\
- {command: postmap /etc/postfix/virtual}
- {shell: 'echo x > /etc/x.conf', args: {creates: /etc/x.d/done}}
- {command: id, changed_when: false}
- {stat: {path: /etc/read.conf}}
- {copy: {src: '{{ unknown_source }}', dest: /usr/local/bin}, when: unknown_source is defined}
";
    let (files, _, unknown) = import_paths(tasks);
    assert_eq!(files, "/etc/postfix/virtual.db /etc/x.conf /etc/x.d/done");
    assert_eq!(unknown, [3, 4], "a command may change more than it shows");
}

#[test]
fn checks_say_what_the_last_task_leaves() {
    let (dir, request) = project();
    let tasks = "\
- hosts: all
  tasks:
    - {apt: {name: nano}}
    - {apt: {name: nano, state: absent}}
    - {apt: {name: vim, only_upgrade: true}}
    - {service: {name: once, state: started}}
    - {service: {name: once, state: stopped}}
    - {service: {name: boots, enabled: true}}
    - {copy: {content: x, dest: /etc/a.conf, mode: '0644'}}
    - {file: {path: /etc/a.conf, mode: '0600'}}
    - {copy: {content: x, dest: /etc/b.conf, mode: '04755'}}
    - {copy: {content: x, dest: /etc/c.conf, mode: '{{ m }}'}}
    - {user: {name: deploy, groups: 'adm, sudo', append: true}}
";
    write(dir.path(), &[("repo/site.yml", tasks), ("inv/hosts", "w1 m=0644\nw2 m=0600\n[other]\n")]);
    import(&request).unwrap();
    let checks = fs::read_to_string(request.into.join("checks/site.yml")).unwrap();
    assert!(!checks.contains("nano") && !checks.contains("vim") && !checks.contains("once"), "{checks}");
    assert!(checks.contains("boots:\n    enabled: true\n") && !checks.contains("running"), "{checks}");
    let member = "deploy:\n    exists: true\n    groups:\n      contain-elements:\n      - adm\n      - sudo\n";
    for part in [
        member,
        "/etc/a.conf:\n    exists: true\n    mode: \"0600\"",
        "mode: \"4755\"",
        "/etc/c.conf:\n    exists: true\n",
    ] {
        assert!(checks.contains(part), "{part}:\n{checks}");
    }
    assert!(!checks.contains("0644"), "{checks}");
}

#[test]
fn a_file_of_two_services_belongs_to_neither_and_tags_of_all_tasks_decide() {
    let (dir, request) = project();
    let shared =
        "- {copy: {content: x, dest: /etc/shared.conf}}\n- {copy: {content: x, dest: '/etc/{{ own }}.conf'}}\n";
    write(
        dir.path(),
        &[
            ("repo/roles/one/tasks/main.yml", shared),
            ("repo/roles/two/tasks/main.yml", shared),
            (
                "repo/site.yml",
                "- {hosts: web, roles: [{role: one, tags: one, own: a}]}\n- {hosts: db, roles: [{role: two, tags: always, own: b}]}\n",
            ),
        ],
    );
    let summary = import(&request).unwrap();
    let names: Vec<&str> = summary.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["one", "shared", "two"]);
    let config = fs::read_to_string(request.into.join("remoor.yml")).unwrap();
    assert!(config.contains("scope: group") && !config.contains("scope: service"), "{config}");
    assert!(!config.contains("always"), "{config}");
}

#[test]
fn hosts_without_a_group_of_their_own_get_one() {
    let (dir, mut request) = project();
    write(dir.path(), &[("inv/hosts", "w1 port=80\nw2 port=80\nd1\nlone\n[web]\nw1\nw2\n")]);
    let site = "- {hosts: w1, roles: [nginx]}\n- {hosts: w2:d1, tasks: [{apt: {name: chrony}}]}\n";
    write(dir.path(), &[("repo/site.yml", site)]);
    request.into = dir.path().join("other");
    let summary = import(&request).unwrap();
    let groups: Vec<_> = summary.groups.iter().map(|(name, hosts)| (name.as_str(), hosts.join(" "))).collect();
    // The host `lone` is in no play, so it is watched and never set up.
    assert_eq!(
        groups,
        [("remoor_1", "lone".to_owned()), ("remoor_2", "w1".to_owned()), ("remoor_3", "d1 w2".to_owned())]
    );
    assert_eq!(lint_text(&request.into), "");
}

/// The names and contents of all files below a directory.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.path().is_dir() {
            true => out.extend(tree(&entry.path())),
            false => drop(out.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    out
}

#[test]
fn a_fleet_beside_the_playbook_copies_nothing_and_replaces_nothing() {
    let (dir, mut request) = project();
    request.into = dir.path().join("repo");
    let before = tree(&request.into);
    let summary = import(&request).unwrap();
    assert_eq!(lint_text(&request.into), "");
    let after = tree(&request.into);
    assert!(before.iter().all(|(path, content)| after.get(path) == Some(content)));
    assert_eq!(after.len(), before.len() + summary.written.len());
    let faults = import(&request).unwrap_err();
    assert_eq!(faults.len(), summary.written.len());
    assert!(faults.iter().all(|fault| fault.message == "exists already"), "{faults:?}");
    assert_eq!(tree(&request.into), after);
    request.into = dir.path().join("inv");
    assert_eq!(import(&request).unwrap_err()[0].message, "is not empty");
    request.into = dir.path().join("inv/hosts");
    assert_eq!(import(&request).unwrap_err()[0].message, "is a file");
}

#[test]
fn inventories_are_copied_with_the_variables_beside_them() {
    let (dir, mut request) = project();
    write(dir.path(), &[("real/web.yml", "port: 81\n"), ("repo/inventory/group_vars/web.yml", "port: 1\n")]);
    fs::remove_dir_all(dir.path().join("inv/group_vars")).unwrap();
    std::os::unix::fs::symlink("../real", dir.path().join("inv/group_vars")).unwrap();
    request.inventory = vec![dir.path().join("inv").display().to_string()];
    import(&request).unwrap();
    let fleet = Fleet::load(&request.into).unwrap();
    assert_eq!(fleet.config.inventories, ["inventory-2"], "the repository has a directory `inventory`");
    assert_eq!(fleet.vars("w1").unwrap().0["port"], 81);
}

#[test]
fn a_playbook_for_this_machine_only_is_refused() {
    let (dir, mut request) = project();
    write(dir.path(), &[("repo/site.yml", "- {hosts: localhost, connection: local, tasks: [{ping: }]}\n")]);
    request.into = dir.path().join("other");
    assert!(import(&request).unwrap_err()[0].message.contains("no host besides this machine"));
    assert!(!request.into.exists());
}

#[test]
fn facts_of_a_file_replace_those_of_debian() {
    let (dir, mut request) = project();
    write(dir.path(), &[("facts.json", "w1 | SUCCESS => {\"ansible_facts\": {\"ansible_os_family\": \"RedHat\"}}\n")]);
    request.facts = Some(dir.path().join("facts.json"));
    import(&request).unwrap();
    let config = fs::read_to_string(request.into.join("remoor.yml")).unwrap();
    assert!(config.contains("/etc/yum.conf"), "{config}");
    for (text, message) in [("[]", "is not a JSON object"), ("{", "can't be parsed"), ("a {} b {}", "can't be parsed")]
    {
        write(dir.path(), &[("facts.json", text)]);
        assert!(import(&request).unwrap_err()[0].message.contains(message), "{text}");
    }
}

#[test]
fn included_files_are_taken_over_too() {
    let (dir, mut request) = project();
    let main = "- include_vars: '{{ item }}'\n  with_first_found: [\"{{ ansible_facts['distribution_version'] }}.yml\", Debian.yml]\n- include_tasks: {file: more.yml}\n  when: more_enabled | bool\n";
    let more = "- ansible.builtin.template: {src: a.j2, dest: '{{ config }}'}\n- {apt: {name: '{{ wanted }}'}}\n";
    write(
        dir.path(),
        &[
            ("repo/site.yml", "- {hosts: all, roles: [more]}\n"),
            ("repo/roles/more/tasks/main.yml", main),
            ("repo/roles/more/tasks/more.yml", more),
            ("repo/roles/more/vars/Debian.yml", "config: /etc/more.conf\nwanted: [more]\n"),
            ("repo/roles/more/defaults/main.yml", "more_enabled: true\n"),
            ("repo/roles/more/templates/a.j2", "x\n"),
        ],
    );
    request.into = dir.path().join("other");
    let summary = import(&request).unwrap();
    assert_eq!((summary.services[0].files, summary.services[0].packages), (1, 1), "{summary:?}");
}

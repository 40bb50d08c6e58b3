//! Whole imports: playbooks and inventories in temporary directories become fleets that lint.

use super::*;
use crate::fleet;
use crate::module_packer::ModulePolicy;
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
    let faults = Fleet::load(dir).map_or_else(|faults| faults, |loaded| fleet::lint(&loaded, ModulePolicy::NativeOnly));
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
    assert_eq!((nginx.state.join(" "), nginx.tags.join(" ")), ("/srv/www".to_owned(), "nginx".to_owned()));
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

#[test]
fn hosts_without_a_group_of_their_own_get_one() {
    let (dir, mut request) = project();
    write(dir.path(), &[("inv/hosts", "w1 port=80\nw2 port=80\nd1\n[web]\nw1\nw2\n")]);
    write(
        dir.path(),
        &[("repo/site.yml", "- {hosts: 'w1', roles: [nginx]}\n- {hosts: w2:d1, tasks: [{apt: {name: chrony}}]}\n")],
    );
    request.into = dir.path().join("other");
    let summary = import(&request).unwrap();
    assert_eq!(summary.groups.len(), 2, "{:?}", summary.groups);
    assert_eq!(lint_text(&request.into), "");
}

#[test]
fn a_fleet_beside_the_playbook_copies_nothing_and_replaces_nothing() {
    let (dir, mut request) = project();
    request.into = dir.path().join("repo");
    let summary = import(&request).unwrap();
    assert_eq!(lint_text(&request.into), "");
    assert!(summary.written.contains(&"remoor.yml".to_owned()));
    let faults = import(&request).unwrap_err();
    assert!(faults.iter().all(|fault| fault.message == "exists already"), "{faults:?}");
    request.into = dir.path().join("inv");
    let faults = import(&request).unwrap_err();
    assert_eq!(faults[0].message, "is not empty");
}

#[test]
fn facts_of_a_file_replace_those_of_debian() {
    let (dir, mut request) = project();
    write(dir.path(), &[("facts.json", "w1 | SUCCESS => {\"ansible_facts\": {\"ansible_os_family\": \"RedHat\"}}\n")]);
    request.facts = Some(dir.path().join("facts.json"));
    import(&request).unwrap();
    let config = fs::read_to_string(request.into.join("remoor.yml")).unwrap();
    assert!(config.contains("/etc/yum.conf"), "{config}");
    write(dir.path(), &[("facts.json", "[]")]);
    assert!(import(&request).unwrap_err()[0].message.contains("JSON"));
}

#[test]
fn included_files_are_taken_over_too() {
    let (dir, mut request) = project();
    let main = "- include_vars: {file: \"{{ ansible_facts['os_family'] }}.yml\"}\n- include_tasks: {file: more.yml}\n  when: more_enabled | bool\n";
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

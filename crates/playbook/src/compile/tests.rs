//! Tests what the compiler rejects, with its messages, and what it accepts.

use super::*;
use expect_test::{Expect, expect};

pub(super) fn files(list: &[(&str, &str)]) -> FileSet {
    FileSet(list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect())
}

pub(super) fn host() -> HostContext {
    let vars = serde_json::json!({"inventory_hostname": "w1", "group_names": ["web"], "port": 80, "unused": 1, "base": "{{ port }}/x"});
    HostContext {
        name: "w1".into(),
        group: "web".into(),
        vars: vars.as_object().unwrap().clone(),
        ..HostContext::default()
    }
}

fn check_refused(list: &[(&str, &str)], expected: Expect) {
    let faults = compile(&files(list), "site.yml", &host(), &CompileOptions::default()).unwrap_err();
    expected.assert_eq(&faults.iter().map(|f| format!("{f}\n")).collect::<String>());
}

pub(super) fn compile_files(list: &[(&str, &str)], tags: &[&str]) -> Compiled {
    let tags: Vec<String> = tags.iter().map(|t| (*t).to_owned()).collect();
    let options = CompileOptions { tags: &tags, ..CompileOptions::default() };
    compile(&files(list), "site.yml", &host(), &options)
        .unwrap_or_else(|f| panic!("{}", f.iter().map(|f| format!("{f}\n")).collect::<String>()))
}

pub(super) fn names(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    plan.plays.iter().for_each(|play| play.each_task(&mut |t| out.push(t.name.clone())));
    out
}

#[test]
fn slips_are_answered_with_the_right_word() {
    let text = "\
- hosts: all
  taks: []
  tasks:
    - name: a
      tempalte:
        src: a.j2
        dest: /a
    - name: b
      copy:
        contents: x
        dest: /b
        mdoe: '0644'
    - file: path=/c state=directroy
    - command: echo hi
      whne: x
    - service: {name: nginx, state: started}
      notify: restart ngix
      when: x | defualt(1) == 2
    - debug: msg={{ x is definde }}
  handlers:
    - name: restart nginx
      service: name=nginx state=restarted
";
    check_refused(
        &[("site.yml", text)],
        expect![[r#"
            site.yml:2:3: unknown play keyword `taks`
              hint: did you mean `tasks`?
            site.yml:5:7: unknown module or keyword `tempalte`
              hint: did you mean `template`?
            site.yml:9:7: copy needs `src` or `content`
            site.yml:10:9: unknown option `contents` of copy
              hint: did you mean `content`?
            site.yml:12:9: unknown option `mdoe` of copy
              hint: did you mean `mode`?
            site.yml:13:7: `directroy` is not a valid `state` of file
              hint: did you mean `directory`?
            site.yml:15:7: unknown module or keyword `whne`
              hint: did you mean `when`?
            site.yml:18:13: unknown filter `defualt` (did you mean `default`?)
            site.yml:19:14: unknown test `definde` (did you mean `defined`?)
        "#]],
    );
}

#[test]
fn what_only_ansible_can_do_is_named() {
    let text = "\
- hosts: all
  strategy: debug
  tasks:
    - docker_container: {name: a}
    - community.general.snap: {state: enabled}
    - command: 'true'
      delegate_to: localhost
    - command: 'true'
      with_random_choice: [a]
    - debug: msg={{ lookup('url', 'http://x') }}
    - set_fact: {secret: !other 'x'}
";
    check_refused(
        &[("site.yml", text)],
        expect![[r#"
            site.yml:11:33: unsupported tag `!other`
              hint: tags are not part of the language; quote the text, or use `provisioner: ansible`
        "#]],
    );
    check_refused(
        &[("site.yml", &text.replace("!other ", ""))],
        expect![[r#"
            site.yml:2:3: `strategy` other than linear and free is not part of the language
              hint: use `provisioner: ansible`
            site.yml:4:7: module `docker_container` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:5:7: module `community.general.snap` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:7:20: `delegate_to` another host (`localhost`) is not part of the language
              hint: use `provisioner: ansible`
            site.yml:9:27: lookup `random_choice` works only during `remoor play`, because managers read no files and run no commands for a node
              hint: use `provisioner: ansible`
            site.yml:10:14: lookup `url` works only during `remoor play`, because managers read no files and run no commands for a node
              hint: use `provisioner: ansible`
        "#]],
    );
}

#[test]
fn missing_files_broken_templates_and_unknown_handlers() {
    check_refused(
        &[
            (
                "site.yml",
                "- hosts: all\n  tasks:\n    - template: {src: a.j2, dest: /a}\n      notify: nobody\n    - template: {src: b.j2, dest: /b}\n    - include_tasks: c.yml\n",
            ),
            ("templates/a.j2", "ok\n{% if x %}\n"),
        ],
        expect![[r#"
            site.yml:5:7: `b.j2` is not in the fleet directory
              hint: looked in templates
            site.yml:6:7: c.yml is not in the fleet directory
            templates/a.j2:2:1: template: unexpected end of input, expected end of block
        "#]],
    );
}

#[test]
fn a_notification_must_have_a_handler() {
    check_refused(
        &[(
            "site.yml",
            "- hosts: all\n  tasks:\n    - command: x\n      notify: restrat\n  handlers:\n    - {name: restart, debug: }\n",
        )],
        expect![[r#"
            site.yml:3:1: no handler is called `restrat`
              hint: did you mean `restart`?
        "#]],
    );
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    check_refused(
        &[
            ("site.yml", "- hosts: all\n  tasks:\n    - include_tasks: a.yml\n"),
            ("a.yml", "- import_tasks: b.yml\n"),
            ("b.yml", "- debug: msg=x\n- include_tasks: a.yml\n"),
        ],
        expect![[r#"
            b.yml:2:3: a.yml includes itself: site.yml -> a.yml -> b.yml -> a.yml
        "#]],
    );
}

#[test]
fn tags_choose() {
    let text = "\
- hosts: web
  tasks:
    - {name: a, debug: , tags: etcd}
    - {name: b, debug: , tags: [always]}
    - {name: c, debug: , tags: never}
    - {name: d, debug: }
    - block:
        - {name: e, debug: }
      tags: etcd
";
    let list = [("site.yml", text)];
    assert_eq!(names(&compile_files(&list, &[]).plan), ["a", "b", "d", "e"]);
    assert_eq!(names(&compile_files(&list, &["etcd"]).plan), ["a", "b", "e"]);
    assert_eq!(names(&compile_files(&list, &["never"]).plan), ["b", "c"]);
}

#[test]
fn tags_around_an_include_reach_its_tasks_and_its_own_do_not() {
    let site = "- hosts: all\n  roles:\n    - {role: etcd, tags: etcd}\n  tasks:\n    - {name: own, include_tasks: x.yml, tags: other}\n";
    let list = [
        ("site.yml", site),
        ("x.yml", "- {name: untagged, debug: }\n"),
        ("roles/etcd/tasks/main.yml", "- {name: inner, include_tasks: y.yml}\n"),
        ("roles/etcd/tasks/y.yml", "- {name: tagged, debug: }\n"),
    ];
    assert_eq!(names(&compile_files(&list, &["etcd"]).plan), ["inner", "tagged"]);
    assert_eq!(names(&compile_files(&list, &["other"]).plan), ["own"]);
}

#[test]
fn a_thousand_tasks_compile_and_keep_their_places() {
    let mut text = String::from("- hosts: all\n  tasks:\n");
    for i in 0..1000 {
        text.push_str(&format!("    - copy: {{content: '{{{{ port }}}} {i}', dest: '/x/{{{{ base }}}}{i}'}}\n      when: port == 80 and base is defined\n"));
    }
    let plan = compile_files(&[("site.yml", &text)], &[]).plan;
    assert_eq!((plan.task_count(), plan.declared_files().len()), (1000, 1000));
}

#[test]
fn a_plan_holds_what_it_needs_and_no_more() {
    let text = "\
- hosts: all:!db
  roles:
    - {role: nginx, vars: {worker: 2}, tags: web}
- hosts: db
  tasks:
    - debug:
";
    let list = [
        ("site.yml", text),
        (
            "roles/nginx/tasks/main.yml",
            "- template: {src: nginx.conf.j2, dest: /etc/nginx.conf, mode: 0644}\n  notify: reload\n",
        ),
        ("roles/nginx/handlers/main.yml", "- {name: reload, service: {name: nginx, state: reloaded}}\n"),
        ("roles/nginx/defaults/main.yml", "user: www\n"),
        ("roles/nginx/templates/nginx.conf.j2", "listen {{ base }}; {% include 'part.j2' %}\n"),
        ("roles/nginx/templates/part.j2", "user {{ user }}\n"),
    ];
    let Compiled { plan, warnings, .. } = compile_files(&list, &[]);
    assert_eq!(plan.plays.len(), 1);
    assert_eq!(plan.vars.keys().collect::<Vec<_>>(), ["port", "base"]);
    assert_eq!(plan.blobs.len(), 2);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].to_string().starts_with("roles/nginx/tasks/main.yml:1:3: warning: the mode is the bare number 420"),
        "{}",
        warnings[0]
    );
    assert_eq!(plan.declared_files(), ["/etc/nginx.conf"]);
    let file = &crate::predict_files(&plan, &Map::new())["/etc/nginx.conf"];
    assert_eq!(String::from_utf8_lossy(&file.content), "listen 80/x; user www\n");
    assert_eq!((file.mode.as_deref(), file.source.as_str()), (Some("0644"), "roles/nginx/templates/nginx.conf.j2"));
    let json: Plan = serde_json::from_slice(&serde_json::to_vec(&plan).unwrap()).unwrap();
    let packed: Plan = rmp_serde::from_slice(&rmp_serde::to_vec(&plan).unwrap()).unwrap();
    assert_eq!((json.sha256(), packed.sha256()), (plan.sha256(), plan.sha256()));
    let mut other = host();
    other.vars.insert("unused".into(), serde_json::json!(2));
    let same = compile(&files(&list), "site.yml", &other, &CompileOptions::default()).unwrap();
    assert_eq!(same.plan.sha256(), plan.sha256());
}

#[test]
fn what_depends_on_the_run_is_left_out_of_rendered() {
    let text = "\
- hosts: all
  tasks:
    - {copy: {content: '{{ a }}', dest: /a}, vars: {a: '{{ r.stdout }}'}}
    - {command: id, register: r}
    - {copy: {content: '{{ r.stdout }}', dest: /b}}
    - {copy: {content: x, dest: /c}, when: r is not defined}
    - {copy: {content: '{{ item }}', dest: '/d{{ item }}'}, loop: [1, 2]}
    - {copy: {content: '{{ ansible_hostname }}', dest: /e}}
    - {copy: {content: gone, dest: /f}}
    - {file: {path: /f, state: absent}}
";
    let plan = compile_files(&[("site.yml", text)], &[]).plan;
    let facts = serde_json::json!({"ansible_hostname": "w1"});
    let files = crate::predict_files(&plan, facts.as_object().unwrap());
    assert_eq!(files.keys().collect::<Vec<_>>(), ["/d1", "/d2", "/e"]);
}

#[test]
fn a_name_that_begins_with_a_fact_means_no_files_of_other_roles_or_hosts() {
    let tasks = "\
- include_vars: '{{ item }}'
  with_first_found: ['{{ ansible_facts.distribution }}_{{ port }}.yml', '{{ ansible_facts.os_family }}.yml']
";
    let others: Vec<String> = (0..101).map(|n| format!("roles/o{n}/vars/Debian.yml")).collect();
    let mut list = vec![
        ("site.yml", "- {hosts: all, roles: [r]}\n"),
        ("roles/r/tasks/main.yml", tasks),
        ("roles/r/vars/Debian.yml", "a: 1\n"),
        ("vars/RedHat.yml", "a: 2\n"),
        ("group_vars/web.yml", "a: 3\n"),
    ];
    list.extend(others.iter().map(|path| (path.as_str(), "a: 4\n")));
    let mut found = Vec::new();
    for play in &compile_files(&list, &[]).plan.plays {
        play.each_task(&mut |task| found.extend(task.files.vars_files.keys().cloned()));
    }
    assert_eq!(found, ["roles/r/vars/Debian.yml", "vars/RedHat.yml"]);
}

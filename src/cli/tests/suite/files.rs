//! The rendering of check files, and check files that include other files.

use super::{check, narrow, place};
use crate::cli::exit::Exit;
use expect_test::expect;

#[test]
fn remoor_files_are_rendered_by_tera_and_plain_ones_by_go() {
    let dir = place(&[
        (
            "remoor.yml",
            "remoor: {service: web, roles: [db], vars: {path: none}}\nfile:\n{% if vars.want %}  DIR/{{ vars.path }}:\n    \
             exists: true\n{% endif %}  /etc/{{ node.name }}: {exists: false}\n",
        ),
        ("plain.yml", "file:\n{{- range .Vars.files }}\n  DIR/{{ . }}: {exists: true}\n{{- end }}\n"),
        ("vars.yml", "want: true\npath: f\nfiles: [f, secret]\n"),
        ("more.yml", "files: [f]\n"),
        ("other.yml", "remoor: {service: web, when: 'node.name == \"nobody\"'}\nfile: {/x: {exists: true}}\n"),
        (
            "cluster.yml",
            "remoor: {service: web}\nfile:\n{% for p in peers %}  /{{ p.name }}: {exists: true}\n{% endfor %}",
        ),
        ("addr.yml", "remoor: {service: web}\nfile: {\"/{{ node.addr }}\": {exists: true}}\n"),
        ("late.json", "{\"remoor\": {\"service\": \"x\"}, \"user\": {\"root\": {\"exists\": true}}}"),
    ]);
    let check = |line: &str| check(dir.path(), line);
    let (answer, talk, exit) = check("--file DIR/remoor.yml DIR/plain.yml --vars DIR/vars.yml -o tap");
    assert_eq!((answer.lines().count(), talk.as_str(), exit), (5, "", Exit::Done), "{answer}");
    let (answer, ..) = check("--file DIR/plain.yml --vars DIR/vars.yml --vars DIR/more.yml -o tap");
    assert_eq!(answer.lines().count(), 2, "the last of two files wins: {answer}");
    let (answer, ..) = check("--file DIR/plain.yml --vars DIR/vars.yml --vars-inline {\"files\":[\"none\"]} -o tap");
    assert!(answer.contains("not ok 1 - File: DIR/none: exists: Expected false to equal true"), "{answer}");
    let (_, talk, exit) = check("--file DIR/other.yml DIR/plain.yml --vars DIR/vars.yml");
    assert_eq!((talk.as_str(), exit), ("DIR/other.yml: does not apply to this machine (its `when`)\n", Exit::Done));
    let faults = ["plain.yml", "other.yml", "cluster.yml", "addr.yml", "late.json"].map(|name| {
        let (_, talk, exit) = check(&format!("--file DIR/{name}"));
        assert_eq!(exit, Exit::Usage, "{talk}");
        talk
    });
    expect![[r#"
        error: the check files have 1 fault; nothing was run
        caused by: DIR/plain.yml:2:11: `.Vars` has no field `files`
          hint: variables come from --vars and --vars-inline
        error: the check files have 1 fault; nothing was run
        caused by: DIR/other.yml: no check of it applies to this machine
        error: the check files have 1 fault; nothing was run
        caused by: DIR/cluster.yml:3:1: `peers` is known only for a node of a fleet
          hint: run `remoor check NODE`, which knows all values of the node
        error: the check files have 1 fault; nothing was run
        caused by: DIR/addr.yml:2:1: `node.addr` is known only for a node of a fleet
          hint: run `remoor check NODE`, which knows all values of the node
        error: the check files have 1 fault; nothing was run
        caused by: DIR/late.json:1:2: `remoor` is not the first block of the file
          hint: write it as YAML, `remoor:` at the beginning of the first line
    "#]]
    .assert_eq(&faults.concat());
}

/// Regression: a `remoor:` block with checks of its own was rejected.
#[test]
fn groups_count_instead_of_their_members_even_with_a_tag() {
    let text = |tagged: &str, first: bool| {
        format!(
            "remoor:\n  service: web\n  all-of:\n    both: {{checks: [group:root, user:root]}}\nuser: {{root: {{exists: true}}}}\n\
             group: {{root: {{exists: {first}{tagged}}}}}\nfile: {{/none: {{exists: false}}}}\n"
        )
    };
    let dir = place(&[
        ("good.yml", &text("", true)),
        ("bad.yml", &text("", false)),
        ("member.yml", &text(", meta: {tags: [a]}", false)),
        ("skip.yml", &text("", false).replace("user:root]", "user:root], skip: true")),
    ]);
    let check = |line: &str| check(dir.path(), line);
    let (answer, _, exit) = check("--file DIR/good.yml -o tap");
    assert!(answer.contains("ok 4 - AllOf: both: holds: matches expectation") && exit == Exit::Done, "{answer}");
    let (answer, _, exit) = check("--file DIR/bad.yml -o tap");
    assert!(answer.contains("failing members: group:root") && exit == Exit::No, "{answer}");
    let (answer, _, exit) = check("--file DIR/member.yml --only a -o tap");
    assert!(answer.starts_with("1..3\n") && exit == Exit::No, "the member, its group, and the other member: {answer}");
    let (answer, _, exit) = check("--file DIR/skip.yml -o tap");
    assert_eq!(exit, Exit::No, "members of a group that is skipped count themselves: {answer}");
}

/// An unreadable file is an error. A condition about unknown facts is an error too, and does not
/// count as false.
#[test]
fn nothing_is_skipped_silently() {
    let ok = "user: {root: {exists: true}}\n";
    let dir = place(&[
        ("all/a.yml", ok),
        (
            "role.yml",
            "remoor: {service: web}\nuser: {root: {exists: true}}\n{% if node.role == 'x' %}file: {/none: {exists: true}}{% endif %}\n",
        ),
        ("lines.yml", "remoor: {service: web}\nuser: {root: {exists: true}}\n{% if\n node.role == 'x' %}{% endif %}\n"),
        (
            "names.yml",
            "remoor: {service: web}\n{# node.role #}\nmatching: {a: {content: node.example.org, matches: {or: [node.example.org, \"{{ node.name }}\"]}}}\n",
        ),
        ("when.yml", "remoor: {service: web, when: node.role == 'manager'}\nuser: {root: {exists: true}}\n"),
        ("peers.yml", "remoor: {service: web, when: peers | length > 2}\nuser: {root: {exists: true}}\n"),
        ("ok.yml", ok),
    ]);
    std::os::unix::fs::symlink("gone", dir.path().join("all/b.yml")).unwrap();
    let check = |line: &str| check(dir.path(), line);
    for (line, expected) in [
        ("--file DIR/all", "DIR/all/b.yml: No such file"),
        ("--file DIR/role.yml", "`node.role` is known only for a node of a fleet"),
        ("--file DIR/lines.yml", "lines.yml:4:1: `node.role` is known only for a node of a fleet"),
        ("--file DIR/when.yml DIR/ok.yml", "`node.role` is known only for a node of a fleet"),
        ("--file DIR/peers.yml DIR/ok.yml", "`peers` is known only for a node of a fleet"),
        ("--file - -", "`-` is named twice"),
    ] {
        let (_, talk, exit) = check(line);
        assert!(talk.contains(expected) && exit == Exit::Usage, "{line}: {talk}");
    }
    // Names in YAML braces or in comments are not template expressions.
    let (answer, talk, exit) = check("--file DIR/names.yml");
    assert_eq!(exit, Exit::Done, "{answer}{talk}");
}

#[test]
fn files_include_files() {
    let user = "user: {root: {exists: true}}\n";
    let dir = place(&[
        (
            "main.yml",
            "gossfile:\n  parts/*.yml: {}\n  off: {file: gone.yml, skip: true}\nfile: {DIR/f: {exists: true}}\n",
        ),
        ("parts/b.yml", user),
        ("parts/a.yml", "gossfile: {\"../deep/x.yml\": {}}\ngroup: {root: {exists: {{ .Vars.yes }}}}\n"),
        ("deep/x.yml", "remoor: {service: deep, vars: {id: mail}}\ngroup: {\"{{ vars.id }}\": {exists: true}}\n"),
        ("tera.yml", "remoor: {service: web, vars: {who: root}}\ngossfile: {child.yml: {}}\n"),
        ("child.yml", "user: {\"{{ vars.who }}\": {exists: true}}\n"),
        ("twice.yml", "gossfile: {parts/b.yml: {}}\nuser: {root: {exists: false}}\n"),
        ("self.yml", "gossfile: {\"./self.yml\": {}}\nuser: {root: {exists: true}}\n"),
        ("round/a.yml", "gossfile: {b.yml: {}}\n"),
        ("round/b.yml", "gossfile: {\"[a]*.yml\": {}}\n"),
        ("gone.yml", "\ngossfile:\n  \"no/*.yml\": {}\n  none.yml: {}\n  DIR: {}\n"),
        ("wrong.yml", "gossfile: {parts/b.yml: {fiel: x}}\n"),
        ("bad/main.yml", "gossfile: {part.yml: {}}\n"),
        ("bad/part.yml", "user:\n  root: {exist: true}\n"),
    ]);
    let check = |line: &str| check(dir.path(), line);
    let (answer, talk, exit) = check("--file DIR/main.yml --vars-inline {\"yes\":true} -o wide");
    expect![[r#"
        SERVICE  CHECK  PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE  TITLE
        main  file:DIR/f  exists  pass  critical  true  true  -  DIR/main.yml:4  -
        main  group:root  exists  pass  critical  true  true  -  DIR/parts/a.yml:2  -
        deep  group:mail  exists  pass  critical  true  true  -  DIR/parts/../deep/x.yml:2  -
        main  user:root  exists  pass  critical  true  true  -  DIR/parts/b.yml:1  -
        4 assertions passed, 0 failed, 0 unknown, 0 skipped; took TIME
    "#]]
    .assert_eq(&format!("{}{talk}", narrow(&answer)));
    assert_eq!(exit, Exit::Done);
    let (answer, ..) = check("--file DIR/tera.yml -o wide");
    assert!(answer.contains("web      user:root"), "{answer}");
    let outputs: Vec<String> = ["twice", "self", "round/a", "gone", "wrong", "bad/main"]
        .iter()
        .map(|name| check(&format!("--file DIR/{name}.yml")).1)
        .collect();
    expect![[r#"
        DIR/parts/b.yml:1:1: warning: `user:root` is there already, at DIR/twice.yml:2
          hint: only this one is run, as in goss
        error: the check files have 1 fault; nothing was run
        caused by: DIR/self.yml:1:12: DIR/./self.yml includes itself indirectly
        error: the check files have 1 fault; nothing was run
        caused by: DIR/round/b.yml:1:12: DIR/round/a.yml includes itself indirectly
        error: the check files have 3 faults; nothing was run
        caused by: DIR/gone.yml:3:3: no file is `no/*.yml` beside DIR/gone.yml
        caused by: DIR/gone.yml:4:3: no file is `none.yml` beside DIR/gone.yml
        caused by: DIR/gone.yml:5:3: can't include DIR: it is not a regular file; `-` reads standard input
        error: the check files have 1 fault; nothing was run
        caused by: DIR/wrong.yml:1:26: unknown attribute `fiel` of gossfile
          hint: did you mean `file`?
        error: the check files have 1 fault; nothing was run
        caused by: DIR/bad/part.yml:2:10: unknown attribute `exist` of user
          hint: did you mean `exists`?
    "#]]
    .assert_eq(&outputs.concat());

    let chain: Vec<(String, String)> =
        (0..60).map(|n| (format!("c{n}.yml"), format!("gossfile: {{c{}.yml: {{}}}}\n", n + 1))).collect();
    let dir = place(&chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    let (_, talk, _) = super::check(dir.path(), "--file DIR/c0.yml");
    assert!(talk.contains("included more than 50 files deep"), "{talk}");
    let wide: Vec<(String, String)> = (0..40)
        .map(|n| {
            (
                format!("l{n}/a.yml"),
                format!("gossfile: {{x: {{file: ../l{0}/a.yml}}, y: {{file: ../l{0}/../l{0}/a.yml}}}}\n", n + 1),
            )
        })
        .chain([("l40/a.yml".to_owned(), "user: {}\n".to_owned())])
        .collect();
    let dir = place(&wide.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    let (_, talk, _) = super::check(dir.path(), "--file DIR/l0/a.yml");
    assert!(talk.contains("more than 1000 files are included in all"), "{}", &talk[..talk.len().min(500)]);
}

/// `--strict` reads a plain goss file like a file with a `remoor:` block.
#[test]
fn plain_goss_files_are_loaded_as_goss_loads_them() {
    let dir = place(&[
        ("goss.yaml", "file:\n  DIR/f: {exists: true, contents: [], mode: 0644, contains: [one]}\nthing: {}\n"),
        ("vars.yml", "flag: yes\n"),
        ("block.yml", "remoor: {service: web}\nuser: {root: {exists: true}}\n"),
    ]);
    let check = |line: &str| check(dir.path(), line);
    let (answer, talk, exit) = check("--file DIR/goss.yaml --vars DIR/vars.yml -o tap");
    assert!(answer.starts_with("1..3\n") && answer.contains("ok 3 - File: DIR/f: contains: ") && exit == Exit::No);
    assert_eq!((talk.matches("warning: ").count(), talk.contains("error")), (3, false), "{talk}");
    let (_, talk, exit) = check("--file DIR/goss.yaml --strict");
    assert!(talk.starts_with("error: the check files have 3 faults") && exit == Exit::Usage, "{talk}");
    let (_, talk, exit) = check("--file DIR/block.yml --vars DIR/vars.yml");
    assert!(talk.contains("DIR/vars.yml:1:7: `yes` is a boolean") && exit == Exit::Usage, "{talk}");
}

#[test]
fn an_author_sees_the_rendered_text_and_runs_the_checks_of_a_host() {
    let dir = place(&[
        ("a.yml", "gossfile: {b.yml: {}}\nfile: { {{- .Vars.path }}: {exists: true}}\n"),
        ("b.yml", "user: {root: {exist: true}}\n"),
        ("near.yml", "remoor: {service: web}\nfile: {DIR/f: {exists: true, title: the file, contents: [Ome]}}\n"),
    ]);
    let check = |line: &str| check(dir.path(), line);
    let (answer, talk, exit) = check("--render --file DIR/a.yml --vars-inline {\"path\":\"/x\"}");
    assert!(answer.contains("# DIR/a.yml\ngossfile: {b.yml: {}}\nfile: {/x: {exists: true}}\n"), "{answer}");
    assert!(answer.contains("# DIR/b.yml\nuser:") && talk.contains("unknown attribute `exist`"), "{answer}{talk}");
    assert_eq!(exit, Exit::Usage, "faults are reported after the texts");
    let (answer, ..) = check("--file DIR/near.yml");
    assert!(answer.contains("line 1 is similar: one") && answer.contains("DIR/near.yml:2"), "{answer}");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/web");
    let (answer, talk, _) = check(&format!("--fleet {example} --as web1 -o json"));
    assert!(answer.contains("\"file\": \"checks/") && !talk.contains("error:"), "{answer}{talk}");
    let (_, talk, exit) = check(&format!("--fleet {example} --as nobody"));
    assert!(talk.contains("there is no host `nobody`") && exit == Exit::Usage, "{talk}");
}

//! Tests the results of templates against the recorded answers of goss. Also tests faults with
//! their positions, and templates that would never end.

use super::*;
use expect_test::expect;
use proptest::prelude::*;
use serde::Deserialize;
use std::process::Command;

#[derive(Deserialize)]
struct Recorded {
    vars: String,
    file: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    /// None if goss rejects the template.
    output: Option<String>,
}

fn load_recorded() -> Recorded {
    serde_json::from_str(include_str!("recorded.json")).unwrap()
}

fn render_with(text: &str, vars: &str) -> Result<String, Fault> {
    let vars = crate::vars("vars.yml", vars).unwrap();
    let env = BTreeMap::from([("REMOOR_TEST".to_owned(), "from the environment".to_owned())]);
    let file = load_recorded().file;
    let read = |path: &str| if path == "FILE" { Ok(file.clone()) } else { Err("not there".to_owned()) };
    render("t.yml", text, &vars, &Outside { env: &env, read: &read })
}

fn render_plain(text: &str) -> Result<String, Fault> {
    render_with(text, "{list: [a, b], name: web}")
}

#[test]
fn every_template_means_what_goss_makes_of_it() {
    let recorded = load_recorded();
    assert!(recorded.cases.iter().filter(|case| case.output.is_some()).count() > 70);
    for case in recorded.cases {
        let found = render_with(&case.template, &recorded.vars);
        let told = found.as_ref().map_or_else(ToString::to_string, Clone::clone);
        assert_eq!(found.ok(), case.output, "{}: {told}", case.template);
    }
}

/// If goss is installed, its answers must still be the recorded ones.
#[test]
fn what_is_recorded_is_what_goss_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let recorded = load_recorded();
    std::fs::write(path("vars.yml"), &recorded.vars).unwrap();
    std::fs::write(path("read"), &recorded.file).unwrap();
    for case in recorded.cases {
        let template = case.template.replace("FILE", path("read").to_str().unwrap());
        std::fs::write(path("goss.yml"), format!("# <<{template}>>")).unwrap();
        let mut goss = Command::new("goss");
        goss.arg("-g").arg(path("goss.yml")).arg("--vars").arg(path("vars.yml")).args(["render", "-d"]);
        let Ok(output) = goss.env("REMOOR_TEST", "from the environment").output() else { return };
        let (text, talk) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let found =
            text.split_once("# <<").and_then(|(_, rest)| rest.rsplit_once(">>")).map(|(found, _)| found.to_owned());
        assert_eq!(found.filter(|_| !talk.contains("template: ")), case.output, "{}: {talk}", case.template);
    }
}

#[test]
fn faults_have_their_place_and_a_hint() {
    let told = |text: &str| render_plain(text).unwrap_err().to_string();
    let all = [
        "a\n  {{ .Vars.nam }}",
        "{{ if .Vars.name }}\nx\n{{ if true }}",
        "a {{ toUper \"x\" }}",
        "é {{ $nmae }}",
        "{{ $name := 1 }}{{ $nmae }}",
        "{{ \"\\d\" }}",
        "{{ template \"x\" }}",
        "{{ range 2 }}\n{{ index .Vars.list }}{{ end }}",
        "{{ printf \"%d\" \"x\" }}",
        "{{ printf \"%s\" }}",
        "{{ printf \"%s\" \"a\" \"b\" }}",
        "{{ fail \"need a name\" }}",
        "{{ readFile \"/etc/x\" }}",
        "{{ .Vars.name.x }}",
        "{{ /* x */ }}",
        "{{ . ; }}",
    ];
    expect![[r#"
        t.yml:2:6: `.Vars` has no field `nam`
          hint: did you mean `name`?
        t.yml:3:4: the block has no `{{ end }}`
        t.yml:1:6: unknown function `toUper`
          hint: did you mean `toUpper`?
        t.yml:1:6: unknown variable `$nmae`
          hint: declare it with `{{ $name := ... }}`; it is valid until the `end` of that block
        t.yml:1:20: unknown variable `$nmae`
          hint: did you mean `$name`?
        t.yml:1:4: unknown escape in a string
          hint: write regular expressions between backquotes, where \ is literal
        t.yml:1:4: there is no template `x`
        t.yml:2:10: `.Vars`: an integer has no fields
        t.yml:1:4: printf: `%d` cannot print a string
        t.yml:1:4: printf: there is no argument for `%s`
        t.yml:1:4: printf: `%s` leaves 1 arguments unused
        t.yml:1:4: fail: need a name
        t.yml:1:4: readFile: /etc/x: not there
        t.yml:1:4: `.x`: a string has no fields
        t.yml:1:4: `/` is not expected here
        t.yml:1:6: `;` is not expected here
    "#]]
    .assert_eq(&all.map(told).map(|line| line + "\n").concat());
}

/// goss 0.4.9 reads all numbers of a `--vars` file in JSON as floating point, whatever the suffix
/// of the file is.
#[test]
fn numbers_of_json_are_printed_as_go_prints_them() {
    let json = r#"{"i": 5, "m": 1000000, "f": 1.5, "big": 123456789012345678, "l": [1, 2000000], "o": {"a": 3000000}}"#;
    let env = BTreeMap::new();
    let outside = Outside { env: &env, read: &|_| Err("not there".to_owned()) };
    let ask = |vars: &str, text: &str| {
        render("t.yml", text, &crate::go_vars("v", vars, crate::Strictness::AsGoss).unwrap(), &outside)
    };
    let text = "{{ .Vars.i }} {{ .Vars.m }} {{ .Vars.f }} {{ .Vars.big }} {{ .Vars.l }} {{ .Vars.o }} {{ toJson .Vars.m }} {{ int .Vars.m }}";
    let printed = "5 1e+06 1.5 1.2345678901234568e+17 [1 2e+06] map[a:3e+06] 1000000 1000000";
    assert_eq!(ask(json, text).as_deref(), Ok(printed));
    assert!(ask(json, "{{ eq .Vars.i 5 }}").is_err(), "Go compares no whole number with another");
    let yaml = "i: 5\nm: 1000000\n";
    assert_eq!(ask(yaml, "{{ .Vars.m }} {{ eq .Vars.i 5 }}").as_deref(), Ok("1000000 true"));
}

#[test]
fn a_template_that_would_never_end_ends() {
    let bombs = [
        "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}",
        "{{ range 1000000000 }}{{ end }}",
        "{{ $x := \"aaaaaaaaaaaaaaaa\" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}",
        "{{ $x := list 1 2 }}{{ range 60 }}{{ $x = concat $x $x }}{{ end }}",
        "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}",
        "{{ $x := 1 }}{{ range 1000000 }}{{ $x = list $x }}{{ end }}",
        "{{ repeat 1000000000 \"a\" }}",
        "{{ printf \"%1000000000d\" 1 }}",
        "{{ until 1000000000 }}",
        "{{ $x := repeat 1000000 \"a\" }}{{ replace \"a\" $x $x }}",
        "{{ $x := repeat 1000000 \"a\" }}{{ regexReplaceAll \"a\" $x $x }}",
        "{{ $x := repeat 1000000 \"\\n\" }}{{ indent 1000000 $x }}",
        "{{ define \"r\" }}{{ if true }}{{ with 1 }}{{ template \"r\" . }}{{ end }}{{ end }}{{ end }}{{ template \"r\" 1 }}",
        "{{ range 1000000 }}{{ regexMatch \"(a{1,500}){1,500}\" \"x\" }}{{ end }}",
        "{{ range 1000000000 }}{{ readFile \"FILE\" }}{{ end }}",
        "{{ $x := repeat 1000000 \"a\" }}{{ range 100 }}{{ regexMatch \"(a{1,30}){1,30}b\" $x }}{{ end }}",
        "{{ $x := repeat 1000000 \"A\" }}{{ regexReplaceAll \".*[^A-Z]|[A-Z]\" $x \"\" }}",
    ];
    for bomb in bombs {
        assert!(render_plain(bomb).is_err(), "{bomb}");
    }
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(5000), close.repeat(5000));
    assert!(render_plain(&nested("{{ if true }}", "{{ end }}")).is_err());
    assert!(render_plain(&format!("{{{{ {} }}}}", nested("(1|add ", ")"))).is_err());
    assert!(render_plain(&nested("{{ define \"a\" }}", "{{ end }}")).is_err());
    assert!(render_plain(&"{{ if true }}{{ with 1 }}x{{ end }}{{ end }}".repeat(2000)).is_ok(), "long is not deep");
}

proptest! {
    #[test]
    fn any_text_has_an_end_and_no_panic(
        parts in prop::collection::vec(
            prop_oneof![
                "[a-z{}\"`$.|() \n-]{0,6}",
                Just("{{ if .Vars.name }}".to_owned()), Just("{{ range .Vars.list }}".to_owned()),
                Just("{{ end }}".to_owned()), Just("{{ else }}".to_owned()), Just("{{ $x := 1 }}".to_owned()),
                Just("{{ $x }}".to_owned()), Just("{{- . -}}".to_owned()), Just("{{ printf \"%5.1f\" 1.5 }}".to_owned()),
                Just("{{/* c */}}".to_owned()), Just("{{ trunc 1 \"é\" }}".to_owned()),
            ],
            0..12,
        )
    ) {
        let text = parts.concat();
        let found = render_plain(&text);
        if !text.contains("{{") {
            prop_assert_eq!(found.ok(), Some(text));
        } else if let Err(fault) = found {
            let lines = text.lines().count().max(1) as u32 + 1;
            prop_assert!(fault.line <= lines && fault.column > 0 || fault.line == 0, "{}", fault);
        }
    }
}

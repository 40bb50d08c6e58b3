//! That a metered template writes what Tera writes, and that none takes more than the bounds.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn engine() -> Tera {
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&'static str>::new());
    tera
}

fn context() -> Context {
    let value = json!({
        "vars": {"port": 80, "list": [3, 1, 2], "text": "a b", "map": {"k": "v"}},
        "peers": (0..50).map(|n| json!({"name": format!("w{n}"), "addr": format!("192.0.2.{n}")})).collect::<Vec<Value>>(),
    });
    Context::from_serialize(&value).unwrap()
}

fn told(text: &str) -> String {
    match render(&engine(), "t", text, &context(), &|_| false) {
        Ok(text) => text,
        Err(Stop::Bound { line, why, .. }) => format!("{line}: {why}"),
        Err(other) => format!("error: {other}"),
    }
}

/// Tera's own answer.
fn plain(text: &str) -> String {
    let mut tera = engine();
    let added = tera.add_raw_template("t", text);
    added.and_then(|()| tera.render("t", &context())).unwrap_or_else(|e| format!("error: {e}"))
}

#[test]
fn nothing_else_is_written_than_by_tera() {
    for text in [
        "{% for p in peers -%}\n  {{- p.name }} \n{%- if not loop.last %}, {% endif %}{%- endfor -%} \n end",
        "{% for a in vars.list %}{% for b in vars.list -%} {{ a * b }} {%- endfor %}\n{% else %}none{% endfor %}",
        "{%- set a = vars.text -%}  {{ a | upper | replace(from=\"A\", to=\"<\") }}  {% set b -%} x {{ a }} {%- endset %}[{{ b }}]",
        "{% for p in peers %}{% set_global names = names | default(value=\"\") ~ p.name %}{% endfor %}{{ names }}",
        "{% for k, v in vars.map %}{{ k }}={{ v -}}  {% endfor %}{% filter upper %} {{ vars.text }} {% endfilter %}",
        "{% for n in range(end=5) %}{% if n == 3 %}{% break %}{% endif %}{% if n == 1 %}{% continue %}{% endif %}{{ n }}{% endfor %}",
        "{# {% for x in y %} #}{% raw %}{% for x in y %}{{ z }}{% endraw %}{{ vars.list | sort | join(sep=\"}}\") }}",
        "{{ vars.text | split(pat=' ') | reverse | first }}{{ [1, 2] | join(sep=\", \") }}{{ 'x\ny' | indent(width=3) }}",
        "{% set m = {\"a\": {\"b\": [vars.port]} } %}{% for x in m.a.b %}{{ x if x else \"n\" }}{% endfor %}",
        "{% if vars.nothing %}a{% elif vars.port is number %}{{ vars?.no?.thing | default(value=1) }}{% endif %}",
        // Faults too, with Tera's places.
        "ok\n{% for p in peers %}{{ p.name }} {{ p.nme }}{% endfor %}",
        "{% for p in vars.port %}{% endfor %}",
        "{% for p in peers %}\n{{ p.name | replace(from=1) }}{% endfor %}",
        "{% for p in peers %}",
        "{{ a | nope }}",
    ] {
        assert_eq!(told(text), plain(text), "{text}");
    }
}

/// Each would take all memory, or hours.
#[test]
fn no_template_takes_more_than_the_bounds() {
    let turns = "1: the loops of the template turn more than 1000000 times";
    let deep = "{% set s = s ~ s %}".repeat(60);
    let shared = "{% set l = [l, l] %}".repeat(60);
    let nested = "{% for a in range(end=100000) -%}{% for b in range(end=100000) -%}{% endfor -%}{% endfor %}";
    for (text, said) in [
        (nested, turns),
        (
            "{% set r = range(end=9000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
            turns,
        ),
        (&format!("\n{{% set s = 'xxxx' %}}{deep}"), "2: a variable of the template is larger than 1 MiB"),
        (&format!("{{% set l = [1] %}}{shared}{{{{ l }}}}"), "1: a variable of the template is larger than 1 MiB"),
        (
            "{% set s = 'xxxx' %}{% for a in range(end=60) %}\n{% set_global s = s ~ s %}{% endfor %}",
            "2: a variable of the template is larger than 1 MiB",
        ),
        (
            "{% set s = 'x' %}{% for a in range(end=60) %}{% set_global s %}{{ s }}{{ s }}{% endset %}{% endfor %}",
            "1: a variable of the template is larger than 1 MiB",
        ),
        (
            "{% set s %}{% for a in range(end=100000) %}{{ peers }}{% endfor %}{% endset %}",
            "1: the template makes more than 64 MiB of text",
        ),
        (
            &format!(
                "{{% filter upper %}}{{% for a in range(end=100000) %}}{}{{% endfor %}}{{% endfilter %}}",
                "x".repeat(1000)
            ),
            "1: the template makes more than 64 MiB of text",
        ),
        (
            &format!("{{% for a in range(end=20000) %}}{}{{% endfor %}}", "x".repeat(1000)),
            "0: the text that results is larger than 16 MiB",
        ),
        (
            "\n{% set s = range(end=3000) | str %}{{ s | replace(from='', to=s) }}",
            "2: `replace` makes a value larger than 1 MiB",
        ),
        ("{{ range(end=90000) | join(sep='xxxxxxxxxxxx') }}", "1: `join` makes a value larger than 1 MiB"),
        (
            "{% set s = range(end=9000) | join(sep='\n') %}\n{{ s | indent(width=1000) }}",
            "3: `indent` makes a value larger than 1 MiB",
        ),
        (
            "{{ [x for x in range(end=9)] | length }}",
            "1: a `for` within an expression can't be counted: write a loop, `{% for .. %}`",
        ),
        ("{% component a() %}{{ <a /> }}{% endcomponent %}", "1: templates have no components and no other templates"),
    ] {
        assert_eq!(told(text), said, "{text}");
    }
    assert!(
        told("{{ ((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))))))))) }}")
            .starts_with("error:")
    );
}

proptest! {
    /// Whatever is put together of these parts, what is counted is what Tera renders.
    #[test]
    fn the_meter_changes_nothing(parts in proptest::collection::vec(0usize..14, 0..12)) {
        let known = [
            "{% for p in peers %}", "{%- for x in vars.list -%}", "{% endfor %}", "{%- endfor -%}", "{% set a = x %}", "{% set b -%}",
            "{% endset %}", "{{ x }}", "{{- vars.text | title -}}", " \n text ", "{% if x %}", "{% endif %}", "{# {{ #}", "{{ a ~ b }}",
        ];
        let text: String = parts.into_iter().map(|part| known[part]).collect();
        prop_assert_eq!(told(&text), plain(&text), "{}", text);
    }
}

//! `remoor schema`: a validator accepts what remoor accepts, and refuses mistakes that need no
//! knowledge of the machine.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};
use std::collections::BTreeMap;

struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn new(schema: Value) -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("schema.json", schema).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap();
        Self { schemas, index }
    }

    /// The reason why the document is refused; None if it is accepted.
    fn refusal(&self, yaml: &str) -> Option<String> {
        let value: Value = serde_saphyr::from_str(yaml).unwrap_or_else(|e| panic!("{e}: {yaml}"));
        self.schemas.validate(&value, self.index).err().map(|error| error.to_string())
    }
}

#[test]
fn check_files() {
    let validator = Validator::new(remoor_check::schema());
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goss");
    let mut files = vec![format!("{root}/types/suite.yaml")];
    for file in std::fs::read_dir(format!("{root}/matching")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "yaml") && !path.ends_with("departures.yaml") {
            files.push(path.display().to_string());
        }
    }
    let mut accepted = 0;
    let variable = regex::Regex::new("@[a-z-]+@").unwrap();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        // The values of the machine are filled in when the test that uses the file runs.
        let text = variable.replace_all(&text, "1");
        let types: BTreeMap<String, Value> = serde_saphyr::from_str_with_options(
            &text,
            serde_saphyr::options! { budget: serde_saphyr::budget! { enforce_alias_anchor_ratio: false } },
        )
        .unwrap();
        // Some checks in these files are wrong on purpose. Whatever remoor accepts, the schema must
        // accept.
        let ids = |(kind, all): (&String, &Value)| {
            let all = all.as_object().cloned().unwrap_or_default();
            all.into_iter().map(|(id, check)| (kind.clone(), id, check)).collect::<Vec<_>>()
        };
        for (kind, id, check) in types.iter().flat_map(ids) {
            let one = json!({kind: {id: check}}).to_string();
            if remoor_check::parse("f.yml", &"s".into(), &one).is_ok() {
                assert_eq!(validator.refusal(&one), None, "{file}: {one}");
                accepted += 1;
            }
        }
    }
    assert!(accepted > 500, "{accepted}");
    for good in [
        "remoor: {service: web, any-of: {a: [port:tcp:80], b: {checks: [process:x], title: t}}, cert: {/c: {not-after: {gt: 30d}}}}",
        "file: {/x: {exists: true, mode: '0644', contents: [a, '!b'], meta: {mine: 1, remoor: {for: 10s, retry: {count: 2, delay: 1s}}}}}",
        "process: {x: {running: true, meta: {remoor: {user: root, count: {ge: 2}}}}}",
        "gossfile: {a/*.yml: {}, b.yml: {skip: true}}\nport:\n",
        "dns: {localhost: {resolveable: true}}",
        "command: {a: {exec: x, exit-status: {or: [0, 1]}, stdout: {gjson: {a.b: {have-len: 1}}}, timeout: 500}}",
    ] {
        assert_eq!(validator.refusal(good), None, "{good}");
    }
    for bad in [
        "fiel: {/x: {exists: true}}",
        "file: {/x: {exists: true, moed: '0644'}}",
        "file: {/x: {mode: '0644'}}",
        "file: {/x: {exists: 'yes'}}",
        "file: {/x: {exists: true, contents: []}}",
        "file: {/x: {exists: true, owner: {have-prefx: r}}}",
        "file: {/x: {exists: true, owner: {have-prefix: r, have-suffix: t}}}",
        "command: {a: {exit-status: 0, timeout: 1s}}",
        "service: {a: {running: true, meta: {remoor: {severity: bad}}}}",
        "package: {a: {installed: true, meta: {remoor: {user: root}}}}",
        "remoor: {roles: [web]}",
        "remoor: {service: a, template: jinja}",
        "[a]",
    ] {
        assert!(validator.refusal(bad).is_some(), "{bad}");
    }
}

#[test]
fn fleets() {
    let validator = Validator::new(remoor_config::schema());
    for file in ["examples/web/remoor.yml", "tests/fleets/five/remoor.yml"] {
        let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(validator.refusal(&text), None, "{file}");
    }
    for bad in [
        "version: 1",
        "{version: 2, inventory: i.yml}",
        "{version: 1, inventory: i.yml, group: {}}",
        "{version: 1, inventory: i.yml, groups: {web: {polcy: {reboot: check}}}}",
        "{version: 1, inventory: i.yml, groups: {web: {policy: {reboot: resetupp}}}}",
        "{version: 1, inventory: i.yml, services: {etcd: {units: etcd.service}}}",
        "{version: 1, inventory: i.yml, limits: {fleet-percent: 200}}",
        "{version: 1, inventory: i.yml, ssh: {port: 0}}",
    ] {
        assert!(validator.refusal(bad).is_some(), "{bad}");
    }
}

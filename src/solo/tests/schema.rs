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
        "filesystem: {/var: {usage: {lt: 90}, free-bytes: {gt: 5GiB}, inode-usage: {lt: 90}, timeout: 500}}",
        "remoor: {service: a, filesystem: {/: {free-bytes: {gt: 1000}}}, journal: {a: {count: 0, since: 1h}}}",
        "journal: {all: {unit: '*', priority: err, pattern: a.b, messages: [x, '!y'], count: {lt: 5}}}",
        "service: {a.timer: {meta: {remoor: {last-run-age: {lt: 26h}, next-run-in: {lt: 90}, last-result: success}}}}",
        "service: {a: {meta: {remoor: {properties: {NRestarts: {lt: 3}, Result: success}}}}}",
        "http: {'http://a': {status: 200, meta: {remoor: {metrics: {'up{job=\"a\"}': 1}, numbers: {'a (\\d+)': {lt: 5}}}}}}",
    ] {
        assert_eq!(validator.refusal(good), None, "{good}");
        let parsed = remoor_check::parse("f.yml", &"s".into(), good);
        // The first of these names members that do not exist, and another includes files.
        let is_complete = !["any-of", "gossfile"].iter().any(|part| good.contains(part));
        assert_eq!(parsed.is_ok(), is_complete, "{good}: {parsed:?}");
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
        "filesystem: {/var: {free-bytes: {gt: 5GB}}}",
        "filesystem: {/var: {free: 5}}",
        "service: {a.timer: {meta: {remoor: {last-run-age: {lt: 26 hours}}}}}",
        "service: {a: {meta: {remoor: {properties: {}}}}}",
        "port: {tcp:80: {listening: true, meta: {remoor: {metrics: {up: 1}}}}}",
        "journal: {a: {counts: 0}}",
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

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The paths of the YAML files in a directory of the repository.
fn yaml_files(dir: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(format!("{ROOT}/{dir}")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "yml")).collect();
    files.sort();
    files
}

/// The schema that the first line of a file names for editors.
fn named_schema(file: &std::path::Path) -> std::path::PathBuf {
    let text = std::fs::read_to_string(file).unwrap();
    let named = text.lines().next().and_then(|line| line.strip_prefix("# yaml-language-server: $schema="));
    file.parent().unwrap().join(named.unwrap_or_else(|| panic!("{} names no schema", file.display())))
}

#[test]
fn the_shipped_check_files_name_their_schema_and_satisfy_it() {
    let validator = Validator::new(remoor_check::schema());
    let inventory = std::fs::read_to_string(format!("{ROOT}/tests/fleets/five/inventory.yml")).unwrap();
    let inventory: Value = serde_saphyr::from_str(&inventory).unwrap();
    let mut rendered = 0;
    for file in yaml_files("checks").into_iter().chain(yaml_files("examples/web/checks")) {
        assert!(named_schema(&file).ends_with("../schema/checks.json") && named_schema(&file).is_file());
        let (name, text) = (file.display().to_string(), std::fs::read_to_string(&file).unwrap());
        let (head, goss) = remoor_check::header(&name, &text).unwrap();
        for group in ["service-master", "service-worker"] {
            let mut vars = inventory["all"]["vars"].as_object().unwrap().clone();
            vars.extend(head.vars.clone());
            // A variable of `examples/web/inventory.yml`.
            vars.insert("site_port".to_owned(), json!(8080));
            let node = json!({"name": "n1", "addr": "192.0.2.1", "group": group, "role": "worker", "hostname": "n1"});
            let context = json!({"node": node, "vars": vars, "peers": [], "expected": {}});
            let text = remoor_check::render(&name, &head, &goss, context.as_object().unwrap()).unwrap();
            // The settings of the block are not part of the rendered text unless it contains
            // checks.
            assert_eq!(validator.refusal(&text), None, "{name}");
            assert!(!remoor_check::parse(&name, &head.service, &text).unwrap().is_empty(), "{name}");
            rendered += 1;
        }
    }
    assert!(rendered >= 12, "{rendered}");
}

#[test]
fn the_schema_files_are_those_of_the_command() {
    let as_printed = |schema: Value| serde_json::to_string_pretty(&schema).unwrap() + "\n";
    for dir in ["schema", "examples/web/schema"] {
        expect_test::expect_file![format!("{ROOT}/{dir}/checks.json")].assert_eq(&as_printed(remoor_check::schema()));
        expect_test::expect_file![format!("{ROOT}/{dir}/fleet.json")].assert_eq(&as_printed(remoor_config::schema()));
    }
    let config = format!("{ROOT}/examples/web/remoor.yml");
    assert_eq!(named_schema(config.as_ref()), std::path::Path::new(ROOT).join("examples/web/schema/fleet.json"));
}

//! Rules for the text of the project: allowed imports, names that the pure layers must not use, the
//! first line of each file, agreement of documents and code, and a valid shipped fleet.
//!
//! Each rule is a function from small inputs to faults. A test shows that the rule finds a fault.
//! rustfmt and clippy check all other rules.

mod names;
mod source;

use crate::lab::{Host, five};
use remoor_config::Fleet;
use source::{Source, is_within};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Allowed imports. The first column is a module or a whole crate. The second column lists the
/// modules that it may import in addition to itself; `a::b` includes the modules below it. If
/// several rows match a file, the longest row counts. Cargo also enforces the borders of crates,
/// but this table has rows for single modules. `docs/ARCHITECTURE.md` shows the table.
const LAYERS: &[(&str, &[&str])] = &[
    ("remoor_model", &[]),
    ("remoor_engine", &["remoor_model"]),
    ("remoor_vault", &[]),
    ("remoor_config", &["remoor_model", "remoor_vault"]),
    ("remoor_host::disk", &["remoor_model"]),
    ("remoor_host::files", &["remoor_model", "remoor_host::disk"]),
    ("remoor_host::process", &[]),
    ("remoor_host::systemd", &[]),
    ("remoor_host::template", &["remoor_model"]),
    ("remoor_host::tls", &[]),
    ("remoor_host::wall_clock", &["remoor_model"]),
    ("remoor_host::web", &[]),
    ("remoor_check", &["remoor_model", "remoor_host"]),
    ("remoor_playbook", &["remoor_model", "remoor_host", "remoor_vault"]),
    ("remoor_exec", &["remoor_model", "remoor_host", "remoor_check", "remoor_playbook"]),
    ("remoor_exec::ssh", &["remoor_model", "remoor_host::disk", "remoor_exec::wire", "remoor_exec::STATE_DIR"]),
    ("remoor_cluster::incarnation", &["remoor_model"]),
    ("remoor_cluster::keyed_limiter", &[]),
    (
        "remoor_cluster::gossip",
        &[
            "remoor_model",
            "remoor_host::disk",
            "remoor_host::wall_clock",
            "remoor_cluster::incarnation",
            "remoor_cluster::keyed_limiter",
        ],
    ),
    (
        "remoor_cluster::raft",
        &["remoor_model", "remoor_host::disk", "remoor_host::wall_clock", "remoor_cluster::incarnation"],
    ),
    (
        "remoor_cluster::rpc",
        &[
            "remoor_model",
            "remoor_host::disk",
            "remoor_host::tls",
            "remoor_host::wall_clock",
            "remoor_cluster::keyed_limiter",
        ],
    ),
    ("remoor::telemetry", &["remoor_model"]),
    ("remoor::module_packer", &["remoor_model", "remoor_playbook"]),
    (
        "remoor::fleet",
        &["remoor_model", "remoor_host::disk", "remoor_config", "remoor_check", "remoor_playbook", "remoor_vault"],
    ),
    ("remoor::agent", &["remoor_model", "remoor_host", "remoor_check", "remoor_cluster", "remoor::telemetry"]),
    (
        "remoor::manager",
        &[
            "remoor_model",
            "remoor_engine",
            "remoor_host::disk",
            "remoor_host::files",
            "remoor_host::template",
            "remoor_host::wall_clock",
            "remoor_config",
            "remoor_vault",
            "remoor_playbook",
            "remoor_exec::ssh",
            "remoor_exec::wire",
            "remoor_cluster",
            "remoor::fleet",
            "remoor::telemetry",
        ],
    ),
    (
        "remoor::daemon",
        &[
            "remoor_model",
            "remoor_host",
            "remoor_exec::ssh",
            "remoor_exec::STATE_DIR",
            "remoor_cluster",
            "remoor::agent",
            "remoor::manager",
            "remoor::telemetry",
        ],
    ),
    (
        "remoor::solo",
        &[
            "remoor_model",
            "remoor_host",
            "remoor_config",
            "remoor_check",
            "remoor_playbook",
            "remoor_vault",
            "remoor_exec",
            // The HTTP server of `check --serve`, with its limits.
            "remoor_cluster::rpc::plain_http",
            "remoor_cluster::rpc::server",
            "remoor_cluster::rpc::wire",
            "remoor::fleet",
            "remoor::module_packer",
        ],
    ),
    ("remoor::cli", &["remoor_model", "remoor_exec::STATE_DIR", "remoor_cluster::rpc", "remoor::cli::drivers"]),
    (
        "remoor::cli::drivers",
        &[
            "remoor::cli",
            "remoor_model",
            "remoor_host::files",
            "remoor_host::process",
            "remoor_host::template",
            "remoor_config",
            "remoor_exec",
            "remoor_cluster::rpc",
            "remoor_vault",
            "remoor::daemon",
            "remoor::fleet",
            "remoor::module_packer",
            "remoor::solo",
            "remoor::telemetry",
        ],
    ),
];

/// External crates, each with the only modules that may use the crate.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("memberlist", &["remoor_cluster::gossip"]),
    ("openraft", &["remoor_cluster::raft"]),
    ("redb", &["remoor_cluster::raft"]),
    ("openssh", &["remoor_exec::ssh"]),
    ("anyhow", &["remoor::cli"]),
    ("clap", &["remoor::cli"]),
];

/// Crates and modules that must be pure. They must not use a clock, IO, a runtime, randomness, or
/// maps with an order that depends on more than their content.
const PURE: &[&str] = &["remoor_model", "remoor_engine", "remoor_cluster::incarnation"];
const IMPURE: &[&str] = &[
    "tokio",
    "tracing",
    "futures_util",
    "rustix",
    "jiff",
    "rand",
    "getrandom",
    "HashMap",
    "HashSet",
    "RandomState",
    "Instant",
    "SystemTime",
    "OsRng",
    "std::collections::hash_map",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
];

/// The folders with Rust code.
const ALL: &[&str] = &["src", "crates", "tests", "benches"];

/// Maximum number of columns of a line of prose (docs/style.md).
const PROSE_MAX: usize = 100;

/// Maximum number of lines of a file, including tests.
const LINES_MAX: usize = 600;

/// The longest row of [`LAYERS`] that matches a module.
fn row(module: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
    LAYERS.iter().filter(|(layer, _)| is_within(module, layer)).max_by_key(|(layer, _)| layer.len())
}

fn layer_violations(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(module) = source.module().filter(|module| module.contains("::")) else { continue };
        let Some((layer, allowed)) = row(&module) else {
            faults.push(format!("{}: {module} is missing in the table of layers", source.path));
            continue;
        };
        for import in source.imports() {
            if row(&import).is_some_and(|(l, _)| l != layer) && !allowed.iter().any(|a| is_within(&import, a)) {
                faults.push(format!("{}: {layer} must not import {import}", source.path));
            }
        }
    }
    faults
}

/// Rows of [`LAYERS`] that match no file.
fn stale_rows(sources: &[Source]) -> Vec<String> {
    let modules: Vec<String> = sources.iter().filter_map(Source::module).collect();
    let stale = LAYERS.iter().filter(|(layer, _)| !modules.iter().any(|m| is_within(m, layer)));
    stale.map(|(layer, _)| format!("the table of layers names {layer}, which does not exist")).collect()
}

fn impure_names(sources: &[Source]) -> Vec<String> {
    let pure = |source: &&Source| source.module().is_some_and(|m| PURE.iter().any(|p| is_within(&m, p)));
    let mut faults = Vec::new();
    for source in sources.iter().filter(pure) {
        for name in &source.names {
            let joined = name.join("::");
            let hit = IMPURE.iter().find(|bad| is_within(&joined, bad) || name.iter().any(|segment| segment == *bad));
            faults.extend(hit.map(|bad| format!("{}: must not use {bad} ({joined})", source.path)));
        }
    }
    faults
}

fn misplaced_crates(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(module) = source.module() else { continue };
        for (krate, homes) in ONLY_IN {
            let names = |first: &str| first == *krate || first.strip_prefix(krate).is_some_and(|r| r.starts_with('_'));
            let named = source.names.iter().any(|n| n.len() > 1 && names(&n[0]));
            if named && !homes.iter().any(|home| is_within(&module, home)) {
                faults.push(format!("{}: uses {krate}, which only {} may use", source.path, homes.join(", ")));
            }
        }
    }
    faults
}

fn missing_headers(sources: &[Source]) -> Vec<String> {
    let bad = sources.iter().filter(|s| !s.text.starts_with("//! "));
    bad.map(|s| format!("{}: does not begin with its purpose (`//! ...`)", s.path)).collect()
}

fn long_files(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter(|s| s.text.lines().count() > LINES_MAX);
    long.map(|s| format!("{}: {} lines, the maximum is {LINES_MAX}", s.path, s.text.lines().count())).collect()
}

/// Finds postponed work and disabled tests. Each word is written in two parts, so that this file
/// obeys the rule.
fn unfinished_marks(path: &str, text: &str) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let marks = ["todo", "unimplemented"].map(|m| format!("{m}{}", "!("));
    let attributes = ["ignore", "should_panic"].map(|a| format!("#{}{a}", "["));
    let is_word = |w: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|t| t == w);
    let mut hits: Vec<&str> = words.into_iter().filter(|w| is_word(w)).collect();
    if path.ends_with(".rs") {
        hits.extend(marks.iter().chain(&attributes).map(String::as_str).filter(|m| text.contains(m)));
    }
    hits.into_iter().map(|hit| format!("{path}: {hit}")).collect()
}

/// Finds hosts of package registries and paths of a developer's machine.
fn local_strings(path: &str, text: &str) -> Vec<String> {
    let hosts = [("crates", "io"), ("npmjs", "org"), ("pypi", "org"), ("golang", "org"), ("pythonhosted", "org")];
    let mut bad: Vec<String> = hosts.iter().map(|(name, end)| format!("{name}.{end}")).collect();
    bad.extend(["/work", "/home"].map(|top| format!("{top}/")));
    bad.push(["/root", "/.cargo"].concat());
    bad.into_iter().filter(|b| text.contains(b.as_str())).map(|b| format!("{path}: contains {b}")).collect()
}

/// Names and version requirements of `[workspace.dependencies]`, without the crates of this
/// workspace.
fn dependencies(manifest: &str) -> BTreeMap<String, String> {
    let mut section = "";
    let mut out = BTreeMap::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[workspace.dependencies]"
            && let Some((name, rest)) = line.split_once('=')
            && !name.starts_with("remoor-")
        {
            let version = rest.split('"').nth(1).unwrap_or_default();
            out.insert(name.trim().to_owned(), version.to_owned());
        }
    }
    out
}

/// The crates for which the table of a page gives a reason. The name of a crate is in the first
/// cell of a row, in backticks.
fn dependencies_with_reason(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|l| l.strip_prefix("| `"));
    rows.filter_map(|row| {
        let (name, rest) = row.split_once('`')?;
        let reason = rest.trim_matches(|c: char| c == '|' || c == ' ');
        (reason.len() > 20).then(|| name.to_owned())
    })
    .collect()
}

fn dependencies_without_reason(manifest: &str, page: &str) -> Vec<String> {
    let (have, text) = (dependencies(manifest), dependencies_with_reason(page));
    let missing =
        have.keys().filter(|d| !text.contains(*d)).map(|d| format!("{d} has no reason in docs/dependencies.md"));
    let gone = text
        .iter()
        .filter(|d| !have.contains_key(*d))
        .map(|d| format!("{d} is in docs/dependencies.md but is not a dependency"));
    missing.chain(gone).collect()
}

fn unused_dependencies(manifest: &str, sources: &[Source]) -> Vec<String> {
    let named: BTreeSet<&str> = sources.iter().flat_map(|s| s.names.iter().map(|n| n[0].as_str())).collect();
    let ours = dependencies(manifest);
    ours.keys().filter(|d| !named.contains(d.replace('-', "_").as_str())).cloned().collect()
}

/// Folders of `top` (`src` or `crates`) that the page does not list as `top/name/`.
fn unmapped_folders(top: &str, folders: &BTreeSet<String>, page: &str) -> Vec<String> {
    let missing = folders.iter().filter(|f| !page.contains(&format!("`{top}/{f}/`")));
    missing.map(|f| format!("{top}/{f} is missing in the map of docs/ARCHITECTURE.md")).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every file below `dir`, as a path from the root of the project.
fn walk(dir: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(dir)) else { return Vec::new() };
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry.expect("a folder of the project can be listed");
        let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
        let path = path.trim_start_matches("./").to_owned();
        match entry.file_type().expect("a kind").is_dir() {
            true => out.extend(walk(&path)),
            false => out.push(path),
        }
    }
    out.sort();
    out
}

fn rust(dirs: &[&str]) -> Vec<Source> {
    let paths = dirs.iter().flat_map(|d| walk(d)).filter(|p| p.ends_with(".rs"));
    let sources: Vec<Source> = paths.map(|p| Source::new(&p, &read(&p))).collect();
    assert!(sources.len() > 3, "found {} files in {dirs:?}", sources.len());
    sources
}

/// All texts that people wrote. Lock files and build results are omitted.
fn texts() -> Vec<(String, String)> {
    let dirs =
        ["src", "crates", "tests", "benches", "docs", "playbooks", "checks", "templates", "examples", ".ci", ".github"];
    let top = fs::read_dir(root()).expect("the project's folder").filter_map(Result::ok);
    let top = top.filter(|e| e.path().is_file()).map(|e| e.file_name().to_string_lossy().into_owned());
    let paths = dirs.iter().flat_map(|d| walk(d)).chain(top.filter(|n| n != ".git"));
    let paths = paths.filter(|p| !p.ends_with("Cargo.lock"));
    paths.filter_map(|p| Some((p.clone(), String::from_utf8(fs::read(root().join(&p)).ok()?).ok()?))).collect()
}

#[track_caller]
/// The lines of prose with more than 100 columns: comments of Rust, and texts of Markdown. Tables,
/// code blocks and the changelog, whose entries are one line each, are exempt.
fn long_prose(path: &str, text: &str) -> Vec<String> {
    let is_markdown = path.ends_with(".md") && path != "CHANGELOG.md";
    let mut in_code = false;
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let prose = match line.trim_start() {
            _ if is_markdown => Some(line),
            comment if path.ends_with(".rs") => {
                comment.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim_start_matches(' '))
            }
            _ => None,
        };
        let Some(prose) = prose else { continue };
        in_code ^= prose.trim_start().starts_with("```");
        let is_table_or_code = in_code || prose.trim_start().starts_with('|') || prose.starts_with("    ");
        if !is_table_or_code && line.chars().count() > PROSE_MAX {
            faults.push(format!("{path}:{}: {} columns, the maximum is {PROSE_MAX}", index + 1, line.chars().count()));
        }
    }
    faults
}

fn assert_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn each_layer_imports_only_what_it_may() {
    let sources = rust(&["src", "crates"]);
    assert_none(layer_violations(&sources));
    assert_none(stale_rows(&sources));
    assert_none(impure_names(&sources));
    assert_none(misplaced_crates(&sources));
}

#[test]
fn an_import_against_the_layers_is_found() {
    let found = |path: &str, text: &str| {
        let sources = [Source::new(path, text)];
        [layer_violations(&sources), impure_names(&sources), misplaced_crates(&sources)].concat().len()
    };
    assert_eq!(found("crates/engine/src/x.rs", "use remoor_model::{Node, Wall}; // remoor_exec::ssh"), 0);
    assert_eq!(found("crates/engine/src/x.rs", "use remoor_model::Node; use remoor_host::disk::atomic_write;"), 1);
    assert_eq!(found("crates/host/src/disk/x.rs", "use super::super::files::digest;"), 1);
    assert_eq!(found("crates/cluster/src/gossip/x.rs", "use crate::{gossip::Meta, raft::Raft};"), 1);
    assert_eq!(found("crates/exec/src/ssh/x.rs", "use crate::wire::Order;"), 0);
    assert_eq!(found("crates/exec/src/ssh/x.rs", "use remoor_playbook::compile;"), 1);
    assert_eq!(found("src/agent/x.rs", "use remoor_engine::Action;"), 1);
    assert_eq!(found("src/manager/x.rs", "use remoor_engine::Action;"), 0);
    assert_eq!(found("src/manager/x.rs", "fn f() { crate::daemon::run() }"), 1);
    assert_eq!(found("src/cli/command/x.rs", "fn f() { crate::daemon::run() }"), 1);
    assert_eq!(found("src/cli/drivers.rs", "fn f() { crate::daemon::run() }"), 0);
    assert_eq!(found("src/novelty/x.rs", "fn f() {}"), 1);
    assert_eq!(found("crates/model/src/x.rs", "use std::{collections::{BTreeMap, HashMap}, fmt};"), 1);
    assert_eq!(found("crates/model/src/x.rs", "use std::{fmt, fs::File};"), 1);
    assert_eq!(found("crates/engine/src/x.rs", "let now = std::time::Instant::now();"), 1);
    assert_eq!(found("crates/engine/src/x.rs", "async fn f() { tokio::spawn(g()) }"), 1);
    assert_eq!(found("crates/cluster/src/rpc/x.rs", "use std::collections::HashMap;"), 0);
    assert_eq!(found("crates/cluster/src/rpc/x.rs", "use openraft::Raft;"), 1);
    assert_eq!(found("src/daemon/x.rs", "use memberlist_core::Options;"), 1);
    let text = "use memberlist::Options; const T: &str = \"openraft::core\";";
    assert_eq!(found("crates/cluster/src/gossip/x.rs", text), 0);
}

#[test]
fn every_file_begins_with_its_purpose_and_is_short() {
    let sources = rust(ALL);
    assert_none(missing_headers(&sources));
    assert_none(long_files(&sources));
    let bad = [Source::new("src/a/b.rs", &"// no doc\n".repeat(LINES_MAX + 1))];
    assert_eq!((missing_headers(&bad).len(), long_files(&bad).len()), (1, 1));
}

#[test]
fn lines_of_prose_are_short() {
    assert_none(texts().iter().flat_map(|(path, text)| long_prose(path, text)).collect());
    let long = "word ".repeat(PROSE_MAX / 5 + 1);
    for (path, text, count) in [
        ("a.rs", format!("    /// {long}"), 1),
        ("a.rs", format!("/// ```text\n/// {long}\n/// ```\nlet a = \"{long}\";"), 0),
        ("a.md", format!("- {long}\n\n| {long} |\n\n    {long}\n"), 1),
    ] {
        assert_eq!(long_prose(path, &text).len(), count, "{text}");
    }
}

#[test]
fn no_text_contains_postponed_work_or_local_paths() {
    let texts = texts();
    assert!(texts.iter().any(|(path, _)| path == "README.md") && texts.iter().any(|(path, _)| path == "Cargo.toml"));
    assert_none(
        texts
            .iter()
            .flat_map(|(path, text)| [unfinished_marks(path, text), local_strings(path, text)].concat())
            .collect(),
    );

    let put_off = ["TO", "DO: later"].concat();
    assert_eq!(unfinished_marks("a.yml", &format!("# {put_off}")).len(), 1);
    assert_eq!(unfinished_marks("a.rs", &format!("{}{}", "todo", "!()")).len(), 1);
    assert_eq!(unfinished_marks("a.rs", &format!("#{}{}", "[", "ignore] fn f() {}")).len(), 1);
    assert_eq!(unfinished_marks("a.rs", "let todos = method(); // ignored, autodone"), [""; 0]);
    assert_eq!(local_strings("a", &format!("from index.{}.{}/x", "crates", "io")).len(), 1);
    assert_eq!(local_strings("a", "cargo, io"), [""; 0]);
}

#[test]
fn every_dependency_is_used_and_has_a_reason_and_fragile_ones_are_pinned() {
    let (manifest, page) = (read("Cargo.toml"), read("docs/dependencies.md"));
    assert_none(dependencies_without_reason(&manifest, &page));
    assert_none(unused_dependencies(&manifest, &rust(ALL)));
    for name in ["memberlist", "openraft"] {
        assert!(dependencies(&manifest)[name].starts_with('='), "{name} must be pinned exactly");
    }

    let manifest =
        "[workspace.dependencies]\nserde-saphyr = \"2\"\nb = { version = \"=1.2\" }\n\n[profile.dev]\ndebug = 1\n";
    assert_eq!(dependencies(manifest)["b"], "=1.2");
    assert_eq!(dependencies(manifest).len(), 2);
    let page = "| `serde-saphyr` | reads YAML with places in errors |\n| `c` | was needed for something |\n| `b` | |";
    assert_eq!(
        dependencies_without_reason(manifest, page),
        ["b has no reason in docs/dependencies.md", "c is in docs/dependencies.md but is not a dependency"]
    );
    let sources = [Source::new("src/a.rs", "use serde_saphyr::x; // b::y")];
    assert_eq!(unused_dependencies(manifest, &sources), ["b"]);
}

#[test]
fn the_map_names_every_folder() {
    for top in ["src", "crates"] {
        let entries = fs::read_dir(root().join(top)).expect(top).filter_map(Result::ok);
        let folders = entries.filter(|e| e.path().is_dir()).map(|e| e.file_name().to_string_lossy().into_owned());
        assert_none(unmapped_folders(top, &folders.collect(), &read("docs/ARCHITECTURE.md")));
    }
    let two = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert_eq!(
        unmapped_folders("src", &two, "only `src/a/` is here"),
        ["src/b is missing in the map of docs/ARCHITECTURE.md"]
    );
}

/// Writes the fleet of five with the shipped playbooks, templates and all shipped checks to a new
/// directory.
fn shipped_fleet() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let groups = ["service-master", "service-worker"];
    write_fleet(
        dir.path(),
        |path, text| if path == "remoor.yml" { five::with_monitored_services(&text, &groups) } else { text },
    );
    dir
}

fn write_fleet(dir: &Path, edit: impl FnMut(&str, String) -> String) {
    let host = |(at, name): (usize, &&str)| Host { name: (*name).to_owned(), ip: [10, 77, 1, 11 + at as u8].into() };
    let hosts: Vec<Host> = five::HOSTS.iter().enumerate().map(host).collect();
    five::write(dir, &hosts, edit).expect("the fleet of five");
}

/// All errors and warnings of `remoor lint` for a fleet directory.
fn lint(dir: &Path) -> Vec<String> {
    let faults = Fleet::load(dir).map_or_else(|faults| faults, |fleet| remoor::fleet::lint(&fleet));
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn names_say_what_they_stand_for() {
    let sources = rust(ALL);
    assert_none(names::bare_functions(&sources));
    let mut libraries = rust(&["src", "crates"]);
    libraries.retain(|source| source.module().is_some());
    assert_none(names::repeated_types(&libraries));
}

#[test]
fn functions_and_structs_stay_short() {
    assert_none(names::oversized_items(&rust(ALL)));
}

#[test]
fn documents_that_a_text_names_exist() {
    let dangling = |(path, text): &(String, String)| names::dangling_references(root(), path, text);
    assert_none(texts().iter().flat_map(dangling).collect());
}

#[test]
fn the_fleet_that_is_shipped_has_no_fault() {
    let all = shipped_fleet();
    assert_none(lint(all.path()));
    let checks = |dir: &Path| fs::read_dir(dir.join("checks")).expect("checks").count();
    assert_eq!(checks(all.path()), walk("checks").len());
    let plain = tempfile::tempdir().expect("a temporary directory");
    write_fleet(plain.path(), |_, text| text);
    assert_none(lint(plain.path()));
    assert_eq!(checks(plain.path()) + five::MONITORED.len(), checks(all.path()));
}

#[test]
fn a_fault_in_a_shipped_file_is_found_where_it_is() {
    for (file, from, to) in [
        ("remoor.yml", "quorum: true", "quorun: true"),
        ("inventory.yml", "w2: {", "w2: ["),
        ("checks/nginx.yml", "running: true", "runing: true"),
        ("checks/etcd.yml", "vars.etcd_client_port", "vars.etcd_client_prot"),
        ("checks/base.yml", "vars.base_usage_max", "vars.base_usage"),
        ("checks/chrony.yml", "meta: {remoor: {severity: warning, on-fail: alert}}", "title: x"),
        ("checks/sshd.yml", "service: sshd", "service: shd"),
        ("templates/nginx.conf.j2", "{{", "{{ {{"),
        ("templates/netplugin.default.tera", "{{", "{{ {{"),
        ("playbooks/provision.yml", "    - name:", "    - nam:"),
    ] {
        let dir = shipped_fleet();
        let path = dir.path().join(file);
        let text = fs::read_to_string(&path).expect(file);
        assert!(text.contains(from), "{file} has no {from:?} to break");
        fs::write(&path, text.replacen(from, to, 1)).expect(file);
        let faults = lint(dir.path());
        assert!(faults.iter().any(|f| f.contains(file)), "{file}: {faults:?}");
    }
}

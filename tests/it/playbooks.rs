//! Runs the playbooks of `tests/playbooks` with `remoor play` on this machine, and compares the
//! results with those of ansible-core (recorded by `record.sh` in that directory). The results are
//! exit codes, tasks and handlers in order, recaps, and the tree afterwards. Allowed differences
//! are in `departures.txt`, each with a reason. Any other difference fails the test, and so does a
//! listed difference that does not occur.

mod playbook_run;
mod web;

use playbook_run::Answer;
use similar::{ChangeTag, TextDiff};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Minimum number of playbooks that are compared.
const LEAST: usize = 60;

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/playbooks")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of the playbooks, sorted.
fn names() -> Vec<String> {
    let entries = fs::read_dir(home()).expect("the playbooks").map(|entry| entry.expect("an entry").path());
    let playbook = |path: &PathBuf| path.extension().is_some_and(|e| e == "yml");
    let name = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let names: BTreeSet<String> = entries.filter(playbook).map(name).collect();
    names.into_iter().collect()
}

fn load_recording(dir: &Path, name: &str) -> Answer {
    let text = read(&dir.join(format!("{name}.json")));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Appends the lines that only one of `ansible` and `remoor` contains, in their order. Lines of
/// `ansible` have the prefix `-`, lines of `remoor` the prefix `+`.
fn lines(what: &str, ansible: &[String], remoor: &[String], into: &mut Vec<String>) {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (ansible.iter().map(String::as_str).collect(), remoor.iter().map(String::as_str).collect());
    for change in TextDiff::from_slices(&old, &new).iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => {}
            ChangeTag::Delete => into.push(format!("{what} -{}", change.value())),
            ChangeTag::Insert => into.push(format!("{what} +{}", change.value())),
        }
    }
}

fn to_lines<T: std::fmt::Debug>(map: &BTreeMap<String, T>) -> Vec<String> {
    map.iter().map(|(key, value)| format!("{key}: {value:?}")).collect()
}

/// The differences between `remoor` and `ansible`, one per line.
fn differences(ansible: &Answer, remoor: &Answer) -> Vec<String> {
    let mut out = Vec::new();
    for (at, (old, new)) in ansible.runs.iter().zip(&remoor.runs).enumerate() {
        let run = format!("run {}", at + 1);
        if let Some(why) = &new.refused {
            out.push(format!("{run}: refused: {why}"));
            continue;
        }
        // Only success or failure is compared, because ansible-playbook also encodes the kind of
        // failure in its exit code.
        if (old.code == 0) != (new.code == 0) {
            out.push(format!("{run}: code -{} +{}", old.code, new.code));
        }
        let hosts: BTreeSet<&String> = old.hosts.keys().chain(new.hosts.keys()).collect();
        for host in hosts {
            let (old, new) = (old.hosts.get(host).cloned(), new.hosts.get(host).cloned());
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            lines(&format!("{run} {host}:"), &old.tasks, &new.tasks, &mut out);
            // If the tasks differ, the counts of the recaps differ too and are not compared.
            if old.tasks == new.tasks {
                lines(&format!("{run} {host} recap:"), &to_lines(&old.recap), &to_lines(&new.recap), &mut out);
            }
        }
    }
    // A rejected playbook did not run, so it left no files to compare.
    if remoor.runs.iter().all(|run| run.refused.is_none()) {
        lines("tree:", &to_lines(&ansible.tree), &to_lines(&remoor.tree), &mut out);
    }
    out
}

/// The allowed differences by playbook. Lines with a reason (`# `) precede the differences that
/// they explain.
fn departures(text: &str) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut reason = false;
    for (at, line) in text.lines().enumerate() {
        match line.split_once(": ") {
            _ if line.starts_with("# ") => reason = true,
            _ if line.is_empty() => reason = false,
            _ if !reason => return Err(format!("line {}: no reason stands above it", at + 1)),
            Some((playbook, difference)) => {
                if !out.entry(playbook.to_owned()).or_default().insert(difference.to_owned()) {
                    return Err(format!("line {}: it stands there twice", at + 1));
                }
            }
            None => return Err(format!("line {}: no PLAYBOOK: DIFFERENCE", at + 1)),
        }
    }
    Ok(out)
}

/// The playbooks that this machine can run. Those that change directories of the system need root.
fn possible(names: Vec<String>) -> Vec<String> {
    let root = rustix::process::geteuid().is_root();
    let (possible, rest): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| root || !is_private(name));
    if !rest.is_empty() {
        eprintln!("SKIPPED: NOT ROOT: {}", rest.join(", "));
    }
    possible
}

fn is_private(name: &str) -> bool {
    !playbook_run::private_dirs(&read(&home().join(format!("{name}.yml")))).is_empty()
}

/// The result of each playbook on this machine. Four playbooks run in parallel, because they mostly
/// wait.
fn all_ran(names: &[String]) -> BTreeMap<String, Answer> {
    let left = Mutex::new(names.iter());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(name) = left.lock().expect("no panic").next() else { break };
                    let answer = playbook_run::run_playbook(&home(), name);
                    done.lock().expect("no panic").insert(name.clone(), answer);
                }
            });
        }
    });
    done.into_inner().expect("no panic")
}

#[test]
fn remoor_gives_the_same_results_as_ansible() {
    let names = names();
    assert!(names.len() >= LEAST, "{} playbooks", names.len());
    let mut known = departures(&read(&home().join("departures.txt"))).expect("departures");
    let all: BTreeSet<String> = names.iter().cloned().collect();
    let names = possible(names);
    known.retain(|name, _| !all.contains(name) || names.contains(name));
    let mut faults = Vec::new();
    for (name, answer) in all_ran(&names) {
        let known = known.remove(&name).unwrap_or_default();
        let found = differences(&load_recording(&home().join("recorded"), &name), &answer);
        faults.extend(found.iter().filter(|line| !known.contains(*line)).map(|line| format!("{name}: {line}")));
        let gone = known.iter().filter(|line| !found.contains(line));
        faults.extend(gone.map(|line| format!("{name} has no such departure any more: {line}")));
    }
    faults.extend(known.keys().map(|name| format!("departures of {name}, which is not there")));
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn each_recording_has_its_playbook_and_names_its_ansible_version() {
    let names = names();
    let recordings = fs::read_dir(home().join("recorded")).expect("recordings").count();
    assert_eq!(recordings, names.len(), "a recording for each playbook, and none besides");
    for name in &names {
        let answer = load_recording(&home().join("recorded"), name);
        assert!(answer.ansible.as_ref().is_some_and(|version| version.starts_with("2.19.")), "{name}");
        assert!(answer.command.is_some_and(|command| command.contains(&format!("{name}.yml"))), "{name}");
        let options: Vec<String> = answer.runs.into_iter().map(|run| run.options).collect();
        assert_eq!(options, playbook_run::options_of(&read(&home().join(format!("{name}.yml")))), "{name}");
    }
}

/// If an ansible-playbook of the recorded version is on PATH, its results must still match the
/// recording.
#[test]
fn ansible_still_matches_the_recording() {
    let text = Command::new("ansible-playbook").arg("--version").output();
    let version = text.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    if !version.contains("[core 2.19.") {
        eprintln!(
            "SKIPPED: no ansible-playbook of ansible-core 2.19 is on PATH, so the recordings were not compared with it"
        );
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    // Those that change directories of the system need more than ansible-core; see `record.py`.
    let names: Vec<String> = names().into_iter().filter(|name| !is_private(name)).collect();
    let status =
        Command::new("python3").arg(home().join("record.py")).arg("--to").arg(dir.path()).args(&names).status();
    assert!(status.expect("python3 runs").success());
    let mut faults = Vec::new();
    for name in names {
        let (old, new) = (load_recording(&home().join("recorded"), &name), load_recording(dir.path(), &name));
        faults.extend(differences(&old, &new).into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn differences_and_departures_are_reported() {
    let answer = |task: &str, changed: u32, file: &str| -> Answer {
        let run = serde_json::json!({"options": "", "code": 0,
            "hosts": {"n1": {"tasks": ["a: ok", task], "recap": {"changed": changed}}}});
        serde_json::from_value(serde_json::json!({"runs": [run], "tree": {"x": file}})).expect("an answer")
    };
    let (old, new) = (answer("b: ok", 0, "0644 x"), answer("b: changed", 1, "0600 x"));
    assert!(differences(&old, &old).is_empty());
    let found = differences(&old, &new);
    let want = ["run 1 n1: -b: ok", "run 1 n1: +b: changed", "tree: -x: \"0644 x\"", "tree: +x: \"0600 x\""];
    assert_eq!(found, want);
    let found = differences(&old, &answer("b: ok", 1, "0644 x"));
    assert_eq!(found, ["run 1 n1 recap: -changed: 0", "run 1 n1 recap: +changed: 1"]);
    assert!(departures("p: x\n").is_err() && departures("# why\np: x\np: x\n").is_err());
    assert!(departures("# why\np: x\n\nq: y\n").is_err(), "a reason ends with its paragraph");
    assert_eq!(departures("# why\np: x: y\n").expect("one")["p"].len(), 1);
}

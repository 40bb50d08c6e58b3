//! Runs the commands of docs/guides/walkthrough.md line by line, with real daemons on the loopback
//! of this machine. Each command runs on the node that the guide names, and its output must equal
//! the output in the guide. Numbers, times and ids are compared by form and not by value. `...`
//! matches any lines. `REMOOR_WALK=write` writes the actual outputs into the guide instead.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully};
use crate::time_limit::{BoundedChild, BoundedCommand};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/walkthrough.md");
const BEGIN: &str = "## A walk";
/// Maximum time until the output of a command equals the output in the guide.
const PATIENCE: Duration = Duration::from_secs(120);
/// The wait before the output of a query is written into the guide, so that the output has settled.
const SETTLE: Duration = Duration::from_secs(15);
/// Verbs that change nothing. They are repeated until they print the expected output.
const ASKS: [&str; 4] = ["status", "nodes", "raft-members", "history"];

/// A step of the guide: a line such as `w1# remoor nodes    # 3`, and the lines that the command
/// prints.
#[derive(Debug)]
struct Step {
    line: usize,
    node: String,
    argv: Vec<String>,
    code: i32,
    wanted: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut inside, mut walk) = (Vec::<Step>::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            walk = line.starts_with(BEGIN);
        }
        match line {
            "```console" if walk => inside = true,
            "```" => inside = false,
            _ if inside => match line.split_once("# ").filter(|(node, _)| is_node(node)) {
                Some((node, command)) => {
                    let (command, code) = command.split_once(" # ").unwrap_or((command, "0"));
                    steps.push(Step {
                        line: at,
                        node: node.to_owned(),
                        argv: command.split_whitespace().map(str::to_owned).collect(),
                        code: code.trim().parse().expect("an exit code"),
                        wanted: Vec::new(),
                    });
                }
                None => steps.last_mut().expect("a command first").wanted.push(line.to_owned()),
            },
            _ => {}
        }
    }
    steps
}

fn is_node(text: &str) -> bool {
    text.len() == 2 && text.starts_with(['m', 'w'])
}

struct Machines {
    dir: tempfile::TempDir,
    daemons: BTreeMap<String, Daemon>,
    /// Values of this run, each with the value in the guide.
    names: Vec<(String, String)>,
}

impl Machines {
    /// Starts the cluster. m1 leads; w1, w2 and w3 are workers.
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let host = net();
        let mut daemons = BTreeMap::from([("m1".to_owned(), one_manager(dir.path(), host(1)))]);
        let mut names = vec![(format!("{}:", host(1)), "10.0.0.11:".to_owned())];
        for (name, last) in [("w1", 4), ("w2", 5), ("w3", 6)] {
            let (mut join, address) = (remoor(), host(last).to_string());
            join.args(["join", &format!("{}:7947", host(1)), "--name", name, "--advertise", &address, "--dir"]);
            run_successfully(join.arg(dir.path().join(name)).arg("--token-file").arg(dir.path().join("worker")));
            daemons.insert(name.to_owned(), Daemon::start(&dir.path().join(name)));
            names.push((format!("{address}:"), format!("10.0.0.1{last}:")));
        }
        for name in ["m1", "w1", "w2", "w3"] {
            names.push((dir.path().join(name).display().to_string(), "/var/lib/remoor".to_owned()));
        }
        names.push((dir.path().display().to_string(), "/root".to_owned()));
        Self { dir, daemons, names }
    }

    fn home(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }

    /// Runs the command of a step. Returns the exit code and the output. In the output, the values
    /// of the guide replace those of this run.
    fn run(&mut self, step: &Step) -> (i32, Vec<String>) {
        let argv: Vec<&str> = step.argv.iter().map(String::as_str).collect();
        let home = self.home(&step.node);
        match argv.as_slice() {
            ["systemctl", "start", "remoor"] => {
                self.daemons.insert(step.node.clone(), Daemon::start(&home));
                (0, Vec::new())
            }
            ["systemctl", "stop", "remoor"] => {
                let daemon = self.daemons.get_mut(&step.node).expect("a node");
                let id =
                    i32::try_from(daemon.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
                rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
                daemon.child.bounded_wait();
                (0, Vec::new())
            }
            ["poweroff", "-f"] => {
                self.daemons.get_mut(&step.node).expect("a node").kill();
                (0, Vec::new())
            }
            ["rm", "-r", "/var/lib/remoor"] => {
                fs::remove_dir_all(&home).expect("removed");
                (0, Vec::new())
            }
            ["remoor", args @ ..] => {
                let here = |arg: &&str| arg.replace("/root", &self.dir.path().display().to_string());
                let mut command = remoor();
                command.args(args.iter().map(here)).env("REMOOR_DIR", &home).env("REMOOR_SOCKET", home.join("s"));
                let out = command.bounded_output();
                let mut text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
                for (is, placeholder) in &self.names {
                    text = text.replace(is.as_str(), placeholder);
                }
                let lines = text.lines().filter(|l| !l.starts_with("waiting: ")).map(|l| l.trim_end().to_owned());
                (out.status.code().unwrap_or(-1), lines.collect())
            }
            other => panic!("line {}: who runs {other:?}?", step.line + 1),
        }
    }
}

/// The line without the values that differ between runs.
fn normalize(line: &str) -> String {
    let word = |word: &str| -> String {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let id = bare.len() >= 8 && bare.bytes().all(|b| b.is_ascii_hexdigit());
        if id { word.replace(bare, "#") } else { word.to_owned() }
    };
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    let mut out = String::new();
    for c in words.join(" ").chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    // The same time may be printed with or without a fraction, and the same age in seconds or in
    // minutes. So these forms are made equal.
    out.replace("#.#", "#").replace("# ms", "# s").replace("# m ", "# s ")
}

/// Whether the output matches the lines of the guide. `...` matches any lines.
fn fits(wanted: &[String], got: &[String]) -> bool {
    match wanted.split_first() {
        None => got.is_empty(),
        Some((first, rest)) if first == "..." => (0..=got.len()).any(|skip| fits(rest, &got[skip..])),
        Some((first, rest)) => got.split_first().is_some_and(|(line, more)| {
            normalize_except_nodes(first) == normalize_except_nodes(line) && fits(rest, more)
        }),
    }
}

/// Like [`normalize`], but names of nodes keep their numbers, because w1 is not w2.
fn normalize_except_nodes(line: &str) -> String {
    let keep = |word: &str| -> String {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_node(bare) { word.replace('1', "a").replace('2', "b").replace('3', "c") } else { word.to_owned() }
    };
    normalize(&line.split_whitespace().map(keep).collect::<Vec<_>>().join(" "))
}

#[test]
fn the_walkthrough_prints_what_the_guide_shows() {
    let text = fs::read_to_string(TEXT).expect("the page");
    let steps = steps(&text);
    assert!(steps.len() > 20, "the walk has {} commands", steps.len());
    let mut machines = Machines::start();
    if std::env::var("REMOOR_WALK").is_ok_and(|what| what == "write") {
        return write(&text, &steps, &mut machines);
    }
    for step in &steps {
        let begun = Instant::now();
        let asks = step.argv.get(1).is_some_and(|verb| ASKS.contains(&verb.as_str()));
        loop {
            let (code, got) = machines.run(step);
            if code == step.code && fits(&step.wanted, &got) {
                break;
            }
            // A rejected order has changed nothing, so it may be repeated.
            let again = (asks || code == 4) && begun.elapsed() < PATIENCE;
            let wanted = step.wanted.join("\n");
            let at = step.line + 1;
            assert!(
                again,
                "line {at}: {:?} ended with {code}:\n{}\n--- but there stands:\n{wanted}",
                step.argv,
                got.join("\n")
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

fn write(text: &str, steps: &[Step], machines: &mut Machines) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut out, mut next) = (Vec::<String>::new(), 0);
    for step in steps {
        out.extend(lines[next..=step.line].iter().map(|l| (*l).to_owned()));
        next = step.line + 1 + step.wanted.len();
        if step.argv.get(1).is_some_and(|verb| ASKS.contains(&verb.as_str())) {
            std::thread::sleep(SETTLE);
        }
        let (mut code, mut got) = machines.run(step);
        let begun = Instant::now();
        while code != step.code && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(500));
            (code, got) = machines.run(step);
        }
        assert_eq!(code, step.code, "line {}: {:?}: {got:?}", step.line + 1, step.argv);
        out.extend(got);
    }
    out.extend(lines[next..].iter().map(|l| (*l).to_owned()));
    fs::write(Path::new(TEXT), out.join("\n") + "\n").expect("written");
}

#[test]
fn output_that_differs_from_the_guide_is_detected() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let fits = |wanted: &str, got: &str| fits(&lines(wanted), &lines(got));
    assert!(fits("w1 votes now\n...\nend 3", "w1   votes now\nx\ny\nend 17"));
    assert!(fits("seen at 2026-03-05T12:05:00.000Z by m1", "seen at 2027-11-25T02:15:10.123Z by m1"));
    assert!(!fits("w1 votes now", "w2 votes now") && !fits("w1*  4", "w2*  5"), "another node");
    assert!(!fits("a\nb", "a") && !fits("a", "a\nb") && !fits("3 managers", "no managers"));
    let page = "## A walk\n\n```console\nm1# remoor status # 3\nx\n\nw1# poweroff -f\n```\n## B\n```console\nm1# remoor nodes\n```\n";
    let steps = steps(page);
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!((steps[0].code, steps[0].argv.len(), steps[0].wanted.len()), (3, 2, 2), "{steps:?}");
}

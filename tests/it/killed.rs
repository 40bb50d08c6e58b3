//! A playbook run whose executor is killed, between tasks or in the middle of a task, and which is
//! started again. The resulting tree equals the tree of an uninterrupted run. Pending handlers have
//! run, and no temporary files remain.
//!
//! `SEED=n` selects the moments of the kills. With `REMOOR_LONG` the executor is killed at every
//! event.

use crate::local::{LONG, remoor};
use crate::time_limit::TimeLimit;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A playbook that contains every module that changes files. The handlers copy the configuration
/// into `running/`, as a restart of a service loads it. If a handler does not run, `running/` stays
/// unchanged.
const SITE: &str = r#"
- hosts: all
  gather_facts: no
  vars: {t: '{{ dir }}/t'}
  tasks:
    - {name: directories, file: {path: '{{ t }}/{{ item }}', state: directory}, loop: [running, a/b/c, etc]}
    - {name: directory, file: {path: '{{ t }}/m/n', state: directory, mode: '0750'}, notify: made}
    - {name: copy, copy: {content: 'one', dest: '{{ t }}/etc/one', mode: '0640'}, notify: one}
    - {name: loop, copy: {content: '{{ item }}', dest: '{{ t }}/etc/l{{ item }}'}, loop: [1, 2, 3], notify: [loop, both]}
    - {name: tree, copy: {src: tree/, dest: '{{ t }}/tree/', directory_mode: '0711'}, notify: tree}
    - {name: template, template: {src: x.j2, dest: '{{ t }}/etc/template'}, notify: both}
    - {name: of the node, copy: {src: '{{ t }}/tree/', dest: '{{ t }}/again', remote_src: true}}
    - {name: line, lineinfile: {path: '{{ t }}/etc/old', regexp: '^a=', line: a=2}, notify: line}
    - {name: block, blockinfile: {path: '{{ t }}/etc/old', block: "x\ny"}, notify: line}
    - {name: replace, replace: {path: '{{ t }}/etc/old', regexp: b=1, replace: b=3}, notify: line}
    - {name: ini, ini_file: {path: '{{ t }}/etc/ini', section: s, option: o, value: '1'}, notify: both}
    - meta: flush_handlers
    - {name: link, file: {path: '{{ t }}/link', src: etc/one, state: link}, notify: link}
    - {name: hard, file: {path: '{{ t }}/hard', src: '{{ t }}/etc/one', state: hard, force: true}}
    - {name: touch, file: {path: '{{ t }}/touched', state: touch, mode: '0600', modification_time: preserve, access_time: preserve}}
    - {name: gone, file: {path: '{{ t }}/gone', state: absent}, notify: gone}
    - {name: recursive, file: {path: '{{ t }}/tree', state: directory, recurse: true, mode: 'g+w'}, notify: tree}
    - {name: command, command: 'cp {{ t }}/etc/one {{ t }}/made', args: {creates: '{{ t }}/made'}}
    - {name: shell, shell: 'echo once > {{ t }}/shell', args: {creates: '{{ t }}/shell'}, notify: shell}
    - {name: script, script: {cmd: 'made.sh {{ t }}/script', creates: '{{ t }}/script'}}
    - {name: read, shell: 'cat {{ t }}/etc/old', register: old, changed_when: false}
    - {name: registered, copy: {content: "{{ old.stdout_lines | join(',') }}", dest: '{{ t }}/etc/registered'}, notify: one}
    - {name: looked at, stat: {path: '{{ t }}/etc/registered'}, register: looked}
    - {name: where, copy: {content: '{{ looked.stat.size }}', dest: '{{ t }}/etc/size'}, when: looked.stat.exists}
    - block:
        - {name: included, include_tasks: more.yml}
        - {name: fails, fail: {msg: so}}
      rescue:
        - {name: rescued, copy: {content: rescued, dest: '{{ t }}/rescued'}, notify: both}
      always:
        - {name: always, copy: {content: always, dest: '{{ t }}/always'}}
    - {name: large, copy: {src: large, dest: '{{ t }}/large', mode: '0604'}, notify: large}
  handlers:
    - {name: made, shell: 'stat -c %a {{ t }}/m/n > {{ t }}/running/made'}
    - {name: one, shell: 'cat {{ t }}/etc/one {{ t }}/etc/registered > {{ t }}/running/one 2>/dev/null || true'}
    - {name: loop, shell: 'cat {{ t }}/etc/l* > {{ t }}/running/loop'}
    - {name: tree, shell: 'cd {{ t }}/tree && find . -printf "%p %m\\n" | sort > ../running/tree'}
    - {name: line, copy: {src: '{{ t }}/etc/old', dest: '{{ t }}/running/line', remote_src: true}}
    - {name: link, shell: 'readlink {{ t }}/link > {{ t }}/running/link'}
    - {name: gone, shell: 'ls {{ t }} | grep -c gone > {{ t }}/running/gone || true'}
    - {name: shell, copy: {src: '{{ t }}/shell', dest: '{{ t }}/running/shell', remote_src: true}, notify: last}
    - {name: large, shell: 'wc -c < {{ t }}/large > {{ t }}/running/large'}
    - {name: all, listen: both, shell: 'cat {{ t }}/etc/template {{ t }}/etc/ini {{ t }}/etc/l* > {{ t }}/running/all'}
    - {name: last, copy: {content: last, dest: '{{ t }}/running/last'}}
"#;

/// The directory that the playbook changes. At first it contains the tree before the run.
struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { dir: tempfile::tempdir().expect("a directory") };
        let large = "0123456789abcdef".repeat(1 << 18);
        for (name, text) in [
            ("site.yml", SITE),
            ("more.yml", "- {name: more, copy: {content: more, dest: '{{ t }}/etc/more'}, notify: one}\n"),
            ("templates/x.j2", "{% for i in [1, 2] %}\nline {{ i }}\n{% endfor %}\n"),
            ("files/tree/one", "1\n"),
            ("files/tree/sub/two", "2\n"),
            ("files/tree/sub/deep/three", "3\n"),
            ("files/made.sh", "#!/bin/sh\necho made > $1.part && mv $1.part $1\n"),
            ("files/large", large.as_str()),
            ("t/etc/old", "a=1\nb=1\n"),
            ("t/gone/sub/file", "old"),
            ("t/gone/sub/other", "old"),
            ("t/gone/file", "old"),
            ("t/hard", "another"),
        ] {
            let path = ground.path(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect(name);
        }
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the run. Returns the child, the lines of its events, and the time limit after which
    /// the child is killed.
    fn begin(&self) -> (Child, std::io::Lines<BufReader<ChildStdout>>, TimeLimit) {
        let vars = serde_json::json!({"remoor_state_dir": self.path("state"), "dir": self.dir.path()});
        let mut command: Command = remoor();
        command
            .current_dir(self.dir.path())
            .args(["play", "site.yml", "-c", "local", "-o", "json", "-e"])
            .arg(vars.to_string());
        command.env("TMPDIR", self.path("tmp")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        fs::create_dir_all(self.path("tmp")).expect("a directory");
        let mut child = command.spawn().expect("remoor runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let limit = TimeLimit::start(&child, LONG);
        (child, lines, limit)
    }

    /// Runs the playbook to its end. Returns the number of its events and the time between the
    /// first and the last.
    fn run_to_end(&self) -> (usize, Duration) {
        let deadline = Instant::now() + LONG;
        loop {
            let (mut child, lines, _limit) = self.begin();
            let mut begun = None;
            let mut all = Vec::new();
            for line in lines {
                begun.get_or_insert_with(Instant::now);
                all.push(line.expect("a line"));
            }
            let code = child.wait().expect("an exit").code();
            // A command that the killed run had started still holds the lock of the node.
            if code == Some(4) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            assert_eq!(code, Some(0), "{}", all.join("\n"));
            return (all.len(), begun.map_or(Duration::ZERO, |at| at.elapsed()));
        }
    }

    /// Runs the playbook and kills its executor at the moment `at`. Returns false if the run ended
    /// before the kill.
    fn run_and_kill(&self, at: &Moment) -> bool {
        let (mut child, mut lines, _limit) = self.begin();
        let first = match at {
            Moment::Event(n) => *n,
            Moment::After(_) => 1,
        };
        for _ in 0..first {
            if lines.next().is_none() {
                break;
            }
        }
        if let Moment::After(time) = at {
            std::thread::sleep(*time);
        }
        let executor = executor_of(child.id());
        if let Some(pid) = executor {
            // The kill fails if the executor has ended already, which is fine.
            let _ = kill_process(pid, Signal::KILL);
        }
        lines.for_each(drop);
        let code = child.wait().expect("an exit").code();
        // Exit code 3 means that the executor was killed before it reported that it was ready.
        assert!(matches!(code, Some(0 | 3 | 4 | 5)), "{code:?}");
        executor.is_some() && code == Some(5)
    }

    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut out = BTreeMap::new();
        collect_tree(&self.path("t"), &self.path("t"), &mut out);
        out
    }

    /// The files in the directory that a run must not leave.
    fn leftover_files(&self) -> Vec<PathBuf> {
        let mut all = BTreeMap::new();
        collect_tree(self.dir.path(), self.dir.path(), &mut all);
        let left = |path: &&PathBuf| {
            let text = path.to_string_lossy();
            text.contains(".remoor-")
                || text.contains("journal")
                || text.starts_with("state/half-made/")
                || text.starts_with("tmp/")
        };
        all.keys().filter(left).cloned().collect()
    }
}

#[derive(Debug)]
enum Moment {
    /// The moment after this number of event lines of `remoor play` was read.
    Event(usize),
    /// The moment this long after the first event line of `remoor play`.
    After(Duration),
}

fn collect_tree(top: &Path, dir: &Path, out: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = fs::symlink_metadata(&path).expect("a file");
        let what = if meta.is_symlink() {
            format!("-> {}", fs::read_link(&path).expect("a link").display())
        } else if meta.is_dir() {
            collect_tree(top, &path, out);
            "/".to_owned()
        } else {
            let bytes = fs::read(&path).expect("a file");
            format!(
                "{} names, {} bytes: {}",
                meta.nlink(),
                bytes.len(),
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
            )
        };
        let name = path.strip_prefix(top).expect("below").to_owned();
        out.insert(name, format!("{:o} {}:{} {what}", meta.permissions().mode() & 0o7777, meta.uid(), meta.gid()));
    }
}

/// The executor: the child of `remoor play` that performs the tasks.
fn executor_of(pid: u32) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let children = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> =
        children.flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect();
    let executor = children.into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"exec")
    });
    Pid::from_raw(executor?)
}

/// The moments for kills. They depend only on the arguments.
fn moments(events: usize, took: Duration, seed: u64) -> Vec<Moment> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below.max(1)
    };
    // A run takes seconds in a debug build, so the short test tries only some moments.
    let (step, random) = if std::env::var_os("REMOOR_LONG").is_some() { (1, 60) } else { (10, 5) };
    let first = 1 + usize::try_from(seed).unwrap_or_default() % step;
    let mut all: Vec<Moment> = (first..=events).step_by(step).map(Moment::Event).collect();
    let most = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    all.extend((0..random).map(|_| Moment::After(Duration::from_micros(next(most)))));
    all
}

#[test]
fn a_run_that_is_killed_at_any_moment_and_restarted_ends_in_the_same_tree() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let unbroken = Ground::new();
    let (events, took) = unbroken.run_to_end();
    let tree = unbroken.tree();
    assert!(tree.len() > 40 && tree.contains_key(Path::new("running/last")), "{tree:#?}");
    assert_eq!(unbroken.leftover_files(), Vec::<PathBuf>::new());
    let mut hit = 0;
    let all = moments(events, took, seed);
    for (n, at) in all.iter().enumerate() {
        let ground = Ground::new();
        hit += usize::from(ground.run_and_kill(at));
        // In every fourth case, the executor is killed a second time before the run completes.
        if n % 4 == 0 {
            ground.run_and_kill(&Moment::After(took.mul_f64((n % 11) as f64 / 11.0)));
        }
        ground.run_to_end();
        let context = format!("SEED={seed}, killed {at:?}");
        let now = ground.tree();
        let differs: Vec<_> = tree.keys().chain(now.keys()).filter(|path| tree.get(*path) != now.get(*path)).collect();
        assert!(
            differs.is_empty(),
            "{context}: {:#?}",
            differs.iter().map(|p| (p, tree.get(*p), now.get(*p))).collect::<Vec<_>>()
        );
        assert_eq!(ground.leftover_files(), Vec::<PathBuf>::new(), "{context}");
    }
    assert!(hit > all.len() / 3, "only {hit} of {} runs were killed before they were over", all.len());
}

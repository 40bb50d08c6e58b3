//! Runs the stories on several fleets of five hosts in parallel. After a failed story, its fleet is
//! discarded and the next story begins on a new fleet, so that one fault causes one failure. The
//! report of a failure is enough for a reader without access to the machine, and its first line is
//! repeated at the end. This module contains no story.
//!
//! The hosts share a machine with other work. So a failed story is retried alone on its own fleet
//! (the rules are in `retry_policy.rs`). If a story passes in its retry, the end of the output
//! lists it in capitals.

use super::noise::without_volatile_fields;
use super::retry_policy::{Failure, RetryPolicy};
use super::stories::Story;
use crate::lab::cluster::{Cluster, PATIENCE};
use crate::lab::machine::{self, Stalls};
use crate::lab::tool::has_production_durations;
use crate::lab::{INOTIFY_PER_HOST, Lab, five, wait_for};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Memory in bytes of five hosts, each with etcd, nginx and a daemon, while playbooks run on some
/// of them.
const MEMORY_PER_FLEET: u64 = 3 << 30;
/// Number of inotify instances that are left for other work of root on this machine.
const INOTIFY_SPARE: usize = 8;
/// Maximum number of new fleets after failures. If more are needed, the remaining stories can't be
/// expected to pass.
const REBUILDS: usize = 6;

/// The report after all stories. It is printed unchanged and without a backtrace, so that the last
/// lines of a truncated log contain it.
pub struct Failed(String);

impl std::fmt::Debug for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Failed {
        Failed(format!("{error:#}"))
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Story>,
    failed: Vec<Failure<Story>>,
    /// Failures that a retry does not fix, such as a fleet that could not be created.
    broken: Vec<String>,
    rebuilds: usize,
}

/// The number of fleets: `REMOOR_FLEETS`, or the number that this machine can run. If the memory or
/// the inotify instances suffice for fewer fleets than the processors do, the reason is printed.
fn how_many(stories: usize) -> Result<usize> {
    if let Ok(asked) = std::env::var("REMOOR_FLEETS") {
        return Ok(asked.parse::<usize>().context("REMOOR_FLEETS is not a number")?.clamp(1, 8));
    }
    // A story mostly waits: one fleet takes 0.4 of a processor, and 0.8 while all its hosts boot. A
    // fourth fleet would need 120 of the 128 inotify instances that most machines allow, so it is
    // hardly ever possible.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if processors >= 4 { 3 } else { 2 };
    let memory = usize::try_from(machine::memory_available() / MEMORY_PER_FLEET)?;
    let per_fleet = five::HOSTS.len() * INOTIFY_PER_HOST;
    let inotify = machine::inotify_limit()
        .map_or(wanted, |limit| limit.saturating_sub(machine::inotify_used() + INOTIFY_SPARE) / per_fleet);
    let fleets = wanted.min(memory).min(inotify).min(stories).max(1);
    if fleets < wanted.min(stories) {
        eprintln!(
            "hosts: {fleets} fleet(s) instead of {wanted}: memory is for {memory}, inotify instances \
             (fs.inotify.max_user_instances) for {inotify}"
        );
    }
    Ok(fleets)
}

/// Runs the stories in their order, each on one of the fleets `NAME-a`, `NAME-b` and so on.
pub fn run_stories(name: &str, stories: Vec<Story>) -> Result<(), Failed> {
    let (begun, count) = (Instant::now(), stories.len());
    let fleets = how_many(count)?;
    eprintln!(
        "hosts: {count} stories on {fleets} fleet(s) of five{}",
        if has_production_durations() { ", long durations" } else { "" }
    );
    let queue = Mutex::new(Queue { waiting: stories.into(), ..Queue::default() });
    std::thread::scope(|scope| {
        for letter in ('a'..='h').take(fleets) {
            let queue = &queue;
            scope.spawn(move || work(queue, &format!("{name}-{letter}")));
        }
    });
    let mut queue = queue.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !queue.waiting.is_empty() {
        let names: Vec<&str> = queue.waiting.iter().map(|(name, _)| *name).collect();
        queue.broken.push(format!("not run, because no fleet was available: {}", names.join("; ")));
    }
    let lab = format!("{name}-a");
    let ending = RetryPolicy::from_env().retry(queue.failed, |story| run_alone(&lab, *story));
    eprintln!("hosts: {count} stories in {:.0} s, new fleets: {}", begun.elapsed().as_secs_f64(), queue.rebuilds);
    ending.flaky.iter().for_each(|line| eprintln!("{line}"));
    let failed = [queue.broken, ending.failed].concat();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failed(format!("{} of {count} stories failed\n  {}", failed.len(), failed.join("\n  "))))
}

/// Retries a story. All other stories have ended, so nothing else of this program is running.
fn run_alone(lab: &str, story: Story) -> Result<(), String> {
    eprintln!("hosts: {} failed, and is retried alone", story.0);
    let cluster = fresh(lab).or_else(|error| {
        eprintln!("hosts: a new fleet {lab}: {error:#}");
        fresh(lab)
    });
    let cluster = cluster.map_err(|error| format!("fleet {lab}: {}", one_line(&error)))?;
    run_story(&cluster, story, lab)
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs stories on one fleet until no story is left or no fleet can be created.
fn work(queue: &Mutex<Queue>, lab: &str) {
    let mut fleet: Option<Cluster> = None;
    let mut first = true;
    loop {
        // This is not the condition of a `while let`, because that would hold the lock while the
        // story runs.
        let next = lock(queue).waiting.pop_front();
        let Some((name, story)) = next else { return };
        if fleet.is_none() {
            match replace_fleet(queue, lab, first) {
                Ok(made) => fleet = Some(made),
                Err(error) => {
                    eprintln!("FAIL  fleet {lab}: {error:#}");
                    let mut queue = lock(queue);
                    queue.broken.push(format!("fleet {lab}: {}", one_line(&error)));
                    queue.waiting.push_front((name, story));
                    return;
                }
            }
            first = false;
        }
        let Some(cluster) = &fleet else { return };
        if let Err(why) = run_story(cluster, (name, story), lab) {
            lock(queue).failed.push(Failure { name, why, what: (name, story) });
            fleet = None;
        }
    }
}

/// Runs a story and prints the result. The error is the first line of the failure.
fn run_story(cluster: &Cluster, (name, story): Story, lab: &str) -> Result<(), String> {
    let (begun, stalls) = (Instant::now(), Stalls::watch());
    let result = run_checked(cluster, story);
    let took = begun.elapsed().as_secs_f64();
    let Err(error) = result else {
        eprintln!("ok    {name} ({took:.1} s, {lab})");
        return Ok(());
    };
    let stood = stalls.longest().as_secs_f64();
    // The report is printed by one call, because other fleets print at the same time.
    eprintln!(
        "FAIL  {name} ({took:.1} s, {lab}, this machine stalled for up to {stood:.1} s): {error:#}\n{}\
         --- end of the report of {name}",
        cluster.describe()
    );
    let _ = cluster.save_logs(name);
    Err(one_line(&error))
}

/// Creates a new fleet. The first fleet of a worker thread is not counted. Each further fleet is
/// counted against [`REBUILDS`].
fn replace_fleet(queue: &Mutex<Queue>, lab: &str, first: bool) -> Result<Cluster> {
    let mut made = if first { fresh(lab) } else { Err(anyhow::anyhow!("the previous story failed on the old one")) };
    while let Err(error) = &made {
        let rebuilds = {
            let mut queue = lock(queue);
            queue.rebuilds += 1;
            queue.rebuilds
        };
        if rebuilds > REBUILDS {
            break;
        }
        eprintln!("hosts: a new fleet {lab}: {error:#}");
        made = fresh(lab);
    }
    made
}

fn fresh(lab: &str) -> Result<Cluster> {
    let begun = Instant::now();
    let cluster = Cluster::create(five::start(lab)?)?;
    let ready = cluster.apply(super::operator::fleet_with_hooks).and_then(|()| cluster.commission());
    if let Err(error) = ready.and_then(|()| cluster.wait_quiet()) {
        eprintln!("hosts: {lab} does not become a fleet: {error:#}\n{}", cluster.describe());
        cluster.save_logs("commission")?;
        return Err(error);
    }
    eprintln!("hosts: {lab} is up, joined and commissioned ({:.1} s)", begun.elapsed().as_secs_f64());
    Ok(cluster)
}

/// Runs the story. Then checks that no job is open and every node is as desired, so that the next
/// story can run on the fleet.
fn run_checked(cluster: &Cluster, story: fn(&Cluster) -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| story(cluster))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        bail!(
            "panicked: {}",
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
        )
    })?;
    cluster.lab.heal()?;
    cluster.wait_quiet().map_err(|error| error.context("the story passed, but left no quiet fleet behind"))?;
    check_invariants(cluster)
}

/// Conditions that hold after every story: one verdict for each absence, each service once in a
/// phase of an attempt, and the same answer of all managers.
fn check_invariants(cluster: &Cluster) -> Result<()> {
    for host in five::HOSTS {
        // If a daemon was killed, its absence may be detected only now, by a changed agent
        // instance. So this waits until the last absence has a verdict.
        wait_for(&format!("a verdict on the last absence of {host}"), PATIENCE, || {
            let last = super::steps::absences(cluster, host).ok()?;
            absences_judged(cluster, host).ok()?.last().is_none_or(|no| *no == last).then_some(())
        })?;
        let of = absences_judged(cluster, host)?;
        ensure!(of.windows(2).all(|pair| pair[1] == pair[0] + 1), "{host}: verdicts on absences {of:?}");
        let runs = five::runs(&cluster.lab, host)?;
        let once: BTreeSet<_> = runs.iter().map(|r| (&r.attempt, &r.phase, &r.service)).collect();
        ensure!(once.len() == runs.len(), "{host}: a service twice in one phase of one attempt: {runs:?}");
    }
    // Agents send new reports meanwhile, so the query is repeated until all managers agree.
    wait_for("all managers to answer alike", PATIENCE, || {
        let ask = |manager: &str| {
            serde_json::from_str(&cluster.run_successfully(manager, &["status", "-o", "json"]).ok()?)
                .ok()
                .map(without_volatile_fields)
        };
        let answers: Option<Vec<_>> = five::MASTERS.into_iter().map(ask).collect();
        answers?.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
    })
}

/// The numbers of a host's absences that have verdicts, in the order of the journal.
fn absences_judged(cluster: &Cluster, host: &str) -> Result<Vec<u64>> {
    Ok(cluster.verdicts(host)?.iter().filter_map(|f| f["absence"].as_u64()).collect())
}

/// An error in one line: its outermost message and its root cause.
pub fn one_line(error: &anyhow::Error) -> String {
    let line = |text: &str| -> String {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.chars().count() <= 240 { words } else { words.chars().take(240).chain("…".chars()).collect() }
    };
    let root = line(&error.root_cause().to_string());
    match line(&error.to_string()) {
        outer if outer == root || outer.starts_with("the last status") => root,
        outer => format!("{root} [{outer}]"),
    }
}

#[test]
fn a_failure_is_one_line() {
    let error = anyhow::anyhow!("waited 300s for {{\n  \"w1\"\n}}").context("the last status: {}");
    assert_eq!(one_line(&error), "waited 300s for { \"w1\" }");
    let long = anyhow::anyhow!("x".repeat(1000));
    assert_eq!(one_line(&long).chars().count(), 241);
    assert_eq!(format!("{:?}", Failed::from(anyhow::anyhow!("inner").context("outer"))), "outer: inner");
}

/// Whether no real hosts can run. The reason is printed in capitals. Panics if real hosts are
/// required.
pub fn hosts_missing() -> bool {
    let Err(why) = Lab::available() else { return false };
    assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
    eprintln!("SKIPPED: STORIES ON REAL HOSTS: {why}");
    true
}

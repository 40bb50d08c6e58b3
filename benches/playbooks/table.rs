//! Converts the results to the rows of docs/performance.md.

use crate::figures::Figure;
use crate::here::Local;
use crate::tools::{ANSIBLE, LOGIN, REMOOR};
use crate::{Found, Runs, Spread};

const COMMAND: &str = "make bench-playbooks";

pub fn rows(found: &Found) -> Vec<Figure> {
    let of = |hosts: usize| found.near.iter().find(|(count, _)| *count == hosts).map_or(&[][..], |(_, runs)| runs);
    let (one, five) = (of(1), of(5));
    let mut rows = vec![first_of(one, found.upload), five_hosts(five), curve(found), slow_link(one, &found.far)];
    rows.push(node(one, &found.peaks));
    rows.push(check(&found.check));
    rows.push(local(&found.local));
    rows
}

fn runs_of<'a>(runs: &'a [Runs], name: &str) -> Option<&'a Runs> {
    runs.iter().find(|runs| runs.name == name)
}

/// Both medians of a tool: of the first run and of the second. Without a measurement they are NaN,
/// which meets no target.
fn medians(runs: &[Runs], name: &str) -> (f64, f64) {
    runs_of(runs, name).map_or((f64::NAN, f64::NAN), |runs| (runs.wall().0.middle, runs.wall().1.middle))
}

/// Whether remoor is `times` faster than Ansible. False if Ansible was not measured.
fn faster(runs: &[Runs], times: f64) -> bool {
    let (ours, theirs) = (medians(runs, REMOOR), medians(runs, ANSIBLE));
    theirs.0 >= times * ours.0 && theirs.1 >= times * ours.1
}

/// Each tool with the times of both runs, and their ratio to remoor's times.
fn comparison(runs: &[Runs]) -> String {
    let ours = medians(runs, REMOOR);
    let one = |runs: &Runs| {
        let (first, again) = runs.wall();
        let times = match runs.name {
            REMOOR => String::new(),
            name if name.starts_with('`') => String::new(),
            _ => format!(" ({:.0} and {:.0} times)", first.middle / ours.0, again.middle / ours.1),
        };
        match runs.name {
            LOGIN => format!("{LOGIN} {first}"),
            name => format!("{name} {first} first, {again} again{times}"),
        }
    };
    runs.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn first_of(runs: &[Runs], upload: Spread) -> Figure {
    let (ours, bare) = (medians(runs, REMOOR), medians(runs, LOGIN));
    Figure {
        what: "20 tasks, 1 host",
        wanted: "20 times faster than ansible-core with pipelining, at most 2 times `ssh host true`",
        found: format!("{}; remoor with the upload of itself {upload}", comparison(runs)),
        met: faster(runs, 20.0) && ours.0 <= 2.0 * bare.0 && ours.1 <= 2.0 * bare.1,
        command: COMMAND,
    }
}

fn five_hosts(runs: &[Runs]) -> Figure {
    let ours = medians(runs, REMOOR);
    Figure {
        what: "20 tasks, 5 hosts",
        wanted: "25 times faster than ansible-core with pipelining, at most 0.8 s",
        found: comparison(runs),
        met: faster(runs, 25.0) && ours.0 <= 0.8 && ours.1 <= 0.8,
        command: COMMAND,
    }
}

/// The row with the cost of additional hosts.
fn curve(found: &Found) -> Figure {
    let mut tools: Vec<&'static str> = Vec::new();
    for (_, runs) in &found.near {
        tools.extend(runs.iter().map(|runs| runs.name).filter(|name| !tools.contains(name)).collect::<Vec<_>>());
    }
    let of = |name: &str| {
        let at = |(hosts, runs): &(usize, Vec<Runs>)| format!("{hosts}: {:.2} s", medians(runs, name).0);
        format!("{name} {}", found.near.iter().map(at).collect::<Vec<_>>().join(", "))
    };
    let mut each = found.near.iter().skip(1).map(|(hosts, runs)| medians(runs, REMOOR).0 / *hosts as f64);
    let first = each.next().unwrap_or(f64::NAN);
    Figure {
        what: "20 tasks on more and more hosts, 10 at once, the first time",
        wanted: "no cliff: with 20 and 50 hosts each costs at most 1.5 times what it does with 5",
        found: tools.into_iter().map(of).collect::<Vec<_>>().join("; "),
        met: each.all(|each| each <= 1.5 * first),
        command: COMMAND,
    }
}

fn slow_link(near: &[Runs], far: &[Runs]) -> Figure {
    let (near, there) = (medians(near, REMOOR), medians(far, REMOOR));
    let more = (there.0 - near.0).max(there.1 - near.1);
    Figure {
        what: "20 tasks, 1 host, a round trip of 20 ms",
        wanted: "at most 0.3 s more than on the loopback",
        found: format!("{more:.2} s more: {}", comparison(far)),
        met: more <= 0.3,
        command: COMMAND,
    }
}

fn node(runs: &[Runs], peaks: &[f64]) -> Figure {
    let (least, most) = peaks.iter().fold((f64::MAX, 0.0), |(least, most), mb| (mb.min(least), mb.max(most)));
    let cpu = |runs: &Runs| {
        (Spread::median_of(&runs.first, |c| c.node).middle, Spread::median_of(&runs.again, |c| c.node).middle)
    };
    let ours = runs_of(runs, REMOOR).map_or((f64::NAN, f64::NAN), cpu);
    let each = |runs: &Runs| format!("{} {:.2} s and {:.2} s", runs.name, cpu(runs).0, cpu(runs).1);
    Figure {
        what: "the node's part of such a run, sshd's included",
        wanted: "0.1 s of CPU, 15 MB",
        found: format!(
            "{least:.1} to {most:.1} MB in {} runs; {}",
            peaks.len(),
            runs.iter().map(each).collect::<Vec<_>>().join(", ")
        ),
        met: ours.0 <= 0.1 && ours.1 <= 0.1 && most <= 15.0,
        command: COMMAND,
    }
}

fn check(runs: &[Runs]) -> Figure {
    let each = |runs: &Runs| format!("{} {}", runs.name, runs.wall().0);
    Figure {
        what: "`--check --diff` of 20 tasks, of which 5 would change something",
        wanted: "shown",
        found: runs.iter().map(each).collect::<Vec<_>>().join("; "),
        met: true,
        command: COMMAND,
    }
}

fn local(locals: &[Local]) -> Figure {
    let each = |local: &Local| {
        let mb = local.mb.map_or(String::new(), |mb| format!(", {mb:.1} MB"));
        format!("{} {}{mb}", local.name, local.wall)
    };
    Figure {
        what: "the 20 tasks on this machine itself, nothing to be changed",
        wanted: "shown",
        found: locals.iter().map(each).collect::<Vec<_>>().join("; "),
        met: true,
        command: COMMAND,
    }
}

//! The speed of checks on one real host, compared with goss and testinfra in the same run. Cases:
//! 100 checks (60 files with sha256, 20 services, 20 ports), and 1000 files with sha256. Run the
//! bench as root with `make bench-checks`. goss is taken from this machine's PATH, testinfra from
//! the host's image (`REMOOR_LAB_PACKAGES`). A missing tool is named and left out.

mod figures;
#[path = "../tests/lab/mod.rs"]
mod lab;

use anyhow::{Context, Result, bail};
use figures::Figure;
use lab::tool::find_program;
use lab::{Lab, five};

const HOST: &str = "h1";
const COMMAND: &str = "make bench-checks";
const SCRIPT: &str = include_str!("checks.py");
const PEAK: &str = include_str!("peak.py");
/// Number of runs of each command. A printed figure is their median.
const ROUNDS: &str = "15";

/// The run times of one command over all rounds, in ms.
struct Times {
    median: u64,
    least: u64,
    most: u64,
    /// Maximum resident memory of the command over all rounds, in MB.
    mb: f64,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms ({} to {}), {:.1} MB", self.median, self.least, self.most, self.mb)
    }
}

fn main() -> Result<()> {
    if let Err(why) = Lab::available() {
        bail!("no real hosts on this machine: {why}");
    }
    let lab = Lab::start("checks", &[HOST])?;
    lab.push(HOST, SCRIPT.as_bytes(), "/srv/bench.py", 0o644)?;
    lab.push(HOST, PEAK.as_bytes(), "/srv/peak.py", 0o644)?;
    lab.push(HOST, &std::fs::read(five::built_program("remoor")?)?, five::REMOOR, 0o755)?;
    let goss = match find_program("goss") {
        Some(goss) => {
            lab.push(HOST, &std::fs::read(goss)?, "/usr/local/bin/goss", 0o755)?;
            true
        }
        None => {
            println!("NOT INSTALLED HERE, LEFT OUT: goss (Debian's package of trixie)");
            false
        }
    };
    let testinfra = lab.shell(HOST, "command -v py.test-3 || true")?.contains("py.test-3");
    if !testinfra {
        println!("NOT INSTALLED ON THE HOST, LEFT OUT: testinfra (REMOOR_LAB_PACKAGES=python3-testinfra)");
    }
    lab.shell(HOST, "python3 /srv/bench.py make")?;
    let ours = |suite: &str| times(&lab, &format!("{} check --file /srv/{suite}.json -o silent", five::REMOOR));
    let theirs = |suite: &str| times(&lab, &format!("/usr/local/bin/goss -g /srv/{suite}.json validate -f silent"));
    let (hundred, thousand) = (ours("hundred")?, ours("thousand")?);
    let of_goss = if goss { Some((theirs("hundred")?, theirs("thousand")?)) } else { None };
    let of_testinfra =
        if testinfra { Some(times(&lab, "py.test-3 -q -p no:cacheprovider /srv/test_hundred.py")?) } else { None };
    let beside =
        |name: &str, times: Option<&Times>| times.map_or(format!("{name}: not there"), |t| format!("{name} {t}"));
    let (first, second) = (of_goss.as_ref().map(|g| &g.0), of_goss.as_ref().map(|g| &g.1));
    let faster = first.is_none_or(|g| hundred.median < g.median);
    let ten_times = of_testinfra.as_ref().is_none_or(|t| hundred.median * 10 <= t.median);
    figures::publish(
        "checks",
        &[
            Figure {
                what: "100 checks: 60 files with sha256, 20 services, 20 ports",
                wanted: "faster than goss, 10 times faster than testinfra, under 12 MB",
                found: format!("{hundred}; {}; {}", beside("goss", first), beside("testinfra", of_testinfra.as_ref())),
                met: faster && ten_times && hundred.mb < 12.0,
                command: COMMAND,
            },
            Figure {
                what: "1000 files with sha256",
                wanted: "not slower than goss",
                found: format!("{thousand}; {}", beside("goss", second)),
                met: second.is_none_or(|g| thousand.median <= g.median),
                command: COMMAND,
            },
        ],
    );
    Ok(())
}

fn times(lab: &Lab, command: &str) -> Result<Times> {
    let printed_times = lab.shell(HOST, &format!("python3 /srv/bench.py {ROUNDS} {command}"))?;
    let ms: [u64; 3] = serde_json::from_str(&printed_times).with_context(|| format!("{command}: {printed_times}"))?;
    let kb = lab.shell(HOST, &format!("cd /srv && python3 -I -S peak.py {ROUNDS} {command}"))?;
    let kb: f64 = kb.trim().parse().with_context(|| format!("{command}: {kb}"))?;
    Ok(Times { median: ms[0], least: ms[1], most: ms[2], mb: kb / 1024.0 })
}

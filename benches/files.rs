//! The speed of file digests, compared in the same run with similar tools. Each tool has one
//! process for all files. One case is 20,000 files of 2 KiB: read with their content in the page
//! cache, read without it, and not read because none changed. The other case is 1 GiB in files of
//! the maximum size that is hashed. The cost of watching the files is measured too. Run the bench
//! with `cargo bench --bench files`.

mod figures;
mod watched;

use figures::Figure;
use remoor_host::files::{Cache, MAX_FILE, digest};
use remoor_model::{NodeDigest, NodeManifest, ServiceManifest};
use rustix::fs::{Advice, fadvise, sync};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const SMALL: usize = 20_000;
const SMALL_BYTES: usize = 2 << 10;
const FOLDERS: usize = 200;
const LARGE: usize = 64;
/// Number of runs of each measurement. A printed figure is their median.
const ROUNDS: usize = 5;
/// Time to wait after files were written. A digest trusts a file as unchanged only after the file
/// system's clock has advanced.
const SETTLED: Duration = Duration::from_secs(2);
const COMMAND: &str = "cargo bench --bench files";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Creates directories of files, each with its own content.
    fn new() -> std::io::Result<Self> {
        let place = Self { dir: tempfile::Builder::new().prefix("files").tempdir_in(env!("CARGO_TARGET_TMPDIR"))? };
        for n in 0..SMALL {
            let dir = place.path("small").join((n % FOLDERS).to_string());
            fs::create_dir_all(&dir)?;
            fs::write(dir.join(format!("{n}.conf")), content(n, SMALL_BYTES))?;
        }
        fs::create_dir(place.path("large"))?;
        for n in 0..LARGE {
            let mut file = File::create(place.path("large").join(n.to_string()))?;
            let part = content(n, 1 << 20);
            for _ in 0..MAX_FILE >> 20 {
                file.write_all(&part)?;
            }
        }
        sync();
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn manifest(&self, name: &str) -> NodeManifest {
        manifest(&text(&self.path(name)))
    }

    fn files(&self, name: &str) -> Vec<PathBuf> {
        let mut out = Vec::new();
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let into = if entry.path().is_dir() { &mut folders } else { &mut out };
                into.push(entry.path());
            }
        }
        out
    }
}

/// A manifest with one service that contains a folder and everything below it.
fn manifest(dir: &str) -> NodeManifest {
    let service = ServiceManifest { name: "bench".into(), files: vec![format!("{dir}/")], ..Default::default() };
    NodeManifest { services: vec![service], ..NodeManifest::default() }
}

fn content(n: usize, bytes: usize) -> Vec<u8> {
    let line = format!("option-{n} = value {}\n", n * 7919);
    line.bytes().cycle().take(bytes).collect()
}

/// Removes the contents of `files` from the page cache; directories and inodes stay.
fn forget(files: &[PathBuf]) {
    for file in files.iter().filter_map(|path| File::open(path).ok()) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed); // on failure the cache stays warm
    }
}

/// The median time of several calls of `what`, in seconds. The calls of `before` are not measured.
fn median_seconds(mut before: impl FnMut(), mut what: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            before();
            let began = Instant::now();
            what();
            began.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn assert_complete(digest: &NodeDigest, entries: usize) {
    let service = &digest.services["bench"];
    assert!(service.unreadable.is_empty(), "{:?}", service.unreadable);
    assert_eq!(service.entries.len(), entries);
}

/// The seconds that another tool takes. The tool gets its files on standard input, or by
/// `arguments` alone. None: the tool failed, and the reason was printed.
fn peer(name: &str, program: &str, arguments: &[&str], files: &[PathBuf]) -> Option<f64> {
    let list: Vec<u8> = files.iter().flat_map(|f| [f.as_os_str().as_encoded_bytes(), b"\0"].concat()).collect();
    let mut worked = true;
    let took = median_seconds(
        || (),
        || {
            // xargs starts one process for as many files as fit into its arguments.
            let mut all = Command::new("xargs");
            let all = all.args(["-0", program]).args(arguments).stdin(Stdio::piped());
            worked &= all.stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok_and(|mut child| {
                let is_written = child.stdin.take().is_some_and(|mut input| input.write_all(&list).is_ok());
                is_written && child.wait().is_ok_and(|status| status.success())
            });
        },
    );
    match worked {
        true => println!("  {name}: {took:.3} s"),
        false => println!("  {name}: not measured, {program} is not here or failed"),
    }
    worked.then_some(took)
}

/// Measures `aide --check` of the small files, with the attributes that a digest has.
fn aide(place: &Place) -> Option<f64> {
    let (dir, small) = (place.dir.path().display().to_string(), place.path("small"));
    let settings = format!(
        "database_in=file:{dir}/aide.db\ndatabase_out=file:{dir}/aide.new\nreport_url=file:{dir}/aide.log\n{} p+u+g+ftype+sha256\n",
        small.display()
    );
    let file = place.path("aide.conf");
    fs::write(&file, settings).ok()?;
    let run = |what: &str| {
        let command = Command::new("aide")
            .arg(what)
            .arg("--config")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        command.is_ok_and(|status| status.success())
    };
    if !run("--init") || fs::rename(place.path("aide.new"), place.path("aide.db")).is_err() {
        println!("  aide --check: not measured, aide is not here or failed");
        return None;
    }
    let took = median_seconds(
        || (),
        || {
            run("--check");
        },
    );
    println!("  aide --check: {took:.3} s");
    Some(took)
}

fn measure_small(place: &Place) -> Vec<Figure> {
    let (manifest, files, key) = (place.manifest("small"), place.files("small"), [7; 32]);
    let entries = SMALL + FOLDERS + 1;
    let full = || assert_complete(&digest(&manifest, &key, &mut Cache::default()), entries);
    full();
    let warm = median_seconds(|| (), full);
    let cold = median_seconds(|| forget(&files), full);
    let mut cache = Cache::default();
    assert_complete(&digest(&manifest, &key, &mut cache), entries);
    let reads = cache.reads();
    let unchanged = median_seconds(|| (), || assert_complete(&digest(&manifest, &key, &mut cache), entries));
    assert_eq!((reads, cache.reads()), (SMALL as u64, SMALL as u64), "nothing is read twice");
    println!(
        "{SMALL} files of {SMALL_BYTES} bytes: full warm {warm:.3} s, cold {cold:.3} s, unchanged {unchanged:.3} s"
    );
    peer("sha256sum", "sha256sum", &[], &files);
    peer("openssl", "openssl", &["dgst", "-sha256"], &files);
    let aide = aide(place);
    let beside = aide.map_or(String::new(), |aide| format!("; aide --check {aide:.2} s, {:.0} times", aide / warm));
    vec![Figure {
        what: "20,000 files of 2 KiB: full digest warm, cold; unchanged pass",
        wanted: "0.2 s, 10 times faster than aide, 0.8 s; 0.1 s",
        found: format!("{warm:.2} s, {cold:.2} s; {unchanged:.2} s{beside}"),
        met: warm <= 0.2 && aide.is_none_or(|a| a >= warm * 10.0) && cold <= 0.8 && unchanged <= 0.1,
        command: COMMAND,
    }]
}

/// Measures the digest of 64 files of the maximum size, because a single file of 1 GiB is reported
/// as too large. Each tool has one thread, because `openssl` has one.
fn measure_large(place: &Place) -> Vec<Figure> {
    let (key, files) = ([7; 32], place.files("large"));
    let one_by_one: Vec<NodeManifest> = (0..LARGE)
        .map(|n| {
            let path = place.path("large").join(n.to_string());
            let service = ServiceManifest { name: "bench".into(), files: vec![text(&path)], ..Default::default() };
            NodeManifest { services: vec![service], ..NodeManifest::default() }
        })
        .collect();
    let each = || one_by_one.iter().for_each(|m| assert_complete(&digest(m, &key, &mut Cache::default()), 1));
    each();
    let ours = median_seconds(|| (), each);
    let manifest = place.manifest("large");
    let spread = median_seconds(|| (), || assert_complete(&digest(&manifest, &key, &mut Cache::default()), LARGE + 1));
    println!("1 GiB in {LARGE} files: one after the other {ours:.2} s, spread over threads {spread:.2} s");
    let theirs = peer("openssl dgst -sha256", "openssl", &["dgst", "-sha256"], &files);
    vec![Figure {
        what: "1 GiB in 64 files, one after the other",
        wanted: "at the speed of `openssl dgst -sha256`",
        found: theirs
            .map_or("no openssl here".to_owned(), |t| format!("{ours:.2} s, openssl {t:.2} s; spread {spread:.2} s")),
        met: theirs.is_some_and(|theirs| ours <= theirs * 1.1),
        command: COMMAND,
    }]
}

/// Measures the cost of watching unchanged files for a minute.
fn measure_watching(place: &Place) -> Vec<Figure> {
    let cost = watched::measure(&text(&place.path("small")), SMALL + FOLDERS + 1);
    let found = cost.as_ref().map_or("it could not be measured".to_owned(), |cost| {
        let watched::Cost { percent, rest, most } = cost;
        format!("{percent:.2} % of a core, {rest:.1} MB at rest, {most:.1} MB within a pass")
    });
    vec![Figure {
        what: "20,000 files watched, at rest: watcher and passes alone, over a minute",
        wanted: "0.5 % of a core, 20 MB",
        found,
        met: cost.is_some_and(|cost| cost.percent < 0.5 && cost.rest < 20.0),
        command: COMMAND,
    }]
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn main() -> ExitCode {
    if watched::is_watcher(manifest) {
        return ExitCode::SUCCESS;
    }
    let place = match Place::new() {
        Ok(place) => place,
        Err(error) => {
            println!("the files can't be made: {error}");
            return ExitCode::FAILURE;
        }
    };
    std::thread::sleep(SETTLED);
    let rows: Vec<Figure> =
        [measure_small(&place), measure_large(&place), measure_watching(&place)].into_iter().flatten().collect();
    figures::publish("files", &rows);
    ExitCode::SUCCESS
}

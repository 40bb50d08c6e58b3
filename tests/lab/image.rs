//! The disk with which every host starts: a small Debian. It is built once and shared read-only
//! below each host's own layer.
//!
//! The image has no identity (no machine id, no SSH host key, no host name). Its services are
//! switched off, so a host runs only services that a playbook started.

use super::tool::{command, find_program, run, run_tool};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The Debian release of an image. It is pinned, so that it does not depend on this machine's
/// distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Debian 12 with the services that the fleets of the tests set up.
    Bookworm,
    /// Debian 13 with nothing but systemd, sshd and rpm, for the tests of packages.
    Trixie,
}

impl Release {
    pub fn suite(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Trixie => "trixie",
        }
    }
}

/// The packages that each host needs to boot and to be reached.
const BASE: &[&str] = &["systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "iproute2", "procps"];

const SERVICES: &[&str] = &[
    "nginx-light",
    "etcd-server",
    "etcd-client",
    "chrony",
    "sudo",
    "curl",
    // Ansible is for groups that the user's own Ansible sets up, and for reading remoor's inventory
    // with Ansible.
    "ansible-core",
];

/// Services that a playbook must start, and timers that only disturb the tests.
const OFF: &[&str] = &[
    "nginx.service",
    "etcd.service",
    "chrony.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
];

/// Number of the recipe by which the image is built. It must be increased when [`customize`]
/// changes.
const RECIPE: u32 = 2;

/// The lab's directory: `REMOOR_LAB_DIR`, or the lab's own folder in `/var/lib`. The image stays in
/// it between runs.
pub fn lab_dir() -> PathBuf {
    std::env::var_os("REMOOR_LAB_DIR").map_or_else(|| "/var/lib/remoor-test-lab".into(), PathBuf::from)
}

/// The packages of the image. `REMOOR_LAB_PACKAGES` has additional packages, separated by white
/// space.
fn packages(release: Release) -> Vec<String> {
    let special = if release == Release::Bookworm { SERVICES } else { &["rpm"] };
    let more = std::env::var("REMOOR_LAB_PACKAGES").unwrap_or_default();
    let names = BASE.iter().chain(special).copied().chain(more.split_whitespace());
    names.map(str::to_owned).collect()
}

/// The path of the image of this recipe. Possibly the image is not built yet.
fn path(release: Release) -> PathBuf {
    let recipe = format!("{RECIPE} {} {:?} {OFF:?}", release.suite(), packages(release));
    lab_dir().join(format!("base-{:016x}", super::hash(&recipe)))
}

fn is_built(release: Release) -> bool {
    path(release).with_extension("ok").exists()
}

/// Returns the path of the image. If this machine has no image of this recipe, it is built, which
/// takes a minute or two and some 300 MB.
pub fn ensure_built(release: Release) -> Result<PathBuf> {
    let base = path(release);
    fs::create_dir_all(lab_dir()).with_context(|| format!("creating {}", lab_dir().display()))?;
    let lock = File::create(lab_dir().join("image.lock")).context("opening the image's lock")?;
    lock.lock().context("waiting for another build of the image")?;
    if is_built(release) {
        return Ok(base);
    }
    let began = Instant::now();
    eprintln!("lab: building the hosts' image, Debian {} (once; a minute or two)", release.suite());
    let unfinished = base.with_extension("tmp");
    remove_tree(&unfinished)?;
    remove_tree(&base)?;
    bootstrap(release, &unfinished)?;
    customize(&unfinished)?;
    fs::rename(&unfinished, &base).context("putting the image in place")?;
    fs::write(base.with_extension("ok"), "").context("marking the image as complete")?;
    eprintln!("lab: image built in {:.0} s", began.elapsed().as_secs_f64());
    Ok(base)
}

fn bootstrap(release: Release, root: &Path) -> Result<()> {
    let mut argv = vec!["mmdebstrap".to_owned(), "--variant=minbase".into(), "--mode=root".into()];
    argv.extend(["man", "doc", "locale", "info"].map(|dir| format!("--dpkgopt=path-exclude=/usr/share/{dir}/*")));
    argv.push("--aptopt=Acquire::Languages \"none\"".into());
    argv.push(format!("--include={}", packages(release).join(",")));
    argv.extend([release.suite().to_owned(), root.display().to_string()]);
    // Without an explicit archive, mmdebstrap uses Debian's archive.
    argv.extend(archive(release.suite()));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    run(command(&argv), None, Duration::from_secs(900))?
        .require_success("building the hosts' image with mmdebstrap")?;
    Ok(())
}

/// The package archive: `REMOOR_LAB_MIRROR`, or the archive from which this machine's own apt takes
/// the suite. None: neither exists.
fn archive(suite: &str) -> Option<String> {
    std::env::var("REMOOR_LAB_MIRROR").ok().or_else(|| {
        let listed = run_tool(&["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)"]).ok()?;
        let (_, uri) = listed.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == suite)?;
        Some(uri.trim_end_matches('/').to_owned())
    })
}

fn customize(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root.join("etc/ssh"))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("ssh_host_") {
            fs::remove_file(entry.path())?;
        }
    }
    for name in ["etc/hostname", "etc/resolv.conf"] {
        let _ = fs::remove_file(root.join(name));
    }
    let put = |name: &str, text: &str| -> Result<()> {
        let file = root.join(name);
        fs::create_dir_all(file.parent().context("a path below the root")?)?;
        fs::write(&file, text).with_context(|| format!("writing {name} of the image"))
    };
    put("etc/machine-id", "")?;
    put("etc/default/locale", "LANG=C.UTF-8\n")?;
    put(
        "etc/ssh/sshd_config.d/lab.conf",
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\nLogLevel VERBOSE\nMaxStartups 100\n",
    )?;
    put("etc/systemd/system.conf.d/lab.conf", "[Manager]\nDefaultTimeoutStopSec=15s\n")?;
    let root = root.to_str().context("the lab's directory has a name in UTF-8")?;
    let mut disable = vec!["chroot", root, "systemctl", "disable"];
    let units = Path::new(root).join("usr/lib/systemd/system");
    disable.extend(OFF.iter().filter(|unit| units.join(unit).exists()));
    run_tool(&disable)?;
    run_tool(&["chroot", root, "systemctl", "mask", "console-getty.service", "getty@tty1.service"])?;
    Ok(())
}

/// Removes a tree that contains no mounts. It is no error if the tree does not exist.
pub fn remove_tree(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            bail!("removing {}: {e}", dir.display())
        }
        _ => Ok(()),
    }
}

/// The requirement of the build that this machine lacks. None: nothing is missing.
pub fn missing_requirement() -> Option<String> {
    if is_built(Release::Bookworm) {
        return None;
    }
    if find_program("mmdebstrap").is_none() {
        return Some("mmdebstrap is missing, and no image is built yet (package mmdebstrap)".into());
    }
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    (!Path::new(keyring).exists()).then(|| format!("{keyring} is missing (package debian-archive-keyring)"))
}

//! The packages on fresh hosts of Debian 12 and 13: the first verdict, an upgrade, a removal, a
//! purge, and `node add` of a machine that has the package.

use crate::lab::cluster::PATIENCE;
use crate::lab::{Lab, Release, five, wait_for};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

const FLEET: &str = "/usr/share/remoor/fleet";

/// The files of two revisions of the package, and of its RPM.
struct Packages {
    first: Vec<u8>,
    second: Vec<u8>,
    rpm: Vec<u8>,
    /// A signed repository with the second revision.
    repository: TempDir,
}

#[test]
fn the_packages_are_installed_upgraded_and_removed() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: PACKAGES ON REAL HOSTS: {why}");
        return Ok(());
    }
    if Command::new("cargo-deb").arg("--version").output().is_err() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "cargo-deb is missing");
        eprintln!("SKIPPED: PACKAGES ON REAL HOSTS: cargo-deb is missing; next: packaging/tools.sh");
        return Ok(());
    }
    let packages = Packages::build()?;
    for (name, release) in
        [("P1 package on Debian 12", Release::Bookworm), ("P2 package on Debian 13", Release::Trixie)]
    {
        super::retry_policy::run_with_retry(name, || on_fresh_hosts(release, &packages))?;
    }
    Ok(())
}

impl Packages {
    /// Builds the packages from the debug program of the tests.
    fn build() -> Result<Packages> {
        let out = TempDir::new()?;
        let (first, rpm) = build_revision("1", out.path())?;
        let (second, _) = build_revision("2", out.path())?;
        ensure!(contents(&first)? == contents(&second)?, "two packages of one program have different files");
        Ok(Packages { first, second, rpm, repository: sign_repository(out.path())? })
    }
}

fn build_revision(revision: &str, out: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/build.sh");
    let program = five::built_program("remoor")?;
    let mut build = Command::new(script);
    build.arg("--output").arg(out).arg("--program").arg(&program).args(["--revision", revision]);
    let built = build.output()?;
    ensure!(built.status.success(), "packaging/build.sh: {}", String::from_utf8_lossy(&built.stderr));
    let sums = fs::read_to_string(out.join("SHA256SUMS"))?;
    let file = |end: &str| -> Result<PathBuf> {
        let name = sums.lines().filter_map(|line| line.split_whitespace().nth(1)).find(|name| name.ends_with(end));
        Ok(out.join(name.with_context(|| format!("no {end} in {sums}"))?))
    };
    Ok((fs::read(file(".deb")?)?, fs::read(file(".rpm")?)?))
}

/// The archive of the files of a package, with their times and modes.
fn contents(package: &[u8]) -> Result<Vec<u8>> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(package)?;
    let tar = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(file.path()).output()?;
    ensure!(tar.status.success(), "dpkg-deb: {}", String::from_utf8_lossy(&tar.stderr));
    Ok(tar.stdout)
}

/// Makes a repository of the packages in a directory, with a new key.
fn sign_repository(packages: &Path) -> Result<TempDir> {
    let dir = TempDir::new()?;
    let keys = dir.path().join("keys");
    fs::DirBuilder::new().mode(0o700).create(&keys)?;
    let run = |program: &Path, argv: &[&str]| -> Result<()> {
        let done = Command::new(program).args(argv).env("GNUPGHOME", &keys).output()?;
        ensure!(done.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    let key = "packages@example.org";
    run(Path::new("gpg"), &["--batch", "--passphrase", "", "--quick-generate-key", key, "ed25519", "sign"])?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/repository.sh");
    let shown = |path: &Path| path.display().to_string();
    run(&script, &[key, &shown(packages), &shown(&dir.path().join("apt"))])?;
    run(Path::new("gpgconf"), &["--kill", "all"])?;
    Ok(dir)
}

fn on_fresh_hosts(release: Release, packages: &Packages) -> Result<()> {
    let lab = Lab::start_release(release, &format!("pkg-{}", release.suite()), &["m1", "w1"], &[])?;
    lab.push("m1", &packages.first, "/root/remoor.deb", 0o644)?;
    show_first_verdict(&lab)?;
    check_contents(&lab)?;
    add_packaged_machine(&lab, packages.repository.path())?;
    upgrade(&lab, &packages.second)?;
    remove_and_purge(&lab)?;
    if release == Release::Trixie {
        install_rpm(&lab, &packages.rpm)?;
    }
    Ok(())
}

/// The commands of the README, from a bare host to a verdict.
fn show_first_verdict(lab: &Lab) -> Result<()> {
    let began = Instant::now();
    lab.shell("m1", "apt-get install --yes /root/remoor.deb 2>&1")?;
    let ip = lab.host("m1").ip;
    ensure!(!is_active(lab)?, "the package started the daemon");
    lab.shell("m1", &format!("remoor init --advertise {ip} --authorize root"))?;
    lab.shell("m1", "systemctl enable --now remoor 2>&1")?;
    wait_for("m1 to lead", PATIENCE, || lab.shell("m1", "remoor status").ok())?;
    lab.shell("m1", &format!("remoor apply {FLEET}"))?;
    let verdict = check(lab, "--all")?;
    ensure!(verdict.contains("m1"), "{verdict}");
    eprintln!("from the package to the first verdict: {:.1} s; the verdict: {verdict}", began.elapsed().as_secs_f64());
    Ok(())
}

/// Examines a node and returns the verdict. Exit code 1 is an answer too: a check fails there.
fn check(lab: &Lab, node: &str) -> Result<String> {
    let out = lab.exec("m1", &["remoor", "check", node])?;
    let text = out.text();
    ensure!(matches!(out.code, 0 | 1), "{}: {text}{}", out.code, String::from_utf8_lossy(&out.stderr));
    Ok(text)
}

fn check_contents(lab: &Lab) -> Result<()> {
    for path in [
        "/usr/lib/systemd/system/remoor.service",
        "/usr/lib/tmpfiles.d/remoor.conf",
        "/usr/share/bash-completion/completions/remoor",
        "/usr/share/zsh/vendor-completions/_remoor",
        "/usr/share/fish/vendor_completions.d/remoor.fish",
        "/usr/share/man/man1/remoor-status.1.gz",
        "/usr/share/remoor/checks/nginx.yml",
        "/usr/share/remoor/playbooks/provision.yml",
        "/usr/share/remoor/templates/nginx.conf.j2",
        "/usr/share/remoor/schema/fleet.json",
        "/usr/share/doc/remoor/examples/web/playbooks/provision.yml",
    ] {
        let listed = lab.shell("m1", &format!("dpkg -L remoor | grep -qxF -e {path}"));
        listed.with_context(|| format!("the package lacks {path}"))?;
    }
    lab.shell("m1", &format!("remoor lint {FLEET}"))?;
    lab.shell("m1", "test \"$(stat -c '%a %U' /var/lib/remoor)\" = '700 root'").map(drop)
}

/// A machine with the package keeps the program and the unit of the package. It gets the package
/// from a signed repository.
fn add_packaged_machine(lab: &Lab, repository: &Path) -> Result<()> {
    for file in fs::read_dir(repository.join("apt"))? {
        let file = file?.path();
        let name = file.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        lab.push("w1", &fs::read(&file)?, &format!("/srv/remoor/{name}"), 0o644)?;
    }
    let source = "deb [signed-by=/srv/remoor/remoor.gpg] file:/srv/remoor ./\n";
    lab.shell("w1", "rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*")?;
    lab.push("w1", source.as_bytes(), "/etc/apt/sources.list.d/remoor.list", 0o644)?;
    lab.shell("w1", "apt-get update 2>&1 && apt-get install --yes remoor 2>&1")?;
    // Traces of an earlier `node add` without the package.
    lab.shell("w1", "ln -s /bin/false /usr/local/bin/remoor && touch /etc/systemd/system/remoor.service")?;
    lab.give_identity(&["m1"])?;
    let ip = lab.host("w1").ip;
    let listed = lab.shell("w1", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")?;
    let print = listed.split(' ').nth(1).context("a fingerprint")?.to_owned();
    lab.shell("m1", &format!("remoor node add {ip} --name w1 --fingerprint {print} 2>&1"))?;
    lab.shell("w1", "systemctl is-active remoor && test ! -e /usr/local/bin/remoor")?;
    lab.shell("w1", "test ! -e /etc/systemd/system/remoor.service").map(drop)
}

fn upgrade(lab: &Lab, package: &[u8]) -> Result<()> {
    let before = five::main_pid(lab, "m1", "remoor.service")?;
    lab.push("m1", package, "/root/second.deb", 0o644)?;
    let said = lab.shell("m1", "apt-get install --yes /root/second.deb 2>&1")?;
    ensure!(said.contains("next: systemctl restart remoor"), "{said}");
    ensure!(five::main_pid(lab, "m1", "remoor.service")? == before, "the upgrade restarted a manager");
    // The daemon of the replaced program still examines nodes over SSH.
    check(lab, "m1")?;
    lab.shell("m1", "systemctl restart remoor")?;
    wait_for("m1 to lead again", PATIENCE, || check(lab, "m1").ok()).map(drop)
}

fn remove_and_purge(lab: &Lab) -> Result<()> {
    let identity = lab.read("m1", "/var/lib/remoor/identity.json")?;
    lab.shell("m1", "apt-get remove --yes remoor 2>&1")?;
    ensure!(!is_active(lab)?, "the daemon runs after the removal");
    lab.shell("m1", "apt-get install --yes /root/second.deb 2>&1 && systemctl start remoor")?;
    wait_for("m1 to lead with the same identity", PATIENCE, || lab.shell("m1", "remoor status").ok())?;
    ensure!(lab.read("m1", "/var/lib/remoor/identity.json")? == identity, "the removal changed the identity");
    lab.shell("m1", "apt-get purge --yes remoor 2>&1")?;
    lab.shell("m1", "! systemctl cat remoor 2>/dev/null && test ! -e /var/lib/remoor && test ! -e /usr/share/remoor")
        .map(drop)
}

/// No distribution with RPM packages can be downloaded for the tests, so Debian's rpm installs the
/// package. The names of its dependencies are not checked.
fn install_rpm(lab: &Lab, package: &[u8]) -> Result<()> {
    lab.push("m1", package, "/root/remoor.rpm", 0o644)?;
    lab.shell("m1", "rpm --install --nodeps /root/remoor.rpm 2>&1")?;
    lab.shell("m1", &format!("remoor lint {FLEET} && rpm --query --docfiles remoor | grep -q remoor-status.1"))?;
    lab.shell("m1", "test \"$(stat -c '%a %U' /var/lib/remoor)\" = '700 root' && systemctl cat remoor")?;
    let ip = lab.host("m1").ip;
    lab.shell("m1", &format!("remoor init --name m1 --advertise {ip} && systemctl enable --now remoor 2>&1"))?;
    lab.shell("m1", "rpm --erase --nodeps remoor 2>&1")?;
    ensure!(!is_active(lab)?, "the daemon runs after the removal of the RPM package");
    lab.shell("m1", "test -e /var/lib/remoor/identity.json").map(drop)
}

fn is_active(lab: &Lab) -> Result<bool> {
    Ok(lab.exec("m1", &["systemctl", "is-active", "--quiet", "remoor"])?.ok())
}

//! A test of the lab itself. It checks the properties on which the other tests rely.

use super::host::Power;
use super::tool::run_tool;
use super::{Lab, Way, image, wait_for};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

/// Timeout for noticing a healed cable or a killed process. Both take far less time.
const SOON: Duration = Duration::from_secs(120);

/// Tests a lab of two hosts: their boot ids differ, cuts work, a reboot is real, the outer clock
/// can't be changed, and nothing is left behind. On a machine without real hosts, the test prints a
/// notice and passes. With `REMOOR_LAB_REQUIRED` (CI) it fails.
pub fn lab_self_test() {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "real hosts are required here: {why}");
        eprintln!("SKIPPED lab_self_test: {why}");
        return;
    }
    eprintln!("lab: {}", Lab::describe());
    if let Err(e) = check_promises("selftest") {
        panic!("{e:#}");
    }
}

fn check_promises(name: &str) -> Result<()> {
    Lab::remove(name)?;
    let before = traces(name)?;
    ensure!(before.is_empty(), "before the first host: {before:?}");
    let lab = Lab::start(name, &["a", "b"])?;
    identities(&lab).context("identities")?;
    cuts(&lab).context("cuts")?;
    lossy(&lab).context("loss and cuts of one way")?;
    files(&lab).context("files and processes")?;
    power(&lab).context("power")?;
    check_wipe(&lab).context("wiping")?;
    ensure!(!traces(name)?.is_empty(), "traces() sees nothing of a lab that is up");
    drop(lab);
    let after = traces(name)?;
    ensure!(after.is_empty(), "left behind: {after:?}");
    Ok(())
}

fn identities(lab: &Lab) -> Result<()> {
    let outer = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let (a, b) = (lab.boot_id("a")?, lab.boot_id("b")?);
    ensure!(a != b && a != outer.trim() && b != outer.trim(), "boot ids {a}, {b}, outer {outer}");
    ensure!(lab.ssh("a", "hostname")?.require_success("ssh a")?.text() == "a");
    ensure!(lab.ssh("b", "cat /proc/1/comm")?.text() == "systemd", "PID 1 is no systemd");
    for host in ["a", "b"] {
        let set = lab.exec(host, &["date", "-s", "2001-01-01"])?;
        ensure!(!set.ok(), "{host} could set the clock from its console");
        let set = lab.ssh(host, "date -s 2001-01-01")?;
        ensure!(!set.ok() && set.code != 255, "{host} could set the clock over ssh");
    }
    Ok(())
}

fn cuts(lab: &Lab) -> Result<()> {
    let reaches = |from: &str, to: &str| -> Result<bool> {
        let ask = format!("timeout 3 bash -c 'exec 3<>/dev/tcp/{}/22 && head -c4 <&3'", lab.host(to).ip);
        Ok(lab.exec(from, &["sh", "-c", &ask])?.text() == "SSH-")
    };
    let comes_back = |from: &str, to: &str| {
        wait_for(&format!("{from} to reach {to}"), SOON, || reaches(from, to).ok()?.then_some(()))
    };
    ensure!(reaches("a", "b")? && reaches("b", "a")?, "no network before any fault");
    lab.cut("a")?;
    ensure!(lab.ssh("a", "true")?.code == 255, "ssh into a host that is cut off");
    ensure!(!reaches("b", "a")? && !reaches("a", "b")?, "a host that is cut off is reachable");
    ensure!(lab.shell("a", "hostname")? == "a", "no console on a cut host");
    lab.heal()?;
    comes_back("b", "a")?;
    ensure!(wait_for("ssh", SOON, || lab.ssh("a", "true").ok()?.ok().then_some(())).is_ok());
    lab.block("a", "b")?;
    ensure!(!reaches("a", "b")? && lab.ssh("a", "true")?.ok(), "a block of two is not just that");
    lab.heal_host("b")?;
    comes_back("a", "b")?;
    lab.partition(&[&["a"], &["b", "op"]])?;
    ensure!(lab.ssh("a", "true")?.code == 255 && lab.ssh("b", "true")?.ok(), "the operator is on the side of b");
    lab.heal()?;
    comes_back("b", "a")
}

const SENT: u64 = 400;

/// Sends [`SENT`] datagrams to an unused port, and returns how many arrive. No datagram is sent
/// twice, so each lost datagram is missing.
fn count_arrived(lab: &Lab, from: &str, to: &str) -> Result<u64> {
    let count = || -> Result<u64> {
        lab.shell(to, "awk '/^Udp: [0-9]/ {print $3}' /proc/net/snmp")?.parse().context("a count of datagrams")
    };
    let before = count()?;
    let send = format!("for i in $(seq {SENT}); do echo x 2>/dev/null > /dev/udp/{}/9; done; true", lab.host(to).ip);
    lab.exec(from, &["bash", "-c", &send])?.require_success(&format!("sending from {from}"))?;
    Ok(count()? - before)
}

fn lossy(lab: &Lab) -> Result<()> {
    // A host that receives nothing gets no answer to its ARP query. So the neighbour entry is set
    // by hand.
    for (on, of) in [("a", "b"), ("b", "a")] {
        let mac = lab.shell(of, "ip -o link show eth0 | sed 's/.*link.ether \\([0-9a-f:]*\\).*/\\1/'")?;
        lab.shell(on, &format!("ip neigh replace {} lladdr {mac} dev eth0 nud permanent", lab.host(of).ip))?;
    }
    let check = |what: &str, a_to_b: std::ops::RangeInclusive<u64>, b_to_a: std::ops::RangeInclusive<u64>| {
        let (there, back) = (count_arrived(lab, "a", "b")?, count_arrived(lab, "b", "a")?);
        ensure!(a_to_b.contains(&there) && b_to_a.contains(&back), "{what}: of {SENT}, {there} a to b, {back} b to a");
        lab.heal()
    };
    let (none, some, all) = (0..=0, SENT / 4..=SENT * 3 / 4, SENT - 4..=SENT + 20);
    check("no fault", all.clone(), all.clone())?;
    lab.cut_one_way("a", Way::In)?;
    check("a receives nothing", all.clone(), none.clone())?;
    lab.cut_one_way("a", Way::Out)?;
    check("no host receives from a", none.clone(), all.clone())?;
    lab.lose("a", 50)?;
    check("half of a's frames are lost", some.clone(), some)?;
    lab.lose("a", 100)?;
    check("all of a's frames are lost", none.clone(), none)?;
    check("healed", all.clone(), all)?;
    for (on, of) in [("a", "b"), ("b", "a")] {
        lab.shell(on, &format!("ip neigh del {} dev eth0", lab.host(of).ip))?;
    }
    Ok(())
}

fn files(lab: &Lab) -> Result<()> {
    let every_byte: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    lab.push("a", &every_byte, "/opt/new/file", 0o640)?;
    ensure!(lab.read("a", "/opt/new/file")? == every_byte, "other bytes came back");
    ensure!(lab.shell("a", "stat -c %a:%U /opt/new/file")? == "640:root");
    lab.shell("b", "systemd-run --unit=victim sleep 1000")?;
    let sleeps =
        |host: &str| lab.processes(host).iter().any(|p| p.comm == "sleep" && p.command.ends_with("sleep 1000"));
    wait_for("the process in the list", SOON, || sleeps("b").then_some(()))?;
    ensure!(!sleeps("a"), "a process of b is listed for a");
    lab.pause("b")?;
    let frozen = lab.answers_ssh("b");
    lab.resume("b")?;
    ensure!(!frozen, "a paused host answers");
    ensure!(lab.kill("b", "sleep", rustix::process::Signal::KILL)? == 1, "one sleep was to be killed");
    wait_for("the unit to see its end", SOON, || {
        let state = lab.exec("b", &["systemctl", "is-active", "victim"]).ok()?.text();
        (state == "failed" || state == "inactive").then_some(())
    })
}

fn power(lab: &Lab) -> Result<()> {
    for how in [Power::Orderly, Power::Cut] {
        let (a, b) = (lab.boot_id("a")?, lab.boot_id("b")?);
        lab.reboot("a", how)?;
        ensure!(lab.boot_id("a")? != a, "{how:?}: the same boot id after a reboot");
        ensure!(lab.boot_id("b")? == b, "{how:?}: the other host rebooted too");
        ensure!(lab.read("a", "/opt/new/file")?.len() == 300_000, "{how:?}: the disk is another");
        ensure!(lab.ssh("a", "systemctl is-enabled nginx")?.text() == "disabled");
    }
    lab.poweroff("a", Power::Orderly)?;
    ensure!(!lab.is_on("a") && !lab.answers_ssh("a"), "off is not off");
    lab.push("a", b"edited in the dark", "/etc/dark", 0o644)?;
    lab.poweron("a")?;
    ensure!(lab.ssh("a", "cat /etc/dark")?.text() == "edited in the dark");
    let (old, new) = (lab.host("a").ip, lab.address(200));
    lab.readdress("a", new)?;
    ensure!(lab.ssh("a", "hostname -I")?.text().split(' ').next() == Some(&new.to_string()), "still at {old}");
    Ok(())
}

fn check_wipe(lab: &Lab) -> Result<()> {
    let key = lab.host_key("b")?;
    let id = lab.read("b", "/etc/machine-id")?;
    lab.shell("b", "touch /etc/mine")?;
    lab.wipe("b")?;
    ensure!(lab.ssh("b", "test ! -e /etc/mine")?.ok(), "the old disk is still there");
    ensure!(lab.host_key("b")? != key && lab.read("b", "/etc/machine-id")? != id, "the old identity is still there");
    Ok(())
}

/// The remains of a lab on this machine: namespaces, mounts, processes, control groups, folders,
/// files of nspawn.
fn traces(name: &str) -> Result<Vec<String>> {
    let mut found = super::net::Net::new(name).namespaces();
    let dir = image::lab_dir().join("labs").join(name);
    let dir = dir.to_string_lossy();
    found.extend(fs::read_to_string("/proc/self/mounts")?.lines().filter(|l| l.contains(&*dir)).map(str::to_owned));
    let processes = run_tool(&["ps", "-eo", "pid,args"])?;
    found.extend(processes.lines().filter(|l| l.contains(&*dir)).map(str::to_owned));
    let group = format!("remoor-lab-{name}");
    found.extend(run_tool(&["find", "/sys/fs/cgroup", "-maxdepth", "3", "-name", &group])?.lines().map(str::to_owned));
    let machines = fs::read_dir("/run/systemd/nspawn/propagate").into_iter().flatten().flatten();
    let machines = machines.map(|entry| entry.file_name().to_string_lossy().into_owned());
    found.extend(machines.filter(|machine| machine.starts_with(&format!("{group}-"))));
    if fs::exists(&*dir)? {
        found.push(dir.into_owned());
    }
    Ok(found)
}

//! The demo: three managers and two workers, real hosts of the tests' lab. `demo` plays the story and leaves nothing behind;
//! with `KEEP=1` it leaves the hosts up, and `demo down` removes them. What the hosts are made of is `tests/lab`.

mod guard;
#[path = "../lab/mod.rs"]
mod lab;
mod story;

use anyhow::{Result, bail};
use lab::{Lab, five};
use story::Story;

const NAME: &str = "demo";

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => play(),
        Some(guard::WORD) => guard::watch(NAME),
        Some("down") => Lab::remove(NAME),
        Some(other) => bail!("demo knows no {other:?}; it takes nothing, or down"),
    }
}

fn play() -> Result<()> {
    if let Err(why) = Lab::available() {
        bail!("no real hosts on this machine: {why}");
    }
    let mut story = Story::begin(&format!("remoor demo: {}", Lab::describe()));
    let guard = guard::Guard::post()?;
    story.stage("Five hosts, each with its own systemd, sshd, disk and address");
    let hosts = Lab::up(NAME, &five::HOSTS)?;
    for host in five::hosts(&hosts) {
        story.say(&format!("{} {:<13} boot {}", host.name, host.ip, hosts.boot_id(&host.name)?));
    }
    story.stage("What the hosts bring along");
    hosts.give_identity(&five::MASTERS)?;
    five::install_contiv(&hosts, &five::built("contiv-standin")?)?;
    let fleet = hosts.dir().join("fleet");
    five::write(&fleet, &five::hosts(&hosts), |_, text| text)?;
    story.say("Debian's nginx and etcd, switched off; stand-ins of contiv's netmaster and netplugin");
    if std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty() && keep != "0") {
        story.say(&format!("fleet directory:    {}", fleet.display()));
        story.say(&hosts.keep());
        guard.keep()?;
        story.say("remove it all:      run this program again with the word down");
    } else {
        story.stage("Take it all down");
        drop(hosts);
        guard.end()?;
    }
    story.end();
    Ok(())
}

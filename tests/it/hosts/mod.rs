//! Scenarios on real hosts (SCENARIOS, A and X): one fleet of five is brought up, and the stories are told on it one after
//! the other. Skipped, loudly, where no hosts can be had; a failure where `REMOOR_LAB_REQUIRED` is set.

mod add;
mod leader;
mod noise;
mod operator;
mod stories;
mod undo;

use crate::lab::cluster::Cluster;
use crate::lab::{Lab, five};
use anyhow::Result;

#[test]
fn scenarios_on_real_hosts() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: SCENARIOS ON REAL HOSTS: {why}");
        return Ok(());
    }
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "it".into());
    let lab = Lab::up(&name, &five::HOSTS)?;
    lab.give_identity(&five::MASTERS)?;
    five::install_contiv(&lab, &five::built("contiv-standin")?)?;
    let cluster = Cluster::up(lab)?;
    if let Err(error) = cluster.apply(operator::hooked).and_then(|()| cluster.commission()) {
        cluster.save_logs("commission")?;
        return Err(error);
    }
    let only = std::env::var("REMOOR_STORY").ok();
    let mut failed = Vec::new();
    for (name, story) in [stories::ALL, leader::ALL, operator::ALL, noise::ALL, undo::ALL].concat() {
        if only.as_deref().is_some_and(|only| !only.split(',').any(|one| name.starts_with(one))) {
            continue;
        }
        let begun = std::time::Instant::now();
        match story(&cluster) {
            Ok(()) => eprintln!("ok    {name} ({:.1} s)", begun.elapsed().as_secs_f64()),
            Err(error) => {
                eprintln!("FAIL  {name}: {error:?}");
                cluster.save_logs(name)?;
                failed.push(name);
            }
        }
        cluster.lab.heal()?;
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
    Ok(())
}

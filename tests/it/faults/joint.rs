//! A leader that dies in the middle of a change of voters: the first half is done, and the second
//! half can't follow.
//!
//! A change begins only after enough managers have answered a query. A stopped manager keeps the
//! query open for a second. A manager that is stopped within this second has answered already. So
//! the change begins, but too few of the future voters run.

use super::Rng;
use super::cluster::{Cluster, NODES, name};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// Time in which the running managers answer the leader's query before a change of voters. It is
/// less than a second.
const ANSWERED: Duration = Duration::from_millis(500);
const SEEN_WITHIN: Duration = Duration::from_secs(6);
/// Time until the killed leader is started again. It is longer than an election.
const HOLD: Duration = Duration::from_secs(5);

/// Makes all five nodes voters, and kills the leader in the middle of a demotion. Returns the
/// manager that is to be demoted, and the proof that the leader died in the middle. None: the
/// change did not begin, or was completed before.
pub fn kill_in_joint(cluster: &mut Cluster, rng: &mut Rng) -> Option<(usize, String)> {
    cluster.wait_until("all five are voters", |c| {
        let status: Value = c.get(c.leader()?, "/v1/status").ok()?;
        let nodes = status["nodes"].as_array()?;
        let workers: Vec<&str> =
            nodes.iter().filter(|n| n["role"] != "manager").filter_map(|n| n["name"].as_str()).collect();
        for worker in &workers {
            c.ask(c.leader()?, &["promote", worker, "--no-wait"]);
        }
        let view = c.members()?;
        (workers.is_empty() && !view.joint && view.committed && c.voters().len() == NODES).then_some(())
    });
    let leader = cluster.wait_for_leader();
    let mut followers: Vec<usize> = (0..NODES).filter(|at| *at != leader).collect();
    rng.shuffle(&mut followers);
    let [demoted, first, second, other] = followers[..] else { panic!("four follow") };

    let mut stopped = cluster.signal(first, Signal::STOP) == Some('T');
    let ordered = cluster.ask(leader, &["demote", &name(demoted), "--no-wait"]).status.success();
    std::thread::sleep(ANSWERED);
    stopped &= cluster.signal(second, Signal::STOP) == Some('T');
    // Only two of the future voters run: the leader and `other`.
    let seen = ordered && stopped && cluster.sees_joint(other, SEEN_WITHIN);
    let died = seen && cluster.kill(leader);
    // No manager can have completed the change of voters since the leader was killed, because of
    // the future voters only `other` runs.
    let half = died && cluster.sees_joint(other, SEEN_WITHIN);
    for at in [first, second] {
        cluster.signal(at, Signal::CONT);
    }
    std::thread::sleep(HOLD);
    if died {
        cluster.start(leader);
    }
    half.then(|| {
        (demoted, format!("{} died while {} was half demoted, as {} has it", name(leader), name(demoted), name(other)))
    })
}

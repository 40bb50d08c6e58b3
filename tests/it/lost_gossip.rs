//! A node whose gossip is suppressed while its API works. The leader opens no absence, because the
//! node's daemon answers a handshake. It learns of a change on the node from the agent's requests.
//! The test needs root and a C compiler.

use crate::far::{Far, Links};
use crate::local::{apply_small, wait_until};
use serde_json::Value;
use std::fs;
use std::time::Instant;

fn row(far: &Far) -> Option<Value> {
    far.daemons[&1].json("status")["nodes"].as_array()?.iter().find(|node| node["name"] == "m2").cloned()
}

fn digest(far: &Far) -> Option<String> {
    let digest = row(far)?["report"]["digest"].as_str()?.to_owned();
    digest.contains(|c| c != '0').then_some(digest)
}

#[test]
fn a_node_without_gossip_is_not_absent_and_its_changes_are_seen() {
    let Some(mut far) = Far::start_first("g") else { return };
    far.join(2, "worker");
    let file = far.dir.path().join("watched");
    fs::write(&file, "as it was").expect("written");
    let config = format!(
        "version: 1\ninventory: inventory.yml\ngroups:\n  web: {{services: [app]}}\n\
         services:\n  app: {{provisioned: false, files: [{}]}}\n",
        file.display()
    );
    apply_small(&far.daemons[&1], far.dir.path(), &config, "web: {hosts: {m1: {}, m2: {}}}\n");
    let before = wait_until("the first digest", || digest(&far));

    far.set_links(Links { mute: 2, ..Links::default() });
    wait_until("the loss is shown", || {
        let row = row(&far)?;
        let conditions = row["conditions"].as_array()?;
        let lost = conditions.iter().any(|condition| condition["is"] == "gossip-lost");
        assert!(!matches!(row["presence"].as_str(), Some("away" | "agent-down")), "{row}");
        lost.then_some(())
    });
    let changed = Instant::now();
    fs::write(&file, "tampered").expect("written");
    wait_until("the change is seen", || digest(&far).filter(|digest| *digest != before));
    eprintln!("the change was seen after {:?}", changed.elapsed());
    assert_eq!(row(&far).expect("a row")["presence"], "alive");

    far.daemons.get_mut(&2).expect("a daemon").kill();
    let killed = Instant::now();
    wait_until("it is away", || (row(&far)?["presence"] == "away").then_some(()));
    eprintln!("the end of the daemon was seen after {:?}", killed.elapsed());
}

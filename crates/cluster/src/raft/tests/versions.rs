//! Two program versions in one cluster. The later one writes entries that the earlier one cannot
//! read.

use super::*;
use remoor_model::{ClusterRole, Command, ENTRY_FORMAT, Inventory, InventoryEntry, NodeId, Wall};

/// An entry of a later program: it has one more command, and the next format.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Later {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<u32>,
    at: Wall,
    by: String,
    command: LaterCommand,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum LaterCommand {
    Role { node: NodeId, role: ClusterRole },
    Teleport { node: NodeId },
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct LaterState {
    teleported: Vec<u64>,
    applied: u64,
}

impl StateMachine for LaterState {
    type Entry = Later;
    type Applied = u64;
    fn apply(&mut self, index: u64, entry: &Later) -> u64 {
        if let LaterCommand::Teleport { .. } = entry.command {
            self.teleported.push(index);
        }
        self.applied = index;
        index
    }
}

fn known_entry() -> Later {
    let command = LaterCommand::Role { node: NodeId(7), role: ClusterRole::Worker };
    Later { format: None, at: Wall(1), by: "m1".to_owned(), command }
}

fn unknown_entry() -> Later {
    Later { format: Some(ENTRY_FORMAT + 1), command: LaterCommand::Teleport { node: NodeId(7) }, ..known_entry() }
}

type Handler = Box<dyn Fn(&'static str, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, RaftError>> + Send>;

/// The connection to the only other member, which runs either of the two program versions.
/// `refusals` contains the errors with which that member rejected messages.
#[derive(Clone, Default)]
struct Way {
    to: Arc<Mutex<Option<Handler>>>,
    refusals: Arc<Mutex<BTreeSet<String>>>,
}

impl Way {
    fn lead_to<S: StateMachine>(&self, member: &Raft<S>) {
        let member = member.clone();
        let handler: Handler = Box::new(move |kind, body| {
            let member = member.clone();
            Box::pin(async move { member.handle(kind, body).await })
        });
        *self.to.lock().unwrap() = Some(handler);
    }
}

impl Transport for Way {
    fn send(
        &self,
        _: RaftId,
        _: String,
        kind: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        let (answer, refusals) = (self.to.lock().unwrap().as_ref().map(|to| to(kind, body)), self.refusals.clone());
        Box::pin(async move {
            let answer = answer.ok_or_else(|| TransportError::Unreachable("down".to_owned()))?;
            answer.await.map_err(|error| {
                refusals.lock().unwrap().insert(error.to_string());
                TransportError::Refused(error.to_string())
            })
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_program_stops_before_an_entry_that_it_cannot_read_and_the_later_one_goes_on_from_there() {
    let (dir, way) = (tempfile::tempdir().unwrap(), Way::default());
    let start = |id| config(dir.path(), id);
    let (leader, _) = Raft::<LaterState>::start(start(1), Arc::new(way.clone())).await.unwrap();
    leader.initialize(address(1)).await.unwrap();
    let mut leads = leader.status();
    tokio::time::timeout(LONG, leads.wait_for(|s| s.is_leader)).await.unwrap().unwrap();
    let (earlier, _) = Raft::<Inventory>::start(start(2), Arc::new(Way::default())).await.unwrap();
    way.lead_to(&earlier);
    leader.add_learner(RaftId(2), address(2)).await.unwrap();
    let (last, _) = leader.propose(known_entry()).await.unwrap();
    let mut state = earlier.state();
    tokio::time::timeout(LONG, state.wait_for(|s| s.applied == last)).await.expect("it is read").unwrap();

    // The earlier program stops before it applies the entry. It reports the reason, and blocks no
    // other member.
    let (beyond, _) = leader.propose(unknown_entry()).await.unwrap();
    leader.propose(known_entry()).await.unwrap();
    let refused = tokio::time::timeout(LONG, async {
        while way.refusals.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    refused.await.unwrap();
    let said = way.refusals.lock().unwrap().iter().cloned().collect::<String>();
    let reason = format!("format {}, this program reads up to {ENTRY_FORMAT}: install the newer", ENTRY_FORMAT + 1);
    assert!(said.contains(&reason), "{said}");
    assert!(earlier.status().borrow().last_log < Some(beyond));
    assert_eq!(earlier.state().borrow().applied, last);
    earlier.shutdown().await;

    // The later program can use the directory of the earlier one.
    let (later, _) = Raft::<LaterState>::start(start(2), Arc::new(Way::default())).await.unwrap();
    way.lead_to(&later);
    let mut state = later.state();
    let seen = tokio::time::timeout(LONG, state.wait_for(|s| s.teleported == [beyond] && s.applied > beyond));
    drop(seen.await.expect("it catches up").unwrap());
    later.shutdown().await;
    for _ in 0..2 {
        let refused = Raft::<Inventory>::start(start(2), Arc::new(Way::default())).await.err().expect("refused");
        assert!(matches!(refused, RaftError::TooNew { .. }), "{refused}");
        assert!(refused.to_string().contains("written by a newer program"), "{refused}");
    }
    let (later, _) = Raft::<LaterState>::start(start(2), Arc::new(Way::default())).await.unwrap();
    assert_eq!(later.state().borrow().teleported, [beyond], "the rejected directory is unchanged");
    for raft in [&leader, &later] {
        raft.shutdown().await;
    }
}

#[test]
fn an_entry_is_read_in_the_formats_up_to_this_programs() {
    let read = |entry: &Later| rmp_serde::from_slice::<InventoryEntry>(&rmp_serde::to_vec_named(entry).unwrap());
    for format in [None, Some(1), Some(ENTRY_FORMAT)] {
        read(&Later { format, ..known_entry() }).expect("of today");
    }
    let error = read(&Later { format: Some(ENTRY_FORMAT + 1), ..known_entry() }).unwrap_err().to_string();
    assert!(error.contains("install the newer program"), "the same command by another rule: {error}");
    let error = read(&Later { format: None, ..unknown_entry() }).unwrap_err().to_string();
    assert!(error.contains("Teleport"), "never left out: {error}");
}

#[test]
fn an_entry_says_a_format_where_an_earlier_program_would_miss_what_it_means() {
    let written = |command| {
        let entry = InventoryEntry { at: Wall(1), by: "m1".to_owned(), command };
        let bytes = rmp_serde::to_vec_named(&entry).unwrap();
        assert_eq!(rmp_serde::from_slice::<InventoryEntry>(&bytes).unwrap(), entry);
        serde_json::to_value(&entry).unwrap()["format"].clone()
    };
    assert!(written(Command::Role { node: NodeId(7), role: ClusterRole::Worker }).is_null());
    assert_eq!(written(Command::RevokeOperator { name: "zoe".to_owned() }), 2);
}

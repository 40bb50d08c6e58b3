//! Tests the order `CheckPlan` on this machine: a plan that needs a missing Python is refused, and
//! only the session that holds the node gets an answer.

use super::wire::{ExecutorOrder, Reply, frame, sample_fence};
use super::{NodeWork, Tuning, serve_with};
use remoor_model::{JobId, NodeName};
use remoor_playbook::{PYTHON_PLAN_VERSION, Plan, PlanStep, Play, PythonModule, Task, TaskCondition};
use serde_json::json;
use std::io::{PipeReader, PipeWriter, Read, Write};

fn ask(orders: &mut PipeWriter, replies: &mut PipeReader, order: &ExecutorOrder) -> Reply {
    orders.write_all(&frame::encode(order).unwrap()).unwrap();
    loop {
        let reply = frame::decode(&frame::read(replies).unwrap().expect("a reply")).unwrap();
        if !matches!(reply, Reply::Alive { .. }) {
            return reply;
        }
    }
}

/// A plan of one task, a module that needs Python.
fn plan(python: &str, condition: &str) -> Vec<u8> {
    let when = vec![TaskCondition { text: condition.to_owned(), line: 3 }];
    let task = Task { id: 1, module: "acme.tools.x".into(), when, ..Task::default() };
    let play = Play { sections: vec![vec![PlanStep::Task(Box::new(task))]], ..Play::default() };
    let module = PythonModule { min_python: "3.5".into(), ..PythonModule::default() };
    let plan = Plan {
        version: PYTHON_PLAN_VERSION,
        playbook: "site.yml".into(),
        host: "w1".into(),
        vars: json!({"ansible_python_interpreter": python, "role": "db"}).as_object().unwrap().clone(),
        shared: Default::default(),
        extra: Default::default(),
        layers: vec![],
        plays: vec![play],
        blobs: Default::default(),
        modules: [("acme.tools.x".to_owned(), module)].into(),
        delegated: None,
        resumed: None,
        shares: None,
        secrets: Default::default(),
    };
    rmp_serde::to_vec_named(&plan).unwrap()
}

#[test]
fn a_missing_python_is_found_by_the_session_that_holds_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let (input, mut orders) = std::io::pipe().unwrap();
    let (mut replies, output) = std::io::pipe().unwrap();
    let state_dir = dir.path().to_owned();
    let server =
        std::thread::spawn(move || serve_with(input, output, &state_dir, &NodeWork::default(), &Tuning::default()));
    replies.read_exact(&mut vec![0; frame::PREFACE.len()]).unwrap();
    frame::read(&mut replies).unwrap().expect("a hello");
    let mut ask = |order: &ExecutorOrder| ask(&mut orders, &mut replies, order);
    let check = |plan: Vec<u8>| ExecutorOrder::CheckPlan { fence: sample_fence(1), plan };

    let early = ask(&check(plan("/nonexistent/python", "true")));
    assert!(matches!(&early, Reply::Refused { why, .. } if why.contains("does not hold")), "{early:?}");
    let (node, job) = (NodeName::from("w1"), JobId(1));
    let fenced = ask(&ExecutorOrder::Fence { fence: sample_fence(1), node, job, timeout_ms: 20_000 });
    assert_eq!(fenced, Reply::Fenced { ended: None });
    // The plan needs no Python on this node according to its inventory.
    let skipped = ask(&check(plan("/nonexistent/python", "role == 'web'")));
    assert_eq!(skipped, Reply::PlanChecked { refused: None });
    let Reply::PlanChecked { refused: Some(why) } = ask(&check(plan("/nonexistent/python", "role == 'db'"))) else {
        panic!("the node has no such Python")
    };
    assert!(why.contains("acme.tools.x needs Python") && why.contains("/nonexistent/python"), "{why}");
    let Reply::PlanChecked { refused: Some(why) } = ask(&check(b"no plan".to_vec())) else { panic!("no plan") };
    assert!(why.contains("could not be read"), "{why}");
    assert_eq!(ask(&ExecutorOrder::Close { fence: sample_fence(1), done: false }), Reply::Closed);
    drop(orders);
    assert_ne!(server.join().unwrap(), 0, "the attempt did not succeed");
}

//! Tests calls to a fake systemd on its own socket: valid answers, missing answers, and an answer
//! that is not D-Bus.

use super::testing::{empty, job, properties, stand_in};
use super::wire::peer::bytes;
use super::wire::{self, Value};
use super::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn deadline(until: Option<Duration>) -> BusDeadline<'static> {
    let until = until.map(|d| Instant::now() + d);
    BusDeadline { until, answer: Duration::from_secs(20), stop: Box::new(|| false) }
}

#[test]
fn a_unit_is_shown_and_started() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let sockets = stand_in(dir.path(), move |member, args, serial| {
        seen.lock().unwrap().push(format!("{member} {}", args.join(" ")));
        match member {
            "GetAll" => properties(serial, &[("LoadState", "loaded"), ("StatusText", "")]),
            "StartUnit" => job(serial, "/job/7", "done", true),
            "StopUnit" => job(serial, "/job/8", "timeout", false),
            "ReloadUnit" => {
                let fields = [(4, b's', "org.freedesktop.systemd1.NoSuchUnit")];
                bytes(wire::ERROR, serial, &fields, "s", &[Value::Text("Unit a.service not loaded.".into())])
            }
            _ => empty(serial),
        }
    });
    let mut manager = SystemdManager::open(&sockets, deadline(None)).unwrap();
    let shown = manager.show("a.service").unwrap();
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), [("LoadState".to_owned(), "loaded".to_owned())]);
    assert_eq!(manager.run(UnitJob::Start, "a.service", true).unwrap().as_deref(), Some("done"));
    assert_eq!(manager.run(UnitJob::Stop, "a.service", true).unwrap().as_deref(), Some("timeout"));
    assert_eq!(manager.run(UnitJob::Stop, "a.service", false).unwrap(), None);
    let refused = manager.run(UnitJob::Reload, "a.service", true).unwrap_err();
    assert_eq!(refused.to_string(), "Unit a.service not loaded.");
    manager.set_unit_files(UnitFileChange::Enable { force: true }, "a.service").unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "GetAll  /org/freedesktop/systemd1/unit/a_2eservice",
            "Subscribe ",
            "StartUnit a.service replace",
            "StopUnit a.service replace",
            "StopUnit a.service replace",
            "ReloadUnit a.service replace",
            "EnableUnitFiles a.service false true",
            "Reload "
        ]
    );
}

#[test]
fn a_missing_listener_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let open = |sockets: &SystemdSockets| SystemdManager::open(sockets, deadline(None)).err();
    assert!(matches!(open(&SystemdSockets::in_runtime_dir(dir.path())), Some(BusError::Absent)));
    let sockets = SystemdSockets { private: dir.path().join("none"), bus: Some(dir.path().join("none")) };
    assert!(matches!(open(&sockets), Some(BusError::Absent)));
}

#[test]
fn the_bus_daemon_is_greeted_and_job_signals_are_subscribed() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let listening = stand_in(dir.path(), move |member, _, serial| {
        seen.lock().unwrap().push(member.to_owned());
        if member == "StartUnit" { job(serial, "/job/1", "done", false) } else { empty(serial) }
    });
    let sockets = SystemdSockets { private: dir.path().join("none"), bus: Some(listening.private) };
    let mut manager = SystemdManager::open(&sockets, deadline(None)).unwrap();
    assert_eq!(manager.run(UnitJob::Start, "a.service", true).unwrap().as_deref(), Some("done"));
    assert_eq!(*log.lock().unwrap(), ["Hello", "AddMatch", "Subscribe", "StartUnit"]);
}

#[test]
fn a_silent_peer_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let sockets = stand_in(dir.path(), |member, _, serial| match member {
        "Subscribe" => empty(serial),
        "StartUnit" => bytes(wire::REPLY, serial, &[], "o", &[Value::Text("/job/1".into())]),
        "StopUnit" => b"HTTP/1.1 400 Bad Request".to_vec(),
        _ => Vec::new(),
    });
    let open = |until| SystemdManager::open(&sockets, deadline(until)).unwrap();
    let mut manager = open(Some(Duration::from_millis(100)));
    assert!(matches!(manager.show("a.service"), Err(BusError::TimedOut)));
    assert!(matches!(manager.show("a.service"), Err(BusError::Lost(_))));
    let mut manager = open(Some(Duration::from_millis(300)));
    assert!(matches!(manager.run(UnitJob::Start, "a.service", true), Err(BusError::TimedOut)));
    assert!(matches!(open(None).run(UnitJob::Stop, "a.service", true), Err(BusError::Garbled(_))));
    let asked = std::cell::Cell::new(0);
    let stop = Box::new(|| asked.replace(asked.get() + 1) > 2);
    let patience = BusDeadline { stop, ..deadline(None) };
    let mut manager = SystemdManager::open(&sockets, patience).unwrap();
    assert!(matches!(manager.run(UnitJob::Start, "a.service", true), Err(BusError::Cancelled)));
}

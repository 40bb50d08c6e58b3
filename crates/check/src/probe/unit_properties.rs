//! Properties of a systemd unit, and the runs of a timer, from systemd over D-Bus.

use super::super::spec::PROPERTIES;
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, ProbeError, failed_error, unknown_error};
use remoor_host::systemd::{BusDeadline, BusError, SystemdManager, SystemdSockets, UnitProperties, unit_name};
use remoor_model::Wall;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The properties that are about a timer.
const TIMER: [&str; 3] = ["last-run-age", "next-run-in", "last-result"];

/// Whether the check needs systemd's properties.
pub(super) fn is_wanted(ask: &ProbeContext) -> bool {
    ask.wants(PROPERTIES) || TIMER.iter().any(|property| ask.wants(property))
}

/// Err: the reason why a property name is not valid.
pub(super) fn validate_name(name: &str) -> Result<(), String> {
    let valid = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(|b| b.is_ascii_alphanumeric());
    if valid { Ok(()) } else { Err(format!("`{name}` is not a property of a unit; `systemctl show UNIT` lists them")) }
}

/// Err: the reason why a check that asserts `property` may not be about `unit`.
pub(super) fn validate_unit(unit: &str, property: &str) -> Result<(), String> {
    match TIMER.contains(&property) && !unit.ends_with(".timer") {
        true => Err(format!("`{property}` is about a timer; write {}.timer", unit.trim_end_matches(".service"))),
        false => Ok(()),
    }
}

/// Adds the answers about the properties that the check asserts.
pub(super) fn add(ask: &ProbeContext, sockets: &SystemdSockets, answers: &mut ProbeAnswers) {
    let unit = unit_name(&ask.check.name);
    let found = connect(sockets, ask.limit).and_then(|mut systemd| {
        let own = read_loaded_unit(&mut systemd, &unit)?;
        let started = own.texts.get("Unit").filter(|_| ask.wants("last-result"));
        let started = started.map(|started| read_loaded_unit(&mut systemd, started)).transpose()?;
        Ok((own, started))
    });
    let clocks = Clocks { wall: ask.now, monotonic_us: monotonic_us() };
    for assertion in &ask.check.assertions {
        let answer = |read: &dyn Fn(&UnitProperties, Option<&UnitProperties>) -> ProbeAnswer| {
            found.as_ref().map_err(Clone::clone).and_then(|(own, started)| read(own, started.as_ref()))
        };
        match (assertion.property, assertion.entry.as_deref()) {
            (PROPERTIES, Some(name)) => {
                answers.insert_entry(PROPERTIES, name, answer(&|own, _| read_property(own, name)));
            }
            ("last-run-age", _) => answers.insert("last-run-age", answer(&|own, _| last_run_age(own, &clocks))),
            ("next-run-in", _) => answers.insert("next-run-in", answer(&|own, _| next_run_in(own, &clocks))),
            ("last-result", _) => answers.insert("last-result", answer(&|_, started| last_result(started))),
            _ => {}
        }
    }
}

fn connect(sockets: &SystemdSockets, limit: Duration) -> Result<SystemdManager<'static>, ProbeError> {
    let deadline = BusDeadline { until: Some(Instant::now() + limit), answer: limit, stop: Box::new(|| false) };
    SystemdManager::open(sockets, deadline).map_err(unknown_error)
}

/// The properties of a unit that exists.
fn read_loaded_unit(systemd: &mut SystemdManager, unit: &str) -> Result<UnitProperties, ProbeError> {
    let absent = || failed_error(format!("there is no unit {unit}"));
    match systemd.properties(unit) {
        Ok(found) if found.texts.get("LoadState").is_some_and(|state| state == "not-found") => Err(absent()),
        Ok(found) => Ok(found),
        Err(BusError::Refused { name, .. }) if name.ends_with(".NoSuchUnit") => Err(absent()),
        Err(why) => Err(unknown_error(why)),
    }
}

fn read_property(unit: &UnitProperties, name: &str) -> ProbeAnswer {
    let text =
        unit.texts.get(name).ok_or_else(|| failed_error(format!("systemd has no text for {name} of this unit")))?;
    Ok(text.as_str().into())
}

struct Clocks {
    wall: Wall,
    /// Microseconds of the clock that systemd uses for monotonic times.
    monotonic_us: u64,
}

fn monotonic_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

/// A time of a unit in microseconds. None if the unit has no such time, which systemd writes as 0
/// or as the maximum.
fn read_time(unit: &UnitProperties, name: &str) -> Option<u64> {
    unit.numbers.get(name).copied().filter(|us| !matches!(*us, 0 | u64::MAX))
}

/// Whole seconds from `from` to `to`; negative if `to` is before `from`.
fn seconds_between(from_us: u64, to_us: u64) -> i64 {
    i64::try_from(i128::from(to_us) - i128::from(from_us)).unwrap_or(i64::MAX).div_euclid(1_000_000)
}

fn last_run_age(timer: &UnitProperties, clocks: &Clocks) -> ProbeAnswer {
    let last = read_time(timer, "LastTriggerUSec").ok_or_else(|| {
        failed_error("the timer has not run since the boot (with Persistent=true, systemd also knows earlier runs)")
    })?;
    Ok(seconds_between(last, clocks.wall.0.saturating_mul(1000)).into())
}

fn next_run_in(timer: &UnitProperties, clocks: &Clocks) -> ProbeAnswer {
    let by_wall =
        read_time(timer, "NextElapseUSecRealtime").map(|us| seconds_between(clocks.wall.0.saturating_mul(1000), us));
    let by_boot = read_time(timer, "NextElapseUSecMonotonic").map(|us| seconds_between(clocks.monotonic_us, us));
    let next = by_wall.into_iter().chain(by_boot).min();
    next.map(Into::into).ok_or_else(|| failed_error("the timer has no next run"))
}

/// The result of the last run of the unit that a timer starts: `success`, `exit-code`, ...
fn last_result(started: Option<&UnitProperties>) -> ProbeAnswer {
    started.map_or_else(|| Err(failed_error("the timer names no unit")), |unit| read_property(unit, "Result"))
}

#[cfg(test)]
mod tests {
    use super::super::World;
    use super::*;
    use remoor_host::systemd::testing::{stand_in, unit_properties};
    use std::path::Path;

    /// `property answer` for each assertion of a service check, from a fake systemd with these
    /// units.
    fn answers(runtime: &Path, text: &str, now: Wall) -> Vec<String> {
        let sockets = stand_in(runtime, |_, args, serial| {
            let has = |name: &str| args.iter().any(|arg| arg.contains(name));
            if has("backup_2etimer") {
                let texts = [("LoadState", "loaded"), ("Unit", "backup.service"), ("Result", "success")];
                let times = [("LastTriggerUSec", 1_000_000_000), ("NextElapseUSecRealtime", 1_090_000_000)];
                unit_properties(serial, &texts, &times)
            } else if has("backup_2eservice") {
                let texts = [("LoadState", "loaded"), ("Result", "exit-code"), ("StatusText", "")];
                unit_properties(serial, &texts, &[("NRestarts", 7), ("TimeoutStartUSec", 90_000_000)])
            } else if has("fresh_2etimer") {
                let times =
                    [("LastTriggerUSec", 0), ("NextElapseUSecRealtime", u64::MAX), ("NextElapseUSecMonotonic", 0)];
                unit_properties(serial, &[("LoadState", "loaded")], &times)
            } else {
                unit_properties(serial, &[("LoadState", "not-found")], &[])
            }
        });
        let checks = super::super::super::parse("f.yml", &"s".into(), text).unwrap();
        let world = World::new(&checks, Duration::from_secs(60));
        let ask = ProbeContext { check: &checks[0], world: &world, limit: Duration::from_secs(60), now };
        let mut answers = ProbeAnswers::default();
        add(&ask, &sockets, &mut answers);
        let line = |assertion| match answers.answer_to(assertion) {
            Ok(value) => value.to_string(),
            Err(ProbeError::Failed(why)) => format!("failed: {why}"),
            Err(ProbeError::Unknown(why)) => format!("unknown: {why}"),
        };
        checks[0].assertions.iter().map(line).collect()
    }

    #[test]
    fn the_runs_of_a_timer() {
        let own = "last-run-age: {lt: 26h}, next-run-in: {lt: 1h}, last-result: success";
        let of = |unit: &str| {
            let dir = tempfile::tempdir().unwrap();
            answers(dir.path(), &format!("service: {{{unit}: {{meta: {{remoor: {{{own}}}}}}}}}"), Wall(1_060_500))
        };
        assert_eq!(of("backup.timer"), ["60", "29", "\"exit-code\""]);
        let never =
            "failed: the timer has not run since the boot (with Persistent=true, systemd also knows earlier runs)";
        assert_eq!(of("fresh.timer"), [never, "failed: the timer has no next run", "failed: the timer names no unit"]);
        assert_eq!(of("gone.timer"), ["failed: there is no unit gone.timer"; 3]);
    }

    #[test]
    fn properties_are_texts_as_systemctl_prints_them() {
        let dir = tempfile::tempdir().unwrap();
        let own = "properties: {NRestarts: {lt: 3}, TimeoutStartUSec: 1min 30s, StatusText: '', Nothing: 1}";
        let found = answers(dir.path(), &format!("service: {{backup: {{meta: {{remoor: {{{own}}}}}}}}}"), Wall(0));
        assert_eq!(found, ["\"7\"", "\"1min 30s\"", "\"\"", "failed: systemd has no text for Nothing of this unit"]);
    }

    #[test]
    fn without_systemd_there_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let sockets = SystemdSockets::in_runtime_dir(dir.path());
        assert_eq!(
            connect(&sockets, Duration::from_secs(1)).err(),
            Some(unknown_error("systemd does not answer here"))
        );
    }

    #[test]
    fn times_before_and_after_now() {
        assert_eq!(seconds_between(1_000_000, 4_500_000), 3);
        assert_eq!(seconds_between(4_500_000, 1_000_000), -4);
        assert_eq!(seconds_between(0, u64::MAX - 1), i64::MAX / 1_000_000);
    }
}

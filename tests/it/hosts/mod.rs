//! Scenarios on real hosts (SCENARIOS, A and X), told on several fleets of five at once. Skipped, loudly, where no hosts
//! can be had; a failure where `REMOOR_LAB_REQUIRED` is set.
//!
//! `REMOOR_STORY=A02,X1` tells those whose names begin so, `REMOOR_FLEETS=1` uses one fleet, `REMOOR_LAB_NAME` names the
//! fleets, and `REMOOR_LONG=1` gives them the durations of production. One that fails is told once more, alone, unless
//! `REMOOR_STRICT=1` is set (`chance.rs`).

mod add;
mod announced;
mod chance;
mod drained;
mod fleets;
mod halves;
mod inverse;
mod leader;
mod limits;
mod moved;
mod noise;
mod operator;
mod played;
mod power;
mod refusals;
mod roads;
mod roles;
mod shipped;
mod steps;
mod stories;
mod undo;

/// The longest, told first: one that comes last would keep one fleet busy and the others idle. Seconds on a quiet machine.
const LONGEST: &[(&str, u32)] = &[
    ("A19", 300),
    ("A25a", 90),
    ("G1", 80),
    ("G2", 70),
    ("A10", 230),
    ("A25c", 46),
    ("A18", 44),
    ("A01", 38),
    ("A25b", 34),
    ("A16", 33),
    ("A21 a drained", 40),
    ("A21", 33),
    ("A22", 28),
    ("A24", 27),
    ("shipped", 27),
    ("A06", 25),
    ("A03", 22),
];
/// Of one that is not in the list.
const OTHERS: u32 = 12;

#[test]
fn scenarios_on_real_hosts() -> Result<(), fleets::Failed> {
    if fleets::missing() {
        return Ok(());
    }
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "it".into());
    let mut all = [
        stories::ALL,
        leader::ALL,
        operator::ALL,
        noise::ALL,
        roles::ALL,
        limits::ALL,
        power::ALL,
        undo::ALL,
        halves::ALL,
        roads::ALL,
        moved::ALL,
        announced::ALL,
        shipped::ALL,
        inverse::ALL,
        drained::ALL,
    ]
    .concat();
    if let Ok(only) = std::env::var("REMOOR_STORY") {
        all.retain(|(name, _)| only.split(',').any(|one| name.starts_with(one)));
    }
    let seconds = |name: &str| LONGEST.iter().find(|(begins, _)| name.starts_with(begins)).map_or(OTHERS, |(_, s)| *s);
    all.sort_by_key(|(name, _)| std::cmp::Reverse(seconds(name)));
    fleets::tell(&name, all)
}

//! Tests of the dial plan.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

thread_local! {
    static CONSIDERED: Cell<u64> = const { Cell::new(0) };
}

/// Counts one node for which the plan computed the time of its next dial.
pub fn count_consideration() {
    CONSIDERED.set(CONSIDERED.get() + 1);
}

/// Runs `work`. Returns how often the plan computed the time of a node's next dial meanwhile in
/// this thread.
pub fn count_work(work: impl FnOnce()) -> u64 {
    let before = CONSIDERED.get();
    work();
    CONSIDERED.get() - before
}

/// A state with `count` known nodes, of which the first `live` are members.
fn create_state(count: usize, live: usize) -> DialState {
    let name = |n: usize| NodeName(format!("w{n:04}"));
    let place = |n: usize| SocketAddr::from(([10, 1, (n / 250) as u8, (n % 250) as u8], 7946));
    let mut state = DialState::new("w0000".into(), place(0), GossipTiming::default());
    state.set_known(0, (0..count).map(|n| (name(n), vec![place(n)])).collect());
    state.set_members(0, (0..count).map(|n| (name(n), place(n))).collect());
    state.set_members(0, (0..live).map(|n| (name(n), place(n))).collect());
    state
}

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7946))
}

/// The dial state of a node whose address ends in .100. The addresses of the known nodes end in .1,
/// .2, ...
fn state(known: &[&str]) -> DialState {
    let mut state = DialState::new("me".into(), addr(100), GossipTiming::default());
    state.set_jitter(1000);
    let known = known.iter().zip(1..).map(|(name, n)| (NodeName::from(*name), vec![addr(n)]));
    state.set_known(0, known.chain([("me".into(), vec![addr(100)])]).collect());
    state
}

fn members(state: &mut DialState, now_ms: u64, names: &[&str]) {
    let members = names.iter().map(|name| {
        let name = NodeName::from(*name);
        let at = state.known.get(&name).and_then(|addrs| addrs.first()).copied().unwrap_or(addr(200));
        (name, at)
    });
    let members = members.collect();
    state.set_members(now_ms, members);
}

fn names(plan: Vec<(NodeName, SocketAddr)>) -> Vec<String> {
    plan.into_iter().map(|(name, _)| name.0).collect()
}

/// Advances the clock in steps of 100 ms; every dial fails at once. Returns the time and node of
/// each dial.
fn run(state: &mut DialState, from_ms: u64, until_ms: u64) -> Vec<(u64, String)> {
    let mut dialled = vec![];
    for now in (from_ms..=until_ms).step_by(100) {
        for (name, _) in plan(now, state) {
            state.begin(now, &name);
            state.end(&name);
            dialled.push((now, name.0));
        }
    }
    dialled
}

fn times(dialled: &[(u64, String)]) -> Vec<u64> {
    dialled.iter().map(|(at, _)| *at).collect()
}

#[test]
fn at_the_start_everybody_missing_is_dialled_at_once_in_bounded_number() {
    let mut state = state(&["a", "b", "c", "d", "e", "f"]);
    let first = plan(0, &state);
    assert_eq!(names(first.clone()), ["a", "b", "c", "d"]);
    for (name, _) in &first {
        state.begin(0, name);
    }
    assert_eq!((plan(0, &state), next_ms(&state)), (vec![], None), "all lines are busy");
    state.end(&"b".into());
    assert_eq!(names(plan(10, &state)), ["e"], "not b again before its time");
}

#[test]
fn with_peers_the_missing_are_dialled_every_minute() {
    let mut state = state(&["a", "b"]);
    members(&mut state, 0, &["me", "a"]);
    let dialled = run(&mut state, 0, 130_000);
    assert!(dialled.iter().all(|(_, name)| name == "b"));
    assert_eq!(times(&dialled), [0, 60_000, 120_000]);
    assert_eq!(next_ms(&state), Some(180_000));
}

#[test]
fn without_peers_the_wait_doubles_and_then_grows_with_the_time_alone_up_to_its_bound() {
    let mut state = state(&["a"]);
    members(&mut state, 0, &["me", "a"]);
    assert_eq!(next_ms(&state), None, "no node is missing");
    members(&mut state, 50_000, &["me"]);
    let dialled = times(&run(&mut state, 50_000, 50_000 + 7_200_000));
    let waits: Vec<_> = [50_000].iter().chain(&dialled).zip(&dialled).map(|(a, b)| (b - a, a - 50_000)).collect();
    let seconds: Vec<_> = waits.iter().map(|(wait, _)| wait / 1000).collect();
    assert_eq!(seconds[..5], [1, 2, 4, 4, 4]);
    for (wait, alone) in waits {
        assert!(wait <= (alone / 16).max(4_000) + 100, "{wait} ms after {alone}");
    }
    assert_eq!((seconds.iter().max(), seconds.last()), (Some(&60), Some(&60)));
}

#[test]
fn the_wait_is_short_again_when_there_was_a_peer() {
    let mut state = state(&["a"]);
    members(&mut state, 0, &["me", "a"]);
    members(&mut state, 1_000, &["me"]);
    run(&mut state, 1_000, 3_600_000);
    members(&mut state, 3_600_000, &["me", "a"]);
    members(&mut state, 3_700_000, &["me"]);
    assert_eq!(times(&run(&mut state, 3_700_000, 3_708_000)), [3_701_000, 3_703_000, 3_707_000]);
}

#[test]
fn jitter_only_shortens_the_wait_and_by_half_at_most() {
    for (jitter, due) in [(0, 500), (500, 750), (1000, 1000), (u16::MAX, 1000)] {
        let mut state = state(&["a"]);
        state.set_jitter(jitter);
        members(&mut state, 0, &["me", "a"]);
        members(&mut state, 0, &["me"]);
        assert_eq!(next_ms(&state), Some(due), "jitter {jitter}");
    }
}

#[test]
fn a_nudge_makes_it_sooner_but_not_denser_than_the_spacing() {
    let mut state = state(&["a", "b"]);
    members(&mut state, 0, &["me", "a"]);
    assert_eq!(times(&run(&mut state, 0, 20_000)), [0]);
    state.nudge(20_000);
    assert_eq!(times(&run(&mut state, 20_000, 20_900)), [20_000]);
    for now in [21_000, 22_000, 23_000] {
        state.nudge(now);
        assert!(run(&mut state, now, now + 900).is_empty());
    }
    assert_eq!(times(&run(&mut state, 24_000, 90_000)), [25_000, 85_000], "kept, not lost");
}

#[test]
fn a_nudge_starts_the_isolated_wait_over() {
    let mut state = state(&["a"]);
    let before = times(&run(&mut state, 0, 50_000));
    assert_eq!(before.last(), Some(&50_000));
    state.nudge(55_000);
    assert_eq!(times(&run(&mut state, 55_000, 63_000)), [55_000, 57_000, 61_000]);
}

#[test]
fn a_node_that_comes_back_is_dialled_no_more_and_afresh_when_it_goes() {
    let mut state = state(&["a", "b"]);
    members(&mut state, 0, &["me", "a"]);
    run(&mut state, 0, 1_000);
    members(&mut state, 2_000, &["me", "a", "b"]);
    assert!(run(&mut state, 2_000, 200_000).is_empty());
    members(&mut state, 200_000, &["me", "a"]);
    assert_eq!(names(plan(200_000, &state)), ["b"]);
}

#[test]
fn addresses_take_turns_and_those_in_use_by_members_are_left_out() {
    let mut state = state(&["a", "b"]);
    let known = |addrs| BTreeMap::from([("a".into(), vec![addr(1)]), ("b".into(), addrs)]);
    state.set_known(0, known(vec![addr(2), addr(1), addr(100), addr(3)]));
    members(&mut state, 0, &["me", "a"]);
    let mut dialled = vec![];
    for now in [0, 60_000, 120_000] {
        for (name, at) in plan(now, &state) {
            state.begin(now, &name);
            state.end(&name);
            dialled.push(at);
        }
    }
    assert_eq!(dialled, [addr(2), addr(3), addr(2)], "never a's address, never the own one");
    state.set_known(0, known(vec![addr(1)]));
    assert_eq!(plan(300_000, &state), []);
    assert_eq!(next_ms(&state), None);
}

#[test]
fn dials_and_their_ends_consider_the_dialled_nodes_only() {
    let mut state = create_state(400, 200);
    state.nudge(10_000);
    let mut dials = 0;
    let work = count_work(|| {
        let mut now = 10_000;
        while now < 3_600_000 {
            for (name, _) in plan(now, &state) {
                state.begin(now, &name);
                state.end(&name);
                dials += 1;
            }
            now = next_ms(&state).expect("nodes are missing");
        }
    });
    assert!(dials > 200, "{dials}");
    assert_eq!(work, 2 * dials, "each dial considers its node when it begins and when it ends");
    let members = state.members.clone();
    let look = count_work(|| {
        state.set_members(3_600_000, members);
    });
    assert!(look <= 200, "{look}");
}

#[test]
fn all_members_together_dial_a_missing_node_as_often_as_a_few_would() {
    let dials_in = |live: usize, minutes: u64| {
        let mut state = create_state(live + 20, live);
        state.set_jitter(1000);
        run(&mut state, 0, minutes * 60_000).len()
    };
    let (few, many) = (dials_in(16, 100), dials_in(1600, 10_000));
    assert!((1900..=2020).contains(&few), "20 nodes every minute: {few}");
    assert!((1900..=2020).contains(&many), "20 nodes, a hundred times less often: {many}");
}

#[test]
fn nodes_that_go_missing_together_are_not_dialled_at_once_in_a_large_cluster() {
    let mut state = create_state(400, 200);
    // 200 nodes are members and 200 are missing. Each member dials each missing node once in 60 s *
    // 200 / 16, where 200 is the number of members.
    let first = run(&mut state, 0, 30_000).len();
    assert!((5..=11).contains(&first), "{first} of 200 in a 25th of the wait");
    let all: BTreeSet<_> = run(&mut state, 30_100, 750_000).into_iter().map(|(_, name)| name).collect();
    assert!(all.len() >= 189, "{}", all.len());
}

#[test]
fn only_many_nodes_that_come_together_tell_of_a_network_that_healed() {
    let mut state = create_state(400, 200);
    let mut members = state.members.clone();
    let come = |members: &mut BTreeMap<_, _>, from: usize, count: usize| {
        let more = state.known.iter().skip(from).take(count).map(|(name, addrs)| (name.clone(), addrs[0]));
        members.extend(more);
        members.clone()
    };
    let (one, many) = (come(&mut members, 200, 1), come(&mut members, 201, 40));
    assert!(!state.set_members(1_000, one));
    assert!(state.set_members(2_000, many));
}

proptest! {
    /// Invariant I5: a current member is never dialled. The test also checks that every missing
    /// node is dialled eventually.
    #[test]
    fn never_dials_a_current_member(
        steps in proptest::collection::vec((0u64..70_000, 0u16..256, any::<bool>(), 0u16..1001), 1..40),
    ) {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut state = state(&all);
        let mut now = 0;
        for (wait, alive, nudge, jitter) in steps {
            now += wait;
            state.set_jitter(jitter);
            let up: Vec<_> = all.iter().enumerate().filter(|(n, _)| alive >> n & 1 == 1).map(|(_, name)| *name).collect();
            members(&mut state, now, &up);
            if nudge {
                state.nudge(now);
            }
            let planned = plan(now, &state);
            prop_assert!(planned.len() + state.dialling.len() <= PARALLEL_MAX);
            for (name, at) in planned {
                prop_assert!(!up.contains(&name.as_str()) && name.as_str() != "me");
                prop_assert!(state.known.contains_key(&name));
                prop_assert!(!state.members.values().any(|used| *used == at));
                state.begin(now, &name);
                if jitter % 2 == 0 {
                    state.end(&name);
                }
            }
        }
        for name in state.dialling.clone() {
            state.end(&name);
        }
        let missing: Vec<_> = all.iter().filter(|name| !state.members.contains_key(**name)).map(|n| n.to_string()).collect();
        let mut dialled: Vec<_> = run(&mut state, now, now + 61_000).into_iter().map(|(_, name)| name).collect();
        dialled.sort();
        dialled.dedup();
        prop_assert_eq!(dialled, missing);
    }
}

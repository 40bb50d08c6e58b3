//! Managers and workers: answers and warnings for promote and demote, a node's membership in views,
//! and `GET /v1/raft`. The state machine refuses orders that are not allowed. The role manager
//! carries the accepted orders out.

use super::super::{ManagerContext, members, wall};
use super::as_of;
use super::order::{Decided, Desk, ok_view};
use axum::extract::State;
use remoor_cluster::raft::RaftStatus;
use remoor_cluster::rpc::view::{AsOf, NodeView, RaftMemberView, RaftView};
use remoor_cluster::rpc::wire::{ApiFailure, Code, TimedJson};
use remoor_engine::{Membership, ObservedRole, observed_role};
use remoor_model::{
    ClusterRole, Command, Inventory, Node, NodeId, RaftId, Wall, count_noun, majority, tolerance_warning, zone_warning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time in milliseconds without an answer after which a member is reported as silent. It is twenty
/// heartbeats, because a busy disk may cause a pause and a false alarm. Decisions about votes use
/// the shorter `HEARD_MS`, because a longer value would cause longer waits.
const SILENT_MS: u64 = 5_000;

/// A node's membership in Raft.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeMembership {
    /// The name of the node's role in Raft. None if the node is not a member.
    pub manager: Option<&'static str>,
    pub state: ObservedRole,
    pub waits: Option<String>,
    pub lag: Option<u64>,
    /// The text of [`silence`].
    pub silent: Option<String>,
}

/// The membership of `node`. `waits` is called only on the leader and only if the desired role is
/// not reached yet, because only the leader knows the answer.
pub(super) fn seat(node: &Node, raft: &RaftStatus, waits: impl FnOnce() -> Option<String>) -> NodeMembership {
    let membership = known_membership(raft);
    let manager = node.raft.and_then(|id| raft_role_word(&membership, id));
    let state = observed_role(node, &membership);
    // A voter whose addition is not complete yet is shown as a learner. Until the change is
    // complete, its vote may not count if the leader fails, so an operator must not rely on it.
    let entering = node.raft.filter(|id| raft.entering.contains(id) && state == ObservedRole::Voter);
    let (manager, state) = match entering {
        Some(id) => {
            (Some("learner"), ObservedRole::Learner { lag: membership.matched.get(&id).map(|_| membership.lag(id)) })
        }
        None => (manager, state),
    };
    let learner = node.raft.filter(|id| manager == Some("learner") && membership.matched.contains_key(id));
    let waits = if raft.is_leader && !state.is_reached() { waits() } else { None };
    let silent = node.raft.and_then(|id| silence(id, raft));
    NodeMembership { manager, state, waits, lag: learner.map(|id| membership.lag(id)), silent }
}

/// The time for which a member has not answered the leader, as text. None if the member answers, if
/// it is not a member, or if this manager does not lead. Presence in gossip is not enough, because
/// a machine whose manager service ended, hangs or is rejected stays in gossip.
fn silence(id: RaftId, raft: &RaftStatus) -> Option<String> {
    let member = raft.voters.contains_key(&id) || raft.learners.contains_key(&id);
    if !raft.is_leader || id == raft.id || !member {
        return None;
    }
    match raft.acked_ms.get(&id) {
        // Immediately after an election, the leader has received no answer of any member yet.
        None => raft
            .led_ms
            .is_some_and(|ms| ms > SILENT_MS)
            .then(|| "no answer to the leader since it began to lead".to_owned()),
        Some(ms) if *ms > SILENT_MS => Some(format!("no answer to the leader for {} s", ms / 1_000)),
        Some(_) => None,
    }
}

/// The membership as this manager knows it; a leader knows more. Without a leader, `me` is 0, which
/// is no member because Raft ids begin with 1.
fn known_membership(raft: &RaftStatus) -> Membership {
    Membership { me: raft.leader.unwrap_or_default(), ..members::membership(raft) }
}

fn raft_role_word(raft: &Membership, id: RaftId) -> Option<&'static str> {
    match () {
        () if raft.me == id => Some("leader"),
        () if raft.voters.contains_key(&id) => Some("voter"),
        () if raft.learners.contains_key(&id) => Some("learner"),
        () => None,
    }
}

/// The number of managers that count for a decision: voters that answer the leader. Presence in
/// gossip is not enough, because a machine whose manager service ended stays in gossip. A manager
/// that does not lead counts only itself.
pub(super) fn answering_managers<'a>(
    raft: &RaftStatus,
    inventory: &Inventory,
    nodes: impl Iterator<Item = &'a NodeView>,
) -> u32 {
    let own = inventory.raft_id_holder(raft.id).map(|n| n.id.0);
    let votes = |n: &&NodeView| matches!(n.manager.as_deref(), Some("leader" | "voter"));
    let answers = |n: &&NodeView| Some(n.id) == own || raft.is_leader && n.membership.silent.is_none();
    nodes.filter(votes).filter(answers).count() as u32
}

/// Warnings about the number of managers and about the number of those that are up.
pub(super) fn outlook(leads: bool, managers: u32, up: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    let need = majority(managers as usize);
    if managers > 0 && managers.is_multiple_of(2) {
        warnings.extend(tolerance_warning(managers as usize));
    }
    if !leads && managers > 0 {
        warnings.push(format!(
            "no majority of the managers answers ({need} of {managers} are needed): orders are refused; agents continue to hash \
             and check, and what happens meanwhile is examined afterwards"
        ));
    } else if managers > 1 && up < managers && up as usize <= need {
        warnings.push(format!("{up} of {managers} managers are up: one more loss ends the quorum"));
    }
    warnings
}

/// Refuses to promote a node with an expired certificate. The managers would reject its
/// connections, so it would never vote. `ends` is the time at which the certificate expires; None
/// if this manager does not know it.
fn holds(inventory: &Inventory, node: &Node, ends: Option<Wall>, now: Wall) -> Result<(), ApiFailure> {
    let name = node.name();
    let lapsed = inventory.expired_certificates.get(&node.id);
    if lapsed.is_none() && ends.is_none_or(|ends| ends >= now) {
        return Ok(());
    }
    let text = format!("the certificate of {name} expired: it can't be a manager before it has a new one");
    let next = match lapsed {
        Some(lapsed) if lapsed.is_accepted(now) => {
            format!("systemctl restart remoor on {name}, which fetches the new one")
        }
        Some(_) => format!("remoor accept {name}, then repeat the command"),
        None => {
            format!("start remoor on {name}, remoor accept {name} once remoor nodes lists it, then repeat the command")
        }
    };
    Err(ApiFailure::new(Code::Refused, text).details(serde_json::json!({ "refusal": "certificate" })).next(next))
}

/// Decides on an order to change a node's role.
pub(super) fn change(desk: &Desk<'_>, role: ClusterRole) -> Result<Decided, ApiFailure> {
    if role == ClusterRole::Manager {
        let ends = desk.shared.observed.certificates.expiry_of(desk.node.id);
        holds(&desk.shared.inventory(), desk.node, ends, wall())?;
    }
    let text = describe_change(desk.node, role, &known_membership(&desk.shared.raft.status().borrow()));
    Ok((Some(Command::Role { node: desk.node.id, role }), ok_view(&text)))
}

fn describe_change(node: &Node, role: ClusterRole, raft: &Membership) -> String {
    let name = node.name();
    let votes = node.raft.is_some_and(|id| raft.target.contains(&id));
    match (role, votes) {
        (ClusterRole::Worker, false) if node.awaiting_role_decision => {
            format!("{name} is given up as a manager and becomes a worker")
        }
        (ClusterRole::Manager, false) => format!("{name} becomes a manager; it votes once it has caught up"),
        (ClusterRole::Manager, true) => format!("demotion of {name} cancelled"),
        (ClusterRole::Worker, false) => format!("promotion of {name} cancelled"),
        (ClusterRole::Worker, true) => format!("{name} becomes a worker; it votes until a majority has removed it"),
    }
}

/// Warnings about the combined effect of these orders on the managers. Orders that change no role
/// cause no warning.
pub(super) fn warnings(shared: &ManagerContext, commands: &[Command]) -> Vec<String> {
    let roles: BTreeMap<NodeId, ClusterRole> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Role { node, role } => Some((*node, *role)),
            Command::Remove { node, .. } if shared.inventory().node(*node).is_some_and(Node::manages) => {
                Some((*node, ClusterRole::Worker))
            }
            _ => None,
        })
        .collect();
    if roles.is_empty() {
        return Vec::new();
    }
    let raft = members::membership(&shared.raft.status().borrow());
    role_warnings(&shared.inventory(), &roles, &raft)
}

/// The reason why a node can't leave Raft now. None if it can leave or is not a voter.
pub(super) fn stays(shared: &ManagerContext, node: &Node) -> Option<String> {
    let raft = members::membership(&shared.raft.status().borrow());
    let stays: BTreeSet<RaftId> = raft.voters.keys().copied().filter(|id| Some(*id) != node.raft).collect();
    let (_, up, of) = stuck(&raft, &stays).filter(|(id, ..)| Some(*id) == node.raft)?;
    Some(format!("{up} of {} answer, and a majority is {}", count_noun(of, "manager"), majority(of)))
}

fn role_warnings(inventory: &Inventory, roles: &BTreeMap<NodeId, ClusterRole>, raft: &Membership) -> Vec<String> {
    let role = |node: &Node| roles.get(&node.id).copied().unwrap_or(node.role);
    let wanted: Vec<&Arc<Node>> = inventory.nodes.values().filter(|n| role(n) == ClusterRole::Manager).collect();
    let mut warnings: Vec<String> = tolerance_warning(wanted.len()).into_iter().collect();
    warnings.extend(zone_warning(wanted.iter().map(|n| n.spec.zone.as_str())));
    let stays: BTreeSet<RaftId> = wanted.iter().filter_map(|n| n.raft).collect();
    let stuck = stuck(raft, &stays).and_then(|(id, up, of)| Some((inventory.raft_id_holder(id)?, up, of)));
    if let Some((node, up, of)) = stuck.filter(|(node, ..)| roles.contains_key(&node.id)) {
        warnings.push(format!(
            "{} stays a voter until more managers answer: {up} of {}, and a majority is {}",
            node.name(),
            count_noun(of, "manager"),
            majority(of)
        ));
    }
    warnings
}

/// Assumes that all voters outside `stays` leave Raft one after the other, dead voters first, as
/// the role manager removes them. Returns the first voter that could not leave, because too few
/// voters would answer. The two numbers are the answering voters and all voters of that moment.
fn stuck(raft: &Membership, stays: &BTreeSet<RaftId>) -> Option<(RaftId, usize, usize)> {
    let mut voters: BTreeSet<RaftId> = raft.voters.keys().copied().collect();
    let mut go: Vec<RaftId> = voters.difference(stays).copied().collect();
    go.sort_by_key(|id| (*id == raft.me, raft.answers(*id)));
    for id in go {
        let next: BTreeSet<RaftId> = voters.iter().copied().filter(|v| *v != id).collect();
        for of in [&voters, &next] {
            if let Some(up) = raft.too_few(of).filter(|_| !of.is_empty()) {
                return Some((id, up, of.len()));
            }
        }
        voters = next;
    }
    None
}

/// The membership of Raft. A manager that does not lead omits the values that only the leader
/// knows.
pub async fn raft(State(shared): State<Arc<ManagerContext>>) -> TimedJson<RaftView> {
    let status = shared.raft.status().borrow().clone();
    TimedJson(raft_view(as_of(&shared), &status, &shared.inventory()))
}

fn raft_view(as_of: AsOf, status: &RaftStatus, inventory: &Inventory) -> RaftView {
    let raft = known_membership(status);
    let mut members: Vec<RaftMemberView> = Vec::new();
    for (id, address) in raft.voters.iter().chain(&raft.learners) {
        let node = inventory.raft_id_holder(*id);
        let own = *id == status.id;
        let matched = if own { status.last_log } else { raft.matched.get(id).copied() };
        members.push(RaftMemberView {
            id: id.0,
            node: node.map(|n| n.name().to_string()),
            role: node.map(|n| n.role.as_str().to_owned()),
            address: address.clone(),
            is: raft_role_word(&raft, *id).unwrap_or_default().to_owned(),
            leaving: raft.voters.contains_key(id) && !raft.target.contains(id),
            orphan: inventory.is_retired(*id),
            matched,
            lag: matched.filter(|_| !own || status.is_leader).map(|have| raft.last_log.saturating_sub(have)),
            answered_ms: status.acked_ms.get(id).copied(),
        });
    }
    members.sort_by_key(|m| m.id);
    let mut warnings: Vec<String> = members
        .iter()
        .filter(|m| m.orphan)
        .map(|m| format!("Raft id {} belongs to no node any more: the leader removes it", m.id))
        .collect();
    if status.joint {
        let after = members.iter().filter(|m| raft.target.contains(&RaftId(m.id)));
        let after: Vec<String> = after.map(|m| m.node.clone().unwrap_or_else(|| format!("id {}", m.id))).collect();
        let after = after.join(", ");
        warnings
            .push(format!("a change of voters is half done, and also needs a majority of the next voters: {after}"));
    }
    RaftView {
        version: 1,
        as_of,
        term: status.term,
        last_log: raft.last_log,
        last_applied: status.last_applied.unwrap_or(0),
        joint: status.joint,
        target: raft.target.iter().map(|id| id.0).collect(),
        committed: status.members_committed,
        members,
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{InventoryEntry, sample};

    /// w1 to w3 are managers with granted Raft ids, w4 is a worker. w1 leads, w3 is dead.
    fn three_managers() -> (Inventory, RaftStatus) {
        let mut inventory = sample::fleet(0, 4);
        for node in [1, 2, 3].map(NodeId) {
            write(&mut inventory, Command::Role { node, role: ClusterRole::Manager });
            write(&mut inventory, Command::Grant { node, founder: node == NodeId(1) });
        }
        let id = |node: u64| inventory.nodes[&NodeId(node)].raft.expect("granted");
        let voters: BTreeMap<RaftId, String> = [1, 2, 3].map(|n| (id(n), format!("10.0.0.{n}:7947"))).into();
        let raft = RaftStatus {
            id: id(1),
            leader: Some(id(1)),
            is_leader: true,
            last_log: Some(500),
            last_applied: Some(499),
            target: voters.keys().copied().collect(),
            voters,
            members_committed: true,
            matched: [(id(2), 500), (id(3), 400)].into(),
            acked_ms: [(id(2), 100), (id(3), 90_000)].into(),
            led_ms: Some(100_000),
            ..RaftStatus::default()
        };
        (inventory, raft)
    }

    fn write(inventory: &mut Inventory, command: Command) {
        let at = inventory.applied + 1;
        let applied = inventory.apply(at, &InventoryEntry { at: Wall(at), by: "alice".to_owned(), command });
        assert_eq!(applied.refusal(), None);
    }

    fn warns(nodes: &[u64], role: ClusterRole) -> Vec<String> {
        let (inventory, raft) = three_managers();
        role_warnings(&inventory, &nodes.iter().map(|n| (NodeId(*n), role)).collect(), &members::membership(&raft))
    }

    #[test]
    fn an_order_warns_about_the_remaining_managers_and_about_what_it_waits_for() {
        let stuck = |name: &str| {
            format!("{name} stays a voter until more managers answer: 1 of 2 managers, and a majority is 2")
        };
        let [one, two, four] = [1, 2, 4].map(|n| vec![tolerance_warning(n).expect("a warning")]);
        let and = |warned: &[String], more: String| [warned, &[more]].concat();
        assert_eq!(warns(&[4], ClusterRole::Manager), four);
        assert_eq!(warns(&[3], ClusterRole::Worker), two, "the dead one can go");
        assert_eq!(warns(&[2], ClusterRole::Worker), and(&two, stuck("w2")));
        assert_eq!(warns(&[1], ClusterRole::Worker), and(&two, stuck("w1")));
        assert_eq!(warns(&[2, 3], ClusterRole::Worker), one, "the dead one first, then the other");
    }

    #[test]
    fn a_role_change_that_was_stuck_before_is_not_a_warning_of_this_order() {
        let (mut inventory, raft) = three_managers();
        write(&mut inventory, Command::Role { node: NodeId(2), role: ClusterRole::Worker });
        let roles = BTreeMap::from([(NodeId(4), ClusterRole::Manager)]);
        assert_eq!(
            role_warnings(&inventory, &roles, &members::membership(&raft)),
            Vec::<String>::new(),
            "three are wanted"
        );
    }

    #[test]
    fn a_node_with_an_expired_certificate_is_not_promoted() {
        let (mut inventory, _) = three_managers();
        let (node, now) = (inventory.nodes[&NodeId(4)].clone(), Wall(1_000));
        let next = |inventory: &Inventory, ends| holds(inventory, &node, ends, now).err().and_then(|f| f.next);
        assert_eq!((next(&inventory, None), next(&inventory, Some(Wall(1_000)))), (None, None));
        assert!(next(&inventory, Some(Wall(999))).is_some_and(|next| next.contains("start remoor on w4")));
        write(&mut inventory, Command::CertificateExpired { node: NodeId(4) });
        assert!(next(&inventory, None).is_some_and(|next| next.starts_with("remoor accept w4")));
        write(&mut inventory, Command::Readmit { node: NodeId(4) });
        assert!(next(&inventory, None).is_some_and(|next| next.contains("restart")));
    }

    #[test]
    fn an_order_says_whether_it_cancels_another() {
        let (inventory, raft) = three_managers();
        let says = |node: u64, role| describe_change(&inventory.nodes[&NodeId(node)], role, &known_membership(&raft));
        assert_eq!(says(4, ClusterRole::Manager), "w4 becomes a manager; it votes once it has caught up");
        assert_eq!(says(4, ClusterRole::Worker), "promotion of w4 cancelled");
        assert_eq!(says(2, ClusterRole::Worker), "w2 becomes a worker; it votes until a majority has removed it");
        assert_eq!(says(2, ClusterRole::Manager), "demotion of w2 cancelled");
    }

    #[test]
    fn a_node_is_shown_as_raft_has_it_and_with_what_the_leader_waits_for() {
        let (mut inventory, mut raft) = three_managers();
        let of = |inventory: &Inventory, raft: &RaftStatus, node: u64| {
            seat(&inventory.nodes[&NodeId(node)], raft, || Some("it is away".to_owned()))
        };
        let is = |manager, state| NodeMembership { manager, state, waits: None, lag: None, silent: None };
        assert_eq!(of(&inventory, &raft, 1), is(Some("leader"), ObservedRole::Leader));
        assert_eq!(of(&inventory, &raft, 2), is(Some("voter"), ObservedRole::Voter), "nothing is waited for");
        let third = of(&inventory, &raft, 3);
        assert_eq!(third.silent.as_deref(), Some("no answer to the leader for 90 s"), "whatever gossip says of it");
        assert_eq!(of(&inventory, &raft, 4), is(None, ObservedRole::Worker));
        let entering = RaftStatus { entering: inventory.nodes[&NodeId(2)].raft.into_iter().collect(), ..raft.clone() };
        let seat = of(&inventory, &entering, 2);
        assert_eq!(seat.manager, Some("learner"), "the others can't do without the leader yet");
        assert!(matches!(seat.state, ObservedRole::Learner { .. }) && seat.waits.is_some(), "{seat:?}");

        write(&mut inventory, Command::Role { node: NodeId(4), role: ClusterRole::Manager });
        let waits = Some("it is away".to_owned());
        let promoting = NodeMembership { waits: waits.clone(), ..is(None, ObservedRole::Promoting) };
        assert_eq!(of(&inventory, &raft, 4), promoting);
        write(&mut inventory, Command::Grant { node: NodeId(4), founder: false });
        let id = inventory.nodes[&NodeId(4)].raft.expect("granted");
        raft.learners.insert(id, "10.0.0.4:7947".to_owned());
        raft.matched.insert(id, 380);
        let (state, lag) = (ObservedRole::Learner { lag: Some(120) }, Some(120));
        let silent = Some("no answer to the leader since it began to lead".to_owned());
        assert_eq!(
            of(&inventory, &raft, 4),
            NodeMembership { manager: Some("learner"), state, waits: waits.clone(), lag, silent: silent.clone() }
        );
        raft.acked_ms.insert(id, 20);
        write(&mut inventory, Command::Role { node: NodeId(4), role: ClusterRole::Worker });
        let state = ObservedRole::Demoting;
        assert_eq!(
            of(&inventory, &raft, 4),
            NodeMembership { manager: Some("learner"), state, waits, lag, silent: None }
        );

        // A manager without a leader omits the values that only a leader knows.
        let lost = RaftStatus { leader: None, is_leader: false, matched: BTreeMap::new(), ..raft };
        assert_eq!(of(&inventory, &lost, 1), is(Some("voter"), ObservedRole::Voter));
        assert_eq!(of(&inventory, &lost, 4), is(Some("learner"), ObservedRole::Demoting));
    }

    #[test]
    fn raft_members_without_a_node_are_listed_too() {
        let (mut inventory, mut raft) = three_managers();
        let ids: Vec<RaftId> = raft.voters.keys().copied().collect();
        write(&mut inventory, Command::Role { node: NodeId(3), role: ClusterRole::Worker });
        write(&mut inventory, Command::Retire { node: NodeId(3), raft: ids[2] });
        raft.target.remove(&ids[2]);
        raft.joint = true;
        let view = raft_view(AsOf::default(), &raft, &inventory);
        let [m1, m2, m3] = view.members.as_slice() else { panic!("{view:?}") };
        assert_eq!((m1.is.as_str(), m1.matched, m1.lag, m1.answered_ms), ("leader", Some(500), Some(0), None));
        assert_eq!((m2.is.as_str(), m2.node.as_deref(), m2.lag), ("voter", Some("w2"), Some(0)));
        assert_eq!((m2.answered_ms, m2.leaving, m2.orphan), (Some(100), false, false));
        assert_eq!((m3.id, m3.node.as_deref(), m3.lag, m3.leaving, m3.orphan), (ids[2].0, None, Some(100), true, true));
        assert_eq!((view.joint, view.target.len(), view.warnings.len()), (true, 2, 2), "{:?}", view.warnings);
        assert!(view.warnings[1].ends_with("the next voters: w1, w2"), "{:?}", view.warnings);

        // A follower knows only its own log.
        let lost =
            RaftStatus { id: ids[1], is_leader: false, matched: BTreeMap::new(), acked_ms: BTreeMap::new(), ..raft };
        let view = raft_view(AsOf::default(), &lost, &inventory);
        let knows: Vec<_> = view.members.iter().map(|m| (m.matched, m.lag, m.answered_ms)).collect();
        assert_eq!(knows, [(None, None, None), (Some(500), None, None), (None, None, None)]);
    }

    #[test]
    fn status_warns_about_few_and_about_even_numbers_of_managers() {
        let has = |leads, managers, up, part: &str| outlook(leads, managers, up).iter().any(|w| w.contains(part));
        for (managers, up) in [(1, 1), (3, 3), (5, 5), (5, 4)] {
            assert_eq!(outlook(true, managers, up), Vec::<String>::new(), "{up} of {managers}");
        }
        assert!(has(true, 2, 2, "each of the two is needed") && has(true, 4, 4, "as 3 do"));
        assert!(has(true, 3, 2, "one more loss ends the quorum") && has(true, 5, 3, "one more loss"));
        assert!(has(false, 3, 1, "2 of 3 are needed") && !has(false, 3, 1, "one more loss"));
        assert_eq!(outlook(false, 0, 0), Vec::<String>::new(), "nothing is known yet");
    }
}

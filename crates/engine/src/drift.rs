//! Determines the verdict on a node. Compares the desired state, the last applied state, the
//! current state of the node, and the results of the checks.

use remoor_model::{
    CheckState, Difference, Exam, Inventory, Lifecycle, Node, NodeDigest, OnFail, Reason, ServiceName, Verdict,
    Witness, differences, join_limited, truncate_text,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of reasons in one finding. `REASONS_BYTES` is the maximum total size of these
/// reasons. Each affected service keeps at least one reason.
const REASONS_MAX: usize = 100;
const REASONS_BYTES: usize = 64 * 1024;

/// An examination and the manager's data to compare it with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub exam: Exam,
    /// The node digest of the baseline. None if the node has no baseline.
    pub expected: Option<NodeDigest>,
    /// Paths whose content the manager renders itself. A difference on any other path is reported,
    /// but does not lead to a re-setup by itself.
    pub rendered: BTreeSet<String>,
}

/// Returns the verdict and its reasons.
///
/// - The current state equals the baseline, and the desired state is still the one with which the
///   node was last set up: `same`.
/// - Only the desired state changed: `outdated`.
/// - Only the current state changed: `drifted`.
/// - Both changed: `conflict`.
/// - A file is unreadable or a check is inconclusive: `unknown`, unless actionable drift was found.
///
/// An inconclusive check with `on-fail: none` is ignored. An inconclusive result of a monitor-only
/// service changes no verdict `outdated`, `drifted` or `conflict`. The result is only reported as
/// an additional reason. A decommissioned node has no expected state, so its verdict is `same`.
pub fn compare(inventory: &Inventory, node: &Node, evidence: &Evidence) -> (Verdict, Vec<Reason>) {
    if node.lifecycle == Lifecycle::Decommissioned {
        return (Verdict::Same, Vec::new());
    }
    let Some(expected) = &evidence.expected else {
        return (Verdict::Unknown("nothing is recorded for this node: commission or adopt it".to_owned()), Vec::new());
    };
    let exam = &evidence.exam;
    let mut reasons = Vec::new();
    let mut unclear: Vec<(&ServiceName, String)> = Vec::new();

    let failing: BTreeSet<_> = exam
        .checks
        .iter()
        .filter(|c| c.state == CheckState::Fail && c.on_fail == OnFail::Resetup)
        .map(|c| c.service.clone())
        .collect();
    for (name, service) in &exam.digest.services {
        unclear.extend(service.describe_unreadable().map(|line| (name, format!("{name}: {line}"))));
    }
    for difference in differences(expected, &exam.digest) {
        let service = difference.service.clone();
        if exam.digest.services.get(&service).is_some_and(|s| s.unreadable.contains_key(&difference.path)) {
            continue;
        }
        let opted = inventory
            .generation()
            .and_then(|g| g.summary.services.get(&service))
            .is_some_and(|s| s.resetup_on_recorded);
        let speaks =
            evidence.rendered.contains(&difference.path) || opted || failing.contains(&service) || extra(&difference);
        let grave = speaks && !inventory.is_monitor_only(&service);
        let text = difference.to_string();
        reasons.push(Reason { about: difference.path, ..Reason::new(Witness::Digest, service, text, grave) });
    }
    for check in &exam.checks {
        match check.state {
            CheckState::Fail if check.on_fail != OnFail::None => {
                let text = format!("{}: {}", check.service, check.describe());
                let grave = check.on_fail == OnFail::Resetup && !inventory.is_monitor_only(&check.service);
                let about = format!("{} {}", check.check, check.property);
                reasons.push(Reason { about, ..Reason::new(Witness::Check, check.service.clone(), text, grave) });
            }
            CheckState::Unknown if check.on_fail != OnFail::None => unclear.push((&check.service, check.describe())),
            _ => {}
        }
    }

    let applied = node.setup.baseline.as_ref().map(|b| b.desired);
    let outdated = inventory.desired_hash(node).is_some_and(|desired| Some(desired) != applied);
    if outdated {
        let text = match (inventory.own_address_change(node), node.ip()) {
            (Some(moved), Some(ip)) => {
                let besides =
                    if inventory.only_addresses_changed(node) { "" } else { ", and the desired state changed too" };
                format!("its own address changed from {} to {ip} since the last provisioning{besides}", moved.from)
            }
            _ if inventory.only_addresses_changed(node) => {
                "addresses of other nodes changed since the last provisioning".to_owned()
            }
            _ => "the desired state changed since the last provisioning".to_owned(),
        };
        reasons.push(Reason::new(Witness::Desired, "".into(), text, false));
    }
    let told = |unclear: &[&(&ServiceName, String)]| unclear.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>();
    let (watched, own): (Vec<_>, Vec<_>) = unclear.iter().partition(|(service, _)| inventory.is_monitor_only(service));
    if matches!(weigh(&reasons, &told(&own)).0, Verdict::Same | Verdict::Unknown(_)) {
        let reasons = limit_reasons(reasons);
        let (verdict, _) = weigh(&reasons, &told(&unclear.iter().collect::<Vec<_>>()));
        return (verdict, reasons);
    }
    reasons.extend(watched.iter().map(|(service, line)| Reason {
        about: line.clone(),
        ..Reason::new(Witness::Check, (*service).clone(), format!("unknown: {line}"), false)
    }));
    let reasons = limit_reasons(reasons);
    let (verdict, _) = weigh(&reasons, &told(&own));
    (verdict, reasons)
}

/// Limits the number and size of the reasons, because the log stores several copies of each: in the
/// finding, request, job and history. Any user who can write to a managed directory can cause many
/// reasons. The actionable reasons of each service come first. If reasons of a service are omitted,
/// one further reason counts them. This reason is actionable if an omitted reason is.
fn limit_reasons(reasons: Vec<Reason>) -> Vec<Reason> {
    let clip = |r: Reason| Reason { text: truncate_text(r.text), about: truncate_text(r.about), ..r };
    let mut reasons: Vec<Reason> = reasons.into_iter().map(clip).collect();
    let size = |r: &Reason| r.text.len() + r.about.len();
    let services = reasons.iter().map(|r| &r.service).collect::<BTreeSet<_>>().len().max(1);
    let bytes: usize = reasons.iter().map(size).sum();
    if reasons.len() <= REASONS_MAX && bytes <= REASONS_BYTES {
        return reasons;
    }
    // The sort is stable, so the order of the other reasons in a service does not change.
    reasons.sort_by(|a, b| (&a.service, !a.actionable).cmp(&(&b.service, !b.actionable)));
    let (each, room) = (REASONS_MAX / services, REASONS_BYTES / services);
    let (mut told, mut used): (Vec<Reason>, BTreeMap<ServiceName, (usize, usize)>) = (Vec::new(), BTreeMap::new());
    let mut more: BTreeMap<ServiceName, (usize, Reason)> = BTreeMap::new();
    for reason in reasons {
        let (count, bytes) = used.entry(reason.service.clone()).or_default();
        if *count == 0 || *count < each && *bytes + size(&reason) <= room {
            (*count, *bytes) = (*count + 1, *bytes + size(&reason));
            told.push(reason);
            continue;
        }
        // Actionable reasons come first. So if any omitted reason is actionable, the first omitted
        // reason is.
        let (left, rest) = more.entry(reason.service.clone()).or_insert_with(|| (0, reason.clone()));
        *left += 1;
        if reason.by == Witness::Digest {
            rest.by = Witness::Digest;
        }
    }
    let counted = |(left, rest): (usize, Reason)| {
        let text = format!("{}: and {left} more", rest.service);
        Reason::new(rest.by, rest.service, text, rest.actionable)
    };
    told.extend(more.into_values().map(counted));
    told
}

/// The verdict that follows from the reasons, and the rule that led to it. `unclear` names the
/// unreadable files and the inconclusive checks.
pub fn weigh(reasons: &[Reason], unclear: &[String]) -> (Verdict, &'static str) {
    let drifted = reasons.iter().any(Reason::drifts);
    let outdated = reasons.iter().any(|r| r.by == Witness::Desired);
    let grave = reasons.iter().any(|r| r.actionable);
    match (drifted, outdated, unclear.is_empty()) {
        (true, true, clear) if clear || grave => {
            (Verdict::Conflict, "the node differs from the recorded state, and the desired state changed")
        }
        (true, false, clear) if clear || grave => (Verdict::Drifted, "the node differs from the recorded state"),
        (_, _, false) => (
            Verdict::Unknown(join_limited(unclear, "; ")),
            "something was unreadable or inconclusive, and no actionable drift was found",
        ),
        (false, true, true) => (Verdict::Outdated, "the node is as recorded; the desired state changed"),
        (_, _, true) => (Verdict::Same, "the node is as recorded and as desired"),
    }
}

/// Numbers of checks that passed, failed and were inconclusive.
pub fn check_counts(exam: &Exam) -> (u32, u32, u32) {
    let count = |state| exam.checks.iter().filter(|c| c.state == state).count() as u32;
    (count(CheckState::Pass), count(CheckState::Fail), count(CheckState::Unknown))
}

fn extra(difference: &Difference) -> bool {
    matches!(difference.what, remoor_model::DigestChange::Extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::*;

    fn digest(text: &str) -> NodeDigest {
        let entry = FileEntry {
            path: "/etc/app.conf".to_owned(),
            kind: FileKind::File,
            mode: 0o644,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: Some(Sha256::digest(text.as_bytes())),
            target: None,
            secret: false,
        };
        let service = ServiceDigest {
            root: ServiceDigest::root_of(std::slice::from_ref(&entry)),
            entries: vec![entry],
            ..ServiceDigest::default()
        };
        let services = std::collections::BTreeMap::from([(ServiceName::from("app"), service)]);
        NodeDigest { root: NodeDigest::root_of(&services), services }
    }

    /// A fleet with one node that has a baseline; `opted` sets `resetup_on_recorded` of its service
    /// `app`.
    fn inventory(opted: bool) -> Inventory {
        inventory_of(ServiceSummary { resetup_on_recorded: opted, ..ServiceSummary::default() })
    }

    fn inventory_of(service: ServiceSummary) -> Inventory {
        let mut inventory = Inventory::default();
        let mut write = |index, command| {
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
        };
        let spec = NodeSpec { name: "w1".into(), ..NodeSpec::default() };
        write(1, Command::Accept { spec, role: ClusterRole::Worker });
        let mut summary = FleetSummary::default();
        let host = HostSummary { group: "web".into(), desired: Sha256::digest(b"one") };
        summary.hosts.insert("w1".into(), host);
        summary.groups.insert("web".into(), GroupSummary::default());
        summary.services.insert("app".into(), service);
        write(2, Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) });
        let baseline = Baseline {
            generation: GenerationSeq(1),
            desired: Sha256::digest(b"one"),
            root: digest("before").root,
            blob: Sha256::digest(b"blob"),
            adopted: true,
            at: Wall(3),
        };
        write(3, Command::Adopt { node: NodeId(1), baseline, basis: 0 });
        inventory
    }

    fn judge(opted: bool, rendered: bool, checks: Vec<CheckResult>) -> (Verdict, bool) {
        let inventory = inventory(opted);
        let exam = Exam { digest: digest("after"), checks, ..Exam::default() };
        let rendered = if rendered { BTreeSet::from(["/etc/app.conf".to_owned()]) } else { BTreeSet::new() };
        let evidence = Evidence { exam, expected: Some(digest("before")), rendered };
        let node = inventory.by_name("w1").unwrap();
        let (verdict, reasons) = compare(&inventory, node, &evidence);
        (verdict, reasons.iter().any(|r| r.actionable))
    }

    fn failing_check(on_fail: OnFail) -> CheckResult {
        CheckResult { on_fail, ..CheckResult::sample_failing("app", "port:tcp:80") }
    }

    #[test]
    fn a_difference_on_a_recorded_path_is_actionable_only_with_further_evidence() {
        assert_eq!(judge(false, true, Vec::new()), (Verdict::Drifted, true), "rendered");
        assert_eq!(judge(false, false, Vec::new()), (Verdict::Drifted, false), "recorded");
        assert_eq!(judge(true, false, Vec::new()), (Verdict::Drifted, true), "opted in");
        assert_eq!(
            judge(false, false, vec![failing_check(OnFail::Resetup)]),
            (Verdict::Drifted, true),
            "a critical check"
        );
        assert_eq!(judge(false, false, vec![failing_check(OnFail::Alert)]), (Verdict::Drifted, false), "a warning");
        let other = CheckResult { service: "db".into(), ..failing_check(OnFail::Alert) };
        assert_eq!(judge(false, false, vec![other]), (Verdict::Drifted, false), "of another service");
    }

    #[test]
    fn no_reason_of_a_monitored_service_is_actionable() {
        let watched = ServiceSummary { resetup_on_recorded: true, monitor_only: true, ..ServiceSummary::default() };
        let inventory = inventory_of(watched);
        let node = inventory.by_name("w1").unwrap();
        let mut found = digest("after");
        let app = found.services.get_mut("app").unwrap();
        app.entries.push(FileEntry { path: "/etc/app.d/extra".to_owned(), ..app.entries[0].clone() });
        let judge = |digest: NodeDigest| {
            let exam = Exam { digest, checks: vec![failing_check(OnFail::Resetup)], ..Exam::default() };
            let rendered = BTreeSet::from(["/etc/app.conf".to_owned()]);
            compare(&inventory, node, &Evidence { exam, expected: Some(self::digest("before")), rendered })
        };
        let (verdict, reasons) = judge(found);
        assert_eq!((verdict, reasons.len()), (Verdict::Drifted, 3), "{reasons:?}");
        assert!(reasons.iter().all(|r| !r.actionable), "{reasons:?}");
        // If no file differs from the record, a failed check of a monitored service only causes an
        // alert.
        let (verdict, reasons) = judge(digest("before"));
        assert_eq!((verdict, reasons.len()), (Verdict::Same, 1));
        assert!(!reasons[0].actionable && reasons[0].by == Witness::Check, "{reasons:?}");
    }

    #[test]
    fn inconclusive_checks_of_monitored_services_hide_nothing_and_are_never_same() {
        let watched = ServiceSummary { monitor_only: true, ..ServiceSummary::default() };
        let mut inventory = inventory_of(watched);
        let silent = |service: &str| CheckResult {
            service: service.into(),
            state: CheckState::Unknown,
            ..failing_check(OnFail::Alert)
        };
        let mut unread = digest("before");
        unread.services.get_mut("app").unwrap().unreadable.insert("/etc/app.d".to_owned(), "denied".to_owned());
        let judge = |inventory: &Inventory, digest: &NodeDigest, checks: &[CheckResult]| {
            let exam = Exam { digest: digest.clone(), checks: checks.to_vec(), ..Exam::default() };
            let evidence = Evidence { exam, expected: Some(self::digest("before")), rendered: BTreeSet::new() };
            compare(inventory, inventory.by_name("w1").unwrap(), &evidence)
        };
        let own = [silent("app"), silent("db")];
        for checks in [&own[..1], &own] {
            let (verdict, reasons) = judge(&inventory, &unread, checks);
            assert!(matches!(&verdict, Verdict::Unknown(why) if why.contains("denied")), "{verdict:?}");
            assert!(reasons.is_empty(), "{reasons:?}");
        }
        let desired = Sha256::digest(b"two");
        let generation = inventory.generations.get_mut(&GenerationSeq(1)).map(std::sync::Arc::make_mut).unwrap();
        generation.summary.hosts.get_mut("w1").unwrap().desired = desired;
        let (verdict, reasons) = judge(&inventory, &unread, &own[..1]);
        assert_eq!((&verdict, reasons.len()), (&Verdict::Outdated, 3), "{reasons:?}");
        assert!(reasons.iter().all(|r| !r.actionable) && reasons[1].text.starts_with("unknown: "), "{reasons:?}");
        assert_eq!(weigh(&reasons, &[]).0, verdict, "said of the stored reasons it is the same");
        // An inconclusive check of a provisioned service makes the verdict `unknown`.
        let (verdict, _) = judge(&inventory, &unread, &own);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    }

    /// A node with `count` additional files, whose names have `length` digits, in a managed
    /// directory of `app`.
    fn flooded_node(count: usize, length: usize, checks: Vec<CheckResult>) -> (Inventory, Evidence) {
        let mut found = digest("before");
        let app = found.services.get_mut("app").unwrap();
        let like = app.entries[0].clone();
        let name = |n: usize| format!("/etc/app.d/{n:0>length$}");
        app.entries.extend((0..count).map(|n| FileEntry { path: name(n), ..like.clone() }));
        let exam = Exam { digest: found, checks, ..Exam::default() };
        (inventory(false), Evidence { exam, expected: Some(digest("before")), rendered: BTreeSet::new() })
    }

    #[test]
    fn reasons_are_limited_before_they_enter_the_log_and_stay_actionable() {
        for (count, length) in [(100_000, 4), (2_000, 4_000)] {
            let other = |service: &str| CheckResult { service: service.into(), ..failing_check(OnFail::Resetup) };
            let (inventory, evidence) = flooded_node(count, length, vec![other("app"), other("zoo")]);
            let node = inventory.by_name("w1").unwrap();
            let (verdict, reasons) = compare(&inventory, node, &evidence);
            assert_eq!(verdict, Verdict::Drifted);
            assert!(reasons.len() <= REASONS_MAX + 2, "{}", reasons.len());
            let size = serde_json::to_vec(&reasons).unwrap().len();
            assert!(size <= REASONS_BYTES * 2, "{size} bytes of {count} files");
            let of = |service: &str| reasons.iter().filter(|r| r.service.as_str() == service).collect::<Vec<_>>();
            assert_eq!(of("zoo").len(), 1, "{:?}", of("zoo"));
            let told = of("app").len() - 1;
            let last = reasons.last().unwrap();
            assert_eq!(last.text, format!("app: and {} more", count + 1 - told));
            assert!(last.actionable && last.by == Witness::Digest);
            // The limited reasons lead to the verdict that `compare` returned.
            assert_eq!(weigh(&reasons, &[]).0, verdict);
        }
        let (inventory, evidence) = flooded_node(3, 4, Vec::new());
        assert_eq!(
            compare(&inventory, inventory.by_name("w1").unwrap(), &evidence).1.len(),
            3,
            "a small number is listed completely"
        );
    }

    #[test]
    fn an_actionable_reason_among_many_others_is_listed() {
        let reason = |n: u32| Reason::new(Witness::Digest, "app".into(), format!("{n}"), n == 7_777);
        let told = limit_reasons((0..10_000).map(reason).collect());
        assert!(told[0].actionable && told[0].text == "7777");
        assert_eq!(
            (told.len(), told.last().map(|r| (r.actionable, r.text.as_str()))),
            (101, Some((false, "app: and 9900 more")))
        );
    }

    #[test]
    fn unreadable_paths_are_limited_too() {
        let (inventory, mut evidence) = flooded_node(0, 0, Vec::new());
        let app = evidence.exam.digest.services.get_mut("app").unwrap();
        app.unreadable = (0..100_000).map(|n| (format!("/etc/app.d/{n}"), "input/output error".to_owned())).collect();
        let (verdict, _) = compare(&inventory, inventory.by_name("w1").unwrap(), &evidence);
        let Verdict::Unknown(why) = &verdict else { panic!("{verdict:?}") };
        assert!(why.len() <= TEXT_MAX && why.ends_with(" more"), "{} bytes", why.len());
        assert_eq!(weigh(&[], std::slice::from_ref(why)).0, verdict, "said again it is the same");
    }

    #[test]
    fn an_inconclusive_check_gives_unknown_unless_on_fail_is_none() {
        let inventory = inventory(false);
        let verdict = |on_fail| {
            let checks = vec![CheckResult { state: CheckState::Unknown, ..failing_check(on_fail) }];
            let exam = Exam { digest: digest("before"), checks, ..Exam::default() };
            let evidence = Evidence { exam, expected: Some(digest("before")), rendered: BTreeSet::new() };
            compare(&inventory, inventory.by_name("w1").unwrap(), &evidence).0
        };
        for asks in [OnFail::Resetup, OnFail::Alert] {
            assert!(matches!(verdict(asks), Verdict::Unknown(_)), "{asks:?}");
        }
        assert_eq!(verdict(OnFail::None), Verdict::Same);
    }
}

//! Applies a fleet, and returns the inventory in the form that Ansible reads.

use super::super::{ManagerContext, blobs};
use super::read::node_view;
use super::{Actor, propose};
use crate::fleet::FleetCache;
use axum::Extension;
use axum::Json;
use axum::extract::{Query, State};
use remoor_cluster::rpc::view::AppliedView;
use remoor_cluster::rpc::wire::{ApiFailure, Code, Raw};
use remoor_config::Fleet;
use remoor_model::{
    Applied, ClusterContext, Command, FileSet, FleetSummary, Inventory, Lifecycle, Node, Sha256, count_noun,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
pub struct ApplyQuery {
    /// Apply even if nodes in service are in no group afterwards.
    #[serde(default)]
    orphans: bool,
}

/// Nodes in service that have a group now and have none in `next`. `apply` refuses to leave nodes
/// without a group, because a script that returns an empty inventory must not remove the whole
/// fleet from remoor's control.
fn orphans<'a>(inventory: &'a Inventory, next: &'a FleetSummary) -> impl Iterator<Item = &'a str> {
    let kept = |n: &Node| next.hosts.get(n.name()).is_some_and(|host| next.groups.contains_key(&host.group));
    let nodes = inventory.nodes.values().filter(|n| n.in_service() && inventory.group(n).is_some());
    nodes.filter(move |n| !kept(n)).map(|n| n.name().as_str())
}

fn orphan_failure(names: &[&str]) -> ApiFailure {
    let (some, more) = (&names[..names.len().min(5)], names.len().saturating_sub(5));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("{}{more}: in service, but in no group of this fleet; nothing was applied", some.join(", "));
    ApiFailure::new(Code::Refused, text)
        .next("remoor decommission them first, or apply --orphans to leave them as they are")
}

/// Applies a fleet. The body of the request is a `FileSet` as MessagePack, in which the caller has
/// resolved the inventory. Contacts only managers.
pub async fn apply(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Query(query): Query<ApplyQuery>,
    Raw(body): Raw,
) -> Result<Json<AppliedView>, ApiFailure> {
    let known = shared.render_context();
    let inventory = shared.inventory();
    let fleets = shared.clone();
    let checked = tokio::task::spawn_blocking(move || check(&fleets.fleets, &body, &known)).await;
    let (loaded, summary, bytes) = checked.map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))??;
    let orphans: Vec<&str> = orphans(&inventory, &summary).collect();
    if !orphans.is_empty() && !query.orphans {
        return Err(orphan_failure(&orphans));
    }
    let blob = blobs::store(&shared, bytes).await.map_err(|e| e.failure())?;
    let before = shared.inventory().current;
    let applied =
        propose(&shared, &by, Command::Generation { blob, summary: Box::new(FleetSummary::clone(&summary)) }).await?;
    let Applied::Generation(seq) = applied else {
        return Err(ApiFailure::new(Code::Internal, "unexpected result of the entry"));
    };
    let inventory = shared.inventory();
    let outdated = inventory.nodes.values().filter(|n| node_view(&shared, &inventory, n).config.outdated);
    Ok(Json(AppliedView {
        version: 1,
        generation: seq.0,
        unchanged: seq == before,
        outdated: outdated.map(|n| n.name().to_string()).collect(),
        warnings: loaded.validate().into_iter().filter(|f| f.warning).collect(),
    }))
}

type Checked = (Arc<Fleet>, Arc<FleetSummary>, Vec<u8>);

fn check(fleets: &FleetCache, body: &[u8], known: &ClusterContext) -> Result<Checked, ApiFailure> {
    let files: FileSet = rmp_serde::from_slice(body).map_err(|e| {
        ApiFailure::new(Code::BadRequest, format!("the body is not a set of files: {e}")).next("remoor apply DIR")
    })?;
    let invalid = |faults: Vec<remoor_model::Fault>| {
        let grave = faults.iter().filter(|f| !f.warning).count();
        let text = format!("the fleet has {}; nothing was applied", count_noun(grave, "fault"));
        ApiFailure::new(Code::Invalid, text).next("remoor lint DIR").details(json!({"faults": faults}))
    };
    let bytes = rmp_serde::to_vec_named(&files).map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))?;
    let (loaded, summary) = fleets.summarize(Sha256::digest(&bytes), &files, known).map_err(invalid)?;
    Ok((loaded, summary, bytes))
}

/// Ansible group of decommissioned nodes. Such nodes are in no other group, so that no play sets
/// them up again.
const DECOMMISSIONED: &str = "remoor_decommissioned";

/// The `--list` output of a dynamic inventory, with `remoor_*` hostvars. A node without an
/// `ansible_host` in the inventory gets its recorded address. A decommissioned node is only in the
/// group `remoor_decommissioned`.
pub async fn inventory(State(shared): State<Arc<ManagerContext>>) -> Result<Json<Value>, ApiFailure> {
    let inventory = shared.inventory();
    let generation = inventory.generations.get(&inventory.current).cloned();
    let generation = generation
        .ok_or_else(|| ApiFailure::new(Code::NotFound, "no fleet was applied yet").next("remoor apply DIR"))?;
    blobs::ensure(&shared, &generation.blob).await;
    let context = shared.clone();
    let loaded = tokio::task::spawn_blocking(move || context.fleets.fleet(&generation)).await;
    let loaded = loaded.map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))?;
    let loaded = loaded.map_err(|e| ApiFailure::new(Code::Unavailable, e.to_string()))?;
    let mut extra: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for node in inventory.nodes.values() {
        let view = node_view(&shared, &inventory, node);
        let mut vars = Map::new();
        if let Some(ip) = node.ip().filter(|_| loaded.ansible_host(node.name().as_str()).is_none()) {
            vars.insert("ansible_host".to_owned(), json!(ip.to_string()));
        }
        vars.insert("remoor_presence".to_owned(), json!(view.presence));
        vars.insert("remoor_lifecycle".to_owned(), json!(view.operation.lifecycle));
        vars.insert("remoor_verdict".to_owned(), json!(view.config.finding.map(|f| f.verdict.as_str())));
        vars.insert("remoor_outdated".to_owned(), json!(view.config.outdated));
        vars.insert("remoor_node_id".to_owned(), json!(view.id));
        vars.insert("remoor_role".to_owned(), json!(view.role));
        extra.insert(view.name, vars);
    }
    let out = inventory.nodes.values().filter(|n| n.lifecycle == Lifecycle::Decommissioned);
    let out: BTreeSet<&str> = out.map(|n| n.name().as_str()).collect();
    Ok(Json(out_of_service(loaded.inventory.to_list_json(&extra), &out)))
}

/// Moves the hosts in `out` from all groups to the group of decommissioned nodes.
fn out_of_service(mut list: Value, out: &BTreeSet<&str>) -> Value {
    let Some(groups) = list.as_object_mut() else { return list };
    let mut known = Vec::new();
    for (_, group) in groups.iter_mut().filter(|(name, _)| *name != "_meta") {
        let Some(hosts) = group.get_mut("hosts").and_then(Value::as_array_mut) else { continue };
        known.extend(hosts.extract_if(.., |host| host.as_str().is_some_and(|host| out.contains(host))));
    }
    if !known.is_empty() {
        known.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        known.dedup();
        groups.insert(DECOMMISSIONED.to_owned(), json!({"hosts": known}));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::*;

    #[test]
    fn a_node_in_service_is_not_dropped_by_an_inventory_without_it() {
        let summary = |hosts: &[&str]| {
            let mut summary = FleetSummary::default();
            summary.groups.insert("web".into(), GroupSummary::default());
            for host in hosts {
                let host_summary = HostSummary { group: "web".into(), desired: Sha256::digest(b"one") };
                summary.hosts.insert((*host).into(), host_summary);
            }
            summary
        };
        let inventory = sample::fleet(1, 1);
        let gone = |hosts: &[&str]| orphans(&inventory, &summary(hosts)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(gone(&[]), ["w1"], "w2 only joined");
        assert_eq!(gone(&["w1"]), Vec::<String>::new());
    }

    #[test]
    fn decommissioned_nodes_are_only_in_their_own_group() {
        let list = json!({
            "_meta": {"hostvars": {"w1": {}, "w2": {"colour": "blue"}}},
            "web": {"hosts": ["w1", "w2"], "children": ["blue"]},
            "blue": {"hosts": ["w2"]},
        });
        assert_eq!(out_of_service(list.clone(), &BTreeSet::new()), list);
        assert_eq!(out_of_service(list.clone(), &BTreeSet::from(["w9"])), list, "it is not in the inventory");
        let out = out_of_service(list, &BTreeSet::from(["w2"]));
        assert_eq!(out["web"], json!({"hosts": ["w1"], "children": ["blue"]}));
        assert_eq!(out["blue"], json!({"hosts": []}));
        assert_eq!(out[DECOMMISSIONED], json!({"hosts": ["w2"]}));
        assert_eq!(out["_meta"]["hostvars"]["w2"]["colour"], "blue");
    }
}

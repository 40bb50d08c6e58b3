//! Resolves names, a group or `--all` to nodes. All names are resolved before any order is sent, so
//! that a wrong name changes nothing.

use crate::cli::api::{self, Api};
use crate::cli::args::NodeSelection;
use crate::cli::error;
use remoor_cluster::rpc::view::{NodeView, StatusView};

/// The chosen nodes, each once, in the given order. An error says that nothing was ordered.
pub async fn choose(api: &Api, which: &NodeSelection) -> anyhow::Result<Vec<NodeView>> {
    pick(&api.get("/v1/status").await.map_err(api::not_begun)?, which)
}

pub fn pick(status: &StatusView, which: &NodeSelection) -> anyhow::Result<Vec<NodeView>> {
    if which.all {
        // A machine that has joined but is in no group is not part of the fleet. It would cause a
        // refusal of the whole order.
        let known: Vec<NodeView> = status.nodes.iter().filter(|n| n.group.is_some()).cloned().collect();
        return Ok(if known.is_empty() { status.nodes.clone() } else { known });
    }
    if let Some(group) = &which.group {
        let members: Vec<NodeView> =
            status.nodes.iter().filter(|n| n.group.as_deref() == Some(group.as_str())).cloned().collect();
        if members.is_empty() {
            let mut known: Vec<String> = status.nodes.iter().filter_map(|n| n.group.clone()).collect();
            known.sort();
            known.dedup();
            return Err(error::empty_group(group, &known).into());
        }
        return Ok(members);
    }
    let mut chosen: Vec<NodeView> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    for name in &which.nodes {
        match status.nodes.iter().find(|n| n.name == *name) {
            Some(node) if chosen.iter().any(|c| c.id == node.id) => {}
            Some(node) => chosen.push(node.clone()),
            None => unknown.push(name.clone()),
        }
    }
    if unknown.is_empty() { Ok(chosen) } else { Err(error::no_such_nodes(&unknown, &status.left).into()) }
}

/// The name of the selection for a confirmation: the node, the group, or the fleet.
pub fn selection_name(which: &NodeSelection, nodes: &[NodeView]) -> String {
    match (&which.group, nodes) {
        (Some(group), _) => group.clone(),
        (None, [one]) => one.name.clone(),
        (None, _) if which.all => "all".to_owned(),
        (None, many) => many.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::views;

    #[test]
    fn all_means_the_nodes_of_the_applied_fleet() {
        let all = NodeSelection { nodes: Vec::new(), group: None, all: true };
        let of = |groups: [Option<&str>; 2]| {
            let node = |(id, group): (u64, Option<&str>)| NodeView {
                group: group.map(str::to_owned),
                ..views::node(id, &format!("w{id}"))
            };
            let status = StatusView { nodes: (1..).zip(groups).map(node).collect(), ..views::status() };
            pick(&status, &all).unwrap().into_iter().map(|n| n.name).collect::<Vec<_>>()
        };
        assert_eq!(of([Some("web"), None]), ["w1"], "w2 only joined");
        assert_eq!(of([None, None]), ["w1", "w2"], "before the first apply the managers say what is missing");
    }
}

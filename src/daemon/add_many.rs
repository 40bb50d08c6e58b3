//! `node add` for several hosts at a time: all hosts of a group, or of the whole applied inventory,
//! that are not nodes yet.

use super::add::{AddError, AddOptions, Added, add, members};
use futures_util::StreamExt;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::view::StatusView;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of machines that are added at the same time, because each receives the program of
/// about 10 MB.
const AT_ONCE: usize = 8;

/// A host of the inventory, with the SSH login settings that its variables contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToAdd {
    pub name: String,
    pub host: String,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub identity: Option<PathBuf>,
}

/// Asks the manager on this machine for the hosts of the applied inventory that are not nodes,
/// sorted by name. `group` limits the result to one group. The second value is the number of hosts
/// in the group or inventory, including nodes.
pub async fn to_add(socket: &Path, group: Option<&str>) -> Result<(Vec<ToAdd>, usize), ApiError> {
    let client = Client::unix(socket);
    let status: StatusView = client.get("/v1/status").await?;
    let list: Value = client.get("/v1/inventory").await?;
    // A node that left the cluster must not return because of a command for all hosts.
    let left = status.left.iter().map(|l| l.name.as_str());
    let nodes: BTreeSet<&str> = status.nodes.iter().map(|n| n.name.as_str()).chain(left).collect();
    Ok(hosts_to_add(&list, group, &nodes))
}

fn hosts_to_add(list: &Value, group: Option<&str>, nodes: &BTreeSet<&str>) -> (Vec<ToAdd>, usize) {
    let vars = &list["_meta"]["hostvars"];
    let names: BTreeSet<&str> = match group {
        Some(group) => members(list, group, 0).into_iter().collect(),
        None => vars.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect(),
    };
    let text = |name: &str, key: &str| vars[name][key].as_str().map(str::to_owned);
    let port = |name: &str| match &vars[name]["ansible_port"] {
        Value::Number(number) => number.as_u64().and_then(|n| u16::try_from(n).ok()),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let missing = names.iter().filter(|name| !nodes.contains(**name)).map(|name| ToAdd {
        name: (*name).to_owned(),
        host: text(name, "ansible_host").unwrap_or_else(|| (*name).to_owned()),
        port: port(name),
        user: text(name, "ansible_user"),
        identity: text(name, "ansible_ssh_private_key_file").map(PathBuf::from),
    });
    (missing.collect(), names.len())
}

/// Runs [`add`] for each host; a failure of one does not affect the others. `tell` receives the
/// name of the node and a line. The results are in the order of `all`.
pub async fn add_many(all: &[AddOptions], tell: &mut dyn FnMut(&str, &str)) -> Vec<Result<Added, AddError>> {
    let tell = RefCell::new(tell);
    let one = async |options: &AddOptions| add(options, &mut |line| (tell.borrow_mut())(&options.name, line)).await;
    futures_util::stream::iter(all).map(one).buffered(AT_ONCE).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_of_the_inventory_that_are_no_nodes_are_to_be_added() {
        let list = json!({
            "_meta": {"hostvars": {
                "w1": {"ansible_host": "10.0.0.4", "ansible_port": 2222, "ansible_user": "deploy"},
                "w2": {"ansible_port": "22", "ansible_ssh_private_key_file": "/root/k"},
                "d1": {},
            }},
            "web": {"hosts": ["w1"], "children": ["more"]}, "more": {"hosts": ["w2"]}, "db": {"hosts": ["d1"]},
        });
        let names = |group: Option<&str>, nodes: &[&str]| {
            let (missing, of) = hosts_to_add(&list, group, &nodes.iter().copied().collect());
            (missing.into_iter().map(|m| m.name).collect::<Vec<_>>(), of)
        };
        assert_eq!(names(None, &["w1", "m1"]), (vec!["d1".to_owned(), "w2".to_owned()], 3));
        assert_eq!(names(Some("web"), &[]), (vec!["w1".to_owned(), "w2".to_owned()], 2));
        assert_eq!((names(Some("db"), &["d1"]), names(Some("none"), &[])), ((vec![], 1), (vec![], 0)));
        let (missing, _) = hosts_to_add(&list, Some("web"), &BTreeSet::new());
        let [w1, w2] = missing.as_slice() else { panic!("{missing:?}") };
        assert_eq!((w1.host.as_str(), w1.port, w1.user.as_deref()), ("10.0.0.4", Some(2222), Some("deploy")));
        assert_eq!((w2.host.as_str(), w2.port, w2.identity.as_deref()), ("w2", Some(22), Some(Path::new("/root/k"))));
    }
}

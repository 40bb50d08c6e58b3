//! Variables: checks the variables of an order, and lists the variables of a node with the source
//! of each.

use super::super::{ManagerContext, blobs, examine};
use super::{as_of, find_node};
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::{VarView, VarsView};
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::JobVars;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of variables in an order. They are limited, because an order for a thousand nodes
/// is one log entry.
const VARS_MAX: usize = 32;
const BYTES_MAX: usize = 4 << 10;
const NAME_MAX: usize = 64;
/// Prefixes of variables that an order may not set, because such variables decide how a node is
/// reached and how a run is named.
const OTHERS: [&str; 2] = ["ansible_", "remoor_"];
/// Variables that remoor itself gives to playbooks, so an order may not set them.
const GIVEN: [&str; 13] = [
    "inventory_hostname",
    "inventory_hostname_short",
    "group_names",
    "groups",
    "hostvars",
    "node",
    "node_addr",
    "peers",
    "play_hosts",
    "playbook_dir",
    "vars",
    "item",
    "omit",
];

/// The text that is shown for a value that contains an encrypted value.
const ENCRYPTED: &str = "(encrypted by ansible-vault)";

/// Checks the variables of an order. The error contains the name of the wrong variable.
pub(super) fn check(vars: &JobVars) -> Result<(), ApiFailure> {
    let bad = |text: String| ApiFailure::new(Code::BadRequest, text);
    if vars.len() > VARS_MAX {
        return Err(bad(format!("{} variables; the maximum is {VARS_MAX}", vars.len())));
    }
    for name in vars.keys() {
        let word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && name.len() <= NAME_MAX;
        if !word || name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(bad(format!("{name:?} is not a variable name: letters, digits and _, at most {NAME_MAX}")));
        }
        if GIVEN.contains(&name.as_str()) || OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(bad(format!("an order can't set the variable {name}; put it into the inventory")));
        }
    }
    let bytes = serde_json::to_vec(vars).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > BYTES_MAX {
        let text =
            format!("the variables have {bytes} bytes; the maximum is {BYTES_MAX}: put more into a file of the fleet");
        return Err(bad(text));
    }
    Ok(())
}

/// Returns the node's variables in the current generation. Variables of the open job, or of the
/// last provisioning if no job is open, override them.
pub(super) async fn vars(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
) -> Result<axum::Json<VarsView>, ApiFailure> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let mut view = VarsView { version: 1, as_of: as_of(&shared), node: name.clone(), vars: Vec::new() };
    if let Some(generation) = inventory.generations.get(&inventory.current).cloned() {
        blobs::ensure(&shared, &generation.blob).await;
        let context = shared.clone();
        let loaded = tokio::task::spawn_blocking(move || context.fleets.fleet(&generation)).await;
        let loaded = loaded.map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))?;
        let fleet = loaded.map_err(|e| ApiFailure::new(Code::Unavailable, e.to_string()))?;
        // A node that is not in the inventory has no variables.
        if let Ok((vars, origins)) = fleet.vars(&name) {
            let origin = |var: &str| origins.get(var).cloned().unwrap_or_default();
            let shown = |value: Value| match remoor_vault::sealed_part(&value) {
                Some(_) => Value::from(ENCRYPTED),
                None => value,
            };
            let shown = vars.into_iter().map(|(name, value)| (name, shown(value)));
            view.vars = shown.map(|(name, value)| VarView { origin: origin(&name), name, value }).collect();
        }
    }
    let open = node.job.and_then(|id| inventory.job(id)).filter(|job| job.closed.is_none());
    let (own, origin) = match (open, &node.setup.baseline) {
        (Some(job), _) => (job.spec.vars.clone(), format!("job {}", job.id)),
        (None, Some(_)) => {
            let record = examine::load_record(&shared, &node).await.ok().flatten();
            (record.and_then(|r| r.known).map(|k| k.vars).unwrap_or_default(), "the job that set it up last".to_owned())
        }
        (None, None) => (JobVars::new(), String::new()),
    };
    lay(&mut view.vars, own, &origin);
    Ok(axum::Json(view))
}

/// Replaces variables in `vars` by those of `own` with the same name. The result is sorted by name.
fn lay(vars: &mut Vec<VarView>, own: JobVars, origin: &str) {
    vars.retain(|var| !own.contains_key(&var.name));
    vars.extend(own.into_iter().map(|(name, value)| VarView { name, value, origin: origin.to_owned() }));
    vars.sort_by(|a, b| a.name.cmp(&b.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one_var(name: &str) -> JobVars {
        JobVars::from([(name.to_owned(), json!(1))])
    }

    #[test]
    fn order_variables_have_restricted_names_and_sizes() {
        for good in ["colour", "_x", "etcd_version2"] {
            assert!(check(&one_var(good)).is_ok(), "{good}");
        }
        let bad =
            ["", "2x", "a-b", "a b", "é", "ansible_host", "ansible_ssh_common_args", "remoor_job", "peers", "item"];
        for bad in bad {
            assert_eq!(check(&one_var(bad)).unwrap_err().code, Code::BadRequest, "{bad:?}");
        }
        assert!(check(&one_var(&"x".repeat(NAME_MAX + 1))).is_err());
        let many: JobVars = (0..=VARS_MAX).map(|n| (format!("v{n}"), json!(n))).collect();
        assert!(check(&many).is_err());
        assert!(check(&JobVars::from([("long".to_owned(), json!("x".repeat(BYTES_MAX)))])).is_err());
    }

    #[test]
    fn job_variables_override_those_of_the_fleet() {
        let of = |name: &str, value: i32, origin: &str| VarView {
            name: name.to_owned(),
            value: json!(value),
            origin: origin.to_owned(),
        };
        let mut vars = vec![of("a", 1, "remoor.yml: vars"), of("c", 3, "inventory.yml:4")];
        lay(&mut vars, JobVars::from([("c".to_owned(), json!(4)), ("b".to_owned(), json!(2))]), "job 7");
        assert_eq!(vars, [of("a", 1, "remoor.yml: vars"), of("b", 2, "job 7"), of("c", 4, "job 7")]);
    }
}

//! The check files that apply to a node, and the reasons why the others do not: the output of
//! `remoor check --list`.

use super::manifest::{ApplicableCheckFile, NotApplicable, check_files, one_file};
use super::{ClusterContext, Expected, NodeVariables, context, expected_files};
use remoor_check::{self as check, Check, Header};
use remoor_config::Fleet;
use remoor_model::{CheckFile, Fault, ListedCheck, ServiceName};
use serde_json::{Map, Value};

/// All check files by name, rendered for `host`. `known` is the cluster's knowledge of the host.
/// `facts` are the facts of the host's last provisioning.
pub fn list_check_files(
    fleet: &Fleet,
    host: &str,
    known: &ClusterContext,
    facts: &Map<String, Value>,
) -> Result<Vec<CheckFile>, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|fault| vec![fault])?;
    let context = context(fleet, host, known).map_err(|fault| vec![fault])?;
    // An examination does the same: a playbook that can't be compiled has no expected files, but
    // its checks still run.
    let expected = expected_files(fleet, host, &context, facts, &known.vars).unwrap_or_default();
    let services = fleet.config.groups.get(&group).map(|g| g.summary.services.clone()).unwrap_or_default();
    let mut faults = Vec::new();
    let mut out = Vec::new();
    for file in check_files(fleet) {
        match list_check_file(fleet, file, &services, group.as_str(), &context, &expected) {
            Ok(listed) => out.push(listed),
            Err(more) => faults.extend(more),
        }
    }
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

fn list_check_file(
    fleet: &Fleet,
    file: &str,
    services: &[ServiceName],
    group: &str,
    context: &NodeVariables,
    expected: &Expected,
) -> Result<CheckFile, Vec<Fault>> {
    let text = fleet.files.text(file).ok_or_else(|| vec![Fault::error(file, 0, 0, "the file is not UTF-8 text")])?;
    let (header, _) = check::header(file, text)?;
    let service = header.service.clone();
    let passed = |why: String| CheckFile {
        file: file.to_owned(),
        service: service.clone(),
        applies: false,
        why,
        text: String::new(),
        checks: Vec::new(),
    };
    if !services.contains(&service) {
        let names: Vec<&str> = services.iter().map(ServiceName::as_str).collect();
        return Ok(passed(format!("the services of {group} are {}", names.join(", "))));
    }
    Ok(match one_file(file, text, &service, group, context, expected)? {
        Ok(ApplicableCheckFile { text, checks, .. }) => {
            let checks = checks.iter().map(of_check).collect();
            CheckFile { applies: true, text, checks, ..passed(reason_to_apply(&header, group)) }
        }
        Err(NotApplicable::OtherService) => passed("it belongs to another service".to_owned()),
        Err(NotApplicable::OtherRole { role }) => {
            passed(format!("its roles are {}; the node's are {group} and {role}", header.roles.join(", ")))
        }
        Err(NotApplicable::WhenFalse) => passed(format!("`{}` is false", header.when.unwrap_or_default())),
    })
}

fn of_check(check: &Check) -> ListedCheck {
    ListedCheck {
        line: check.line,
        check: check.label(),
        title: check.title.clone(),
        severity: check.meta.severity,
        on_fail: check.meta.on_fail,
    }
}

/// The reason why a check file applies.
fn reason_to_apply(header: &Header, group: &str) -> String {
    let role = match &header.roles[..] {
        [] => "for all roles".to_owned(),
        roles if roles.iter().any(|role| role == group) => format!("role {group}"),
        // The file's roles do not contain the node's group, so the file applies because of the
        // node's cluster role.
        roles => format!("role {}", roles.iter().find(|r| *r == "manager" || *r == "worker").map_or("", |r| r)),
    };
    match &header.when {
        Some(when) => format!("{role}, `{when}`"),
        None => role,
    }
}

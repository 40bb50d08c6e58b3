//! The manifest of one node: the declared files of its services, and its rendered checks.

use super::NodeVariables;
use remoor_check::{self as check, Check, DigestOptions, Header, Template};
use remoor_config::Fleet;
use remoor_model::{CheckText, Fault, GenerationSeq, NodeManifest, Normalizer, OnFail, ServiceManifest, ServiceName};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Files whose content the manager can render itself, by absolute path. Check files read them as
/// `expected[path]`.
pub type Expected = BTreeMap<String, remoor_playbook::RenderedFile>;

/// Returns the manifest of `host`, or every fault of its check files.
pub fn manifest(
    fleet: &Fleet,
    host: &str,
    generation: GenerationSeq,
    context: &NodeVariables,
    expected: &Expected,
) -> Result<NodeManifest, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let names = fleet.config.groups.get(&group).map(|g| g.summary.services.clone()).unwrap_or_default();
    let mut faults = Vec::new();
    let mut services = Vec::new();
    for name in &names {
        let Some(service) = fleet.config.services.get(name) else { continue };
        let (checks, digest) = match checks_of(fleet, name, group.as_str(), context, expected) {
            Ok(found) => found,
            Err(more) => {
                faults.extend(more);
                continue;
            }
        };
        // Each `normalize` pattern was validated alone before. All patterns of a service together
        // may still be invalid.
        let normalize = merge_unique(&service.normalize, digest.normalize);
        if let Err(error) = Normalizer::new(&normalize) {
            faults.push(Fault::error("remoor.yml", 0, 0, format!("`normalize` of the service `{name}`: {error}")));
        }
        let mut paths = |declared: &[String]| {
            super::paths(host, declared, &context.vars).unwrap_or_else(|fault| {
                faults.push(fault);
                Vec::new()
            })
        };
        services.push(ServiceManifest {
            name: name.clone(),
            files: paths(&merge_unique(&service.files, digest.include)),
            exclude: paths(&merge_unique(&service.exclude, digest.exclude)),
            secret: {
                let mut secret = paths(&merge_unique(&service.secret, digest.secret));
                // The hash of a file with an encrypted value would allow to test guesses of the
                // value.
                let files = expected.iter().filter(|(_, file)| file.secret).map(|(path, _)| globset::escape(path));
                secret.extend(files);
                secret
            },
            normalize,
            units: service.units.clone(),
            state: paths(&service.state),
            keep: paths(&service.keep),
            checks,
        });
    }
    if faults.is_empty() { Ok(NodeManifest { node: host.into(), group, generation, services }) } else { Err(faults) }
}

fn checks_of(
    fleet: &Fleet,
    service: &ServiceName,
    group: &str,
    context: &NodeVariables,
    expected: &Expected,
) -> Result<(Vec<CheckText>, DigestOptions), Vec<Fault>> {
    let mut out = Vec::new();
    let mut digest = DigestOptions::default();
    let mut faults = Vec::new();
    for file in check_files(fleet) {
        let Some(text) = fleet.files.text(file) else {
            faults.push(Fault::error(file, 0, 0, "the file is not UTF-8 text"));
            continue;
        };
        match one_file(file, text, service, group, context, expected) {
            Ok(Ok(found)) => {
                if fleet.config.services.get(service).is_some_and(|s| s.summary.monitor_only) {
                    faults.extend(found.checks.iter().filter_map(|check| resetup_of_monitor_only(file, check)));
                }
                // If a check must not reveal a file's content, neither the digest nor a diff may
                // reveal it.
                let secret = found.checks.iter().filter_map(Check::secret_file);
                digest.secret.extend(secret.map(globset::escape));
                out.push(CheckText { file: file.to_owned(), text: found.text });
                digest.include.extend(found.digest.include);
                digest.exclude.extend(found.digest.exclude);
                digest.secret.extend(found.digest.secret);
                digest.normalize.extend(found.digest.normalize);
            }
            Ok(Err(_)) => {}
            Err(more) => faults.extend(more),
        }
    }
    if faults.is_empty() { Ok((out, digest)) } else { Err(faults) }
}

/// The error for a check that requests a re-setup of a monitor-only service.
fn resetup_of_monitor_only(file: &str, check: &Check) -> Option<Fault> {
    let message = || format!("`{}` asks for a re-setup of {}, which is not provisioned", check.label(), check.service);
    let fault = (check.meta.on_fail == OnFail::Resetup).then(|| Fault::error(file, check.line, 1, message()))?;
    Some(fault.hint("write `meta: {remoor: {on-fail: alert}}`, or leave `provisioned: false` out of remoor.yml"))
}

/// Joins a list of `remoor.yml` with the texts that check files add to the list. Each text occurs
/// once in the result.
fn merge_unique(own: &[String], more: Vec<String>) -> Vec<String> {
    let mut out = own.to_vec();
    for path in more {
        if !out.contains(&path) {
            out.push(path);
        }
    }
    out
}

/// The check files of all services, by name.
pub(super) fn check_files(fleet: &Fleet) -> impl Iterator<Item = &str> {
    fleet.files.paths_below("checks").filter(|f| f.ends_with(".yml") || f.ends_with(".yaml"))
}

/// A check file that applies to one node.
pub(super) struct ApplicableCheckFile {
    pub text: String,
    pub checks: Vec<Check>,
    pub digest: DigestOptions,
}

/// The reason why a check file does not apply.
pub(super) enum NotApplicable {
    OtherService,
    /// The check file is for another role. `role` is the cluster role of the node.
    OtherRole {
        role: String,
    },
    WhenFalse,
}

pub(super) fn one_file(
    file: &str,
    text: &str,
    service: &ServiceName,
    group: &str,
    context: &NodeVariables,
    expected: &Expected,
) -> Result<Result<ApplicableCheckFile, NotApplicable>, Vec<Fault>> {
    let (header, goss) = check::header(file, text)?;
    if header.service != *service {
        return Ok(Err(NotApplicable::OtherService));
    }
    let role = context.get("node").and_then(|n| n.get("role")).and_then(Value::as_str).unwrap_or("worker");
    let view = check_context(&header, text, context, expected);
    match check::applies(file, &header, group, role, &view)? {
        check::Applies::Yes => {}
        check::Applies::OtherRole => return Ok(Err(NotApplicable::OtherRole { role: role.to_owned() })),
        check::Applies::WhenFalse => return Ok(Err(NotApplicable::WhenFalse)),
    }
    let text = check::render(file, &header, &goss, &view)?;
    let checks = check::parse(file, service, &text)?;
    Ok(Ok(ApplicableCheckFile { text, checks, digest: header.digest }))
}

/// The variables of check templates: `node`, `peers`, `vars` (of the file, overridden by the
/// inventory) and `expected`. `text` is the whole file. A large variable is omitted if the file
/// can't read it.
fn check_context(header: &Header, text: &str, context: &NodeVariables, expected: &Expected) -> Map<String, Value> {
    let mut vars = header.vars.clone();
    let whole = header.template == Template::Go || reads_all_vars(text);
    // Check texts are stored and shown, so they can't contain encrypted values.
    let sealed = |value: &Value| remoor_vault::sealed_part(value).is_some();
    for (name, value) in context.vars.iter().filter(|(name, value)| *name != "hostvars" && !sealed(value)) {
        match context.shared.get(name) {
            Some(large) if whole || text.contains(name.as_str()) => vars.insert(name.clone(), large.json().clone()),
            Some(_) => vars.shift_remove(name),
            None => vars.insert(name.clone(), value.clone()),
        };
    }
    let files: Map<String, Value> = expected
        .iter()
        .filter(|(_, r)| !r.secret)
        .map(|(path, r)| (path.clone(), json!({"sha256": r.sha256.to_string(), "mode": r.mode, "owner": r.owner})))
        .collect();
    let mut out = Map::new();
    out.insert("node".to_owned(), context.vars.get("node").cloned().unwrap_or(Value::Null));
    let peers = context.get("peers").filter(|_| whole || text.contains("peers"));
    out.insert("peers".to_owned(), peers.cloned().unwrap_or(Value::Null));
    out.insert("vars".to_owned(), Value::Object(vars));
    out.insert("expected".to_owned(), Value::Object(files));
    out
}

/// Whether a Tera template may read variables without their names. In doubt the answer is yes:
/// every use of `vars` counts, except `vars.NAME` and the key `vars:` of the header.
fn reads_all_vars(text: &str) -> bool {
    let other_use = |(at, word): (usize, &str)| !text[at + word.len()..].starts_with(['.', ':']);
    text.contains("__tera_context") || text.match_indices("vars").any(other_use)
}

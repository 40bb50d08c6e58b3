//! Plays after a change of the inventory (`add_host`, `group_by`): they are compiled again with the
//! changed inventory, and each host continues with its new plan when its next play begins.
//!
//! ```text
//! run on host ──request──> InventoryChanges::add      during a play
//! Loop: the play has ended ──> compile ──> new hosts, and NextPlan for each running host
//! run on host ──checkpoint──> continue_from ──new session──> next play
//! ```

use super::PlayRequest;
use super::connection::ConnectionFinder;
use super::files::Files;
use super::host_selection::UNKNOWN_NAME;
use super::prepare::{CompileInput, Host, NOBODY, PreparedPlay, add_this_machine, compile_plays};
use remoor_config::{InventoryChange, Sources};
use remoor_model::Fault;
use remoor_playbook::{DelegationError, LOCAL, PlanSecrets, PlannedChange, PlayKeys, PromptAnswers, ValueOrigin};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The host for which the plays of hosts are compiled that do not exist before the run.
const ADDED_HOST: &str = "added-host";
/// Maximum number of changes that one host may make. The host may be compromised.
const CHANGES_MAX: usize = 1_000;
/// Maximum size in bytes of the variables in the changes of one host.
const VARS_MAX: usize = 2 << 20;

/// The changes of the inventory during a run, and everything from which later plays are compiled.
pub(super) struct InventoryChanges {
    request: PlayRequest,
    files: Files,
    prompted: PromptAnswers,
    state: Mutex<State>,
    /// Whether the run has begun to use another machine than this one.
    used_remote: AtomicBool,
}

struct State {
    sources: Sources,
    /// The secrets in the variables of changes.
    secrets: PlanSecrets,
    /// Whether the inventory has changed since the plays were compiled.
    changed: bool,
    /// The hosts whose names values of a host have chosen, with the host that has requested them.
    named_by_hosts: BTreeMap<String, String>,
    /// By host: the number of its changes, and the size of their variables.
    used: BTreeMap<String, (usize, usize)>,
}

/// The plan with which a host continues.
#[derive(Debug)]
pub(super) struct NextPlan {
    pub host: Host,
    pub connections: Arc<ConnectionFinder>,
    /// The play at which the host continues.
    pub from_play: u32,
}

impl InventoryChanges {
    pub fn new(request: PlayRequest, files: Files, sources: Sources, prompted: PromptAnswers) -> Self {
        let state = State {
            sources,
            secrets: PlanSecrets::default(),
            changed: false,
            named_by_hosts: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        Self { request, files, prompted, state: Mutex::new(state), used_remote: AtomicBool::new(false) }
    }

    /// Records that the run uses another machine.
    pub fn note_remote(&self) {
        self.used_remote.store(true, Ordering::SeqCst);
    }

    /// Where the values come from that a run has gathered so far.
    pub fn value_origin(&self) -> ValueOrigin {
        if self.used_remote.load(Ordering::SeqCst) { ValueOrigin::Hosts } else { ValueOrigin::ThisMachine }
    }

    /// Adds a change that `host` has requested. Returns the answer.
    pub fn add(&self, host: &str, change: &PlannedChange) -> Vec<u8> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, size) = state.used.get(host).copied().unwrap_or_default();
        let size = size + serde_json::to_vec(&change.vars).map_or(0, |text| text.len());
        if count >= CHANGES_MAX || size > VARS_MAX {
            let most = VARS_MAX >> 20;
            let why =
                format!("more than {CHANGES_MAX} changes of the inventory by one host, or {most} MiB of variables");
            return DelegationError::Failed(why).answer();
        }
        let PlannedChange { host: name, groups, parents, vars, .. } = change.clone();
        // A host must not choose the address of a host that the playbook means, in either order.
        let by_other = state.named_by_hosts.get(&name).is_some_and(|one| one != host || !change.named_by_host);
        let is_known = state.sources.has_host(&name) && !state.named_by_hosts.contains_key(&name);
        if by_other || !vars.is_empty() && change.named_by_host && is_known {
            let why = format!("the variables of `{name}` cannot be set, because a host has chosen the name of it");
            return DelegationError::Failed(why).answer();
        }
        if change.named_by_host && !is_known {
            state.named_by_hosts.entry(name.clone()).or_insert_with(|| host.to_owned());
        }
        match state.sources.add(&InventoryChange { host: name, groups, parents, vars }) {
            Ok(true) => {
                state.changed = true;
                state.secrets.add_all(&change.secrets);
                state.used.insert(host.to_owned(), (count + 1, size));
                change.answer(true)
            }
            Ok(false) => change.answer(false),
            Err(why) => DelegationError::Failed(why).answer(),
        }
    }

    /// Compiles all plays with the changed inventory. `from_play`: the next play. None: the
    /// inventory has not changed since the last time.
    pub fn compile(&self, from_play: u32) -> Option<Result<PreparedPlay, Vec<Fault>>> {
        let (sources, secrets) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::take(&mut state.changed) {
                return None;
            }
            (state.sources.clone(), state.secrets.clone())
        };
        Some(sources.read_again().and_then(|mut sources| {
            sources.inventory.open_files(&self.request.vault);
            add_this_machine(&self.request, &mut sources);
            let input = CompileInput { files: &self.files, sources: &sources, prompted: &self.prompted, from_play };
            let mut prepared = compile_plays(self.request.clone(), &input, BTreeSet::new())?;
            prepared.let_hosts_wait(&self.files, &secrets);
            Ok(prepared)
        }))
    }
}

/// Compiles the later plays of hosts that do not exist before the run, for one host that is in all
/// their groups. `first`: the first play that changes the inventory. Returns the warnings.
/// Undefined variables are no faults, because `add_host` may set them.
pub(super) fn check_added_hosts(
    prepared: &PreparedPlay,
    files: &Files,
    sources: &Sources,
    first: u32,
) -> Result<Vec<Fault>, Vec<Fault>> {
    let request = PlayRequest { limit: vec![ADDED_HOST.to_owned()], ..prepared.request.clone() };
    let later = prepared.plays.iter().filter(|(keys, hosts)| keys.index > first && hosts.is_empty());
    let groups: Vec<String> = later.flat_map(|(keys, _)| &keys.hosts).filter(|name| is_plain(name)).cloned().collect();
    if groups.is_empty() || !prepared.request.limit.is_empty() {
        return Ok(Vec::new());
    }
    let one = |why: String| vec![Fault::error("inventory", 0, 0, why)];
    let mut sources = sources.clone();
    sources.add(&InventoryChange { host: ADDED_HOST.to_owned(), groups, ..InventoryChange::default() }).map_err(one)?;
    let mut sources = sources.read_again()?;
    sources.inventory.open_files(&request.vault);
    add_this_machine(&request, &mut sources);
    let input = CompileInput { files, sources: &sources, prompted: &prepared.prompted, from_play: 0 };
    let new = |mut faults: Vec<Fault>| {
        let ignored = ["is undefined", UNKNOWN_NAME, NOBODY];
        faults.retain(|fault| !ignored.iter().any(|text| fault.message.contains(text)));
        faults.retain(|fault| !prepared.warnings.contains(fault));
        faults
    };
    match compile_plays(request, &input, BTreeSet::new()) {
        Ok(compiled) => Ok(new(compiled.warnings)),
        Err(faults) => match new(faults) {
            faults if faults.iter().any(|fault| !fault.warning) => Err(faults),
            warnings => Ok(warnings),
        },
    }
}

/// Whether a pattern is the name of one host or group.
fn is_plain(pattern: &str) -> bool {
    pattern.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) && !LOCAL.contains(&pattern)
}

/// Explains the warnings about names that the inventory does not have, for plays after the first
/// play that changes the inventory.
pub(super) fn explain_unknown(
    mut faults: Vec<Fault>,
    plays: &[(PlayKeys, Vec<String>)],
    change: Option<u32>,
) -> Vec<Fault> {
    let Some(change) = change else { return faults };
    let is_later = |fault: &Fault| {
        let mut plays = plays.iter().filter(|(keys, _)| keys.index > change).map(|(keys, _)| &keys.place);
        plays.any(|place| place.file == fault.file && place.line == fault.line)
    };
    for fault in faults.iter_mut().filter(|fault| is_later(fault)) {
        fault.message.push_str(" before the run; a task `add_host` or `group_by` may add it");
    }
    faults
}

impl fmt::Debug for InventoryChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InventoryChanges")
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::testing::TestPlay;
    use super::*;
    use serde_json::json;

    const LOCAL_HOSTS: &str = "w1 ansible_connection=local\nw2 ansible_connection=local\n";

    fn request(task: u32, item: &serde_json::Value) -> Vec<u8> {
        json!({"inventory": {"task": task, "item": item, "state": {}}}).to_string().into_bytes()
    }

    #[tokio::test]
    async fn a_host_makes_a_limited_number_of_changes() {
        let tasks = "{add_host: {name: 'h{{ item }}'}, loop: '{{ range(1001) | list }}'}";
        let play = TestPlay::new(&format!("- hosts: w1,w2\n  tasks: [{tasks}]\n"), LOCAL_HOSTS);
        let mut service = play.service("w1");
        assert!(service.answer(&request(1, &json!([0, 0]))).await.unwrap_err().contains("not chosen to run"));
        service.answer(br#"{"turn": 1}"#).await.unwrap();
        for number in 0..=CHANGES_MAX {
            let answer = service.answer(&request(1, &json!([number, number]))).await.unwrap();
            let text = String::from_utf8(answer).unwrap();
            let want = if number < CHANGES_MAX { "\"changed\":true" } else { "more than 1000 changes" };
            assert!(text.contains(want), "{number}: {text}");
        }
        assert!(service.answer(&request(1, &json!([1, 1]))).await.unwrap_err().contains("requested again"));
    }

    #[tokio::test]
    async fn a_host_cannot_take_the_name_of_a_host_that_the_playbook_adds() {
        let tasks = "{add_host: {name: d1, ansible_host: 192.0.2.1}}, {command: id, register: r}, \
                     {add_host: {name: '{{ r.name }}', ansible_host: '{{ r.addr }}'}, loop: [0, 1]}, \
                     {add_host: {name: d2, ansible_host: 192.0.2.2}}";
        let play = TestPlay::new(&format!("- hosts: w1,w2\n  tasks: [{tasks}]\n"), LOCAL_HOSTS);
        play.shared.changes.as_ref().unwrap().note_remote();
        let mut service = play.service("w1");
        let none = serde_json::Value::Null;
        for (task, item, name, want) in [
            (1, none.clone(), "", true),
            (3, json!([0, 0]), "d1", false),
            (3, json!([1, 1]), "d2", true),
            (4, none, "", false),
        ] {
            let state = json!({"registers": {"r": {"name": name, "addr": "198.51.100.9"}}});
            let request = json!({"inventory": {"task": task, "item": item, "state": state}});
            service.answer(json!({"turn": task}).to_string().as_bytes()).await.unwrap();
            let answer = service.answer(request.to_string().as_bytes()).await.unwrap();
            let text = String::from_utf8(answer).unwrap();
            let refused = text.contains("a host has chosen the name of it");
            assert_eq!(!refused, want, "{task} {name}: {text}");
        }
    }

    #[tokio::test]
    async fn only_the_host_with_a_fault_fails_after_a_change() {
        let text = "- hosts: w1,w2\n  tasks: [{group_by: {key: g}}]\n- hosts: g\n  tasks: [{debug: {msg: '{{ nope }}'}}]\n\
                    - hosts: all\n  tasks: [{ping: }]\n";
        let play = TestPlay::new(text, LOCAL_HOSTS);
        let changes = play.shared.changes.clone().unwrap();
        assert!(changes.compile(1).is_none(), "nothing has changed");
        play.service("w1").answer(&request(1, &json!(null))).await.unwrap();
        let prepared = changes.compile(1).unwrap().unwrap();
        let fault = |name: &str| prepared.hosts.iter().find(|host| host.name == name).unwrap().fault.clone();
        assert!(fault("w1").unwrap().contains("`nope` is undefined"), "{:?}", fault("w1"));
        assert_eq!(fault("w2"), None);
        let hosts: Vec<&[String]> = prepared.plays.iter().map(|(_, hosts)| hosts.as_slice()).collect();
        assert_eq!(hosts[1], ["w1"]);
        assert!(changes.compile(2).is_none(), "it was compiled");
    }

    #[test]
    fn later_plays_of_unknown_hosts_are_compiled_before_the_run() {
        let prepared = |tasks: &str| {
            let dir = tempfile::tempdir().unwrap();
            let text = format!(
                "- hosts: w1\n  tasks: [{{add_host: {{name: n1, groups: new}}}}]\n- hosts: new\n  tasks: [{tasks}]\n"
            );
            std::fs::write(dir.path().join("site.yml"), text).unwrap();
            std::fs::write(dir.path().join("inv"), LOCAL_HOSTS).unwrap();
            let inventory = vec![dir.path().join("inv").display().to_string()];
            prepare(PlayRequest {
                playbook: dir.path().join("site.yml"),
                inventory,
                forks: 1,
                ..PlayRequest::default()
            })
        };
        let faults = prepared("{copy: {dset: /x}}").unwrap_err();
        assert!(faults.iter().any(|fault| !fault.warning && fault.message.contains("dset")), "{faults:?}");
        let warnings = prepared("{debug: {msg: '{{ given }}'}}").unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].message.contains("called `new` before the run; a task `add_host`"), "{warnings:?}");
    }
}

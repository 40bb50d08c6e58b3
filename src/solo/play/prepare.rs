//! All preparations before any host is changed: the playbook's files, the inventory, and a plan and
//! a connection for each host. All faults of all hosts are reported at once.

use super::connection::{ConnectionFinder, HostConnection};
use super::files::{self, Files};
use super::host_selection::HostSelection;
use super::host_variables::HostVariables;
use super::later_plays::{self, InventoryChanges};
use super::sent_files::FilesHere;
use super::{PlayRequest, Prompter};
use crate::module_packer;
use remoor_config::{self as config, AnsibleInventory, HostEntry, Sources};
use remoor_model::Fault;
use remoor_playbook::{
    self as playbook, CompileOptions, Compiled, Plan, PlanSecrets, PlayKeys, PromptAnswers, PromptHash, SPECIAL_TAGS,
    SharedNames, VarsPrompt, VaultAccess,
};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of this machine if no inventory contains it.
const LOCALHOST: &str = "localhost";
/// The message for a playbook that has no hosts.
pub(super) const NOBODY: &str = "none of its plays matches a host of the inventory";
/// Maximum size of a plan in bytes. The limit of a protocol frame is a little larger.
const PLAN_MAX: usize = 30 << 20;

/// A run of a playbook that is ready to start.
#[derive(Debug)]
pub struct PreparedPlay {
    pub(super) request: PlayRequest,
    /// Absolute path of the playbook.
    pub(super) playbook: PathBuf,
    /// The hosts of all plays, in the order of the inventory.
    pub(super) hosts: Vec<Host>,
    /// The plays in order, each with its hosts.
    pub(super) plays: Vec<(PlayKeys, Vec<String>)>,
    pub warnings: Vec<Fault>,
    pub(super) connections: Arc<ConnectionFinder>,
    /// The directory of the playbook's files, as messages show it.
    shown_root: PathBuf,
    /// The absolute path of this directory.
    pub(super) root: PathBuf,
    /// The values of `vars_prompt`.
    pub(super) prompted: PromptAnswers,
    /// Set if a task changes the inventory for later plays.
    pub(super) changes: Option<Arc<InventoryChanges>>,
}

/// One host with its plan.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub name: String,
    pub road: HostConnection,
    pub plan: Arc<Plan>,
    /// Whether sudo is needed: the plan needs root, and the login is not known to be root.
    pub sudo: bool,
    /// Why the host fails when its next play begins.
    pub fault: Option<String>,
}

/// By host: the faults in its plan.
type HostFaults = BTreeMap<String, BTreeSet<Fault>>;

impl Host {
    fn with_fault(name: String, faults: &BTreeSet<Fault>) -> Self {
        let first = faults.iter().find(|fault| !fault.warning).map(ToString::to_string).unwrap_or_default();
        let first = first.lines().next().unwrap_or_default();
        let fault = Some(format!("with the changed inventory: {first}"));
        Self { name, road: HostConnection::Local { named: None }, plan: Arc::default(), sudo: false, fault }
    }
}

/// Reads and compiles everything, and runs executable inventories. An error contains all faults and
/// warnings; no host was changed.
pub fn prepare(request: PlayRequest) -> Result<PreparedPlay, Vec<Fault>> {
    let (mut prepared, files, sources) = prepare_with_sources(request)?;
    if let Some(first) = prepared.first_inventory_change() {
        let (request, prompted) = (prepared.request.clone(), prepared.prompted.clone());
        let found = later_plays::check_added_hosts(&prepared, &files, &sources, first)?;
        prepared.warnings.extend(found);
        prepared.let_hosts_wait(&files, &PlanSecrets::default());
        prepared.changes = Some(Arc::new(InventoryChanges::new(request, files, sources, prompted)));
    }
    Ok(prepared)
}

/// Like `prepare`, and also returns the files and the inventory that the plans were made from.
pub(in crate::solo) fn prepare_with_sources(
    request: PlayRequest,
) -> Result<(PreparedPlay, Files, Sources), Vec<Fault>> {
    let files = files::read(&request.playbook, request.root.as_deref())?;
    let sources = sources(&request, &files)?;
    let mut warnings: BTreeSet<Fault> = sources.inventory.warnings.iter().cloned().collect();
    let vault = VaultAccess { vault: &request.vault, may_stay_encrypted: request.may_stay_encrypted };
    let prompted = ask_prompts(&request, &files, vault, &mut warnings)?;
    let input = CompileInput { files: &files, sources: &sources, prompted: &prompted, from_play: 0 };
    let prepared = compile_plays(request, &input, warnings)?;
    Ok((prepared, files, sources))
}

/// From what plays are compiled.
pub(super) struct CompileInput<'a> {
    pub files: &'a Files,
    pub sources: &'a Sources,
    /// The values of `vars_prompt`.
    pub prompted: &'a PromptAnswers,
    /// The next play. If it is not 0, the run has begun. Then only the host with a fault fails.
    pub from_play: u32,
}

/// Compiles the plays for the hosts of an inventory.
pub(super) fn compile_plays(
    request: PlayRequest,
    input: &CompileInput,
    mut warnings: BTreeSet<Fault>,
) -> Result<PreparedPlay, Vec<Fault>> {
    let CompileInput { files, sources, prompted, from_play } = *input;
    let (mut faults, mut refused) = (HostFaults::new(), BTreeSet::new());
    let (contexts, mut roads) = (
        HostVariables::new(sources, files, &request),
        ConnectionFinder::new(&sources.inventory, &request.extra, &request.login, &request.vault),
    );
    let chosen = HostSelection::new(&request, sources)?;
    let vault = VaultAccess { vault: &request.vault, may_stay_encrypted: request.may_stay_encrypted };
    let keys = playbook::outline(&files.set, &files.playbook, &request.extra, prompted, Some(vault));
    let shown = |faults: Vec<Fault>| faults.into_iter().map(|fault| files.with_shown_path(fault)).collect::<Vec<_>>();
    let (plays, unknown) = chosen.plays(keys.map_err(shown)?).map_err(shown)?;
    let at_host = plays.iter().filter(|(keys, _)| !keys.local).flat_map(|(_, hosts)| hosts);
    let at_host: BTreeSet<&String> = at_host.collect();
    let local = plays.iter().flat_map(|(_, hosts)| hosts).filter(|host| !at_host.contains(host));
    roads.set_local_hosts(local.cloned().collect());
    roads.set_login_users(login_users(&plays, request.login.user.as_deref()));
    let mut compiled_hosts = Vec::new();
    let mut tags = BTreeSet::new();
    let root = std::path::absolute(Path::new(".").join(&files.root)).unwrap_or_default().display().to_string();
    let here = FilesHere::new(Path::new(&root), files);
    let modules = module_packer::modules_of_directory(Path::new(&root), request.modules);
    for name in &chosen.hosts_of_plays(&plays) {
        let context = contexts.context(name);
        let unopened = sources.inventory.unopened_of(name);
        if !unopened.is_empty() && !request.may_stay_encrypted {
            faults.entry(name.clone()).or_default().extend(unopened);
            continue;
        }
        let options = CompileOptions {
            tags: &request.tags,
            skip_tags: &request.skip_tags,
            extra_vars: request.extra.clone(),
            prompted: prompted.clone(),
            elevated: request.elevated || tasks_are_root(&sources.inventory, name),
            hosts: Some(&chosen.hosts),
            shared: contexts.shared_values().clone(),
            modes: Some(&files.modes),
            root: &root,
            modules: Some(&*modules),
            controller_files: Some(&here),
            delegates: true,
            vault: Some(vault),
            remote_user: roads.login_user(name),
            here: matches!(roads.connection_of_plays(name, false), Ok((HostConnection::Local { .. }, _))),
        };
        let compiled = match playbook::compile(&files.set, &files.playbook, &context, &options) {
            Ok(compiled) => compiled,
            Err(more) => {
                let more = more.into_iter().map(|fault| files.with_shown_path(fault));
                faults.entry(name.clone()).or_default().extend(more);
                continue;
            }
        };
        let Compiled { plan, warnings: more, refused: late, tags: own, unknown, unopened: files_unopened, .. } =
            compiled;
        tags.extend(own);
        warnings.extend(more.into_iter().chain(unknown).map(|fault| files.with_shown_path(fault)));
        refused.extend(late.into_iter().map(|fault| files.with_shown_path(fault)));
        if plan.plays.is_empty() {
            continue;
        }
        let names = context.vars.keys().chain(contexts.shared_values().keys()).cloned().collect();
        let encrypted = files_unopened.into_iter().chain(unopened.iter().map(|fault| fault.file.clone())).collect();
        warnings.extend(unopened.into_iter().map(|fault| Fault { warning: true, ..fault }));
        compiled_hosts.push(CompiledHost { name: name.clone(), plan, names, encrypted });
    }
    let mut hosts = review_hosts(compiled_hosts, (files, from_play), &roads, &mut faults, &mut warnings);
    if from_play > 0 {
        hosts.extend(std::mem::take(&mut faults).into_iter().map(|(name, faults)| Host::with_fault(name, &faults)));
    }
    let mut faults: BTreeSet<Fault> = faults.into_values().flatten().collect();
    if faults.is_empty() && hosts.is_empty() {
        faults.insert(no_host_fault(&request, sources));
    }
    match request.strict {
        true => faults.extend(refused.into_iter().map(|fault| Fault { warning: false, ..fault })),
        false => warnings.extend(refused),
    }
    let change = hosts.iter().filter_map(|host| host.plan.inventory_change_from(0)).min();
    warnings.extend(shown(later_plays::explain_unknown(unknown, &plays, change)));
    warnings.extend(no_such_tag("--tags", &request.tags, &tags));
    warnings.extend(no_such_tag("--skip-tags", &request.skip_tags, &tags));
    if !faults.is_empty() {
        warnings.extend(files.left_out());
        return Err(playbook::merge_refusal_notes(faults.into_iter().chain(warnings).collect()));
    }
    let playbook = std::path::absolute(files.root.join(&files.playbook)).unwrap_or_default();
    drop(contexts);
    let connections = Arc::new(roads);
    let warnings = playbook::merge_refusal_notes(warnings.into_iter().collect());
    let shown_root = files.root.clone();
    let (root, changes, prompted) = (root.into(), None, prompted.clone());
    Ok(PreparedPlay { request, playbook, hosts, plays, warnings, connections, shown_root, root, prompted, changes })
}

/// The login user of each host whose plays all have the same one: that of `remote_user`, or else
/// that of the command.
fn login_users(plays: &[(PlayKeys, Vec<String>)], usual: Option<&str>) -> BTreeMap<String, String> {
    let mut users: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for (keys, hosts) in plays.iter().filter(|(keys, _)| !keys.local) {
        let user = keys.remote_user.as_deref().or(usual);
        for host in hosts {
            users.entry(host.as_str()).or_default().insert(user);
        }
    }
    let only = users.into_iter().filter_map(|(host, users)| match users.first() {
        Some(Some(user)) if users.len() == 1 && !user.is_empty() => Some((host.to_owned(), (*user).to_owned())),
        _ => None,
    });
    only.collect()
}

/// Asks for the variables of `vars_prompt`. Without a terminal they have their defaults, as in
/// Ansible.
fn ask_prompts(
    request: &PlayRequest,
    files: &Files,
    vault: VaultAccess,
    warnings: &mut BTreeSet<Fault>,
) -> Result<PromptAnswers, Vec<Fault>> {
    let mut answers = PromptAnswers::new();
    for prompt in playbook::vars_prompts(&files.set, &files.playbook, &request.extra, Some(vault)) {
        let shown = request.playbook.display().to_string();
        let answer = match request.prompter {
            Prompter::Defaults => None,
            Prompter::NoTerminal => {
                // The default may be secret, so it is not shown.
                let value = if prompt.default.is_some() { "its default is used" } else { "it has no value" };
                let message =
                    format!("nobody can be asked for `{}`, because there is no terminal: {value}", prompt.name);
                warnings
                    .insert(Fault::warn(&shown, 0, 0, message).hint(format!("set it with -e {}=VALUE", prompt.name)));
                None
            }
            Prompter::Terminal(ask) => {
                let next = format!("run the command again, or set `{}` with -e @FILE", prompt.name);
                let answer = ask(&prompt);
                let answer = answer.map_err(|message| vec![Fault::error(&shown, 0, 0, message).hint(next)])?;
                Some(answer).filter(|answer| !answer.is_empty() || prompt.default.is_none())
            }
        };
        let failed = |message: String| vec![Fault::error(&shown, 0, 0, format!("`{}`: {message}", prompt.name))];
        let answer = match &prompt.hash {
            Some(hash) => hash_answer(hash, answer.or_else(|| usual_answer(&prompt))).map_err(failed)?,
            None => answer,
        };
        if let Some(answer) = answer {
            answers.entry(prompt.play).or_default().insert(prompt.name, answer.into());
        }
    }
    Ok(answers)
}

/// The default as a text.
fn usual_answer(prompt: &VarsPrompt) -> Option<String> {
    prompt.default.as_ref()?.as_str().map(str::to_owned)
}

/// Hashes an answer with the salt of the playbook, or with a random one.
fn hash_answer(hash: &PromptHash, answer: Option<String>) -> Result<Option<String>, String> {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let Some(answer) = answer else { return Ok(None) };
    let salt = match &hash.salt {
        Some(salt) => salt.clone(),
        None => {
            let mut random = vec![0; hash.salt_size];
            getrandom::fill(&mut random).map_err(|e| format!("no random salt: {e}"))?;
            random.iter().map(|byte| char::from(DIGITS[usize::from(byte & 63)])).collect()
        }
    };
    hash.hash(&answer, &salt).map(Some)
}

/// Loads the inventory. Without `--inventory`, it contains only this machine.
fn sources(request: &PlayRequest, files: &Files) -> Result<Sources, Vec<Fault>> {
    let beside = files.root.join(&files.playbook);
    let beside = beside.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let mut sources = config::load_sources(&request.inventory, beside)?;
    sources.inventory.open_files(&request.vault);
    add_this_machine(request, &mut sources);
    Ok(sources)
}

/// Adds this machine to the inventory if the command line names no inventory.
pub(super) fn add_this_machine(request: &PlayRequest, sources: &mut Sources) {
    if !request.inventory.is_empty() {
        return;
    }
    let own = || HostEntry { groups: vec!["ungrouped".to_owned()], ..HostEntry::default() };
    let host = sources.inventory.hosts.entry(LOCALHOST.to_owned()).or_insert_with(own);
    host.vars.entry("ansible_connection").or_insert(json!("local"));
    if !sources.order.iter().any(|name| name == LOCALHOST) {
        sources.order.push(LOCALHOST.to_owned());
    }
}

/// The plan of a host before its review.
struct CompiledHost {
    name: String,
    plan: Plan,
    /// Names of all variables of the host.
    names: Vec<String>,
    /// Files with content that no vault password opens.
    encrypted: BTreeSet<String>,
}

/// Reviews the plans and finds the connections. Returns the hosts without faults.
fn review_hosts(
    mut compiled: Vec<CompiledHost>,
    (files, from_play): (&Files, u32),
    roads: &ConnectionFinder,
    faults: &mut HostFaults,
    warnings: &mut BTreeSet<Fault>,
) -> Vec<Host> {
    set_shared_names(&mut compiled);
    let mut hosts = Vec::new();
    // Plays after the next change may read hosts and groups that do not exist yet. They are
    // compiled again after the change.
    let last = compiled.iter().filter_map(|host| host.plan.inventory_change_from(from_play)).min();
    for CompiledHost { name, plan, names, encrypted } in compiled {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reviewed = last.map(|last| {
            let plays = plan.plays.iter().filter(|play| play.index <= last).cloned().collect();
            Plan { plays, ..plan.clone() }
        });
        let (_, found) = playbook::review(reviewed.as_ref().unwrap_or(&plan), &Map::new(), &files.set, &names);
        let found = playbook::downgrade_undefined(found, &encrypted);
        let (doubts, wrong): (Vec<_>, Vec<_>) =
            found.into_iter().map(|fault| files.with_shown_path(fault)).partition(|fault| fault.warning);
        warnings.extend(doubts);
        if !wrong.is_empty() {
            faults.entry(name).or_default().extend(wrong);
            continue;
        }
        match connection_for(&plan, &name, roads) {
            Ok((road, more)) => {
                warnings.extend(more);
                let sudo = plan.needs_root() && road.is_root() != Some(true);
                hosts.push(Host { name, road, plan: Arc::new(plan), sudo, fault: None });
            }
            Err(more) => {
                let more = more.into_iter().map(|fault| files.with_shown_path(fault));
                faults.entry(name).or_default().extend(more);
            }
        }
    }
    hosts
}

/// Lets the plans of several hosts exchange the values that some of them read of others.
fn set_shared_names(hosts: &mut [CompiledHost]) {
    if hosts.len() < 2 {
        return;
    }
    let plans: Vec<&Plan> = hosts.iter().map(|host| &host.plan).collect();
    let several = plans.iter().any(|plan| plan.plays.len() > 1);
    let names = SharedNames::find(&plans).filter(|names| several || names.has_exchange());
    hosts.iter_mut().for_each(|host| host.plan.shares.clone_from(&names));
}

/// Whether the variables of the host make its tasks run as root.
fn tasks_are_root(inventory: &AnsibleInventory, name: &str) -> bool {
    let host = inventory.hosts.get(name);
    host.and_then(|host| host.vars.get("ansible_become")).and_then(playbook::boolean) == Some(true)
}

/// The connection to a host. Fails if the host's plan can't be run over the connection.
fn connection_for(
    plan: &Plan,
    name: &str,
    roads: &ConnectionFinder,
) -> Result<(HostConnection, Vec<Fault>), Vec<Fault>> {
    let (road, warnings) = roads.connection_of_plays(name, plan.needs_root())?;
    match rmp_serde::to_vec_named(plan) {
        Ok(bytes) if bytes.len() <= PLAN_MAX => Ok((road, warnings)),
        Ok(_) => {
            let message = format!("the plan of `{name}`, with its files, is larger than {} MiB", PLAN_MAX >> 20);
            let fault = Fault::error(&plan.playbook, 0, 0, message);
            Err(vec![fault.hint("let the host fetch large files itself, for example with get_url")])
        }
        Err(error) => Err(vec![Fault::error(&plan.playbook, 0, 0, format!("the plan can't be sent: {error}"))]),
    }
}

/// A warning for each tag in `asked` that no task has. `option` is the option with the tags.
fn no_such_tag<'r>(
    option: &str,
    asked: &'r [String],
    known: &BTreeSet<String>,
) -> impl Iterator<Item = Fault> + use<'r> {
    let known: BTreeSet<String> = known.iter().filter(|tag| !SPECIAL_TAGS.contains(&tag.as_str())).cloned().collect();
    let hint = match known.is_empty() {
        true => "no task has any".to_owned(),
        false => format!("the tags of its tasks: {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
    };
    let option = option.to_owned();
    let unknown = asked.iter().filter(move |tag| !known.contains(*tag) && !SPECIAL_TAGS.contains(&tag.as_str()));
    unknown.map(move |tag| Fault::warn(&option, 0, 0, format!("no task has the tag `{tag}`")).hint(hint.clone()))
}

/// The fault for a playbook of which no play matches any host.
fn no_host_fault(request: &PlayRequest, sources: &Sources) -> Fault {
    let shown = request.playbook.display().to_string();
    let fault = Fault::error(&shown, 0, 0, NOBODY);
    if request.inventory.is_empty() {
        return fault
            .hint("without -i the inventory contains only this machine, as `localhost`; name an inventory with -i");
    }
    let groups: Vec<&str> = sources.inventory.groups.keys().map(String::as_str).collect();
    fault.hint(format!("the inventory has {} hosts; its groups: {}", sources.order.len(), groups.join(", ")))
}

impl PreparedPlay {
    /// The index of the first play with a task that changes the inventory.
    fn first_inventory_change(&self) -> Option<u32> {
        self.hosts.iter().filter_map(|host| host.plan.inventory_change_from(0)).min()
    }

    /// Lets the hosts wait after their last plays, because a changed inventory may have further
    /// plays for them. Later plays may read all variables of these hosts. `secrets`: texts that
    /// variables of added hosts contain.
    pub(super) fn let_hosts_wait(&mut self, files: &Files, secrets: &PlanSecrets) {
        let reads = files.contains_word("hostvars");
        for host in &mut self.hosts {
            let plan = Arc::make_mut(&mut host.plan);
            plan.wait_for_inventory();
            plan.secrets.add_all(secrets);
            if reads {
                plan.shares = Some(plan.shares.take().unwrap_or_default().allow_all());
            }
        }
    }

    /// The names of the hosts of all plays.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// The plan of each host, with the name of the host.
    pub(in crate::solo) fn plans(&self) -> impl Iterator<Item = (&str, &Plan)> {
        self.hosts.iter().map(|host| (host.name.as_str(), &*host.plan))
    }

    /// What lint reports about tasks that are not native, each once.
    pub(super) fn python_warnings(&self) -> Vec<Fault> {
        let all: BTreeSet<Fault> =
            self.hosts.iter().flat_map(|host| host.plan.python_warnings("the manager")).collect();
        let shown = |fault: Fault| match self.shown_root.as_os_str().is_empty() {
            true => fault,
            false => Fault { file: self.shown_root.join(&fault.file).display().to_string(), ..fault },
        };
        all.into_iter().map(shown).collect()
    }

    /// Whether a task of any host is delegated.
    pub(super) fn delegates(&self) -> bool {
        self.hosts.iter().any(|host| host.plan.delegates())
    }

    /// Whether every host is this machine.
    pub(super) fn is_local(&self) -> bool {
        self.hosts.iter().all(|host| matches!(host.road, HostConnection::Local { .. }))
    }
}

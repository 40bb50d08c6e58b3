//! `remoor play`: runs a playbook without a cluster. Prints events as they happen, and the recap at
//! the end.

use crate::cli::args::{PlayArgs, PlayConnection, VaultArgs};
use crate::cli::ask;
use crate::cli::drivers::{
    self, HostState, PlayConnectionKind, PlayEnding, PlayEvent, PlayLogin, PlayRequest, PlayRunEvent, PlaySummary,
    Recap, VaultOptions,
};
use crate::cli::duration;
use crate::cli::error;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use indicatif::ProgressBar;
use remoor_model::count_noun;
use remoor_model::sanitize;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

/// Maximum number of hosts whose current task is shown on a terminal.
const LIVE_HOSTS: usize = 3;
/// Number of output lines of a failed command that are shown.
const TAIL_LINES: usize = 20;

pub fn run(out: &Out, args: &PlayArgs) -> anyhow::Result<Exit> {
    let prepared = drivers::prepare_play(request(out, args)?).map_err(|faults| error::invalid_play(&faults))?;
    prepared.warnings.iter().for_each(|warning| out.talk(&warning.to_string()));
    let width = prepared.hosts().iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let screen = PlayScreen { width, verbose: args.verbose };
    let mut live = LiveTasks::new(out);
    let summary = drivers::play(prepared, &mut |news| match news {
        PlayEvent::Event(event) => {
            live.note(&event);
            live.print_above_bar(|| {
                // A closed pipe does not end the run of the playbook.
                if !out.machine_line(&event.line()).unwrap_or(true)
                    && let Some(text) = screen.text(&event)
                {
                    let _ = out.text(&text);
                }
            });
        }
        PlayEvent::Ending(ending) => live.print_above_bar(|| out.talk(ending_text(ending))),
    })?;
    Ok(exit(&summary, args))
}

/// The options that name vault passwords.
pub fn vault_options(args: &VaultArgs) -> VaultOptions {
    VaultOptions { files: args.vault_password_file.clone(), ids: args.vault_id.clone() }
}

fn request(out: &Out, args: &PlayArgs) -> anyhow::Result<PlayRequest> {
    let vault = vault_options(&args.vault).read_for_playbook(&args.playbook, args.root.as_deref());
    let (vault, warnings) = vault.map_err(|faults| error::invalid_play(&faults))?;
    warnings.iter().for_each(|warning| out.talk(&warning.to_string()));
    let mut extra = serde_json::Map::new();
    for text in &args.extra_vars {
        extra.extend(drivers::play_vars(text, &vault).map_err(|faults| error::invalid_play(&faults))?);
    }
    let login = &args.login;
    Ok(PlayRequest {
        playbook: args.playbook.clone(),
        root: args.root.clone(),
        inventory: args.inventory.clone(),
        limit: args.limit.clone(),
        tags: trim_tags(&args.tags),
        skip_tags: trim_tags(&args.skip_tags),
        extra,
        check: args.check,
        diff: args.diff,
        forks: args.forks.into(),
        elevated: login.r#become,
        login: PlayLogin {
            connection: match login.connection {
                PlayConnection::Local => PlayConnectionKind::Local,
                PlayConnection::Ssh | PlayConnection::Smart => PlayConnectionKind::Ssh,
            },
            user: login.user.clone(),
            private_key: login.private_key.clone(),
            ssh_config: login.ssh_config.clone(),
            timeout: Duration::from_secs(login.timeout.into()),
        },
        strict: args.strict,
        force: args.force,
        modules: drivers::module_policy(args.native_only),
        vault,
        may_stay_encrypted: false,
        prompter: ask::prompter(),
    })
}

/// Removes the blanks that people write after the commas between tags.
fn trim_tags(list: &[String]) -> Vec<String> {
    list.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

fn ending_text(ending: PlayEnding) -> &'static str {
    match ending {
        PlayEnding::Not => "",
        PlayEnding::AfterTask => "no further tasks are started; running tasks finish (Ctrl-C again ends them)",
        PlayEnding::Now => "running tasks are being ended (Ctrl-C again stops waiting for them)",
        PlayEnding::GiveUp => "no longer waiting; hosts that still run stop after their task",
    }
}

/// The exit code of a run: the most serious of the exit codes for its hosts.
pub fn exit(summary: &PlaySummary, args: &PlayArgs) -> Exit {
    let mut exit = Exit::Done;
    for (state, means) in [
        (HostState::Unreachable, Exit::CouldNotAsk),
        (HostState::Refused, Exit::Refused),
        (HostState::Failed, Exit::Failed),
        (HostState::Unknown, Exit::Failed),
    ] {
        if summary.any_in_state(state) {
            exit = exit.more_serious(means);
        }
    }
    // The interrupt ended a running task, so the task's failure counts as an interrupt.
    if summary.interrupted && summary.states.values().any(|state| *state != HostState::Done) {
        exit = exit.more_serious(Exit::Interrupted);
    }
    let changes = summary.recap.values().any(|recap| recap.changed + recap.unknown > 0);
    if args.exit_code && changes { exit.more_serious(Exit::No) } else { exit }
}

/// The current task of each host, in the last line of a terminal.
struct LiveTasks {
    bar: Option<ProgressBar>,
    tasks: BTreeMap<String, String>,
}

impl LiveTasks {
    fn new(out: &Out) -> Self {
        let live = out.is_tty() && std::io::stderr().is_terminal() && !out.format.is_machine();
        let bar = live.then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar, tasks: BTreeMap::new() }
    }

    fn note(&mut self, event: &PlayRunEvent) {
        let Some(bar) = &self.bar else { return };
        match event {
            PlayRunEvent::HostStart { host, .. } => drop(self.tasks.insert(host.clone(), "login".to_owned())),
            PlayRunEvent::TaskStart { host, name, .. } => drop(self.tasks.insert(host.clone(), name.clone())),
            PlayRunEvent::HostEnd { host, .. } => drop(self.tasks.remove(host)),
            PlayRunEvent::RunEnd(_) => bar.finish_and_clear(),
            _ => return,
        }
        let shown: Vec<String> = self.tasks.iter().take(LIVE_HOSTS).map(|(h, t)| format!("{h}: {t}")).collect();
        let more = self.tasks.len().saturating_sub(LIVE_HOSTS);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        bar.set_message(sanitize::line(&format!("{}{more}", shown.join(", "))).into_owned());
    }

    fn print_above_bar(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// Formats the events of a play for people.
pub struct PlayScreen {
    /// Length of the longest host name.
    pub width: usize,
    pub verbose: bool,
}

impl PlayScreen {
    /// The lines for an event. None: the event is not shown.
    pub fn text(&self, event: &PlayRunEvent) -> Option<String> {
        match event {
            PlayRunEvent::RunStart { .. } | PlayRunEvent::HostStart { .. } | PlayRunEvent::TaskStart { .. } => None,
            PlayRunEvent::PlayStart { name, hosts, .. } if hosts.is_empty() => {
                Some(format!("PLAY [{}]: no hosts left\n", sanitize::line(name)))
            }
            PlayRunEvent::PlayStart { name, hosts, .. } => {
                Some(format!("PLAY [{}] on {}\n", sanitize::line(name), count_noun(hosts.len(), "host")))
            }
            PlayRunEvent::Output { .. } if !self.verbose => None,
            PlayRunEvent::Output { host, line, .. } => Some(self.host_line(host, &format!("    | {line}"))),
            PlayRunEvent::Task(task) => {
                let item = task.item.as_ref().map(|item| format!(" [{item}]")).unwrap_or_default();
                let rc = task.rc.filter(|rc| *rc != 0).map(|rc| format!(" rc={rc}")).unwrap_or_default();
                let message = if task.msg.is_empty() { String::new() } else { format!(": {}", task.msg) };
                let (status, name, took) = (&task.status, &task.name, duration::age(task.took_ms));
                let handler = if task.handler { "handler " } else { "" };
                let mut text =
                    self.host_line(&task.host, &format!("{status:<9} {handler}{name}{item}{rc} ({took}){message}"));
                if status == "failed" || status == "ignored" {
                    let lines: Vec<&str> = task.stdout_tail.lines().collect();
                    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
                    last.iter().for_each(|line| text.push_str(&self.host_line(&task.host, &format!("    | {line}"))));
                }
                for change in &task.attributes {
                    text.push_str(&self.host_line(&task.host, &format!("    {change}")));
                }
                if let Some(diff) = &task.diff {
                    text.push_str(diff.trim_end());
                    text.push('\n');
                }
                Some(text)
            }
            PlayRunEvent::HostEnd { host, state, message, failure, owed, .. } => {
                self.host_end(host, *state, message.as_deref(), failure.as_ref().map(|f| (&f.file, f.line)), owed)
            }
            PlayRunEvent::RunEnd(summary) => Some(recap(summary)),
        }
    }

    fn host_end(
        &self,
        host: &str,
        state: HostState,
        message: Option<&str>,
        place: Option<(&String, u32)>,
        owed: &[String],
    ) -> Option<String> {
        let why = message.unwrap_or_default();
        let mut text = match state {
            HostState::Done => String::new(),
            // The failed task was printed before, but without its file and line. So these are
            // printed here.
            HostState::Failed => match place {
                Some((file, line)) if line > 0 => {
                    self.host_line(host, &format!("stopped: the task at {file}:{line} failed"))
                }
                _ => self.host_line(host, &format!("failed: {why}")),
            },
            HostState::Unreachable => self.host_line(host, &format!("UNREACHABLE: {why}")),
            HostState::Refused => self.host_line(host, &format!("refused: {why}")),
            HostState::Unknown => self.host_line(host, &format!("UNKNOWN: {why}")),
            HostState::Cancelled => self.host_line(host, &format!("stopped: {why}")),
        };
        if !owed.is_empty() {
            let owed = owed.join(", ");
            text.push_str(
                &self.host_line(host, &format!("handlers not run: {owed} (the next run of this playbook runs them)")),
            );
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// One sanitized line with the name of its host.
    fn host_line(&self, host: &str, text: &str) -> String {
        format!("{host:<width$}  {}\n", sanitize::line(text).trim_end(), width = self.width)
    }
}

/// The recap of ansible-playbook, with the additional column `unknown`.
fn recap(summary: &PlaySummary) -> String {
    let mut text = String::from("\nPLAY RECAP\n");
    for (host, recap) in &summary.recap {
        let Recap { ok, changed, unreachable, failed, skipped, rescued, ignored, unknown } = recap;
        text.push_str(&format!(
            "{host:<26} : ok={ok:<4} changed={changed:<4} unreachable={unreachable:<4} failed={failed:<4} \
             skipped={skipped:<4} rescued={rescued:<4} ignored={ignored:<4} unknown={unknown}\n"
        ));
    }
    if let Some(why) = &summary.stopped {
        text.push_str(&format!("ended early: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn blanks_after_commas_are_not_part_of_a_tag() {
        assert_eq!(super::trim_tags(&["a", " b ", ""].map(str::to_owned)), ["a", "b"]);
    }
}

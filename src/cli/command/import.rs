//! `remoor import`.

use super::fleet::show_faults;
use crate::cli::args::ImportArgs;
use crate::cli::drivers::{self, ImportRequest, ImportSummary};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::table::Table;
use remoor_model::{Fault, count_noun};
use serde_json::json;

pub fn run(out: &Out, args: &ImportArgs) -> anyhow::Result<Exit> {
    let request = ImportRequest {
        playbook: args.playbook.clone(),
        inventory: args.inventory.clone(),
        into: args.dir.clone(),
        facts: args.facts.clone(),
    };
    let (summary, faults) = match drivers::import(&request) {
        Ok(done) => done,
        Err(faults) => return show_faults(out, &faults),
    };
    let grave = faults.iter().any(|fault| !fault.warning);
    let exit = if grave { Exit::No } else { Exit::Done };
    if out.machine(&json!({"version": 1, "import": summary, "faults": faults}))? {
        return Ok(exit);
    }
    if out.quiet {
        out.names(summary.written.iter().map(String::as_str))?;
        faults.iter().filter(|fault| !fault.warning).for_each(|fault| out.talk(&fault.to_string()));
        return Ok(exit);
    }
    if summary.services.is_empty() {
        out.text("no files, units, packages or data are known\n")?;
    } else {
        out.table(&services(&summary))?;
    }
    let mut text = list_under_hints(&summary.unknown);
    text.push_str(&list_under_hints(&summary.needs_ansible));
    text.push_str(&list_once(&faults));
    text.push_str(&format!(
        "unknown effects: {}; lint: {}\n\nnext:\n",
        count_noun(summary.unknown.len(), "task"),
        count_noun(faults.len(), "finding"),
    ));
    let dir = quote_for_shell(&args.dir.display().to_string());
    let mut steps = vec![(format!("remoor lint {dir}"), "after each change of the fleet")];
    if !grave {
        steps.push((format!("remoor apply {dir}"), "makes it the desired state; contacts no node"));
        let adopt =
            |group: &String| (format!("remoor adopt --group {group}"), "records the present state; runs nothing");
        steps.extend(summary.groups.keys().map(adopt));
    }
    let width = steps.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, purpose) in steps {
        text.push_str(&format!("  {command:<width$}  {purpose}\n"));
    }
    out.text(&text)?;
    Ok(exit)
}

/// Faults with their hints. Each hint is printed once, after its faults.
fn list_under_hints(faults: &[Fault]) -> String {
    let mut groups: Vec<(&Option<String>, String)> = Vec::new();
    for fault in faults {
        let line = format!("{}\n", Fault { hint: None, ..fault.clone() });
        match groups.iter_mut().find(|(hint, _)| *hint == &fault.hint) {
            Some((_, lines)) => lines.push_str(&line),
            None => groups.push((&fault.hint, line)),
        }
    }
    let hint = |hint: &Option<String>| hint.as_ref().map(|hint| format!("  hint: {hint}\n")).unwrap_or_default();
    groups.iter().map(|(text, lines)| format!("{lines}{}", hint(text))).collect()
}

/// Faults, the message of a warning once, with the number of its other places.
fn list_once(faults: &[Fault]) -> String {
    let mut groups: Vec<(&Fault, usize)> = Vec::new();
    for fault in faults {
        let is_same = |first: &Fault| fault.warning && first.warning && first.message == fault.message;
        match groups.iter_mut().find(|(first, _)| is_same(first)) {
            Some((_, others)) => *others += 1,
            None => groups.push((fault, 0)),
        }
    }
    let shown = |(fault, others): &(&Fault, usize)| match others {
        0 => format!("{fault}\n"),
        others => {
            let message = format!("{} (and at {})", fault.message, count_noun(*others, "more place"));
            format!("{}\n", Fault { message, ..(*fault).clone() })
        }
    };
    groups.iter().map(shown).collect()
}

/// A path as a shell takes it.
fn quote_for_shell(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn services(summary: &ImportSummary) -> Table {
    let mut table = Table::new(["SERVICE", "FILES", "UNITS", "PACKAGES", "STATE"]);
    for service in &summary.services {
        let counts = [service.files, service.units, service.packages, service.state];
        table.row([service.name.clone()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_short() {
        let warn = |line, message: &str, hint: &str| Fault::warn("a.yml", line, 1, message).hint(hint);
        let faults = [warn(1, "x", "do a"), warn(2, "y", "do b"), warn(3, "x", "do a"), warn(4, "x", "do a")];
        let lines = "a.yml:1:1: warning: x\na.yml:3:1: warning: x\na.yml:4:1: warning: x\n  hint: do a\n\
                     a.yml:2:1: warning: y\n  hint: do b\n";
        assert_eq!(list_under_hints(&faults), lines);
        let lines = "a.yml:1:1: warning: x (and at 2 more places)\n  hint: do a\na.yml:2:1: warning: y\n  hint: do b\n";
        assert_eq!(list_once(&faults), lines);
    }
}

//! `remoor import`.

use super::fleet::show_faults;
use crate::cli::args::ImportArgs;
use crate::cli::drivers::{self, ImportRequest, ImportSummary};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::table::Table;
use remoor_model::count_noun;
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
    out.table(&services(&summary))?;
    let mut text = String::new();
    for fault in summary.unknown.iter().chain(&faults) {
        text.push_str(&format!("{fault}\n"));
    }
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
    for (command, purpose) in steps {
        text.push_str(&format!("  {command:<32} {purpose}\n"));
    }
    out.text(&text)?;
    Ok(exit)
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

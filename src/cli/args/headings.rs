//! The help of the top command lists its commands under headings. clap has no such headings, so
//! this module generates a help template from one table. A test requires that each command is in
//! the table exactly once.

use clap::Command;

/// Each heading with its commands, in the order of the help.
pub(super) const HEADINGS: [(&str, &[&str]); 7] = [
    ("Look", &["status", "why", "diff", "history", "watch", "nodes", "job", "check", "wait", "inventory"]),
    ("Decide", &["lint", "apply", "update", "resetup", "adopt", "undo", "pause", "resume", "maintenance"]),
    ("Nodes", &["node", "commission", "decommission", "drain", "zone", "remove", "leave"]),
    ("Cluster", &["init", "join", "promote", "demote", "raft-members"]),
    ("Keys", &["token", "key", "accept", "trust-key"]),
    ("Disaster", &["backup", "restore", "recover"]),
    ("Local", &["play", "import", "digest", "agent", "completions", "man", "schema", HELP]),
];

/// The command that clap adds itself after the template is made.
const HELP: &str = "help";
const ABOUT_HELP: &str = "Print this help, or the help of a command";

/// Sets the template of the top command's help.
pub(super) fn add_to(command: Command) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let names = HEADINGS.iter().flat_map(|(_, names)| names.iter());
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut template = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in HEADINGS {
        template.push_str(&format!("\n{header}{heading}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| ABOUT_HELP.to_owned(), ToString::to_string);
            template.push_str(&format!("  {literal}{name}{literal:#}{:gap$}  {about}\n", "", gap = width - name.len()));
        }
    }
    template.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::command;
    use std::collections::BTreeSet;

    /// The width of clap's own help, in columns.
    const WIDTH: usize = 100;

    #[test]
    fn each_command_is_under_exactly_one_heading() {
        let listed: Vec<&str> = HEADINGS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut command = command();
        command.build();
        let there: BTreeSet<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), there);
        assert_eq!(listed.len(), there.len(), "a command is listed twice");
    }

    #[test]
    fn the_help_has_headings_and_fits_the_screen() {
        let long = command().render_long_help().to_string();
        let examples = long.find("Examples:").expect("examples");
        let mut last = examples;
        for (heading, names) in HEADINGS {
            let at = long.find(&format!("\n{heading}:\n  {}", names[0])).expect(heading);
            assert!(at > last, "{heading} is not in order:\n{long}");
            last = at;
        }
        for help in [long, command().render_help().to_string()] {
            assert!(help.contains("Exit codes:") && help.contains("-V, --version"), "{help}");
            assert!(!help.contains('{') && !help.contains('}'), "a tag is left: {help}");
            for line in help.lines() {
                assert!(line.chars().count() <= WIDTH, "too wide: {line}");
            }
        }
    }
}

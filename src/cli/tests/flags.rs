//! The flags are consistent, and docs/reference/cli.md documents all of them.

use crate::cli::args::{self, Verb};
use crate::cli::command::local;
use crate::cli::exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use clap::Command;

const DOC: &str = include_str!("../../../docs/reference/cli.md");

fn parse(line: &str) -> Result<Verb, clap::Error> {
    args::parse(line.split_whitespace().map(Into::into)).map(|cli| cli.verb)
}

/// Calls `visit` for every command with its full name.
fn visit_commands(command: &Command, name: String, visit: &mut impl FnMut(&str, &Command)) {
    visit(&name, command);
    for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
        visit_commands(sub, format!("{name} {}", sub.get_name()), visit);
    }
}

#[test]
fn the_clap_definition_is_valid() {
    args::command().debug_assert();
}

#[test]
fn every_flag_and_command_is_documented() {
    let mut missing = Vec::new();
    visit_commands(&args::command(), "remoor".into(), &mut |name, command| {
        let documented =
            DOC.contains(name) || name.starts_with("remoor job ") && DOC.contains("remoor job list | show JOB");
        if !documented && name != "remoor node" {
            missing.push(name.to_owned());
        }
        for arg in command.get_arguments() {
            let long = arg.get_long().map(|l| format!("--{l}"));
            let short = arg.get_short().map(|s| format!("`-{s}`"));
            for flag in long.into_iter().chain(short) {
                // The match must end after the name, because `--now` does not document `--no`.
                let known = DOC.match_indices(&flag).any(|(at, _)| {
                    DOC[at + flag.len()..].chars().next().is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-')
                });
                if !known {
                    missing.push(format!("{name} {flag}"));
                }
            }
            if !arg.is_hide_set() && arg.get_help().is_none() && !arg.is_positional() {
                missing.push(format!("{name} {} has no help", arg.get_id()));
            }
        }
    });
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_help_ends_with_the_exit_codes() {
    visit_commands(&args::command(), "remoor".into(), &mut |name, command| {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains(exit::HELP), "{name}");
    });
    for code in exit::Exit::ALL {
        assert!(DOC.contains(&format!("| {} |", code.code())), "{code:?} is not in docs/reference/cli.md");
    }
}

const INVALID_USAGE: &[&str] = &[
    "remoor",
    "remoor stauts",
    "remoor resetup",
    "remoor resetup w1 --group web",
    "remoor wait w1",
    "remoor wait w1 --for=happy",
    "remoor maintenance w1",
    "remoor maintenance w1 --for 1h --end",
    "remoor status -o yaml",
    "remoor status --json -o wide",
    "remoor status --manager m1:7947",
    "remoor join m1:7947 --advertise 10.0.0.4 --token t --token-file f",
    "remoor leave w1",
    "remoor leave --no-wait --timeout 1m",
    "remoor init --advertise nowhere",
    "remoor token",
    "remoor token rotate",
    "remoor token rotate --role operator",
    "remoor accept",
    "remoor accept w7 --deny --role worker",
    "remoor exec run",
    "remoor history -n 0",
    "remoor resetup w1 --check --detach",
    "remoor undo w1",
    "remoor promote",
    "remoor demote --all",
    "remoor promote w1 --no-wait --timeout 1m",
    "remoor remove",
    "remoor remove --all",
    "remoor nodes w1 --removed",
    "remoor raft-members m1",
    "remoor recover",
    "remoor recover --dry-run",
    "remoor recover --delete-archives 30d --force-new-cluster",
    "remoor recover --set-addr m1=10.0.0.1 --even-if-behind",
    "remoor recover --force-new-cluster --set-addr m1",
    "remoor recover --force-new-cluster --set-addr m1=10.0.0.1:7947",
    "remoor backup",
    "remoor backup f --end",
    "remoor backup d --every 6h",
    "remoor backup f --verify --every 6h --keep 2",
    "remoor restore",
    "remoor check",
    "remoor check w1 --file goss.yml",
    "remoor check --all --add file /x",
    "remoor check w1 --only a",
    "remoor check --fleet d --as w1 --file a",
    "remoor check --as w1",
    "remoor check --file a --cache 5s",
    "remoor check --file a --sleep 2s",
    "remoor check --file a --parallel 0",
    "remoor check --file a -o yaml",
    "remoor check --add file",
    "remoor check --add file /x --vars v.yml --file a",
    "remoor check w1 --list --changed-only",
    "remoor check --add file /x --changed-only",
    "remoor status -o junit",
    "remoor resetup w1 -e colour",
    "remoor resetup w1 -e a=[",
    "remoor resetup w1 -e a=1 --service etcd",
    "remoor decommission w1 -e a=1",
    "remoor play",
    "remoor play site.yml --exit-code",
    "remoor play site.yml -f 0",
    "remoor play site.yml -c winrm",
    "remoor play site.yml -o wide",
    "remoor play site.yml -i",
    "remoor drain w1 --wait --no-wait",
    "remoor remove m1 --wait --no-wait",
];

const VALID_USAGE: &[&str] = &[
    "remoor resetup w1 w2 -s etcd --force --now --no-queue --detach",
    "remoor resetup --group web",
    "remoor join m1:7947 --advertise 10.0.0.4",
    "remoor leave --yes --no-wait",
    "remoor drain w1 --no-wait",
    "remoor drain w1 --wait",
    "remoor remove m1 --wait --timeout 1m",
    "remoor node add w1 --zone rack-a",
    "remoor maintenance w1 --for 1h30m",
    "remoor status --watch",
    "remoor status --watch=5s --exit-code",
    "remoor status --manager m1:7947,m2:7947 --credentials op.json",
    "remoor adopt w1 /etc/a /etc/b",
    "remoor adopt --all",
    "remoor resume",
    "remoor check w1 w2 --json",
    "remoor check -g web -o wide",
    "remoor check --file a b - --vars v --vars w --vars-inline {} --only x --retry-timeout 1m --sleep 2s",
    "remoor check --file a -o nagios --parallel 4 --changed-only",
    "remoor check --add file /etc/a /etc/b --file goss.yml",
    "remoor check --file",
    "remoor check --fleet d --as w1 --only x",
    "remoor check --render --file a --strict",
    "remoor check --file a --serve :8080 --cache 1m --endpoint /x",
    "remoor check --autoadd nginx --file",
    "remoor schema fleet",
    "remoor inventory --list",
    "remoor init --advertise 10.0.0.1 --authorize root",
    "remoor join m1:7947 --token-file - --advertise fd00::4 --manager",
    "remoor join m1:7947 --token remoor-1-00 --wait 10m --advertise 10.0.0.4",
    "remoor token list -o json",
    "remoor token rotate --role worker --keep-old 24h",
    "remoor accept w7 --role manager --fingerprint SHA256:x",
    "remoor accept w7 --deny",
    "remoor node add h1 --ssh-user root --ssh-port 22 --identity k --manager --name w1 --fingerprint SHA256:x",
    "remoor exec -",
    "remoor agent",
    "remoor job logs 17 -f",
    "remoor job cancel w2 --now",
    "remoor resetup -g web --check --force",
    "remoor undo 17 --detach",
    "remoor promote w1 w2 --wait --timeout=10m",
    "remoor demote m1 --no-wait -q",
    "remoor recover --force-new-cluster --dry-run --even-if-behind --even-if-majority-alive -y --dir d --json",
    "remoor recover --force-new-cluster --set-addr m1=10.0.0.1 --set-addr m2=10.0.0.2:7947,7946",
    "remoor recover --set-addr m1=10.0.0.1 --set-addr m2=10.0.0.2",
    "remoor recover --delete-archives 30d --dry-run --dir d -o json",
    "remoor recover --delete-archives 1s -y",
    "remoor backup f",
    "remoor backup --verify f -q",
    "remoor backup d --every 6h --keep 14",
    "remoor backup --end",
    "remoor restore f --name m2 --set-addr m2=10.0.0.9 --epoch 7 --dir d",
    "remoor remove w1 m2 -f -y --timeout=10m",
    "remoor nodes --removed --json",
    "remoor raft-members --table --json",
    "remoor resetup w1 -e colour=red -e ports=[1,2]",
    "remoor update --group web --extra-vars a=yes",
    "remoor commission w1 -e a=",
    "remoor play site.yml -i hosts -i a,b, -l web:!w1 -t a,b --skip-tags c -C -D --exit-code -e a=1 -e @v.yml -f 5 -b",
    "remoor play site.yml -c local -u deploy --key-file k -T 5 --ssh-config f --root . --force -v -o json",
];

#[test]
fn invalid_usage_is_rejected_and_valid_usage_accepted() {
    for wrong in INVALID_USAGE {
        assert!(parse(wrong).is_err_and(|e| e.exit_code() == 2), "{wrong}");
    }
    for right in VALID_USAGE {
        assert!(parse(right).is_ok(), "{right}: {}", parse(right).unwrap_err());
    }
    let tip = parse("remoor resetpu").unwrap_err().to_string();
    assert!(tip.contains("'resetup'"), "{tip}");
}

#[test]
fn plugin_output_is_recognized_in_invalid_arguments() {
    let asks = |line: &str| args::asks_for_a_plugin(&line.split(' ').map(Into::into).collect::<Vec<_>>());
    for line in [
        "remoor check --fiel x -o nagios",
        "remoor check -onagios",
        "remoor check -qo nagios",
        "remoor check --file x -o=nagios",
        "remoor check --output nagios w1 --file",
        "remoor check --output=nagios",
    ] {
        assert!(asks(line), "{line}");
    }
    for line in
        ["remoor check -o tap nagios", "remoor status -o nagios", "remoor check -- -o nagios", "remoor check nagios"]
    {
        assert!(!asks(line), "{line}");
    }
}

#[test]
fn completions_are_made_for_the_usual_shells() {
    for (shell, sign) in [("bash", "_remoor()"), ("zsh", "#compdef remoor"), ("fish", "complete -c remoor")] {
        let Ok(Verb::Completions(args)) = parse(&format!("remoor completions {shell}")) else { panic!("{shell}") };
        let out = Out::memory(Format::Table, false);
        local::completions(&out, &args).unwrap();
        let (script, _) = out.captured_text();
        assert!(script.contains(sign) && script.contains("trust-key"), "{shell}");
    }
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("man1");
    let Ok(Verb::Man(args)) = parse(&format!("remoor man {}", target.display())) else { panic!("man") };
    local::man(&Out::memory(Format::Table, false), &args).unwrap();
    let page = std::fs::read_to_string(target.join("remoor-resetup.1")).unwrap();
    assert!(page.contains("no\\-queue") && page.contains("refused by a safety rule"), "{page}");
    assert!(!target.join("remoor-exec.1").exists(), "exec is hidden");
}

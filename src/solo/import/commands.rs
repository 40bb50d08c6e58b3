//! Files that commands change, as far as the text of a command shows: files that it is redirected
//! to, files after an option for the output, the file in `creates`, and files of well-known
//! programs. The content of such a file is not known, so a cleanup keeps it.

use crate::fleet::effects;
use remoor_playbook::PredictedTask;
use serde_json::Value;

/// Options of a task that are no part of its command.
const CONDITIONS: [&str; 5] = ["chdir", "creates", "executable", "removes", "stdin"];
/// Options before the path of an output file.
const OUTPUTS: [&str; 4] = ["-out", "-o", "--out", "--output"];

/// The files that a task of the module `command`, `shell`, `raw` or `script` changes.
pub(super) fn changed_files(task: &PredictedTask) -> Vec<String> {
    let creates = task.args.as_ref().and_then(|args| args.get("creates")).and_then(Value::as_str);
    let mut task = task.clone();
    task.args.iter_mut().for_each(|args| args.retain(|name, _| !CONDITIONS.contains(&name.as_str())));
    let found = files_of_text(&effects::command_text(&task));
    creates.map(str::to_owned).into_iter().chain(found).filter(|path| is_plain(path)).collect()
}

fn files_of_text(text: &str) -> Vec<String> {
    // Each of these characters begins another command.
    let commands = text.split(['\n', ';', '&', '|']);
    commands
        .flat_map(|command| {
            let spaced = command.replace(">>", ">").replace('>', " > ");
            let words: Vec<&str> = spaced.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
            of_command(&words)
        })
        .collect()
}

fn of_command(words: &[&str]) -> Vec<String> {
    let after = |names: &[&str]| {
        let pairs = words.windows(2).filter(|pair| names.contains(&pair[0]));
        pairs.map(|pair| pair[1].to_owned()).collect::<Vec<_>>()
    };
    let paths = || words.iter().skip(1).filter(|word| !word.starts_with('-'));
    let mut out = after(&[">"]);
    let program = words.first().map(|word| word.rsplit('/').next().unwrap_or_default()).unwrap_or_default();
    match program {
        "newaliases" => out.push("/etc/aliases.db".to_owned()),
        "pam-auth-update" => {
            let names = ["account", "auth", "password", "session", "session-noninteractive"];
            out.extend(names.map(|name| format!("/etc/pam.d/common-{name}")));
        }
        "update-ca-certificates" => out.push("/etc/ssl/certs/ca-certificates.crt".to_owned()),
        "update-alternatives" => {
            out.extend(after(&["--set", "--config", "--auto"]).iter().map(|name| format!("/etc/alternatives/{name}")));
        }
        "postmap" | "postalias" => {
            out.extend(paths().map(|path| format!("{}.db", path.rsplit(':').next().unwrap_or_default())));
        }
        "ssh-keygen" => out.extend(after(&["-f"]).into_iter().flat_map(|path| [format!("{path}.pub"), path])),
        "tee" | "touch" => out.extend(paths().map(|path| (*path).to_owned())),
        "openssl" | "curl" => out.extend(after(&OUTPUTS)),
        "wget" => out.extend(after(&["-O"])),
        _ => {}
    }
    out
}

/// Whether a word is the path of one file, without variables and wildcards of a shell.
fn is_plain(word: &str) -> bool {
    word.starts_with('/') && !word.ends_with('/') && !word.contains(['$', '*', '?', '`', '{', '(', '"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_the_text_of_a_command() {
        for (text, files) in [
            ("newaliases", "/etc/aliases.db"),
            ("postmap hash:/etc/postfix/virtual", "/etc/postfix/virtual.db"),
            ("sudo /usr/sbin/update-alternatives --set editor /usr/bin/vim", ""),
            ("/usr/bin/update-alternatives --set editor /usr/bin/vim", "/etc/alternatives/editor"),
            ("ssh-keygen -N '' -f /etc/app/key", "/etc/app/key.pub /etc/app/key"),
            ("openssl dhparam -out /etc/ssl/dh.pem 2048", "/etc/ssl/dh.pem"),
            ("a | b > /etc/one && echo x >>'/etc/two'; true 2> /dev/null", "/etc/one /etc/two /dev/null"),
            ("echo x | tee -a /etc/three", "/etc/three"),
            ("cat /etc/passwd > $OUT; echo > relative; touch /srv/*", ""),
        ] {
            let found: Vec<String> = files_of_text(text).into_iter().filter(|path| is_plain(path)).collect();
            assert_eq!(found.join(" "), files, "{text}");
        }
    }
}

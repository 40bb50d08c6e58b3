//! `package`: what dpkg knows.

use super::super::spawn::run;
use super::{Answers, Ask, unknown};
use std::process::Command;

const DEFAULT_MS: u64 = 10_000;

pub(super) fn ask(ask: &Ask) -> Answers {
    let mut command = Command::new("dpkg-query");
    command.args(["-f", "${Status} ${Version}\\n", "-W", &ask.check.name]).env("LC_ALL", "C");
    match run(&mut command, ask.timeout(DEFAULT_MS)) {
        Ok(output) if output.status <= 1 => {
            let versions = installed(&output.stdout.text());
            Answers::from([("installed", Ok((!versions.is_empty()).into())), ("versions", Ok(versions.into()))])
        }
        Ok(output) => Answers::from([("installed", Err(unknown(output.stderr.text().trim())))]),
        Err(why) => Answers::from([("installed", Err(unknown(why)))]),
    }
}

/// Versions of those that are fully installed, from lines like `install ok installed 1.22.1-9`.
fn installed(text: &str) -> Vec<String> {
    let version = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_wanted, "ok", "installed", version] => Some(version.to_owned()),
        _ => None,
    };
    text.lines().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_installation_counts() {
        let text = "install ok installed 1.22.1-9\nhold ok installed 2\ndeinstall ok config-files 1.0\ninstall ok half-configured 3\nunknown ok not-installed \n";
        assert_eq!(installed(text), ["1.22.1-9", "2"]);
    }
}

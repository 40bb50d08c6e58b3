//! Whom to talk to. Everything here may come from an inventory that a person wrote, and ends up on a command line or in a
//! configuration file of ssh; so each part is checked, and what does not fit is refused rather than quoted.

use super::error::SshError;
use super::host_key;
use crate::model::NodeName;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One node as the inventory has it.
#[derive(Debug, Clone)]
pub struct Target {
    pub node: NodeName,
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// A private key file; None: what the user's own configuration and agent offer.
    pub identity: Option<PathBuf>,
    /// Private key files that are offered after all that identity, agent and the operator's configuration have, and to this
    /// host alone, not to one on the way.
    pub last_keys: Vec<PathBuf>,
    /// The executor runs under `sudo -n`.
    pub sudo: bool,
    /// `ssh-ed25519 AAAA...` lines. Any of them is accepted, nothing else is.
    pub host_keys: Vec<String>,
    /// Further options, keyword and value, that win over the operator's configuration but not over what must hold.
    pub options: Vec<(String, String)>,
    /// The operator's ssh configuration, read after what must hold.
    pub user_config: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Where the node's executor keeps its builds and its state; None: where [`super::RemoteConfig`] says.
    pub state_dir: Option<PathBuf>,
}

impl Target {
    /// Whether ssh may go another way than straight to host and port, by the operator's configuration, a jump host or a
    /// command. Then a bare connection tells nothing, and only a login does.
    pub fn takes_another_way(&self) -> bool {
        let ways = ["proxyjump", "proxycommand", "hostname"];
        self.user_config.is_some()
            || self.options.iter().any(|(name, _)| ways.iter().any(|w| name.eq_ignore_ascii_case(w)))
    }

    /// Fit to be logged in to: names that are, and a host key to know it by.
    pub(super) fn check(&self) -> Result<(), SshError> {
        if self.host_keys.is_empty() {
            return Err(SshError::Name(format!("no host key of {} is recorded", self.node)));
        }
        self.check_names()
    }

    /// Fit for a login of a person's: names that are, or nothing where ssh's own configuration may say it.
    pub(super) fn check_personal(&self) -> Result<(), SshError> {
        let user = if self.user.is_empty() { "anybody".to_owned() } else { self.user.clone() };
        Target { user, ..self.clone() }.check_names()
    }

    pub(super) fn check_names(&self) -> Result<(), SshError> {
        check_host(&self.host)?;
        if !is_word(&self.user) {
            return Err(SshError::Name(format!("user {:?}", self.user)));
        }
        for key in self.identity.iter().chain(&self.last_keys) {
            check_path(key)?;
        }
        if let Some(dir) = &self.state_dir {
            check_path(dir)?;
        }
        Ok(())
    }

    /// A known_hosts file for this node alone.
    pub(super) fn known_hosts(&self) -> Result<String, SshError> {
        let mut text = String::new();
        for line in &self.host_keys {
            let key = host_key::normal(line).ok_or_else(|| SshError::Name(format!("host key {line:?}")))?;
            // Writing to a String does not fail.
            let _infallible = writeln!(text, "{ALIAS} {key}");
        }
        Ok(text)
    }

    /// A configuration for ssh: what must hold for this host first, since the first value wins, then the user's own, which
    /// may name a jump host, certificates or hardware keys.
    pub(super) fn config(&self) -> Result<String, SshError> {
        self.config_with(&format!("{TRUST}{FIXED}"), &[])
    }

    /// The same for a login of a person's: host keys are looked up as the person's ssh does it. Without a configuration of
    /// the target's own, those that ssh reads by itself are in it.
    pub(super) fn personal_config(&self) -> Result<String, SshError> {
        let usual: &[&str] = if self.user_config.is_some() { &[] } else { &["~/.ssh/config", "/etc/ssh/ssh_config"] };
        self.config_with(FIXED, usual)
    }

    fn config_with(&self, fixed: &str, more: &[&str]) -> Result<String, SshError> {
        let mut text = format!("Host {}\n{fixed}", self.host);
        for (name, value) in &self.options {
            let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
            if !plain || value.trim().is_empty() || value.chars().any(char::is_control) {
                return Err(SshError::Name(format!("option {name:?} {value:?}")));
            }
            let _infallible = writeln!(text, "  {name} {value}");
        }
        if let Some(path) = self.user_config.as_deref() {
            check_path(path)?;
            let _infallible = write!(text, "Match all\n  Include {}\n", path.display());
        }
        for path in more {
            let _infallible = write!(text, "Match all\n  Include {path}\n");
        }
        if !self.last_keys.is_empty() {
            // Files add up, in the order in which they are read.
            let _infallible = writeln!(text, "Host {}", self.host);
            for key in &self.last_keys {
                let _infallible = writeln!(text, "  IdentityFile {}", key.display());
            }
        }
        Ok(text)
    }
}

/// The name that known_hosts has the node's keys under, whatever the user's configuration makes of its address.
const ALIAS: &str = "remoor-node";

/// Of a manager's login: keys from the inventory only.
const TRUST: &str = "  HostKeyAlias remoor-node
  GlobalKnownHostsFile /dev/null
  KnownHostsCommand none
  CheckHostIP no
";

/// Nothing here may be left to the user's configuration: texts that can be told apart, no forwarding, no command of somebody
/// else, nothing learnt about host keys by the way.
const FIXED: &str = "  VerifyHostKeyDNS no
  UpdateHostKeys no
  LogLevel INFO
  ServerAliveCountMax 3
  ConnectionAttempts 1
  ClearAllForwardings yes
  ForwardAgent no
  ForwardX11 no
  PermitLocalCommand no
  RemoteCommand none
  RequestTTY no
  Tunnel no
";

/// A host name or an address; nothing that ssh could take for an option, a user or a port.
pub(super) fn check_host(host: &str) -> Result<(), SshError> {
    if host.parse::<IpAddr>().is_ok() || is_word(host) {
        return Ok(());
    }
    Err(SshError::Name(format!("host {host:?}")))
}

/// An absolute path that needs no quoting anywhere, and holds none of ssh's own marks (`%`, `~`).
pub(super) fn check_path(path: &Path) -> Result<(), SshError> {
    let fits = path.to_str().is_some_and(|text| {
        text.starts_with('/') && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+@:,=".contains(&b))
    });
    if fits { Ok(()) } else { Err(SshError::Name(format!("path {path:?}"))) }
}

/// `^[A-Za-z0-9][A-Za-z0-9._-]*$`, and `_` at the start, which users may have.
pub(super) fn is_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 253
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|b| plain(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
pub(super) fn sample(host: &str) -> Target {
    Target {
        node: "w1".into(),
        host: host.to_owned(),
        port: 22,
        user: "root".to_owned(),
        identity: None,
        last_keys: Vec::new(),
        sudo: false,
        host_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl".to_owned()],
        options: Vec::new(),
        user_config: None,
        connect_timeout: Duration::from_secs(10),
        state_dir: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_refused() {
        for good in ["web-1", "web-1.example.org", "10.0.0.1", "::1", "fe80::1", "1host"] {
            sample(good).check().unwrap();
        }
        let odd = [
            "",
            "-oProxyCommand=id",
            "a b",
            "root@web",
            "web;id",
            "web\n",
            "[::1]",
            "ssh://web",
            "*",
            "!web",
            "w,x",
            "$(id)",
        ];
        for bad in odd {
            assert!(matches!(sample(bad).check(), Err(SshError::Name(_))), "{bad:?}");
            let user = Target { user: bad.to_owned(), ..sample("web") };
            assert!(matches!(user.check(), Err(SshError::Name(_))), "{bad:?}");
        }
        for path in ["relative", "/a b", "/a\nProxyCommand id", "/%h", "~/x"] {
            let target = Target { identity: Some(path.into()), ..sample("web") };
            assert!(matches!(target.check(), Err(SshError::Name(_))), "{path}");
            let target = Target { last_keys: vec!["/k".into(), path.into()], ..sample("web") };
            assert!(matches!(target.check(), Err(SshError::Name(_))), "{path}");
        }
    }

    #[test]
    fn without_a_recorded_key_nobody_is_talked_to() {
        let target = Target { host_keys: vec![], ..sample("web") };
        assert!(matches!(target.check(), Err(SshError::Name(_))));
        let odd = Target { host_keys: vec!["@cert-authority * x".to_owned()], ..sample("web") };
        assert!(odd.known_hosts().is_err());
        assert_eq!(sample("web").known_hosts().unwrap().lines().count(), 1);
    }

    #[test]
    fn own_settings_come_before_the_users() {
        let text = Target { user_config: Some("/root/.ssh/config".into()), ..sample("web") }.config().unwrap();
        assert!(text.starts_with("Host web\n  HostKeyAlias"));
        assert!(text.ends_with("Match all\n  Include /root/.ssh/config\n"));
        assert!(!sample("web").config().unwrap().contains("Include"));
        let last_keys = vec!["/root/.ssh/id_rsa".into(), "/k".into()];
        let target = Target { user_config: Some("/c".into()), last_keys, ..sample("web") };
        let end = "Match all\n  Include /c\nHost web\n  IdentityFile /root/.ssh/id_rsa\n  IdentityFile /k\n";
        assert!(target.config().unwrap().ends_with(end), "the user's own come first");
        let jump = Target { options: vec![("ProxyJump".to_owned(), "m1".to_owned())], ..sample("web") };
        assert_eq!(jump.config().unwrap(), format!("Host web\n{TRUST}{FIXED}  ProxyJump m1\n"));
        let personal = Target { user: String::new(), port: 0, host_keys: vec![], ..sample("web") };
        personal.check_personal().unwrap();
        let text = personal.personal_config().unwrap();
        assert!(!text.contains("KnownHosts") && text.ends_with("Match all\n  Include /etc/ssh/ssh_config\n"), "{text}");
        let own = Target { user_config: Some("/c".into()), ..personal }.personal_config().unwrap();
        assert!(own.ends_with("Match all\n  Include /c\n"), "{own}");
        for (name, value) in [("Proxy Jump", "x"), ("", "x"), ("ProxyJump", " "), ("ProxyJump", "a\nUser b")] {
            let odd = Target { options: vec![(name.to_owned(), value.to_owned())], ..sample("web") };
            assert!(matches!(odd.config(), Err(SshError::Name(_))), "{name:?} {value:?}");
        }
    }
}

//! The target of a login. All parts may come from an inventory that a person wrote, and are put
//! into a command line or an ssh configuration. So each part is checked, and an unsuitable one is
//! refused instead of quoted.

use super::error::SshError;
use super::host_key;
use remoor_model::NodeName;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One node as the inventory describes it.
#[derive(Debug, Clone)]
pub struct LoginTarget {
    pub node: NodeName,
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// A private key file. None: the keys of the user's own configuration and SSH agent.
    pub identity: Option<PathBuf>,
    /// Private key files that are offered after the keys of identity, SSH agent and the operator's
    /// configuration. They are offered only to this host, not to a jump host.
    pub last_keys: Vec<PathBuf>,
    /// Whether the executor runs under `sudo -n`.
    pub sudo: bool,
    /// `ssh-ed25519 AAAA...` lines. Only these keys are accepted.
    pub host_keys: Vec<String>,
    /// More options, keyword and value. They override the operator's configuration but not the
    /// fixed options.
    pub options: Vec<(String, String)>,
    /// The operator's ssh configuration, read after the fixed options.
    pub user_config: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Directory of builds and state of the node's executor. None: the default of
    /// [`super::RemoteConfig`].
    pub state_dir: Option<PathBuf>,
}

impl LoginTarget {
    /// Whether ssh may use another route than host and port, by the operator's configuration, a
    /// jump host or a proxy command. With another route, only a login shows whether the node is
    /// reachable; a plain TCP connection does not.
    pub fn uses_another_route(&self) -> bool {
        let ways = ["proxyjump", "proxycommand", "hostname"];
        self.user_config.is_some()
            || self.options.iter().any(|(name, _)| ways.iter().any(|w| name.eq_ignore_ascii_case(w)))
    }

    /// Checks that host, user and paths are valid, and that a host key is recorded.
    pub(super) fn check(&self) -> Result<(), SshError> {
        if self.host_keys.is_empty() {
            return Err(SshError::Name(format!("no host key of {} is recorded", self.node)));
        }
        self.check_names()
    }

    /// Checks host, user and paths for a person's login. The user may be empty, because ssh's
    /// configuration may supply the user.
    pub(super) fn check_personal(&self) -> Result<(), SshError> {
        let user = if self.user.is_empty() { "anybody".to_owned() } else { self.user.clone() };
        LoginTarget { user, ..self.clone() }.check_names()
    }

    pub(super) fn check_names(&self) -> Result<(), SshError> {
        check_host(&self.host)?;
        if !is_plain_name(&self.user) {
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

    /// The content of a known_hosts file for this node only.
    pub(super) fn known_hosts(&self) -> Result<String, SshError> {
        let mut text = String::new();
        for line in &self.host_keys {
            let key = host_key::normalize_key(line).ok_or_else(|| SshError::Name(format!("host key {line:?}")))?;
            // Writing to a String does not fail.
            let _infallible = writeln!(text, "{ALIAS} {key}");
        }
        Ok(text)
    }

    /// The content of an ssh configuration. The fixed options for this host come first, because the
    /// first value wins. The user's own configuration follows; it may name a jump host,
    /// certificates or hardware keys.
    pub(super) fn config(&self) -> Result<String, SshError> {
        self.config_with(&format!("{TRUST}{FIXED}"), &[])
    }

    /// Like `config`, for a person's login: host keys are looked up by the person's own ssh
    /// settings. If there is no `user_config`, the configuration includes the files that ssh reads
    /// by default.
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
            // ssh tries all identity files, in the order in which it reads them. So these keys,
            // which are written last, are tried last.
            let _infallible = writeln!(text, "Host {}", self.host);
            for key in &self.last_keys {
                let _infallible = writeln!(text, "  IdentityFile {}", key.display());
            }
        }
        Ok(text)
    }
}

/// The name of the node in known_hosts. It stays the same if the user's configuration changes the
/// address of the node.
const ALIAS: &str = "remoor-node";

/// Options for a manager's login: ssh accepts only keys from the inventory.
const TRUST: &str = "  HostKeyAlias remoor-node
  GlobalKnownHostsFile /dev/null
  KnownHostsCommand none
  CheckHostIP no
";

/// Options that the user's configuration must not change. They keep the form of ssh's messages,
/// which remoor classifies. They also forbid forwarding, foreign commands and automatic changes of
/// known host keys.
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

/// Accepts a host name or an address. Refuses anything that ssh could take for an option, a user or
/// a port.
pub(super) fn check_host(host: &str) -> Result<(), SshError> {
    if host.parse::<IpAddr>().is_ok() || is_plain_name(host) {
        return Ok(());
    }
    Err(SshError::Name(format!("host {host:?}")))
}

/// Accepts an absolute path that needs no quoting and contains no special characters of ssh (`%`,
/// `~`).
pub(super) fn check_path(path: &Path) -> Result<(), SshError> {
    let fits = path.to_str().is_some_and(|text| {
        text.starts_with('/') && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+@:,=".contains(&b))
    });
    if fits { Ok(()) } else { Err(SshError::Name(format!("path {path:?}"))) }
}

/// Whether `text` matches `^[A-Za-z0-9_][A-Za-z0-9._-]*$` and has at most 253 bytes. User names may
/// begin with `_`.
pub(super) fn is_plain_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 253
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|b| plain(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
pub(super) fn sample(host: &str) -> LoginTarget {
    LoginTarget {
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
    fn invalid_names_are_refused() {
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
            let user = LoginTarget { user: bad.to_owned(), ..sample("web") };
            assert!(matches!(user.check(), Err(SshError::Name(_))), "{bad:?}");
        }
        for path in ["relative", "/a b", "/a\nProxyCommand id", "/%h", "~/x"] {
            let target = LoginTarget { identity: Some(path.into()), ..sample("web") };
            assert!(matches!(target.check(), Err(SshError::Name(_))), "{path}");
            let target = LoginTarget { last_keys: vec!["/k".into(), path.into()], ..sample("web") };
            assert!(matches!(target.check(), Err(SshError::Name(_))), "{path}");
        }
    }

    #[test]
    fn a_target_without_a_recorded_key_is_refused() {
        let target = LoginTarget { host_keys: vec![], ..sample("web") };
        assert!(matches!(target.check(), Err(SshError::Name(_))));
        let odd = LoginTarget { host_keys: vec!["@cert-authority * x".to_owned()], ..sample("web") };
        assert!(odd.known_hosts().is_err());
        assert_eq!(sample("web").known_hosts().unwrap().lines().count(), 1);
    }

    #[test]
    fn fixed_options_come_before_the_users() {
        let text = LoginTarget { user_config: Some("/root/.ssh/config".into()), ..sample("web") }.config().unwrap();
        assert!(text.starts_with("Host web\n  HostKeyAlias"));
        assert!(text.ends_with("Match all\n  Include /root/.ssh/config\n"));
        assert!(!sample("web").config().unwrap().contains("Include"));
        let last_keys = vec!["/root/.ssh/id_rsa".into(), "/k".into()];
        let target = LoginTarget { user_config: Some("/c".into()), last_keys, ..sample("web") };
        let end = "Match all\n  Include /c\nHost web\n  IdentityFile /root/.ssh/id_rsa\n  IdentityFile /k\n";
        assert!(target.config().unwrap().ends_with(end), "the user's own come first");
        let jump = LoginTarget { options: vec![("ProxyJump".to_owned(), "m1".to_owned())], ..sample("web") };
        assert_eq!(jump.config().unwrap(), format!("Host web\n{TRUST}{FIXED}  ProxyJump m1\n"));
        let personal = LoginTarget { user: String::new(), port: 0, host_keys: vec![], ..sample("web") };
        personal.check_personal().unwrap();
        let text = personal.personal_config().unwrap();
        assert!(!text.contains("KnownHosts") && text.ends_with("Match all\n  Include /etc/ssh/ssh_config\n"), "{text}");
        let own = LoginTarget { user_config: Some("/c".into()), ..personal }.personal_config().unwrap();
        assert!(own.ends_with("Match all\n  Include /c\n"), "{own}");
        for (name, value) in [("Proxy Jump", "x"), ("", "x"), ("ProxyJump", " "), ("ProxyJump", "a\nUser b")] {
            let odd = LoginTarget { options: vec![(name.to_owned(), value.to_owned())], ..sample("web") };
            assert!(matches!(odd.config(), Err(SshError::Name(_))), "{name:?} {value:?}");
        }
    }
}

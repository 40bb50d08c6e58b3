//! The login data of one host: `ssh:` of `remoor.yml`, overridden by the host's `ansible_*`
//! variables.

use super::fleet::Fleet;
use super::inventory::split_words;
use super::settings::Provisioner;
use super::ssh_args;
use remoor_model::Fault;
use serde_json::Value;

/// The login data of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// Name or address to connect to.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Private key: a file of the managers. None: the keys of the SSH agent and the user's default
    /// keys. The cluster's own SSH key is always tried last.
    pub identity: Option<String>,
    pub sudo: bool,
    /// More options for an ssh_config, keyword and value. None of them affects host keys.
    pub options: Vec<(String, String)>,
    /// An ssh_config: a file of the fleet (relative) or of the managers (absolute).
    pub config: Option<String>,
    pub connect_timeout_ms: u64,
    /// The node's data directory. None: the default. The agent of the node must use the same
    /// directory.
    pub state_dir: Option<String>,
}

/// Variables with arguments for the command line of `ssh`.
const ARGS: [&str; 2] = ["ansible_ssh_common_args", "ansible_ssh_extra_args"];

impl Fleet {
    /// The login data of the host `name`. Err for an unknown host, and for a variable that cannot
    /// be used, with the position of the variable.
    pub fn ssh_target(&self, name: &str) -> Result<SshTarget, Fault> {
        let ssh = &self.config.ssh;
        let get = |names: &[&'static str]| self.host_var(name, names);
        let text = |names: &[&'static str]| -> Result<Option<String>, Fault> {
            match get(names)? {
                None => Ok(None),
                Some((_, Value::String(text), _)) if !text.is_empty() => Ok(Some(text.clone())),
                Some((_, Value::Number(number), _)) => Ok(Some(number.to_string())),
                Some((var, _, origin)) => Err(unusable(name, var, origin, "text")),
            }
        };
        let port = match get(&["ansible_port", "ansible_ssh_port"])? {
            None => None,
            Some((var, value, origin)) => {
                let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
                let port = number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
                Some(port.ok_or_else(|| unusable(name, var, origin, "a port"))?)
            }
        };
        let sudo = match get(&["ansible_become"])? {
            None => ssh.sudo,
            Some((_, Value::Bool(sudo), _)) => *sudo,
            // In an INI inventory, only Python's booleans are booleans, so a word such as `yes` is
            // a text. Ansible accepts these words too.
            Some((var, Value::String(text), origin)) => match text.to_lowercase().as_str() {
                "yes" | "true" | "on" | "1" | "y" | "t" => true,
                "no" | "false" | "off" | "0" | "n" | "f" => false,
                _ => return Err(unusable(name, var, origin, "true or false")),
            },
            Some((var, _, origin)) => return Err(unusable(name, var, origin, "true or false")),
        };
        let args = ssh_args::read(self.ssh_words(name)?.into_iter().map(|(_, _, word)| word).collect());
        if let Some((word, hint)) = args.refused.first() {
            return Err(self.unsupported_argument(name, word, hint));
        }
        let host = text(&["ansible_host", "ansible_ssh_host"])?.unwrap_or_else(|| name.to_owned());
        // As in Ansible, the variable for the user overrides a user in the arguments for `ssh`.
        let user = text(&["ansible_user", "ansible_ssh_user"])?.or(args.user).unwrap_or_else(|| ssh.user.clone());
        for (what, value) in [("host", &host), ("user", &user)] {
            if value.starts_with('-') || value.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(Fault::error(
                    self.config.first_inventory(),
                    0,
                    0,
                    format!("`{value}` can't be the {what} of `{name}`"),
                ));
            }
        }
        Ok(SshTarget {
            host,
            port: port.or(args.port).unwrap_or(ssh.port),
            user,
            identity: text(&["ansible_ssh_private_key_file", "ansible_private_key_file"])?
                .or(args.identity)
                .or_else(|| ssh.identity.clone()),
            sudo,
            options: args.options,
            config: ssh.config.clone(),
            connect_timeout_ms: ssh.connect_timeout_ms,
            state_dir: text(&["remoor_state_dir"])?,
        })
    }

    /// The address of the host `name` that the operator set. None: the inventory has no address, or
    /// an unusable one.
    pub fn ansible_host(&self, name: &str) -> Option<String> {
        let (_, value, _) = self.host_var(name, &["ansible_host", "ansible_ssh_host"]).ok()??;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Warnings about variables of the host `name` that `ssh_target` ignores. `validate` reports
    /// these warnings.
    pub(super) fn ssh_warnings(&self, name: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for var in ARGS {
            let Ok(Some((_, Value::String(text), origin))) = self.host_var(name, &[var]) else { continue };
            for (dropped, why) in ssh_args::read(split_words(text).unwrap_or_default()).left_out {
                out.push((origin.to_owned(), format!("`{dropped}` in {var} is ignored: {why}")));
            }
        }
        for var in ["ansible_password", "ansible_ssh_pass", "ansible_become_password", "ansible_become_pass"] {
            if let Ok(Some((_, _, origin))) = self.host_var(name, &[var]) {
                out.push((
                    origin.to_owned(),
                    format!("{var} is not used: managers log in by key, and sudo asks for no password"),
                ));
            }
        }
        // If the provisioner is Ansible, `ansible_connection` has its usual effect.
        let ansible = self.host_group(name).ok().and_then(|group| self.config.groups.get(&group));
        let ansible = ansible.is_some_and(|group| group.provisioner == Provisioner::Ansible);
        if let Ok(Some((var, value, origin))) = self.host_var(name, &["ansible_connection"])
            && !ansible
            && !value.as_str().is_some_and(|kind| {
                matches!(kind.rsplit('.').next(), Some("ssh" | "smart" | "paramiko" | "paramiko_ssh"))
            })
        {
            out.push((origin.to_owned(), format!("{var} is not used: managers log in by SSH")));
        }
        out
    }

    /// The words of the variables in `ARGS`, each with its variable and origin.
    fn ssh_words(&self, name: &str) -> Result<Vec<(&'static str, &str, String)>, Fault> {
        let mut out = Vec::new();
        for var in ARGS {
            if let Some((_, value, origin)) = self.host_var(name, &[var])? {
                let words = value.as_str().and_then(|text| split_words(text).ok());
                let words = words.ok_or_else(|| unusable(name, var, origin, "words for the command line of ssh"))?;
                out.extend(words.into_iter().map(|word| (var, origin, word)));
            }
        }
        Ok(out)
    }

    /// The fault for a refused argument. `word` has the form of `ssh_args`: an option, or a letter
    /// and its value.
    fn unsupported_argument(&self, name: &str, word: &str, hint: &str) -> Fault {
        let last = word.split([' ', '=']).rfind(|part| !part.is_empty()).unwrap_or(word);
        let words = self.ssh_words(name).unwrap_or_default();
        let from = words.iter().find(|(_, _, given)| given.contains(last)).or(words.first());
        let (var, origin) = from.map_or((ARGS[0], self.config.first_inventory()), |(var, origin, _)| (*var, *origin));
        let (file, place) = split_origin(origin);
        let (line, column) = self.place(file, var, last);
        Fault::error(file, line, column, format!("`{word}` in {var} of the host `{name}` can't be used{place}"))
            .hint(hint)
    }

    /// The line and column of the first `var` in the fleet file `file`: on the first line that also
    /// contains `word`, or else on the first line with `var`. Both numbers are 0 if no line
    /// contains `var`.
    fn place(&self, file: &str, var: &str, word: &str) -> (u32, u32) {
        let lines = || self.files.text(file).into_iter().flat_map(|text| text.lines().zip(1..));
        let both = lines().find(|(line, _)| line.contains(var) && line.contains(word));
        let found = both.or_else(|| lines().find(|(line, _)| line.contains(var)));
        let column = |line: &str| line.find(var).map_or(0, |at| line[..at].chars().count() as u32 + 1);
        found.map_or((0, 0), |(line, number)| (number, column(line)))
    }

    /// The first variable of `vars` that the host has: its name, value and origin. A value that is
    /// a template is a fault, because this function renders no templates.
    fn host_var(&self, name: &str, vars: &[&'static str]) -> Result<Option<(&'static str, &Value, &str)>, Fault> {
        let host = self.host(name)?;
        for var in vars {
            let value = match host.vars.get(*var) {
                None | Some(Value::Null) => continue,
                Some(value) => value,
            };
            let origin = host.origins.get(*var).map_or(self.config.first_inventory(), String::as_str);
            if value.as_str().is_some_and(|text| text.contains("{{") || text.contains("{%")) {
                let (file, place) = split_origin(origin);
                let message = format!(
                    "{var} of the host `{name}` is a template, and is needed before templates are rendered{place}"
                );
                return Err(Fault::error(file, 0, 0, message).hint("write the value out"));
            }
            return Ok(Some((var, value, origin)));
        }
        Ok(None)
    }
}

fn unusable(name: &str, var: &str, origin: &str, wanted: &str) -> Fault {
    let (file, place) = split_origin(origin);
    Fault::error(file, 0, 0, format!("{var} of the host `{name}` is not {wanted}{place}"))
}

/// Splits `inventory.yml: host w1` into the file and a suffix for a message.
pub(super) fn split_origin(origin: &str) -> (&str, String) {
    match origin.split_once(": ") {
        Some((file, place)) => (file, format!(" ({place})")),
        None => (origin, String::new()),
    }
}

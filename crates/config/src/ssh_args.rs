//! Converts the arguments in `ansible_ssh_common_args` and `ansible_ssh_extra_args`, which are
//! meant for the command line of `ssh`, to options of the ssh_config that remoor writes. Options
//! that would weaken the check of host keys, and options that remoor sets itself, are ignored with
//! a warning. Other unsupported options are refused by name. Pure.

/// The result of converting the arguments for `ssh`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SshArgs {
    pub port: Option<u16>,
    pub user: Option<String>,
    pub identity: Option<String>,
    /// Options of the ssh_config, as keyword and value. Only those in [`SUPPORTED_OPTIONS`].
    pub options: Vec<(String, String)>,
    /// Ignored options as written, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
    /// Refused options as written, each with a hint about an alternative.
    pub refused: Vec<(String, &'static str)>,
}

/// Options that are copied to the ssh_config: route and authentication, but nothing about trust in
/// host keys.
const SUPPORTED_OPTIONS: &[&str] = &[
    "AddressFamily",
    "BindAddress",
    "BindInterface",
    "CASignatureAlgorithms",
    "CertificateFile",
    "Ciphers",
    "Compression",
    "GSSAPIAuthentication",
    "GSSAPIDelegateCredentials",
    "HostKeyAlgorithms",
    "HostbasedAuthentication",
    "IPQoS",
    "IdentitiesOnly",
    "IdentityAgent",
    "KbdInteractiveAuthentication",
    "KexAlgorithms",
    "MACs",
    "PKCS11Provider",
    "PasswordAuthentication",
    "PreferredAuthentications",
    "ProxyCommand",
    "ProxyJump",
    "ProxyUseFdpass",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAcceptedKeyTypes",
    "PubkeyAuthentication",
    "RekeyLimit",
    "RequiredRSASize",
    "SecurityKeyProvider",
    "TCPKeepAlive",
];

const HOST_KEYS: &str = "host keys are always checked";
/// Options about host keys, in lower case.
const ABOUT_HOST_KEYS: &[&str] = &[
    "stricthostkeychecking",
    "userknownhostsfile",
    "globalknownhostsfile",
    "hostkeyalias",
    "checkhostip",
    "updatehostkeys",
    "verifyhostkeydns",
    "knownhostscommand",
    "hashknownhosts",
    "nohostauthenticationforlocalhost",
    "revokedhostkeys",
];

const SET_BY_REMOOR: &str = "remoor sets it itself";
/// Options that remoor sets itself, in lower case.
const OPTIONS_OF_REMOOR: &[&str] = &[
    "addkeystoagent",
    "batchmode",
    "clearallforwardings",
    "connectionattempts",
    "connecttimeout",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "escapechar",
    "exitonforwardfailure",
    "forwardagent",
    "forwardx11",
    "forwardx11trusted",
    "gssapikeyexchange",
    "gssapitrustdns",
    "ignoreunknown",
    "loglevel",
    "numberofpasswordprompts",
    "permitlocalcommand",
    "remotecommand",
    "requesttty",
    "sendenv",
    "serveralivecountmax",
    "serveraliveinterval",
    "sessiontype",
    "setenv",
    "tunnel",
    "visualhostkey",
];
/// Single-letter flags that do not affect the route to the host.
const IGNORED_FLAGS: &str = "AMNTXYafgknqtvxy";
/// Letters of flags that take a value: the rest of the argument, or the next argument.
const TAKE_A_VALUE: &str = "BDEFIJLOPQRSWbceilmopw";

/// Reads the arguments in order. The first value of an option is used, as in ssh.
pub fn read(words: Vec<String>) -> SshArgs {
    let mut out = SshArgs::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
        if letters.as_str().is_empty() || word.starts_with("--") {
            out.refused.push((word, "this is not an ssh option: write it as -o Keyword=value"));
            continue;
        }
        while let Some(letter) = letters.next() {
            if !TAKE_A_VALUE.contains(letter) {
                out.flag(letter);
                continue;
            }
            let rest = letters.as_str().to_owned();
            let value = if rest.is_empty() { words.next() } else { Some(rest) };
            match value {
                Some(value) => out.letter(letter, value),
                None => out.refused.push((format!("-{letter}"), "the option needs a value")),
            }
            break;
        }
    }
    out
}

impl SshArgs {
    fn flag(&mut self, letter: char) {
        match letter {
            '4' => self.add_option("AddressFamily", "inet"),
            '6' => self.add_option("AddressFamily", "inet6"),
            'C' => self.add_option("Compression", "yes"),
            'K' => self.add_option("GSSAPIAuthentication", "yes"),
            letter if IGNORED_FLAGS.contains(letter) => self.left_out.push((format!("-{letter}"), SET_BY_REMOOR)),
            letter => self.refused.push((format!("-{letter}"), "write the option as -o Keyword=value")),
        }
    }

    fn letter(&mut self, letter: char, value: String) {
        match letter {
            'o' => self.option(&value),
            'J' => self.add_option("ProxyJump", &value),
            'b' => self.add_option("BindAddress", &value),
            'B' => self.add_option("BindInterface", &value),
            'c' => self.add_option("Ciphers", &value),
            'm' => self.add_option("MACs", &value),
            'p' => self.option(&format!("Port={value}")),
            'l' => self.option(&format!("User={value}")),
            'i' => self.option(&format!("IdentityFile={value}")),
            'S' | 'O' | 'e' => self.left_out.push((format!("-{letter} {value}"), SET_BY_REMOOR)),
            'F' => self.refused.push((format!("-F {value}"), "name the file as `config` under `ssh` in remoor.yml")),
            _ => {
                let hint = "a manager's login does not support this option: remove it, or move it to ansible.cfg";
                self.refused.push((format!("-{letter} {value}"), hint));
            }
        }
    }

    /// Reads an option of the form `Keyword=value` or `Keyword value`.
    fn option(&mut self, text: &str) {
        let text = text.trim();
        let (name, value) = match text.split_once(|c: char| c == '=' || c.is_whitespace()) {
            Some((name, value)) => (name, value.trim_start().trim_start_matches('=').trim()),
            None => (text, ""),
        };
        let small = name.to_lowercase();
        if ABOUT_HOST_KEYS.contains(&small.as_str()) {
            self.left_out.push((text.to_owned(), HOST_KEYS));
        } else if OPTIONS_OF_REMOOR.contains(&small.as_str()) {
            self.left_out.push((text.to_owned(), SET_BY_REMOOR));
        } else if value.is_empty() || value.chars().any(char::is_control) {
            self.refused.push((text.to_owned(), "write it as -o Keyword=value"));
        } else {
            self.convert_option(&small, text, value);
        }
    }

    fn convert_option(&mut self, small: &str, text: &str, value: &str) {
        let fits = |text: &str| !text.starts_with('-') && !text.contains(char::is_whitespace);
        match small {
            "port" => match value.parse::<u16>() {
                Ok(port @ 1..) => self.port = self.port.or(Some(port)),
                _ => self.refused.push((text.to_owned(), "a port is a number from 1 to 65535")),
            },
            "user" if fits(value) => self.user = self.user.take().or_else(|| Some(value.to_owned())),
            "identityfile" if value.starts_with('/') => {
                self.identity = self.identity.take().or_else(|| Some(value.to_owned()));
            }
            "identityfile" => {
                let hint = "a key is named by an absolute path, which is there on every manager";
                self.refused.push((text.to_owned(), hint));
            }
            "hostname" => self.refused.push((text.to_owned(), "set ansible_host instead")),
            "include" => self.refused.push((text.to_owned(), "name the file as `config` under `ssh` in remoor.yml")),
            _ => match SUPPORTED_OPTIONS.iter().find(|known| known.to_lowercase() == small) {
                Some(known) => self.add_option(known, value),
                None => {
                    let hint = "put it into an ssh_config, and name that as `config` under `ssh` in remoor.yml";
                    self.refused.push((text.to_owned(), hint));
                }
            },
        }
    }

    fn add_option(&mut self, name: &str, value: &str) {
        if value.is_empty() || value.chars().any(char::is_control) {
            self.refused.push((format!("{name}={value}"), "write it as -o Keyword=value"));
        } else if !self.options.iter().any(|(known, _)| known == name) {
            self.options.push((name.to_owned(), value.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::split_words;

    fn parse_args(text: &str) -> SshArgs {
        read(split_words(text).unwrap())
    }

    fn options(text: &str) -> Vec<(String, String)> {
        let args = parse_args(text);
        assert!(args.refused.is_empty() && args.left_out.is_empty(), "{args:?}");
        args.options
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn options_for_the_route_are_copied() {
        assert_eq!(
            options("-J admin@jump:2222 -4 -oCiphers=aes256-ctr -o 'compression yes' -C -6"),
            [
                pair("ProxyJump", "admin@jump:2222"),
                pair("AddressFamily", "inet"),
                pair("Ciphers", "aes256-ctr"),
                pair("Compression", "yes")
            ]
        );
        let proxy = options(r#"-o ProxyCommand="ssh -W %h:%p -q jump""#);
        assert_eq!(proxy, [pair("ProxyCommand", "ssh -W %h:%p -q jump")]);
        let args = parse_args("-p 2222 -l admin -i /k -oPort=1 -o User=root");
        assert_eq!(
            (args.port, args.user.as_deref(), args.identity.as_deref()),
            (Some(2222), Some("admin"), Some("/k"))
        );
    }

    #[test]
    fn nothing_weakens_the_check_of_host_keys_or_shares_a_control_socket() {
        for option in ABOUT_HOST_KEYS.iter().chain(OPTIONS_OF_REMOOR) {
            for text in
                [format!("-o {option}=no"), format!("-o{}=no", option.to_uppercase()), format!("-o '{option} no'")]
            {
                let args = parse_args(&text);
                assert_eq!(
                    (args.left_out.len(), args.options.len(), args.refused.len()),
                    (1, 0, 0),
                    "{text}: {args:?}"
                );
            }
            assert!(!SUPPORTED_OPTIONS.iter().any(|known| known.eq_ignore_ascii_case(option)), "{option}");
        }
        assert_eq!(parse_args("-S /tmp/x -qTA -vv").left_out.len(), 6);
    }

    #[test]
    fn other_options_are_refused_by_name() {
        for (text, wanted) in [
            ("-F /root/cfg", "-F /root/cfg"),
            ("-L 80:h:80", "-L 80:h:80"),
            ("-D9", "-D 9"),
            ("-W h:22", "-W h:22"),
            ("-o LocalCommand=id", "LocalCommand=id"),
            ("-o Unheard=of", "Unheard=of"),
            ("-o ProxyJump", "ProxyJump"),
            ("-o HostName=x", "HostName=x"),
            ("-o Include=/x", "Include=/x"),
            ("-i ~/.ssh/id", "IdentityFile=~/.ssh/id"),
            ("-p ssh", "Port=ssh"),
            ("-l -x", "User=-x"),
            ("-Z", "-Z"),
            ("-J", "-J"),
            ("jump", "jump"),
            ("--", "--"),
        ] {
            let args = parse_args(text);
            let names: Vec<&str> = args.refused.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((names.as_slice(), args.options.len()), (&[wanted][..], 0), "{text}: {args:?}");
        }
        let broken = read(vec!["-o".to_owned(), "ProxyCommand=a\nHostKeyAlias b".to_owned()]);
        assert_eq!((broken.refused.len(), broken.options.len()), (1, 0), "no second line is injected");
    }
}

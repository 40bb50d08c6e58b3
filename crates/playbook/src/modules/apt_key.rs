//! The `apt_key` module: keys that apt trusts, by the program `apt-key` of older Debian and Ubuntu.
//! Newer systems have no `apt-key`; there the module fails, as in Ansible.

use super::http_request::{self, WebRequest};
use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message, require_success};
use crate::os::acting_user::env_var;
use crate::run::event::AttributeChange;
use serde_json::{Map, Value, json};

/// Maximum size of a downloaded key, in bytes.
const KEY_MAX: u64 = 4 << 20;
/// Number of requests to a key server before the task fails.
const TRIES: u32 = 5;
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// A key id in the three lengths that programs use.
struct KeyId {
    short: String,
    long: String,
    whole: String,
}

impl KeyId {
    fn parse(text: &str) -> Option<Self> {
        let upper = text.trim().to_uppercase();
        let whole = upper.strip_prefix("0X").unwrap_or(&upper).to_owned();
        let good = whole.len() == 8 || whole.len() >= 16;
        if !good || !whole.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let last = |count: usize| whole[whole.len().saturating_sub(count)..].to_owned();
        Some(Self { short: last(8), long: last(16), whole })
    }

    fn is_short(&self) -> bool {
        self.whole.len() == 8
    }

    fn is_in(&self, keys: &[String]) -> bool {
        keys.contains(&self.long)
    }
}

pub fn apt_key(call: &mut ModuleCall) -> ModuleResult {
    let program = call.find_program("apt-key").map_err(|why| format!("{why}; use the module deb822_repository"))?;
    let gpg = call.find_program("gpg")?;
    call.env.push(("LC_ALL".into(), "C".into()));
    let mut base = vec![program];
    if call.args.contains_key("keyring") {
        base.extend(["--keyring".to_owned(), call.path(&["keyring"])?.display().to_string()]);
    }
    let mut data = call.text(&["data"]).map(String::into_bytes);
    let file = call.optional_path("file")?;
    let file = file.map(|path| path.display().to_string());
    let given = match call.text(&["id"]).filter(|id| !id.is_empty()) {
        Some(id) => id,
        None if call.args.contains_key("keyserver") => return Err("`keyserver` needs `id`".into()),
        None => {
            if let Some(url) = call.text(&["url"]) {
                data = Some(download(call, &url)?);
            }
            first_key(call, &gpg, file.as_deref(), data.as_deref())?
        }
    };
    let Some(id) = KeyId::parse(&given) else {
        return Err(format!("`{given}` is not a key id: it needs 8, 16 or more hexadecimal digits"));
    };
    let present = call.text(&["state"]).as_deref() != Some("absent");
    let mut result = Map::new();
    let before = trusted_keys(call, &base, id.is_short())?;
    for (key, value) in [
        ("id", json!(given)),
        ("short_id", json!(id.short)),
        ("fp", json!(id.long)),
        ("key_id", json!(id.whole)),
        ("before", json!(before)),
    ] {
        result.insert(key.into(), value);
    }
    let there = id.is_in(&before);
    let predicted = format!("apt_key {} {}", base[1..].join(" "), id.long);
    let told = call.predicted_text(&predicted);
    let there = told.map_or(there, |told| told == "present");
    let mut out = TaskOutcome { changed: there != present, ..TaskOutcome::default() };
    if out.changed {
        let state = |there: bool| if there { "present" } else { "absent" };
        out.attributes.push(AttributeChange::new(&id.long, state(there), state(present)));
        if let Some(would) = call.ground.node.predicted_state_mut() {
            would.set_text(&predicted, state(present));
        } else {
            match present {
                true => add_key(call, &base, &id, file.as_deref(), data)?,
                false => change(call, &base, &["del", &id.short], None, "the key was not removed")?,
            }
            let after = trusted_keys(call, &base, id.is_short())?;
            if id.is_in(&after) != present {
                let what = if present { "failed to add the key" } else { "the key was not removed" };
                return Err(format!(
                    "apt-key did not return an error, but {what} (check that the id is correct and *not* a subkey)"
                ));
            }
            result.insert("after".into(), json!(after));
        }
    }
    Ok(out.with_result(Value::Object(result)))
}

fn download(call: &ModuleCall, url: &str) -> Result<Vec<u8>, String> {
    let got = http_request::send_request(call, &WebRequest::get(url))?;
    if got.status != 200 {
        return Err(format!("cannot download the key at {}: {}", http_request::mask_password(url), got.status_text()));
    }
    got.read_body(call, KEY_MAX)
}

/// The id of the first key of a file, or of `data`.
fn first_key(call: &ModuleCall, gpg: &str, file: Option<&str>, data: Option<&[u8]>) -> Result<String, String> {
    let done = match (file, data) {
        (Some(file), _) => call.run_quietly(&[gpg, "--with-colons", file])?,
        (None, Some(data)) => call.tool().feed(&[gpg, "--with-colons", "-"], Some(data.to_vec()))?,
        (None, None) => return Err("apt_key needs `id`, `data`, `file` or `url`".into()),
    };
    if !done.success() {
        let source = file.unwrap_or("the data");
        return Err(failure_message(&format!("gpg cannot read a key from {source} and"), &done));
    }
    key_ids(&done.stdout).into_iter().next().ok_or_else(|| "gpg found no key".into())
}

/// The ids of keys and subkeys in the output of apt-key or gpg. Expired keys are left out.
fn key_ids(output: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| line.starts_with("pub") || line.starts_with("sub"));
    let id = |line: &str| {
        let word = line.split_whitespace().nth(1).and_then(|word| word.split_once('/'));
        match word.filter(|(_, id)| !id.contains('/')) {
            Some((_, id)) => Some(id.to_owned()),
            None => line.split(':').nth(4).map(str::to_owned),
        }
    };
    lines.filter(|line| !line.contains("expired")).filter_map(id).collect()
}

fn trusted_keys(call: &ModuleCall, base: &[String], short: bool) -> Result<Vec<String>, String> {
    let mut argv: Vec<&str> = base.iter().map(String::as_str).collect();
    argv.extend(["adv", "--list-public-keys", "--keyid-format=long"]);
    let done = call.run_quietly(&argv)?;
    require_success("apt-key cannot list the keys and", &done)?;
    let keys = key_ids(&done.stdout);
    let last = |key: String| if short { key[key.len().saturating_sub(8)..].to_owned() } else { key };
    Ok(keys.into_iter().map(last).collect())
}

fn add_key(
    call: &mut ModuleCall,
    base: &[String],
    id: &KeyId,
    file: Option<&str>,
    data: Option<Vec<u8>>,
) -> Result<(), String> {
    if let Some(file) = file {
        return change(call, base, &["add", file], None, &format!("the key of {file} was not added"));
    }
    if let Some(server) = call.text(&["keyserver"]) {
        return receive_key(call, base, id, &server);
    }
    let data = match (data, call.text(&["url"])) {
        (Some(data), _) => data,
        (None, Some(url)) => download(call, &url)?,
        (None, None) => return Err("apt_key needs `data`, `file`, `url` or `keyserver` to add a key".into()),
    };
    change(call, base, &["add", "-"], Some(data), "the key was not added")
}

fn receive_key(call: &mut ModuleCall, base: &[String], id: &KeyId, server: &str) -> Result<(), String> {
    let set = |name: &&str| {
        let own = call.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        own.or_else(|| env_var(name)).filter(|value| !value.is_empty())
    };
    let proxy = PROXIES.iter().find_map(set).map(|proxy| format!("http-proxy={proxy}"));
    let mut words = vec!["adv", "--no-tty", "--keyserver", server];
    words.extend(proxy.iter().flat_map(|proxy| ["--keyserver-options", proxy.as_str()]));
    words.extend(["--recv", &id.whole]);
    let what = format!("cannot fetch the key {} from the key server {server}", id.whole);
    let mut done = Ok(());
    for _ in 0..TRIES {
        done = change(call, base, &words, None, &what);
        if done.is_ok() || call.cancel.is_stopped() || call.time_left().is_some_and(|left| left.is_zero()) {
            break;
        }
    }
    done
}

fn change(
    call: &mut ModuleCall,
    base: &[String],
    words: &[&str],
    input: Option<Vec<u8>>,
    failure: &str,
) -> Result<(), String> {
    let argv: Vec<&str> = base.iter().map(String::as_str).chain(words.iter().copied()).collect();
    let done = call.feed_or_predict(&argv, input, |_| {})?;
    require_success(&format!("{failure}: apt-key"), &done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ids_are_found_in_both_formats() {
        let apt = "pub   rsa4096/0123456789ABCDEF 2020-01-01 [SC]\nsub   rsa2048/1111111111111111 2020-01-01 [E] [expired: 2021]\n";
        assert_eq!(key_ids(apt), ["0123456789ABCDEF"]);
        assert_eq!(key_ids("tru::1:\npub:-:4096:1:FEDCBA9876543210:15::\n"), ["FEDCBA9876543210"]);
        let id = KeyId::parse("0x0123456789abcdef0123").unwrap();
        assert_eq!((id.short.as_str(), id.long.as_str()), ("CDEF0123", "456789ABCDEF0123"));
        assert!(KeyId::parse("12345").is_none() && KeyId::parse("nothexxx").is_none());
    }
}

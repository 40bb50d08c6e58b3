//! `get_url`: a file from a web server, put in its place in one step after its sum was compared.

use super::{Answer, Call, Outcome, checksum, place};
use crate::playbook::safe;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

pub fn get_url(call: &mut Call) -> Answer {
    let url = call.need(&["url"])?;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(format!("`{url}` is no http or https address; use provisioner kind: ansible"));
    }
    let mut dest = call.path(&["dest"])?;
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", dest.display())));
    }
    let into = call.ground.node.is_directory(&dest);
    if into {
        let name = url.split(['?', '#']).next().and_then(|u| u.rsplit('/').next()).filter(|n| !n.is_empty());
        dest.push(name.unwrap_or("index.html"));
    }
    let wanted = match call.text(&["checksum"]).filter(|c| !c.is_empty()) {
        None => None,
        Some(text) => {
            let (algorithm, sum) = text.split_once(':').ok_or("`checksum` is written as algorithm:sum")?;
            if sum.contains("://") {
                return Err("`checksum` takes the sum itself here; use provisioner kind: ansible".into());
            }
            checksum::sum(b"", algorithm)?;
            Some((algorithm.to_owned(), sum.trim().to_ascii_lowercase()))
        }
    };
    let force = call.flag("force", false);
    let now = call.ground.node.look(&dest)?;
    if now.is_some_and(|s| safe::kind(&s) == rustix::fs::FileType::RegularFile) {
        let same = match &wanted {
            Some((algorithm, sum)) => checksum::of(&call.ground.node, &dest, algorithm)? == *sum,
            None => !force && !into,
        };
        if same {
            // Only its attributes may differ.
            let content = call.ground.node.read(&dest)?;
            let out = place::finish(call, &dest, Some(content.clone()), content, shown(&url))?;
            return Ok(described(out, &url, &dest, "OK (already there)"));
        }
    }
    if call.ground.node.checks() {
        if let Some(would) = call.ground.node.would_mut() {
            would.by_command(&dest);
        }
        return Ok(match now {
            None => described(Outcome::changed("would be fetched"), &url, &dest, "OK"),
            Some(_) => Outcome::unknown("whether it differs from what is there, only fetching it can tell"),
        });
    }
    let content = fetched(call, &url)?;
    if let Some((algorithm, sum)) = &wanted {
        let have = checksum::sum(&content, algorithm)?;
        if have != *sum {
            return Err(format!("its {algorithm} sum is {have}, not {sum}; nothing was written"));
        }
    }
    let dest = place::regular(call, &dest)?.map_or(dest, |(dest, _)| dest);
    let old = now.map(|_| call.ground.node.read(&dest)).transpose()?;
    let out = place::finish(call, &dest, old, content, shown(&url))?;
    Ok(described(out, &url, &dest, "OK"))
}

fn described(mut out: Outcome, url: &str, dest: &Path, msg: &str) -> Outcome {
    for (key, value) in [("url", url), ("dest", &dest.display().to_string()), ("path", &dest.display().to_string())] {
        out.more.insert(key.into(), json!(value));
    }
    if let Some(sum) = out.more.get("checksum").cloned() {
        out.more.insert("checksum_dest".into(), sum);
    }
    out.more.entry("msg").or_insert(json!(msg));
    out
}

/// The content, of at most `safe::READ_MAX` bytes.
fn fetched(call: &Call, url: &str) -> Result<Vec<u8>, String> {
    let limit = call.seconds("timeout", 10.0)?.max(Duration::from_millis(100));
    if !call.flag("validate_certs", true) {
        return Err("certificates are always looked at here; use provisioner kind: ansible".into());
    }
    let mut builder = ureq::Agent::config_builder();
    if !call.flag("use_proxy", true) {
        builder = builder.proxy(None);
    }
    let agent: ureq::Agent = builder
        .timeout_connect(Some(limit))
        .timeout_recv_response(Some(limit))
        .timeout_global(Some(call.timeout.unwrap_or(Duration::from_secs(3600))))
        .user_agent(call.text(&["http_agent"]).unwrap_or_else(|| "ansible-httpget".into()))
        .build()
        .into();
    let mut request = agent.get(url);
    if let Some(Value::Object(headers)) = call.args.get("headers") {
        for (name, value) in headers {
            request = request.header(name.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    let secrets = [call.text(&["url_username", "username"]), call.text(&["url_password", "password"])];
    if let [Some(user), password] = &secrets {
        use base64::Engine as _;
        let pair = format!("{user}:{}", password.as_deref().unwrap_or_default());
        let pair = base64::engine::general_purpose::STANDARD.encode(pair);
        request = request.header("Authorization", format!("Basic {pair}"));
    }
    let response = request.call().map_err(|e| format!("{}: {e}", shown(url)))?;
    let mut out = Vec::new();
    let mut body = response.into_body().into_reader().take(safe::READ_MAX + 1);
    body.read_to_end(&mut out).map_err(|e| format!("{}: {e}", shown(url)))?;
    if out.len() as u64 > safe::READ_MAX {
        return Err(format!(
            "{} is larger than {} MiB; use provisioner kind: ansible",
            shown(url),
            safe::READ_MAX >> 20
        ));
    }
    Ok(out)
}

/// An address without what may be a secret in it.
fn shown(url: &str) -> &str {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    match plain.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@').map(|(_, host)| host)) {
        Some(host) => host,
        None => plain,
    }
}

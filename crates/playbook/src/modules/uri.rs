//! The `uri` module: one HTTP request. It is not sent in check mode.

use super::content::{asset_content, find_asset};
use super::http_request::{self, RedirectPolicy, RequestCredentials, WebRequest, WebResponse};
use super::{ModuleCall, ModuleResult, TaskOutcome, command, write_file};
use crate::lang::python;
use crate::os::atomic_fs;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Maximum size of a response body in a result, in bytes.
const BODY_MAX: u64 = 16 << 20;
/// HTTP methods that change nothing on the server.
const READ_ONLY_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

pub fn uri(call: &mut ModuleCall) -> ModuleResult {
    let start = Instant::now();
    let url = call.required_text(&["url"])?;
    let method = call.text(&["method"]).unwrap_or_else(|| "GET".into()).to_ascii_uppercase();
    if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err("`method` must be one word, such as GET or POST".into());
    }
    let follow = match call.text(&["follow_redirects"]).as_deref() {
        None | Some("safe") => RedirectPolicy::Safe,
        Some("all" | "yes" | "True") => RedirectPolicy::All,
        Some("none" | "no" | "False") => RedirectPolicy::None,
        Some("urllib2") => RedirectPolicy::Urllib,
        Some(other) => return Err(format!("`follow_redirects` must be all, none, safe or urllib2, not {other}")),
    };
    let wanted = statuses(call)?;
    let (body, kind) = body(call)?;
    if let Some(out) = skip_outcome(call)? {
        return Ok(out);
    }
    let dest = match call.text(&["dest"]) {
        Some(_) => Some(call.path(&["dest"])?),
        None => None,
    };
    if let Some(would) = call.ground.node.predicted_state_mut() {
        let mut out = TaskOutcome { would_run: true, changed: dest.is_some(), ..TaskOutcome::default() };
        out.msg = "not sent in check mode".into();
        if !READ_ONLY_METHODS.contains(&method.as_str()) {
            would.mark_unknown();
        }
        dest.iter().for_each(|dest| would.add_skipped_path(dest));
        return Ok(out);
    }
    let into = dest.as_ref().is_some_and(|dest| call.ground.node.is_directory(dest));
    let there = dest.as_ref().filter(|_| !into).and_then(|dest| call.ground.node.follow(dest));
    let named = |name: &str| kind.map(|kind| (name.to_owned(), kind.to_owned()));
    let headers = named("Content-Type").into_iter().collect();
    let newer_than = there.map(|(_, stat)| stat.st_mtime);
    let wish = WebRequest {
        url: &url,
        method: &method,
        headers,
        body,
        follow,
        timeout: 30.0,
        newer_than,
        credentials: RequestCredentials::Task,
    };
    let got = match http_request::send_request(call, &wish) {
        Ok(got) => got,
        Err(msg) => return Ok(no_response_outcome(&url, &wanted, msg, start)),
    };
    response_outcome(call, got, &url, &wanted, dest, start)
}

/// The outcome if `creates` or `removes` makes the request unnecessary. None: the request is
/// needed.
fn skip_outcome(call: &ModuleCall) -> Result<Option<TaskOutcome>, String> {
    for (option, wanted) in [("creates", true), ("removes", false)] {
        if call.text(&[option]).is_none_or(|path| path.is_empty()) {
            continue;
        }
        let path = call.path(&[option])?;
        if call.depends_on_skipped_command(&path) {
            return Ok(Some(TaskOutcome::indeterminate(format!(
                "whether {} exists depends on a command that check mode did not run",
                path.display()
            ))));
        }
        if command::exists(call, &path)? == wanted {
            let how = if wanted { "exists" } else { "does not exist" };
            let mut out = TaskOutcome::default();
            out.extra_keys.insert("stdout".into(), json!(format!("skipped, since '{}' {how}", path.display())));
            return Ok(Some(out));
        }
    }
    Ok(None)
}

fn statuses(call: &ModuleCall) -> Result<Vec<u16>, String> {
    let words = match call.args.get("status_code") {
        None | Some(Value::Null) => return Ok(vec![200]),
        Some(Value::Number(n)) => vec![n.to_string()],
        Some(_) => call.list(&["status_code"]),
    };
    let number = |word: &String| word.trim().parse().map_err(|_| format!("`{word}` is not a status code"));
    words.iter().map(number).collect()
}

/// The request body, and its content type if `body_format` implies one.
fn body(call: &ModuleCall) -> Result<(Vec<u8>, Option<&'static str>), String> {
    let format = call.text(&["body_format"]).unwrap_or_else(|| "raw".into());
    if let Some(src) = call.text(&["src"]) {
        if call.flag("remote_src", false) {
            return Ok((call.ground.node.read(&call.path(&["src"])?)?, None));
        }
        let source =
            find_asset(call.task, &src).ok_or_else(|| format!("the plan does not contain the file `{src}`"))?;
        return Ok((asset_content(call.plan, source)?.to_vec(), None));
    }
    let body = call.args.get("body").unwrap_or(&Value::Null);
    match format.as_str() {
        "json" => {
            let text = body.as_str().map_or_else(|| python::json_line(body), str::to_owned);
            Ok((text.into_bytes(), Some("application/json")))
        }
        "form-urlencoded" => {
            let text = body.as_str().map_or_else(|| encode_form(body), |text| Ok(text.to_owned()))?;
            Ok((text.into_bytes(), Some("application/x-www-form-urlencoded")))
        }
        "raw" => match body {
            Value::Null => Ok((Vec::new(), None)),
            Value::String(text) => Ok((text.clone().into_bytes(), None)),
            Value::Number(n) => Ok((n.to_string().into_bytes(), None)),
            _ => Err("`body` must be text if `body_format` is raw; did you mean json?".into()),
        },
        other => Err(format!("`body_format` must be raw, json or form-urlencoded, not {other}")),
    }
}

/// Encodes a map or a list of pairs as application/x-www-form-urlencoded.
fn encode_form(body: &Value) -> Result<String, String> {
    let text = |value: &Value| match value {
        Value::String(s) => s.clone(),
        Value::Bool(b) => if *b { "True" } else { "False" }.to_owned(),
        other => other.to_string(),
    };
    let pairs: Vec<(String, &Value)> = match body {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(list) => {
            let pair = |item: &'_ Value| item.as_array().is_some_and(|pair| pair.len() == 2);
            if !list.iter().all(pair) {
                return Err("`body` of a form must be a map or a list of pairs".into());
            }
            list.iter().map(|item| (text(&item[0]), &item[1])).collect()
        }
        _ => return Err("`body` of a form must be a map or a list of pairs".into()),
    };
    let mut out = Vec::new();
    for (name, value) in pairs {
        let values: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |all| all.iter().collect());
        for value in values.into_iter().filter(|value| !value.is_null()) {
            out.push(format!("{}={}", encode_field(&name), encode_field(&text(value))));
        }
    }
    Ok(out.join("&"))
}

/// Percent-encodes a form field.
fn encode_field(text: &str) -> String {
    let one = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// The outcome without a response: a failure that `failed_when` and `until` can read, with status
/// -1 as in Ansible.
fn no_response_outcome(url: &str, wanted: &[u16], msg: String, start: Instant) -> TaskOutcome {
    let mut out = TaskOutcome { failed: true, ..TaskOutcome::default() };
    out.msg = format!("Status code was -1 and not {wanted:?}: {msg}");
    for (key, value) in [
        ("status", json!(-1)),
        ("url", json!(http_request::mask_password(url))),
        ("redirected", json!(false)),
        ("elapsed", json!(start.elapsed().as_secs())),
    ] {
        out.extra_keys.insert(key.into(), value);
    }
    out
}

/// The outcome for a response: writes the body to `dest` if requested and fills the result keys.
fn response_outcome(
    call: &mut ModuleCall,
    got: WebResponse,
    url: &str,
    wanted: &[u16],
    dest: Option<PathBuf>,
    start: Instant,
) -> ModuleResult {
    let mut more = headers(&got);
    if let Some(location) = got.header("location").and_then(|place| remoor_host::web::resolve_location(&got.url, place))
    {
        more.insert("location".into(), json!(http_request::mask_password(&location)));
    }
    let (status, said) = (got.status, got.status_text());
    more.insert("redirected".into(), json!(got.url != url));
    more.insert("url".into(), json!(http_request::mask_password(&got.url)));
    more.insert("status".into(), json!(status));
    let good = wanted.contains(&status);
    let content_type = got.header("content-type").unwrap_or("application/octet-stream").to_ascii_lowercase();
    let subtype =
        content_type.split(';').next().and_then(|t| t.split('/').nth(1)).unwrap_or_default().trim().to_owned();
    let is_json = ["json", "javascript"].contains(&subtype.rsplit('+').next().unwrap_or_default());
    let latin = content_type.contains("charset=iso-8859-1") || content_type.contains("charset=latin-1");
    let named = http_request::file_name(&got);
    let asked = call.flag("return_content", false);
    let place = dest.filter(|_| good && status != 304);
    let most = if place.is_some() { atomic_fs::READ_MAX } else { BODY_MAX };
    let bytes = match is_json || asked || place.is_some() {
        true => got.read_body(call, most)?,
        false => Vec::new(),
    };
    let mut out = TaskOutcome::default();
    if let Some(dest) = place {
        let dest = if call.ground.node.is_directory(&dest) { dest.join(&named) } else { dest };
        call.args.remove("force");
        let (dest, now) = write_file::resolve_target(call, &dest)?.unwrap_or((dest, None));
        let old = write_file::read_old(call, &dest, now.as_ref())?;
        out = write_file::update_file(call, &dest, old, bytes.clone(), http_request::host_of(url))?;
    }
    let text = || match latin {
        true => bytes.iter().map(|b| char::from(*b)).collect(),
        false => String::from_utf8_lossy(&bytes).into_owned(),
    };
    if is_json && let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
        more.insert("json".into(), value);
    }
    if asked {
        more.insert("content".into(), json!(text()));
    }
    more.insert("elapsed".into(), json!(start.elapsed().as_secs()));
    if good {
        more.insert("msg".into(), json!(said));
    } else {
        out.failed = true;
        out.msg = format!("Status code was {status} and not {wanted:?}: {said}");
    }
    more.extend(out.extra_keys);
    out.extra_keys = more;
    Ok(out)
}

/// The response headers as keys of a result: lower case, `_` instead of `-`, repeated headers
/// joined. The result also contains the cookies.
fn headers(got: &WebResponse) -> Map<String, Value> {
    let mut out: Map<String, Value> = Map::new();
    let mut cookies: Map<String, Value> = Map::new();
    for (name, value) in &got.headers {
        let key = name.replace('-', "_");
        if name == "set-cookie" {
            let pair = value.split(';').next().and_then(|pair| pair.split_once('='));
            cookies.extend(pair.map(|(name, value)| (name.trim().to_owned(), json!(value.trim()))));
        }
        let whole = match out.get(&key).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        out.insert(key, json!(whole));
    }
    let line: Vec<String> =
        cookies.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    out.insert("cookies_string".into(), json!(line.join("; ")));
    out.insert("cookies".into(), Value::Object(cookies));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        for (body, want) in [
            (
                json!({"a": 1, "b": "x y&=é", "c": true, "d": null, "e": ["p", "q"]}),
                "a=1&b=x+y%26%3D%C3%A9&c=True&e=p&e=q",
            ),
            (json!([["a", "1"], ["a", "2"]]), "a=1&a=2"),
            (json!({}), ""),
        ] {
            assert_eq!(encode_form(&body).as_deref(), Ok(want));
        }
        assert!(encode_form(&json!(["a"])).is_err() && encode_form(&json!(7)).is_err());
    }
}

//! Filters for paths and URLs. They only process text, except `realpath` and `expanduser`, which
//! read the node.

use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference, list};
use crate::lang::python;
use crate::os::accounts;
use crate::run::event::CancelToken;
use crate::vars::scope::on_the_node;
use minijinja::{Error, State, Value};

pub const FILTERS: &[Filter] = &[
    filter("basename", &[], |_, v, _| Ok(python::text(&v)?.rsplit('/').next().unwrap_or_default().into())),
    filter("dirname", &[], |_, v, _| Ok(dirname(&python::text(&v)?).into())),
    filter("splitext", &[], |_, v, _| Ok(splitext(&python::text(&v)?).into())),
    filter("normpath", &[], |_, v, _| Ok(normpath(&python::text(&v)?).into())),
    filter("path_join", &[], path_join),
    filter("commonpath", &[], commonpath),
    filter_with_difference(
        "relpath",
        &["start"],
        relpath,
        "without `start`, uses the working directory of the run on the node",
    ),
    filter_with_difference(
        "realpath",
        &[],
        |state, v, _| {
            on_the_node(state)?;
            let text = python::text(&v)?;
            let real = std::fs::canonicalize(&text).ok().and_then(|p| p.to_str().map(str::to_owned));
            Ok(real.unwrap_or_else(|| normpath(&absolute(&text))).into())
        },
        "reads files of the node; Ansible reads files of the controller",
    ),
    filter_with_difference(
        "expanduser",
        &[],
        |state, v, _| {
            on_the_node(state)?;
            Ok(expanduser(&python::text(&v)?).into())
        },
        "reads users of the node; Ansible reads users of the controller",
    ),
    filter("win_basename", &[], |_, v, _| Ok(win(&python::text(&v)?).2.into())),
    filter("win_dirname", &[], |_, v, _| {
        let text = python::text(&v)?;
        let (drive, dir, _) = win(&text);
        let kept = dir.trim_end_matches(['\\', '/']);
        Ok(format!("{drive}{}", if kept.is_empty() { dir } else { kept }).into())
    }),
    filter("win_splitdrive", &[], |_, v, _| {
        let text = python::text(&v)?;
        let (drive, _, _) = win(&text);
        Ok(vec![drive.to_owned(), text[drive.len()..].to_owned()].into())
    }),
    filter("urlsplit", &["query"], urlsplit),
];

fn dirname(path: &str) -> String {
    let Some(at) = path.rfind('/') else { return String::new() };
    let head = &path[..=at];
    let kept = head.trim_end_matches('/');
    if kept.is_empty() { head.to_owned() } else { kept.to_owned() }
}

fn splitext(path: &str) -> Vec<String> {
    let base = path.rfind('/').map_or(0, |at| at + 1);
    match path[base..].rfind('.') {
        Some(dot) if path[base..base + dot].contains(|c| c != '.') => {
            vec![path[..base + dot].to_owned(), path[base + dot..].to_owned()]
        }
        _ => vec![path.to_owned(), String::new()],
    }
}

fn normpath(path: &str) -> String {
    let root = match path.len() - path.trim_start_matches('/').len() {
        0 => "",
        2 => "//",
        _ => "/",
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", None) if !root.is_empty() => {}
            _ => parts.push(part),
        }
    }
    let out = format!("{root}{}", parts.join("/"));
    if out.is_empty() { ".".to_owned() } else { out }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let here = std::env::current_dir().ok().and_then(|p| p.to_str().map(str::to_owned));
    format!("{}/{path}", here.unwrap_or_default())
}

fn join(paths: &[String]) -> String {
    let mut out = String::new();
    for path in paths {
        if path.starts_with('/') {
            out.clear();
        } else if !out.is_empty() && !out.ends_with('/') {
            out.push('/');
        }
        out.push_str(path);
    }
    out
}

fn texts(who: &str, v: &Value) -> Result<Vec<String>, Error> {
    if v.as_str().is_some() {
        return Ok(vec![python::text(v)?]);
    }
    list(who, v)?.iter().map(python::text).collect()
}

fn path_join(_: &mut State, v: Value, _: Args) -> FilterResult {
    Ok(join(&texts("path_join", &v)?).into())
}

fn commonpath(_: &mut State, v: Value, _: Args) -> FilterResult {
    if v.as_str().is_some() {
        return Err(failure("commonpath: takes a list"));
    }
    let paths = texts("commonpath", &v)?;
    let absolute = paths.iter().filter(|p| p.starts_with('/')).count();
    if paths.is_empty() || absolute != 0 && absolute != paths.len() {
        return Err(failure("commonpath: cannot mix absolute and relative paths"));
    }
    let parts = |p: &str| p.split('/').filter(|x| !x.is_empty() && *x != ".").map(str::to_owned).collect::<Vec<_>>();
    let mut common = parts(&paths[0]);
    for path in &paths[1..] {
        let same = common.iter().zip(&parts(path)).take_while(|(a, b)| a == b).count();
        common.truncate(same);
    }
    Ok(format!("{}{}", if absolute > 0 { "/" } else { "" }, common.join("/")).into())
}

fn relpath(state: &mut State, v: Value, a: Args) -> FilterResult {
    if [Some(python::text(&v)?), a.text("start")?].iter().any(|p| !p.as_deref().is_some_and(|p| p.starts_with('/'))) {
        on_the_node(state)?;
    }
    let full =
        |p: &str| normpath(&absolute(p)).split('/').filter(|x| !x.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let path = full(&python::text(&v)?);
    let start = full(&a.text("start")?.unwrap_or_else(|| ".".into()));
    let same = path.iter().zip(&start).take_while(|(a, b)| a == b).count();
    let mut out = vec!["..".to_owned(); start.len() - same];
    out.extend(path[same..].iter().cloned());
    Ok(if out.is_empty() { ".".to_owned() } else { out.join("/") }.into())
}

fn expanduser(path: &str) -> String {
    let Some(rest) = path.strip_prefix('~') else { return path.to_owned() };
    let (name, tail) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let home = match name {
        "" => std::env::var("HOME").ok().or_else(|| {
            let own = rustix::process::geteuid().as_raw().to_string();
            accounts::user(&own, &CancelToken::new()).and_then(|fields| fields.get(5).cloned())
        }),
        name => accounts::user(name, &CancelToken::new()).and_then(|fields| fields.get(5).cloned()),
    };
    home.map_or_else(|| path.to_owned(), |home| format!("{}{tail}", home.trim_end_matches('/')))
}

/// Splits a Windows path into drive, directory with its last separator, and name.
fn win(path: &str) -> (&str, &str, &str) {
    let drive = if path.get(1..2) == Some(":") { &path[..2] } else { "" };
    let rest = &path[drive.len()..];
    let at = rest.rfind(['\\', '/']).map_or(0, |at| at + 1);
    (drive, &rest[..at], &rest[at..])
}

fn urlsplit(_: &mut State, v: Value, a: Args) -> FilterResult {
    let url = python::text(&v)?;
    let scheme = url.split_once(':').map(|(s, _)| s).filter(|s| {
        s.starts_with(|c: char| c.is_ascii_alphabetic())
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    let rest = scheme.map_or(url.as_str(), |s| &url[s.len() + 1..]);
    let (netloc, rest) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, host) = netloc.rsplit_once('@').map_or((None, netloc), |(login, host)| (Some(login), host));
    let (user, password) = login.map_or((None, None), |login| match login.split_once(':') {
        Some((user, password)) => (Some(user), Some(password)),
        None => (Some(login), None),
    });
    let (host, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
        Some((inner, tail)) => (inner, tail.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
    };
    let port = match port.filter(|p| !p.is_empty()) {
        Some(port) => Some(port.parse::<u16>().map_err(|_| failure(format!("urlsplit: `{port}` is not a port")))?),
        None => None,
    };
    let host = (!host.is_empty()).then(|| host.to_lowercase());
    let word = |text: Option<&str>| text.map_or_else(|| Value::from(()), Value::from);
    let parts = [
        ("fragment", Value::from(fragment)),
        ("hostname", word(host.as_deref())),
        ("netloc", Value::from(netloc)),
        ("password", word(password)),
        ("path", Value::from(path)),
        ("port", port.map_or_else(|| Value::from(()), Value::from)),
        ("query", Value::from(query)),
        ("scheme", Value::from(scheme.unwrap_or_default().to_lowercase())),
        ("username", word(user)),
    ];
    match a.text("query")?.filter(|p| !p.is_empty()) {
        None => Ok(Value::from_pairs(parts)),
        Some(part) => {
            let found = parts.into_iter().find(|(name, _)| *name == part).map(|(_, value)| value);
            found.ok_or_else(|| failure(format!("urlsplit: unknown part `{part}`")))
        }
    }
}

//! The declared paths of one host. `{{ name }}` in a path is a variable of the host. No other
//! template syntax is supported, because the paths are needed long before a playbook runs.

use remoor_model::Fault;
use serde_json::{Map, Value};

/// Replaces the variables in `declared`. A fault contains the path, the host and the reason.
pub fn paths(host: &str, declared: &[String], context: &Map<String, Value>) -> Result<Vec<String>, Fault> {
    let one = |path: &String| {
        render(path, context).map_err(|why| {
            let message = format!("the path `{path}` can't be used for the host `{host}`: {why}");
            Fault::error("remoor.yml", 0, 0, message)
        })
    };
    declared.iter().map(one).collect()
}

fn render(path: &str, context: &Map<String, Value>) -> Result<String, String> {
    if !path.contains("{{") {
        return Ok(path.to_owned());
    }
    let mut out = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, left) = after.split_once("}}").ok_or("`{{` without `}}`")?;
        out.push_str(before);
        out.push_str(variable(name.trim(), context)?);
        rest = left;
    }
    out.push_str(rest);
    if !out.starts_with('/') {
        return Err(format!("it becomes {out}, which is not an absolute path"));
    }
    if out == "/" || out.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!("it becomes {out}"));
    }
    Ok(out)
}

fn variable<'a>(name: &str, context: &'a Map<String, Value>) -> Result<&'a str, String> {
    match context.get(name) {
        None => Err(format!("it has no variable {name}")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("its variable {name} is empty")),
        Some(Value::String(text)) if text.contains(['*', '?', '[', ']', '{', '}', '\\']) => {
            Err(format!("its variable {name} contains a character with a special meaning in paths"))
        }
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("its variable {name} is not a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render_one(path: &str) -> Result<String, String> {
        let context = json!({"base": "/srv/w1", "site": "a", "n": 1, "glob": "/x/*", "rel": "x", "up": "/a/.."});
        let context = context.as_object().cloned().unwrap();
        paths("w1", &[path.to_owned()], &context).map(|mut all| all.remove(0)).map_err(|fault| fault.message)
    }

    #[test]
    fn variables_are_put_in_and_globs_stay() {
        for (path, wanted) in [
            ("/etc/nginx/", "/etc/nginx/"),
            ("{{ base }}/etc/*.conf", "/srv/w1/etc/*.conf"),
            ("{{base}}/{{ site }}/", "/srv/w1/a/"),
            ("/etc/{a,b}", "/etc/{a,b}"),
        ] {
            assert_eq!(render_one(path).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_no_path_of_this_host_is_named() {
        for (path, word) in [
            ("{{ other }}/x", "no variable other"),
            ("/x/{{ n }}", "not a text"),
            ("{{ glob }}", "a special meaning"),
            ("{{ rel }}/x", "not an absolute path"),
            ("{{ up }}/x", "/a/../x"),
            ("{{ base /x", "without"),
        ] {
            let why = render_one(path).unwrap_err();
            assert!(why.contains(word) && why.contains("w1"), "{path}: {why}");
        }
    }
}

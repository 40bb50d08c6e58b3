//! The `alternatives` module: links to one of several programs, by `update-alternatives`.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success};
use crate::run::event::AttributeChange;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A link that follows the choice of an alternative.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FollowerLink {
    name: String,
    path: String,
    link: Option<String>,
}

/// One choice of a group of alternatives.
#[derive(Debug, Default)]
struct Alternative {
    priority: i64,
    family: String,
    followers: Vec<FollowerLink>,
}

/// What `update-alternatives --display` reports about a group.
#[derive(Debug, Default)]
struct AlternativeGroup {
    /// `auto` or `manual`. None: the group does not exist.
    mode: Option<String>,
    path: Option<String>,
    link: Option<String>,
    choices: BTreeMap<String, Alternative>,
}

pub fn alternatives(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name"])?;
    let path = call.optional_path("path")?;
    let path = path.map(|path| path.display().to_string());
    let family = call.text(&["family"]);
    let state = call.text(&["state"]).unwrap_or_else(|| "selected".into());
    let program = call.find_program("update-alternatives")?;
    call.env.push(("LC_ALL".into(), "C".into()));
    let followers = wanted_followers(call)?;
    let done = call.run_quietly(&[&program, "--display", &name])?;
    let mut group = if done.success() { parse_display(&done.stdout) } else { AlternativeGroup::default() };
    if let Some(told) = call.predicted_text(&prediction_key(&name)) {
        group.path = (!told.is_empty()).then_some(told);
    }
    let mut messages = Vec::new();
    let mut out = TaskOutcome::default();
    if state == "absent" {
        if let Some(path) = path.filter(|path| group.choices.contains_key(path)) {
            messages.push(format!("Remove alternative '{path}' from '{name}'."));
            run(call, &[&program, "--remove", &name, &path], &name, "")?;
            out.attributes.push(AttributeChange::new(&path, "present", "absent"));
        }
    } else {
        if let Some(path) = path.as_ref().filter(|path| !is_installed(call, &group, path, followers.as_deref())) {
            let argv = install_command(call, &program, &name, path, &group, followers.as_deref())?;
            messages.push(format!("Install alternative '{path}' for '{name}'."));
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let shown = group.path.clone().unwrap_or_default();
            run(call, &argv, &name, &shown)?;
            out.attributes.push(AttributeChange::new(path, "absent", "present"));
        }
        let current = group.path.as_ref().and_then(|path| group.choices.get(path));
        let same = path.is_some() && group.path == path
            || current.is_some_and(|current| Some(&current.family) == family.as_ref());
        let choice = path.as_ref().or(family.as_ref());
        if let Some(choice) = choice.filter(|_| state == "selected" && !same) {
            messages.push(format!("Set alternative '{choice}' for '{name}'."));
            run(call, &[&program, "--set", &name, choice], &name, choice)?;
            out.attributes.push(AttributeChange::new(&name, group.path.clone().unwrap_or_default(), choice));
        }
        if state == "auto" && group.mode.as_deref() == Some("manual") {
            messages.push(format!("Set alternative to auto for '{name}'."));
            run(call, &[&program, "--auto", &name], &name, "")?;
            out.attributes.push(AttributeChange::new(&name, "manual", "auto"));
        }
    }
    out.changed = !messages.is_empty();
    out.msg = messages.join(" ");
    Ok(out)
}

fn prediction_key(name: &str) -> String {
    format!("alternative {name}")
}

fn run(call: &mut ModuleCall, argv: &[&str], name: &str, selected: &str) -> Result<(), String> {
    let done = call.run_or_predict(argv, |would| would.set_text(&prediction_key(name), selected))?;
    require_success("update-alternatives", &done)
}

/// The option `subcommands`. None: it is not set.
fn wanted_followers(call: &ModuleCall) -> Result<Option<Vec<FollowerLink>>, String> {
    let Some(value) = ["subcommands", "slaves"].iter().find_map(|name| call.args.get(*name)) else { return Ok(None) };
    let items = match value {
        Value::Null => return Ok(None),
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let follower = |item: &Value| {
        let field = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
        match (field("name"), field("path"), field("link")) {
            (Some(name), Some(path), Some(link)) => Ok(FollowerLink { name, path, link: Some(link) }),
            _ => Err(format!("an item of `subcommands` needs `name`, `path` and `link`: {item}")),
        }
    };
    items.iter().map(follower).collect::<Result<_, _>>().map(Some)
}

fn priority(call: &ModuleCall) -> Option<i64> {
    call.text(&["priority"]).and_then(|text| text.trim().parse().ok())
}

/// Whether the choice exists with the priority and the followers of the task.
fn is_installed(call: &ModuleCall, group: &AlternativeGroup, path: &str, followers: Option<&[FollowerLink]>) -> bool {
    let Some(have) = group.choices.get(path) else { return false };
    let all_in = |some: &[FollowerLink], of: &[FollowerLink]| some.iter().all(|one| of.contains(one));
    priority(call).is_none_or(|wanted| wanted == have.priority)
        && followers.is_none_or(|wanted| all_in(wanted, &have.followers) && all_in(&have.followers, wanted))
}

fn install_command(
    call: &ModuleCall,
    program: &str,
    name: &str,
    path: &str,
    group: &AlternativeGroup,
    followers: Option<&[FollowerLink]>,
) -> Result<Vec<String>, String> {
    if call.ground.node.follow(Path::new(path)).is_none() {
        return Err(call.ground.node.note_missing(format!("Specified path {path} does not exist")));
    }
    let link = call.optional_path("link")?;
    let link = link
        .map(|link| link.display().to_string())
        .or_else(|| group.link.clone())
        .ok_or("Needed to install the alternative, but unable to do so as we are missing the link")?;
    let known = group.choices.get(path).map_or(50, |have| have.priority);
    let priority = priority(call).unwrap_or(known).to_string();
    let mut argv: Vec<String> = [program, "--install", &link, name, path, &priority].map(str::to_owned).into();
    if let Some(family) = call.text(&["family"]) {
        argv.extend(["--family".to_owned(), family]);
    }
    for follower in followers.unwrap_or_default() {
        let link = follower.link.clone().unwrap_or_default();
        argv.extend(["--slave".to_owned(), link, follower.name.clone(), follower.path.clone()]);
    }
    Ok(argv)
}

/// Parses the output of `update-alternatives --display`, of Debian or of chkconfig.
fn parse_display(text: &str) -> AlternativeGroup {
    let mut group = AlternativeGroup::default();
    let mut links = BTreeMap::new();
    let mut choice: Option<String> = None;
    for line in text.lines() {
        let plain = line.trim();
        if let Some(rest) = plain.strip_prefix("link currently points to ") {
            group.path = Some(rest.to_owned());
        } else if let Some((kind, rest)) = plain.strip_prefix("link ").and_then(|rest| rest.split_once(" is ")) {
            group.link = (!kind.contains(' ')).then(|| rest.to_owned()).or(group.link.take());
        } else if let Some((name, path)) = follower_words(plain, ": ") {
            if let Some(have) = choice.as_ref().and_then(|choice| group.choices.get_mut(choice))
                && path != "(null)"
            {
                have.followers.push(FollowerLink { name: name.into(), path: path.into(), link: None });
            }
        } else if let Some((name, link)) = follower_words(plain, " is ") {
            links.insert(name.to_owned(), link.to_owned());
        } else if let Some((path, rest)) = line.split_once(" - ").filter(|(path, _)| path.starts_with('/')) {
            let mut words = rest.split_whitespace();
            let mut found = Alternative::default();
            while let Some(word) = words.next() {
                match word {
                    "family" => found.family = words.next().unwrap_or_default().to_owned(),
                    "priority" => found.priority = words.next().and_then(|word| word.parse().ok()).unwrap_or_default(),
                    _ => {}
                }
            }
            group.choices.insert(path.to_owned(), found);
            choice = Some(path.to_owned());
        } else if let Some((_, mode)) = line.split_once(" - ") {
            let mode = mode.strip_prefix("status is ").unwrap_or(mode);
            let mode = mode.trim_end_matches('.').trim_end_matches(" mode");
            group.mode = group.mode.or_else(|| Some(mode.to_owned()));
        }
    }
    for follower in group.choices.values_mut().flat_map(|choice| &mut choice.followers) {
        follower.link = links.get(&follower.name).cloned();
    }
    group
}

/// The words around the separator in a line about a follower.
fn follower_words<'l>(line: &'l str, separator: &str) -> Option<(&'l str, &'l str)> {
    let rest = line.strip_prefix("slave ").or(line.strip_prefix("follower "))?;
    rest.split_once(separator).filter(|(name, _)| !name.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_of_update_alternatives_is_read() {
        let group = parse_display(
            "editor - manual mode\n  link best version is /usr/bin/vim.basic\n  link currently points to /bin/nano\n  link editor is /usr/bin/editor\n  slave editor.1.gz is /usr/share/man/man1/editor.1.gz\n/bin/nano - priority 40\n  slave editor.1.gz: /usr/share/man/man1/nano.1.gz\n/usr/bin/vim.basic - family x priority 30\n",
        );
        assert_eq!(group.mode.as_deref(), Some("manual"));
        assert_eq!((group.path.as_deref(), group.link.as_deref()), (Some("/bin/nano"), Some("/usr/bin/editor")));
        assert_eq!(group.choices["/bin/nano"].priority, 40);
        assert_eq!(group.choices["/bin/nano"].followers[0].link.as_deref(), Some("/usr/share/man/man1/editor.1.gz"));
        assert_eq!(group.choices["/usr/bin/vim.basic"].family, "x");
    }
}

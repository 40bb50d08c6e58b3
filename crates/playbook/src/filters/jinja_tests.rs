//! The Jinja tests, which follow `is`.

use super::{Args, JinjaTest, failure, list};
use crate::lang::{pyregex, python, version};
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};
use std::path::Path;

type TestFunction = fn(&mut State, Value, Args) -> Result<bool, Error>;

const fn test_row(name: &'static str, takes: &'static [&'static str], run: TestFunction) -> JinjaTest {
    JinjaTest { name, takes, run, differs: "" }
}

const fn file_test_row(name: &'static str, takes: &'static [&'static str]) -> JinjaTest {
    JinjaTest { name, takes, run: |_, v, a| test_files(&v, &a), differs: OF_FILES }
}

/// The `differs` text of tests that read files. `register` recognizes such tests by this text. With
/// a controller they are performed there, see `perform_file_test`.
pub const OF_FILES: &str = "in a fleet, it reads files of the node; Ansible reads files of the controller";

/// The names of the tests that read files.
pub fn names_of_file_tests() -> impl Iterator<Item = &'static str> {
    TESTS.iter().filter(|test| test.differs == OF_FILES).map(|test| test.name)
}

/// Performs a test of files on this machine. `terms`: the paths. The error is that of a file that
/// the test needs, or of other arguments.
pub fn perform_file_test(name: &str, terms: &[&Path]) -> Result<bool, String> {
    Ok(match (name, terms) {
        ("exists", [path]) => path.exists(),
        ("file" | "is_file", [path]) => path.is_file(),
        ("directory" | "is_dir", [path]) => path.is_dir(),
        ("link" | "is_link", [path]) => path.is_symlink(),
        ("link_exists", [path]) => path.symlink_metadata().is_ok(),
        ("mount" | "is_mount", [path]) => is_mount(path),
        ("same_file" | "is_same_file", [path, other]) => is_same_file(path, other)?,
        _ => return Err(format!("`{name}` takes other arguments")),
    })
}

/// The paths of a test of files: its input and its arguments.
pub(super) fn paths_of(value: &Value, args: &Args) -> Result<Vec<String>, Error> {
    std::iter::once(value).chain(args.values.iter().flatten()).map(python::text).collect()
}

fn test_files(value: &Value, args: &Args) -> Result<bool, Error> {
    let paths = paths_of(value, args)?;
    perform_file_test(args.name, &paths.iter().map(Path::new).collect::<Vec<_>>()).map_err(failure)
}

/// The variable with the hashes of the texts that were encrypted by `!vault`. A playbook cannot
/// have a variable of this name.
pub const ENCRYPTED_TEXTS: &str = "hashes of encrypted texts";

const PATTERN: &[&str] = &["pattern", "ignorecase", "multiline"];

pub const TESTS: &[JinjaTest] = &[
    test_row("failed", &[], |_, v, _| result_field(&v, "failed")),
    test_row("failure", &[], |_, v, _| result_field(&v, "failed")),
    test_row("succeeded", &[], |_, v, _| result_field(&v, "failed").map(|f| !f)),
    test_row("success", &[], |_, v, _| result_field(&v, "failed").map(|f| !f)),
    test_row("successful", &[], |_, v, _| result_field(&v, "failed").map(|f| !f)),
    test_row("changed", &[], |_, v, _| is_changed(&v)),
    test_row("change", &[], |_, v, _| is_changed(&v)),
    test_row("skipped", &[], |_, v, _| result_field(&v, "skipped")),
    test_row("skip", &[], |_, v, _| result_field(&v, "skipped")),
    test_row("unreachable", &[], |_, v, _| result_field(&v, "unreachable")),
    test_row("reachable", &[], |_, v, _| result_field(&v, "unreachable").map(|u| !u)),
    test_row("timedout", &[], |_, v, _| {
        result_field(&v, "timedout")?;
        let period = v.get_attr("timedout").and_then(|t| t.get_attr("period"));
        Ok(period.is_ok_and(|p| p.is_true()))
    }),
    test_row("started", &[], |_, v, _| job_field(&v, "started")),
    test_row("finished", &[], |_, v, _| job_field(&v, "finished")),
    test_row("vault_encrypted", &[], |state, v, _| {
        let hashes = state.lookup(ENCRYPTED_TEXTS).map(|hashes| list("vault_encrypted", &hashes)).transpose()?;
        let own = v.as_str().map(|text| remoor_model::Sha256::digest(text.as_bytes()).to_string());
        Ok(own.is_some_and(|own| hashes.into_iter().flatten().any(|hash| hash.as_str() == Some(&own))))
    }),
    test_row("match", PATTERN, |_, v, a| matches(&v, &a, "match")),
    test_row("search", PATTERN, |_, v, a| matches(&v, &a, "search")),
    test_row("regex", &["pattern", "ignorecase", "multiline", "match_type"], |_, v, a| {
        let kind = a.text("match_type")?.unwrap_or_else(|| "search".into());
        matches(&v, &a, &kind)
    }),
    JinjaTest {
        name: "version",
        takes: VERSION,
        run: versions,
        differs: "the types are loose, strict and semver; pep440 is refused",
    },
    JinjaTest {
        name: "version_compare",
        takes: VERSION,
        run: versions,
        differs: "the types are loose, strict and semver; pep440 is refused",
    },
    test_row("subset", &["other"], |_, v, a| {
        let other = list("subset", a.need("other")?)?;
        Ok(list("subset", &v)?.iter().all(|x| other.contains(x)))
    }),
    test_row("issubset", &["other"], |_, v, a| {
        let other = list("subset", a.need("other")?)?;
        Ok(list("subset", &v)?.iter().all(|x| other.contains(x)))
    }),
    test_row("superset", &["other"], |_, v, a| {
        let own = list("superset", &v)?;
        Ok(list("superset", a.need("other")?)?.iter().all(|x| own.contains(x)))
    }),
    test_row("issuperset", &["other"], |_, v, a| {
        let own = list("superset", &v)?;
        Ok(list("superset", a.need("other")?)?.iter().all(|x| own.contains(x)))
    }),
    test_row("contains", &["value"], |_, v, a| contains_item(&v, a.need("value")?)),
    test_row("in", &["seq"], |_, v, a| contains_item(a.need("seq")?, &v)),
    test_row("all", &[], |_, v, _| Ok(list("all", &v)?.iter().all(Value::is_true))),
    test_row("any", &[], |_, v, _| Ok(list("any", &v)?.iter().any(Value::is_true))),
    test_row("truthy", &["convert_bool"], |_, v, a| Ok(is_truthy(&v, &a))),
    test_row("falsy", &["convert_bool"], |_, v, a| Ok(!is_truthy(&v, &a))),
    test_row("nan", &[], |_, v, _| Ok(f64::try_from(v).is_ok_and(f64::is_nan))),
    test_row("isnan", &[], |_, v, _| Ok(f64::try_from(v).is_ok_and(f64::is_nan))),
    test_row("sequence", &[], |_, v, _| Ok(has_items(&v))),
    test_row("iterable", &[], |_, v, _| Ok(has_items(&v))),
    test_row("number", &[], |_, v, _| Ok(v.is_number() || v.kind() == ValueKind::Bool)),
    test_row("callable", &[], |_, v, _| Ok(v.kind() == ValueKind::Plain)),
    test_row("abs", &[], |_, v, _| Ok(python::text(&v)?.starts_with('/'))),
    test_row("is_abs", &[], |_, v, _| Ok(python::text(&v)?.starts_with('/'))),
    file_test_row("exists", &[]),
    file_test_row("file", &[]),
    file_test_row("is_file", &[]),
    file_test_row("directory", &[]),
    file_test_row("is_dir", &[]),
    file_test_row("link", &[]),
    file_test_row("is_link", &[]),
    file_test_row("link_exists", &[]),
    file_test_row("mount", &[]),
    file_test_row("is_mount", &[]),
    file_test_row("same_file", &["path2"]),
    file_test_row("is_same_file", &["path2"]),
    test_row("url", &["schemes"], |_, v, a| {
        let text = python::text(&v)?;
        Ok(scheme(&text, &a)?
            && text.split_once("://").is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with('/')))
    }),
    test_row("uri", &["schemes"], |_, v, a| scheme(&python::text(&v)?, &a)),
    test_row("urn", &[], |_, v, _| Ok(python::text(&v)?.to_ascii_lowercase().starts_with("urn:"))),
];

const VERSION: &[&str] = &["version", "operator", "strict", "version_type"];

/// A boolean field of a registered task result.
fn result_field(v: &Value, name: &str) -> Result<bool, Error> {
    if v.kind() != ValueKind::Map {
        return Err(failure(format!("the value tested with `is {name}` is not a task result")));
    }
    Ok(super::valid(v.get_attr(name)?)?.is_true())
}

/// A field of the result of a job. The result of any other task means that it has begun and ended.
fn job_field(v: &Value, name: &str) -> Result<bool, Error> {
    Ok(result_field(v, name)? || v.get_attr(name)?.is_undefined())
}

fn is_changed(v: &Value) -> Result<bool, Error> {
    if result_field(v, "changed")? {
        return Ok(true);
    }
    // If the result has the key `changed`, no other key is read, because other keys may be unknown
    // in check mode.
    if !v.get_attr("changed")?.is_undefined() {
        return Ok(false);
    }
    let results = v.get_attr("results")?;
    if matches!(results.kind(), ValueKind::Seq) {
        return Ok(list("changed", &results)?.iter().any(|r| r.get_attr("changed").is_ok_and(|c| c.is_true())));
    }
    Ok(false)
}

fn matches(v: &Value, a: &Args, kind: &str) -> Result<bool, Error> {
    let (text, pattern) = (python::text(v)?, a.need_text("pattern")?);
    let pattern = match kind {
        "search" => pattern,
        "match" => format!("\\A(?:{pattern})"),
        "fullmatch" => format!("\\A(?:{pattern})\\Z"),
        other => return Err(failure(format!("regex: unknown match_type `{other}`"))),
    };
    let flags = pyregex::Flags { ignorecase: a.flag("ignorecase"), multiline: a.flag("multiline") };
    let regex = pyregex::regex(&pattern, flags, &text).map_err(failure)?;
    regex.is_match(text.as_str()).map_err(|e| failure(e.to_string()))
}

fn versions(_: &mut State, v: Value, a: Args) -> Result<bool, Error> {
    let op = a.text("operator")?.unwrap_or_else(|| "eq".into());
    let kind = match (a.get("strict").filter(|s| !s.is_none()), a.text("version_type")?) {
        (Some(_), Some(_)) => return Err(failure("version: takes `strict` or `version_type`, not both")),
        (Some(strict), None) if strict.is_true() => "strict".to_owned(),
        (_, kind) => kind.unwrap_or_else(|| "loose".into()),
    };
    version::holds(&python::text(&v)?, &op, &a.need_text("version")?, &kind).map_err(failure)
}

fn contains_item(seq: &Value, item: &Value) -> Result<bool, Error> {
    match (seq.as_str(), item.as_str(), seq.kind()) {
        (Some(text), Some(part), _) => Ok(text.contains(part)),
        (_, _, ValueKind::Map) => Ok(!super::lists::item(seq, item)?.is_undefined()),
        (_, _, ValueKind::Seq | ValueKind::Iterable) => Ok(list("in", seq)?.contains(item)),
        (_, _, kind) => Err(failure(format!("in: takes a list, a map or a text, not {kind}"))),
    }
}

/// The function that replaces `x in [a, b]`: `CONTAINS(x, [a, b])`.
pub const CONTAINS: &str = "__contains";

/// Implements `CONTAINS`. As in Ansible, an undefined item is an error, unless an item before it is
/// the searched one.
pub fn search_list(item: Value, items: Value) -> Result<bool, Error> {
    let undefined = || Error::new(minijinja::ErrorKind::UndefinedError, "an operand of `in` is undefined");
    if item.is_undefined() {
        return Err(undefined());
    }
    for one in items.try_iter()? {
        if one.is_undefined() {
            return Err(undefined());
        }
        if one == item {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_truthy(v: &Value, a: &Args) -> bool {
    match (a.flag("convert_bool"), v.as_str().map(str::to_ascii_lowercase).as_deref()) {
        (true, Some("no" | "off" | "false" | "0" | "n" | "f" | "0.0")) => false,
        _ => v.is_true(),
    }
}

/// Whether a value has items.
fn has_items(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String)
}

/// Whether a path is a mount point: its device differs from that of its parent, or it is the root
/// directory.
fn is_mount(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(own), Ok(above)) = (path.symlink_metadata(), path.join("..").symlink_metadata()) else { return false };
    !own.is_symlink() && (own.dev() != above.dev() || own.ino() == above.ino())
}

fn is_same_file(one: &Path, other: &Path) -> Result<bool, String> {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| {
        let meta = path.metadata().map_err(|e| format!("same_file: {}: {e}", path.display()))?;
        Ok::<_, String>((meta.dev(), meta.ino()))
    };
    Ok(id(one)? == id(other)?)
}

fn scheme(text: &str, a: &Args) -> Result<bool, Error> {
    let Some((scheme, rest)) = text.split_once(':') else { return Ok(false) };
    let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let wanted = match a.get("schemes").filter(|s| !s.is_none()) {
        Some(schemes) => list("uri", schemes)?.contains(&Value::from(scheme)),
        None => true,
    };
    Ok(fits && wanted && !rest.is_empty())
}

//! Filters on text. Regular expressions are in `regexes`, paths in `paths`.

use super::{Args, Filter, FilterResult, check_length, failure, filter};
use crate::lang::python;
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

pub const FILTERS: &[Filter] = &[
    filter("upper", &[], |_, v, _| Ok(python::text(&v)?.to_uppercase().into())),
    filter("lower", &[], |_, v, _| Ok(python::text(&v)?.to_lowercase().into())),
    filter("capitalize", &[], |_, v, _| Ok(capitalize(&python::text(&v)?).into())),
    filter("title", &[], |_, v, _| Ok(title(&python::text(&v)?).into())),
    filter("trim", &["chars"], |_, v, a| {
        let text = python::text(&v)?;
        let chars = a.text("chars")?;
        Ok(match chars {
            Some(chars) => text.trim_matches(|c| chars.contains(c)).into(),
            None => text.trim().into(),
        })
    }),
    filter("string", &[], |_, v, _| Ok(python::text(&v)?.into())),
    filter("replace", &["old", "new", "count"], |_, v, a| {
        let limit = a.number("count")?.and_then(|n| usize::try_from(n).ok());
        Ok(replace_text(&python::text(&v)?, &a.need_text("old")?, &a.need_text("new")?, limit)?.into())
    }),
    filter("indent", &["width", "first", "blank"], indent),
    filter("comment", &["style", "**"], comment),
    filter("quote", &[], |_, v, _| {
        let text = if v.is_none() { String::new() } else { python::text(&v)? };
        Ok(shell_quote(&text).into())
    }),
    filter("center", &["width"], |_, v, a| {
        Ok(center_text(&python::text(&v)?, a.count("width")?.unwrap_or(80), ' ')?.into())
    }),
    filter("truncate", &["length", "killwords", "end", "leeway"], truncate),
    filter("wordcount", &[], |_, v, _| Ok(python::text(&v)?.split_whitespace().count().into())),
    filter("wordwrap", &["width", "break_long_words", "wrapstring"], wordwrap),
    filter("split", &["sep", "maxsplit"], |_, v, a| {
        let text = v.as_str().ok_or_else(|| failure("split: takes a text"))?;
        let limit = a.number("maxsplit")?.and_then(|n| usize::try_from(n).ok());
        Ok(split(text, a.text("sep")?.as_deref(), limit)?.into())
    }),
    filter("striptags", &[], |_, v, _| Ok(striptags(&python::text(&v)?).into())),
    filter("urlencode", &[], urlencode),
    filter("urldecode", &[], |_, v, _| Ok(unquote_plus(&python::text(&v)?).into())),
    filter("escape", &[], |_, v, _| Ok(html(&python::text(&v)?).into())),
    filter("e", &[], |_, v, _| Ok(html(&python::text(&v)?).into())),
    filter("safe", &[], |_, v, _| Ok(v)),
    filter("format", &["*"], |_, v, a| {
        let text = python::text(&v)?;
        if !a.named.is_empty() {
            return Err(failure("format: takes only positional arguments"));
        }
        widths_fit(&text, '%', &a.rest)?;
        minijinja::formatting::format(minijinja::formatting::FormatStyle::Printf, &text, &a.rest).map(Value::from)
    }),
];

/// Makes the first character upper case and the others lower case, as in Python.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect())
}

/// Rejects a format whose directives (which begin with `open`) request a width above `PAD_MAX`.
pub fn widths_fit(format: &str, open: char, args: &[Value]) -> Result<(), Error> {
    let too_wide = || failure(format!("a width of more than {PAD_MAX} is not allowed"));
    for directive in format.split(open).skip(1) {
        let end = directive.find(if open == '{' { |c| c == '}' } else { |c: char| c.is_alphabetic() });
        let directive = &directive[..end.unwrap_or(directive.len())];
        let wide = |digits: &str| !digits.is_empty() && digits.parse().map_or(true, |n: usize| n > PAD_MAX);
        if directive.split(|c: char| !c.is_ascii_digit()).any(wide) {
            return Err(too_wide());
        }
        // This directive takes its width from one of the arguments. Which one is not known, so all
        // are checked.
        let given = if open == '{' { end.is_none() } else { directive.contains('*') };
        if given && args.iter().any(|arg| arg.is_integer() && arg.as_usize().is_none_or(|n| n > PAD_MAX)) {
            return Err(too_wide());
        }
    }
    Ok(())
}

/// Like Python's `str.replace`.
pub fn replace_text(text: &str, old: &str, new: &str, limit: Option<usize>) -> Result<String, Error> {
    let hits = text.matches(old).count().min(limit.unwrap_or(usize::MAX));
    check_length(text.len().saturating_add(hits.saturating_mul(new.len())))?;
    Ok(match limit {
        Some(n) => text.replacen(old, new, n),
        None => text.replace(old, new),
    })
}

/// Like Python's `str.join`.
pub fn join_values(items: &[Value], sep: &str) -> Result<String, Error> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(sep);
        }
        out.push_str(&python::text(item)?);
        check_length(out.len())?;
    }
    Ok(out)
}

/// The filter `title` of Jinja2. A word begins after whitespace, dashes and opening brackets, but
/// not after an apostrophe.
fn title(text: &str) -> String {
    let mut begins = true;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match begins {
            true => out.extend(c.to_uppercase()),
            false => out.extend(c.to_lowercase()),
        }
        begins = c.is_whitespace() || matches!(c, '-' | '(' | '[' | '{' | '<');
    }
    out
}

/// Maximum width of padding.
const PAD_MAX: usize = 1 << 20;

/// Like Python's `str.center`.
pub fn center_text(text: &str, width: usize, fill: char) -> Result<String, Error> {
    let room = width.saturating_sub(text.chars().count());
    if room > PAD_MAX {
        return Err(failure(format!("a width of more than {PAD_MAX} is not allowed")));
    }
    let left = room / 2 + (room & width & 1);
    let pad = |n: usize| fill.to_string().repeat(n);
    Ok(format!("{}{text}{}", pad(left), pad(room - left)))
}

fn indent(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let pad = match a.get("width") {
        Some(width) if width.kind() == ValueKind::String => width.as_str().unwrap_or_default().to_owned(),
        _ => " ".repeat(a.count("width")?.unwrap_or(4).min(1000)),
    };
    let (first, blank) = (a.flag("first"), a.flag("blank"));
    check_length(text.len().saturating_add(text.matches('\n').count().saturating_add(1).saturating_mul(pad.len())))?;
    let mut out = String::with_capacity(text.len() + 64);
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        // The empty text after the last newline is not a line.
        let last = line.is_empty() && i > 0 && i == text.matches('\n').count();
        if (i > 0 || first) && (!line.is_empty() || blank && !last) {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(out.into())
}

fn comment(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let style = a.text("style")?.unwrap_or_else(|| "plain".into());
    let (beginning, decoration, end) = match style.as_str() {
        "plain" => ("", "# ", ""),
        "erlang" => ("", "% ", ""),
        "c" => ("", "// ", ""),
        "cblock" => ("/*", " * ", " */"),
        "xml" => ("<!--", " - ", "-->"),
        other => return Err(failure(format!("comment: unknown style `{other}`; use plain, erlang, c, cblock or xml"))),
    };
    let known = ["newline", "beginning", "prefix", "prefix_count", "decoration", "postfix", "postfix_count", "end"];
    if let Some((name, _)) = a.named.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(failure(format!("comment: unknown argument `{name}`")));
    }
    let own = |name: &str| a.named.iter().find(|(n, _)| n == name).map(|(_, v)| python::text(v)).transpose();
    let decoration = own("decoration")?.unwrap_or_else(|| decoration.to_owned());
    let edge = decoration.trim_end().to_owned();
    let newline = own("newline")?.unwrap_or_else(|| "\n".into());
    let beginning = own("beginning")?.unwrap_or_else(|| beginning.to_owned());
    let end = own("end")?.unwrap_or_else(|| end.to_owned());
    let prefix = own("prefix")?.unwrap_or_else(|| edge.clone());
    let postfix = own("postfix")?.unwrap_or_else(|| edge.clone());
    let times = |name: &str| -> Result<usize, Error> {
        let count = own(name)?.map_or(Ok(1), |n| n.parse::<usize>());
        count
            .ok()
            .filter(|n| *n <= 1000)
            .ok_or_else(|| failure(format!("comment: `{name}` must be a number up to 1000")))
    };
    let mut out = String::new();
    if !beginning.is_empty() {
        out.push_str(&format!("{beginning}{newline}"));
    }
    if !prefix.is_empty() {
        let line = if prefix == newline { newline.clone() } else { format!("{prefix}{newline}") };
        out.push_str(&line.repeat(times("prefix_count")?));
    }
    let body = format!("{decoration}{}", replace_text(&text, &newline, &format!("{newline}{decoration}"), None)?);
    out.push_str(&body.replace(&format!("{decoration}{newline}"), &format!("{}{newline}", decoration.trim_end())));
    out.push_str(&format!("{newline}{postfix}").repeat(times("postfix_count")?));
    if !end.is_empty() {
        out.push_str(&format!("{newline}{end}"));
    }
    Ok(out.into())
}

/// Quotes a text for a POSIX shell if needed.
pub fn shell_quote(text: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !text.is_empty() && text.bytes().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\"'\"'"))
    }
}

fn truncate(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let chars: Vec<char> = text.chars().collect();
    let length = a.count("length")?.unwrap_or(255);
    let end = a.text("end")?.unwrap_or_else(|| "...".into());
    let leeway = a.count("leeway")?.unwrap_or(5);
    let tail = end.chars().count();
    if length < tail {
        return Err(failure(format!("truncate: `length` must be at least {tail}")));
    }
    if chars.len() <= length + leeway {
        return Ok(v);
    }
    let kept: String = chars[..length - tail].iter().collect();
    let kept =
        if a.flag("killwords") { kept.as_str() } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(k, _)| k) };
    Ok(format!("{kept}{end}").into())
}

fn wordwrap(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let width = a.count("width")?.unwrap_or(79).max(1);
    let long = a.get("break_long_words").is_none_or(Value::is_true);
    let joint = a.text("wrapstring")?.unwrap_or_else(|| "\n".into());
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let mut word: Vec<char> = word.chars().collect();
            if !line.is_empty() && line.chars().count() + 1 + word.len() > width {
                lines.push(std::mem::take(&mut line));
            }
            while long && word.len() > width {
                lines.push(word.drain(..width).collect());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(word);
        }
        lines.push(line);
    }
    Ok(lines.join(&joint).into())
}

/// Like Python's `str.split`; without a separator, splits at whitespace.
pub fn split(text: &str, sep: Option<&str>, limit: Option<usize>) -> Result<Vec<String>, Error> {
    let owned = |parts: &mut dyn Iterator<Item = &str>| parts.map(str::to_owned).collect();
    Ok(match (sep, limit) {
        (Some(""), _) => return Err(failure("split: the separator is empty")),
        (Some(sep), None) => owned(&mut text.split(sep)),
        (Some(sep), Some(n)) => owned(&mut text.splitn(n + 1, sep)),
        (None, None) => owned(&mut text.split_whitespace()),
        (None, Some(n)) => {
            let (mut rest, mut out) = (text.trim_start(), Vec::new());
            while !rest.is_empty() && out.len() < n {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                out.push(rest[..end].to_owned());
                rest = rest[end..].trim_start();
            }
            if !rest.is_empty() {
                out.push(rest.trim_end().to_owned());
            }
            out
        }
    })
}

fn striptags(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in text.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn percent(text: &str, safe: &[u8]) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"_.-~".contains(&b) || safe.contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn urlencode(_: &mut State, v: Value, _: Args) -> FilterResult {
    let plus = |v: &Value| Ok::<_, Error>(percent(&python::text(v)?, b" ").replace(' ', "+"));
    match v.kind() {
        ValueKind::Map => {
            let pairs = v.try_iter()?.map(|key| Ok(format!("{}={}", plus(&key)?, plus(&v.get_item(&key)?)?)));
            Ok(pairs.collect::<Result<Vec<_>, Error>>()?.join("&").into())
        }
        ValueKind::Seq => {
            let pairs = v.try_iter()?.map(|pair| {
                Ok(format!("{}={}", plus(&pair.get_item_by_index(0)?)?, plus(&pair.get_item_by_index(1)?)?))
            });
            Ok(pairs.collect::<Result<Vec<_>, Error>>()?.join("&").into())
        }
        _ => Ok(percent(&python::text(&v)?, b"/").into()),
    }
}

fn unquote_plus(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::new(), 0);
    while let Some(&b) = bytes.get(i) {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match (b, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                i += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(b),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('>', "&gt;").replace('<', "&lt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}

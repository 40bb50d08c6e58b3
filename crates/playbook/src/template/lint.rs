//! Scans templates without rendering them, for filters, tests, included templates and words that
//! could be variables. This is a scanner and not a parser: when in doubt, it reports too much
//! rather than too little.

use std::collections::{BTreeMap, BTreeSet};

/// Keywords of Jinja2. They are not values; a new operand begins after a keyword.
pub const KEYWORDS: [&str; 22] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "elif",
    "for",
    "set",
    "recursive",
    "include",
    "import",
    "from",
    "as",
    "with",
    "without",
    "ignore",
    "call",
    "filter",
    "do",
    "extends",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    Filter,
    Test,
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Sign(char),
}

/// A part of a template: a piece of markup, or the text between two pieces. All parts in order are
/// the whole template.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part<'a> {
    pub whole: &'a str,
    /// The text inside `{{ }}` or `{% %}`. None: plain text, a comment, or raw text.
    pub inner: Option<&'a str>,
}

impl<'a> Part<'a> {
    /// The first word of a `{% %}` statement.
    pub fn statement(&self) -> Option<&'a str> {
        let inner = self.inner.filter(|_| self.whole.starts_with("{%"))?.trim_start_matches(['-', '+']).trim_start();
        Some(&inner[..word_length(inner)])
    }
}

/// Splits a template into parts. Unclosed markup extends to the end.
pub fn parts(template: &str) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    let mut rest = template;
    let mut raw = false;
    while !rest.is_empty() {
        let open = rest.match_indices('{').map(|(at, _)| at);
        let mut begins = open.filter(|at| match rest.as_bytes().get(at + 1) {
            Some(b'%') => !raw || Part { whole: "{%", inner: Some(&rest[at + 2..]) }.statement() == Some("endraw"),
            Some(b'{' | b'#') => !raw,
            _ => false,
        });
        let (text, markup) = rest.split_at(begins.next().unwrap_or(rest.len()));
        if !text.is_empty() {
            out.push(Part { whole: text, inner: None });
        }
        let end = match markup.as_bytes().get(1) {
            None => break,
            Some(b'{') => find_markup_end(markup, "}}"),
            Some(b'%') => find_markup_end(markup, "%}"),
            Some(_) => markup[2..].find("#}").map(|at| at + 2),
        };
        let (whole, after) = markup.split_at(end.map_or(markup.len(), |end| end + 2));
        let inner = Some(&markup[2..end.unwrap_or(markup.len())]).filter(|_| !whole.starts_with("{#"));
        let part = Part { whole, inner };
        raw = part.statement() == Some("raw");
        out.push(part);
        rest = after;
    }
    out
}

/// The position of the `end` of the markup at the start of a text. An `end` in quotes is skipped.
fn find_markup_end(markup: &str, end: &str) -> Option<usize> {
    let mut at = 2;
    while let Some(c) = markup[at..].chars().next() {
        match c {
            '\'' | '"' => at += quoted_length(&markup[at..]),
            _ if markup[at..].starts_with(end) => return Some(at),
            _ => at += c.len_utf8(),
        }
    }
    None
}

/// Length of the quoted text that `rest` begins with, including its quotes.
pub fn quoted_length(rest: &str) -> usize {
    let quote = rest.chars().next();
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if Some(c) == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of the word that `rest` begins with.
pub fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
}

/// Tokens inside `{{ }}` and `{% %}`, without comments and raw blocks.
fn tokens(template: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    for inner in parts(template).into_iter().filter_map(|part| part.inner) {
        section(inner, &mut out);
        out.push(Token::Sign(';'));
    }
    out
}

fn section<'a>(mut rest: &'a str, out: &mut Vec<Token<'a>>) {
    while let Some(c) = rest.chars().next() {
        let mut len = c.len_utf8();
        if c == '\'' || c == '"' {
            len = quoted_length(rest);
            let body = &rest[1..len];
            out.push(Token::Text(if len > 1 { body.strip_suffix(c).unwrap_or(body) } else { body }));
        } else if c.is_alphabetic() || c == '_' {
            len = word_length(rest);
            out.push(Token::Word(&rest[..len]));
        } else if !c.is_whitespace() {
            out.push(Token::Sign(c));
        }
        rest = &rest[len..];
    }
}

/// Whether a template handles an undefined value anywhere in its markup.
pub fn lenient(template: &str) -> bool {
    let tokens = tokens(template);
    tokens.windows(2).any(|pair| match pair {
        [Token::Sign('|'), Token::Word(filter)] => matches!(*filter, "default" | "d" | "ternary"),
        [Token::Sign('.'), Token::Word(filter)] => *filter == "default",
        [Token::Word("is" | "not"), Token::Word(test)] => matches!(*test, "defined" | "undefined"),
        // The name of a test as an argument of `select` and similar filters.
        [_, Token::Text(test)] => matches!(*test, "defined" | "undefined"),
        _ => false,
    })
}

/// The filters (after `|`) and tests (after `is`) that a template names.
pub fn filters_and_tests(template: &str) -> Vec<(NameKind, String)> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let (kind, mut at) = match token {
            Token::Sign('|') => (NameKind::Filter, i + 1),
            Token::Word("is") if tokens.get(i + 1) == Some(&Token::Word("not")) => (NameKind::Test, i + 2),
            Token::Word("is") => (NameKind::Test, i + 1),
            _ => continue,
        };
        let Some(Token::Word(first)) = tokens.get(at) else { continue };
        let mut name = (*first).to_owned();
        while let (Some(Token::Sign('.')), Some(Token::Word(next))) = (tokens.get(at + 1), tokens.get(at + 2)) {
            name = format!("{name}.{next}");
            at += 2;
        }
        out.push((kind, name));
    }
    out
}

/// The filters and tests that a template names as texts, as in `map('upper')`.
pub fn names_in_arguments(template: &str) -> Vec<(NameKind, String)> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [Token::Word(filter), Token::Sign('(')] = pair else { continue };
        let arguments = tokens[at + 2..].iter().take_while(|token| **token != Token::Sign(')'));
        let mut texts = arguments.filter_map(|token| if let Token::Text(text) = token { Some(*text) } else { None });
        let (kind, name) = match *filter {
            "map" => (NameKind::Filter, texts.next()),
            "select" | "reject" => (NameKind::Test, texts.next()),
            "selectattr" | "rejectattr" => (NameKind::Test, texts.nth(1)),
            _ => continue,
        };
        out.extend(name.map(|name| (kind, name.to_owned())));
    }
    out
}

/// Names of the methods that a template calls on values: `.name(`.
pub fn methods(template: &str) -> BTreeSet<String> {
    let tokens = tokens(template);
    let mut out = BTreeSet::new();
    for at in 1..tokens.len() {
        let (Token::Sign('.'), Some(Token::Word(name)), Some(Token::Sign('('))) =
            (&tokens[at], tokens.get(at + 1), tokens.get(at + 2))
        else {
            continue;
        };
        // These are no methods: filters and tests whose names contain dots, and blocks of a
        // template, which are called as `self.name()`.
        let mut first = at - 1;
        while first >= 2 && tokens[first - 1] == Token::Sign('.') && matches!(tokens[first], Token::Word(_)) {
            first -= 2;
        }
        let before = first.checked_sub(1).map(|i| &tokens[i]);
        let named = matches!(before, Some(Token::Sign('|') | Token::Word("is" | "not")));
        if !(named && matches!(tokens[first], Token::Word(_)) || tokens[first] == Token::Word("self")) {
            out.insert((*name).to_owned());
        }
    }
    out
}

/// The templates that this one includes, imports or extends with a literal name. The value is true
/// if the template needs the file, and false for `ignore missing`.
pub fn includes(template: &str) -> BTreeMap<String, bool> {
    let tokens = tokens(template);
    let mut out = BTreeMap::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if let [Token::Word("include" | "import" | "extends" | "from"), Token::Text(name)] = pair {
            let (name, rest) = joined_name(name, &tokens[at + 2..]);
            let lenient = matches!(rest, [Token::Word("ignore"), Token::Word("missing"), ..]);
            *out.entry(name).or_insert(false) |= !lenient;
        }
    }
    out
}

/// The name that begins with the text `first` and continues with `~` or `+`. Each part that is not
/// a literal text becomes markup. Returns also the tokens after the name.
fn joined_name<'t>(first: &str, mut rest: &'t [Token<'t>]) -> (String, &'t [Token<'t>]) {
    let mut name = first.to_owned();
    while let [Token::Sign('~' | '+'), after @ ..] = rest {
        let ends = |token: &Token| {
            matches!(
                token,
                Token::Sign('~' | '+' | ';' | '%') | Token::Word("ignore" | "with" | "without" | "import" | "as")
            )
        };
        let length = after.iter().position(ends).unwrap_or(after.len());
        match &after[..length] {
            [Token::Text(text)] => name.push_str(text),
            _ => name.push_str("{{ }}"),
        }
        rest = &after[length..];
    }
    (name, rest)
}

/// A call of `lookup`, `query` or `q` with a literal name.
#[derive(Debug, PartialEq, Eq)]
pub struct Lookup {
    pub name: String,
    /// The positional arguments, if all are literal; None if an argument is computed.
    pub terms: Option<Vec<String>>,
    /// The source texts of all arguments after the name.
    pub arguments: Vec<String>,
}

/// The arguments of a call, as they are written. `rest` begins after the first argument.
fn split_arguments(rest: &str) -> Vec<String> {
    let (mut out, mut depth, mut at, mut from) = (Vec::new(), 0_usize, 0, None);
    while let Some(c) = rest[at..].chars().next() {
        let ends = depth == 0 && matches!(c, ',' | ')' | ']' | '}');
        if ends {
            out.extend(from.map(|from: usize| rest[from..at].trim().to_owned()).filter(|text| !text.is_empty()));
            from = Some(at + 1);
            if c != ',' {
                break;
            }
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += if matches!(c, '"' | '\'') { quoted_length(&rest[at..]) } else { c.len_utf8() };
    }
    out
}

/// The lookups that a template calls with a literal name.
pub fn lookups(template: &str) -> Vec<Lookup> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    for (at, call) in tokens.windows(3).enumerate() {
        let [Token::Word("lookup" | "query" | "q"), Token::Sign('('), Token::Text(name)] = call else { continue };
        let mut terms = Some(Vec::new());
        let mut rest = &tokens[at + 3..];
        loop {
            match rest {
                [Token::Sign(')'), ..] => break,
                // Keyword arguments such as `rstrip=false` are options, not terms.
                [Token::Sign(','), Token::Word(_), Token::Sign('='), _, after @ ..] => rest = after,
                // The argument is a list of literal texts.
                [Token::Sign(','), Token::Sign('['), after @ ..] if closes(after).is_some() => {
                    let (list, after) = after.split_at(closes(after).unwrap_or_default());
                    let texts =
                        list.iter().filter_map(|token| if let Token::Text(text) = token { Some(*text) } else { None });
                    terms.iter_mut().for_each(|terms| terms.extend(texts.clone().map(str::to_owned)));
                    rest = &after[1..];
                }
                [Token::Sign(','), Token::Text(term), after @ ..]
                    if matches!(after.first(), Some(Token::Sign(',' | ')'))) =>
                {
                    terms.iter_mut().for_each(|terms: &mut Vec<String>| terms.push((*term).to_owned()));
                    rest = after;
                }
                _ => {
                    terms = None;
                    break;
                }
            }
        }
        let end = name.as_ptr() as usize - template.as_ptr() as usize + name.len() + 1;
        let arguments = split_arguments(template.get(end..).unwrap_or_default());
        out.push(Lookup { name: (*name).to_owned(), terms, arguments });
    }
    out
}

/// The position at which a list of literal texts ends; None if it holds anything else.
fn closes(tokens: &[Token]) -> Option<usize> {
    let end = tokens.iter().position(|token| *token == Token::Sign(']'))?;
    let fixed = |(i, token): (usize, &Token)| match i % 2 {
        0 => matches!(token, Token::Text(_)),
        _ => *token == Token::Sign(','),
    };
    tokens[..end].iter().enumerate().all(fixed).then_some(end)
}

/// One read of a variable in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariableUse {
    /// Offset of the read in the template, in bytes.
    pub offset: usize,
    /// Whether the undefined case is handled: by `default`, by `is defined`, or by an enclosing
    /// condition that names the variable.
    pub guarded: bool,
    /// Whether a rendering can skip the read: it is inside `if`, `for` or a macro, or in an
    /// expression with `and`, `or` or `if`.
    pub conditional: bool,
}

/// Finds where a template reads the variable `name`. Fields and arguments of the same name are not
/// counted.
pub fn uses(template: &str, name: &str) -> Vec<VariableUse> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    // Words of the open block statements, outermost first.
    let mut open: Vec<BTreeSet<&str>> = Vec::new();
    for section in tokens.split(|token| *token == Token::Sign(';')) {
        let words = || section.iter().filter_map(|t| if let Token::Word(w) = t { Some(*w) } else { None });
        let first = words().next().filter(|_| matches!(section.first(), Some(Token::Word(_)))).unwrap_or_default();
        if matches!(first, "endif" | "endfor" | "endmacro") {
            open.pop();
            continue;
        }
        let asked = section.windows(2).any(|pair| pair == [Token::Word(name), Token::Word("is")]);
        let beside = words().skip(usize::from(first == "if")).any(|word| matches!(word, "if" | "and" | "or"));
        let around = open.iter().any(|header| header.contains(name));
        for (i, token) in section.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| section.get(i));
            let (next, after) = (section.get(i + 1), section.get(i + 2));
            let argument = next == Some(&Token::Sign('=')) && after != Some(&Token::Sign('='));
            let Token::Word(word) = token else { continue };
            if *word != name || before == Some(&Token::Sign('.')) || argument {
                continue;
            }
            let filtered = next == Some(&Token::Sign('|')) && matches!(after, Some(Token::Word("default" | "d")));
            out.push(VariableUse {
                offset: word.as_ptr() as usize - template.as_ptr() as usize,
                guarded: filtered || asked || around,
                conditional: !open.is_empty() || beside,
            });
        }
        match first {
            "if" | "for" | "macro" => open.push(words().collect()),
            "elif" => open.last_mut().into_iter().for_each(|header| header.extend(words())),
            _ => {}
        }
    }
    out
}

/// Whether a template assigns `name` anywhere: by `set`, `for`, `macro`, or an import under that
/// name. A template engine without a scope for `if` sees such a name where a reader of the text
/// would not expect it.
pub fn sets(template: &str, name: &str) -> bool {
    let tokens = tokens(template);
    let mut sections = tokens.split(|token| *token == Token::Sign(';'));
    sections.any(|section| {
        let head = section.iter().take_while(|t| !matches!(t, Token::Sign('=') | Token::Word("in")));
        let words: Vec<&str> = head.filter_map(|t| if let Token::Word(w) = t { Some(*w) } else { None }).collect();
        matches!(words.first(), Some(&("set" | "for" | "macro" | "import" | "from"))) && words[1..].contains(&name)
    })
}

/// Paths `name.field.field` that a template reads, with their offsets in bytes.
pub fn paths(template: &str) -> Vec<(String, usize)> {
    let tokens = tokens(template);
    let mut out: Vec<(String, usize)> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Token::Word(word) = tokens[at] {
            let mut path = word.to_owned();
            while let (Some(Token::Sign('.')), Some(Token::Word(field))) = (tokens.get(at + 1), tokens.get(at + 2)) {
                path = format!("{path}.{field}");
                at += 2;
            }
            if path.contains('.') {
                out.push((path, word.as_ptr() as usize - template.as_ptr() as usize));
            }
        }
        at += 1;
    }
    out
}

/// Facts that a template reads from `ansible_facts`, with their offsets in bytes. Left out are
/// reads inside `if` and `for`, and reads in expressions that test whether the fact exists.
pub fn facts_read(template: &str) -> Vec<(String, usize)> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    let mut open = 0usize;
    for section in tokens.split(|token| *token == Token::Sign(';')) {
        let asks = section.iter().any(|t| {
            matches!(
                t,
                Token::Word(
                    "default" | "d" | "defined" | "undefined" | "if" | "and" | "or" | "mandatory" | "for" | "in"
                )
            )
        });
        match section.first() {
            Some(Token::Word("if" | "for" | "macro")) => open += 1,
            Some(Token::Word("endif" | "endfor" | "endmacro")) => open = open.saturating_sub(1),
            _ => {}
        }
        if asks || open > 0 {
            continue;
        }
        for (i, token) in section.iter().enumerate() {
            let Token::Word(word @ "ansible_facts") = token else { continue };
            let called = section.get(i + 3) == Some(&Token::Sign('('));
            let name = match (section.get(i + 1), section.get(i + 2), section.get(i + 3)) {
                (Some(Token::Sign('.')), Some(Token::Word(name)), _) if !called => name,
                (Some(Token::Sign('[')), Some(Token::Text(name)), Some(Token::Sign(']'))) => name,
                _ => continue,
            };
            let own = i.checked_sub(1).and_then(|i| section.get(i)) != Some(&Token::Sign('.'));
            if own {
                out.push(((*name).to_owned(), word.as_ptr() as usize - template.as_ptr() as usize));
            }
        }
    }
    out
}

/// Line and column, from 1, of a byte offset in a text.
pub fn place(text: &str, offset: usize) -> (u32, u32) {
    let before = &text[..offset.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// Adds every word of a text that could name a variable, in markup or not.
pub fn collect_words(text: &str, out: &mut BTreeSet<String>) {
    for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
        if word.starts_with(|c: char| c.is_alphabetic() || c == '_') && !out.contains(word) {
            out.insert(word.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names() {
        let text = "a | b {{ x | default('|no') | map('upper') }}{% if y is not defined and z is version('1', '<') %}{# | none #}";
        let found: Vec<String> = filters_and_tests(text).into_iter().map(|(_, n)| n).collect();
        assert_eq!(found, ["default", "map", "defined", "version"]);
        assert_eq!(
            includes("{% include 'a.j2' %}{% from \"m.j2\" import x %}").into_iter().collect::<Vec<_>>(),
            [("a.j2".to_owned(), true), ("m.j2".to_owned(), true)]
        );
        assert!(!includes("{% include 'a.j2' ignore missing %}")["a.j2"]);
        let joined = includes("{% include 'd/' ~ version | int ~ '/a.j2' ignore missing with context %}{{ x ~ 'y' }}");
        assert_eq!(joined.into_iter().collect::<Vec<_>>(), [("d/{{ }}/a.j2".to_owned(), false)]);
        assert!(filters_and_tests("{% raw %}{{ a | nope }}{% endraw %}").is_empty());
        let found = lookups("{{ lookup('url', 'x', y=1) }}{{ q('file', a) }}{{ query('env', 'A', 'B') | first }}");
        let found: Vec<_> = found.iter().map(|l| (l.name.as_str(), l.terms.as_ref().map(|t| t.join(" ")))).collect();
        assert_eq!(found, [("url", Some("x".to_owned())), ("file", None), ("env", Some("A B".to_owned()))]);
        let given = |text: &str| lookups(text).remove(0).arguments.join(" | ");
        assert_eq!(
            given("{{ lookup('file', a ~ ',)', [b, c], skip=f(1, 2)) | x }}"),
            "a ~ ',)' | [b, c] | skip=f(1, 2)"
        );
        assert_eq!(given("{{ f(q('file' , a), b) }}"), "a");
        let called = methods(
            "{{ a.get('x').split(',') }} {{ 'x'.upper() }} {{ b | ansible.builtin.bool() is c.d.e(1) }} f(1).g",
        );
        assert_eq!(called.into_iter().collect::<Vec<_>>(), ["get", "split", "upper"]);
    }

    #[test]
    fn a_template_is_its_parts() {
        for (text, inner) in [
            ("a {{ '}}' }} b {# {{ c }} #}{%- set x = 1 -%}", vec![" '}}' ", "- set x = 1 -"]),
            ("{%- raw %}{{ a }}{% b %}{%- endraw %}{{ c }}", vec!["- raw ", "- endraw ", " c "]),
            ("{ { {{ a", vec![" a"]),
            ("{% raw %}{{ a }}", vec![" raw "]),
            ("{#}} {{ a }}", vec![]),
            ("{%} {{ a }}", vec!["} {{ a }}"]),
            ("", vec![]),
        ] {
            let parts = parts(text);
            assert_eq!(parts.iter().map(|part| part.whole).collect::<String>(), text);
            assert_eq!(parts.iter().filter_map(|part| part.inner).collect::<Vec<_>>(), inner, "{text}");
        }
        for (text, says) in [
            ("listen 80 default_server; {{ defined }}", false),
            ("{{ a | default('x') }}", true),
            ("{{ a | d(1) }}", true),
            ("{% if a is not defined %}", true),
            ("{{ 'default' }} {{ d }}", false),
            ("{{ a | ansible.builtin.default(1) }}", true),
            ("{{ list | selectattr('x', 'defined') }}", true),
        ] {
            assert_eq!(lenient(text), says, "{text}");
        }
    }

    #[test]
    fn tells_uses_that_are_guarded_or_may_never_be_reached() {
        let of = |text: &str| {
            let uses = uses(text, "x");
            uses.iter().map(|u| (u.offset, u.guarded, u.conditional)).collect::<Vec<_>>()
        };
        assert_eq!(of("a {{ x }} x {{ y.x }} {{ f(x=1) }} {{ 'x' }}"), [(5, false, false)]);
        assert_eq!(of("{{ x | default(1) }}"), [(3, true, false)]);
        assert_eq!(of("{% if x is defined %}{{ x }}{% endif %}"), [(6, true, false), (24, true, true)]);
        assert_eq!(of("{% if y %}{{ x }}{% endif %}{{ x }}"), [(13, false, true), (31, false, false)]);
        assert_eq!(of("{{ 1 if y else x }}"), [(15, false, true)]);
        assert_eq!(of("{% for a in x %}{% endfor %}"), [(12, false, false)]);
        assert_eq!(paths("{{ a.b.c | f }} {{ d }}"), [("a.b.c".to_owned(), 3)]);
        assert_eq!(place("ab\nä{{ x }}", 6), (2, 3));
        let read = facts_read(
            "{{ ansible_facts.a.b }}{{ ansible_facts['c'] }}{{ ansible_facts.d | default(1) }}{{ ansible_facts.get('e') }}\
             {% if ansible_facts.f %}{{ ansible_facts.g }}{% endif %}{{ hostvars.x.ansible_facts.h }}",
        );
        assert_eq!(read, [("a".to_owned(), 3), ("c".to_owned(), 26)]);
    }
}

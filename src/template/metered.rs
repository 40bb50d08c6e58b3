//! The text of a template with calls of the meter in it: on the same lines, and nothing more is written by it.

use super::markup::{Markup, Word, markups, words};
use super::meter::{FILTERS, KEEP, MEASURED, Place, TURN, UNDEFINED, WEIGH};
use super::{Missing, Stop};
use std::collections::{BTreeMap, BTreeSet};

/// A template that can be counted.
pub(super) struct Metered {
    pub text: String,
    /// What its calls name by number.
    pub places: Vec<Place>,
}

/// Err: it has what can't be counted.
pub(super) fn metered(text: &str, missing: Missing<'_>) -> Result<Metered, Stop> {
    let all = markups(text);
    let (out, places, own) = (String::new(), Vec::new(), own_names(&all));
    let mut writer = Writer { text, missing, out, written: 0, seen: 0, line: 1, column: 1, places, own };
    let bodies = bodies(&all);
    // Names of `set` blocks that are open; and how many blocks are, whose text is written again and again, or kept.
    let mut kept: Vec<&str> = Vec::new();
    let mut inside = 0usize;
    for (number, markup) in all.iter().enumerate() {
        let place = writer.place(markup.start);
        refuse(markup, &place)?;
        writer.inner(markup);
        writer.copy_to(markup.end);
        match markup.keyword() {
            "for" => {
                inside += 1;
                let bytes = bodies.get(&number).copied().unwrap_or(0);
                writer.call(markup, TURN, Place { bytes, ..place }, "");
            }
            "filter" => inside += 1,
            "endfor" | "endfilter" => inside = inside.saturating_sub(1),
            "set" | "set_global" => match set_name(markup) {
                Some((name, true)) => writer.keep(markup, place, name),
                Some((name, false)) => {
                    inside += 1;
                    kept.push(name);
                }
                None => {}
            },
            "endset" => {
                inside = inside.saturating_sub(1);
                if let Some(name) = kept.pop() {
                    writer.keep(markup, place, name);
                }
            }
            _ if !markup.tag && inside > 0 => writer.call(markup, WEIGH, place, markup.inner),
            _ => {}
        }
    }
    writer.copy_to(text.len());
    Ok(Metered { text: writer.out, places: writer.places })
}

/// Bytes of the body of each loop, by the number of its markup.
fn bodies(all: &[Markup<'_>]) -> BTreeMap<usize, u64> {
    let (mut open, mut out) = (Vec::new(), BTreeMap::new());
    for (number, markup) in all.iter().enumerate() {
        match markup.keyword() {
            "for" => open.push((number, markup.end)),
            "endfor" => {
                if let Some((number, from)) = open.pop() {
                    out.insert(number, (markup.start - from) as u64);
                }
            }
            _ => {}
        }
    }
    out
}

/// Names to which the template gives values itself.
fn own_names<'a>(all: &[Markup<'a>]) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for markup in all {
        match markup.keyword() {
            "set" | "set_global" => out.extend(set_name(markup).map(|(name, _)| name)),
            "for" => {
                let names = words(markup.inner).into_iter().skip(1).map(|(word, ..)| word);
                out.extend(names.take_while(|word| *word != Word::Name("in")).filter_map(|word| match word {
                    Word::Name(name) => Some(name),
                    Word::Text(_) | Word::Sign(_) => None,
                }));
            }
            _ => {}
        }
    }
    out
}

/// The name that a `set` gives a value to, and whether the value stands behind it instead of in a block.
fn set_name<'a>(markup: &Markup<'a>) -> Option<(&'a str, bool)> {
    match words(markup.inner).get(1..) {
        Some([(Word::Name(name), ..), rest @ ..]) => {
            Some((name, rest.first().is_some_and(|(word, ..)| *word == Word::Sign('='))))
        }
        _ => None,
    }
}

fn refuse(markup: &Markup<'_>, place: &Place) -> Result<(), Stop> {
    let bound = |why: &str| Err(Stop::Bound { line: place.line, column: place.column, why: why.to_owned() });
    if matches!(markup.keyword(), "component" | "include" | "extends") {
        return bound("templates have no components and no other templates");
    }
    let mut names = words(markup.inner).into_iter().skip(usize::from(markup.tag));
    if names.any(|(word, ..)| word == Word::Name("for")) {
        return bound("a `for` within an expression can't be counted: write a loop, `{% for .. %}`");
    }
    Ok(())
}

struct Writer<'a> {
    text: &'a str,
    missing: Missing<'a>,
    out: String,
    /// So many bytes of `text` are in `out`.
    written: usize,
    /// How far places were looked for, and the one there.
    seen: usize,
    line: u32,
    column: u32,
    places: Vec<Place>,
    own: BTreeSet<&'a str>,
}

impl<'a> Writer<'a> {
    fn copy_to(&mut self, at: usize) {
        if at > self.written {
            self.out.push_str(&self.text[self.written..at]);
            self.written = at;
        }
    }

    /// `with` in the place of the text up to `at`.
    fn put(&mut self, with: &str, at: usize) {
        self.out.push_str(with);
        self.written = at;
    }

    /// Of a byte that is not before the one that was asked for last.
    fn place(&mut self, at: usize) -> Place {
        for c in self.text[self.seen..at.max(self.seen)].chars() {
            self.column = if c == '\n' { 1 } else { self.column.saturating_add(1) };
            self.line = self.line.saturating_add(u32::from(c == '\n'));
        }
        self.seen = at.max(self.seen);
        Place { line: self.line, column: self.column, ..Place::default() }
    }

    /// Behind `markup`, whose `-` takes white space away as before.
    fn call(&mut self, markup: &Markup<'a>, function: &str, place: Place, value: &str) {
        let value = if value.is_empty() { String::new() } else { format!(", value=({})", value.replace('\n', " ")) };
        let close = if markup.trims { "-}}" } else { "}}" };
        self.out.push_str(&format!("{{{{ {function}(at={}{value}) {close}", self.places.len()));
        self.places.push(place);
    }

    /// The same of a variable, which may have been given no value.
    fn keep(&mut self, markup: &Markup<'a>, place: Place, name: &str) {
        self.call(markup, KEEP, place, &format!("{name} | default(value='')"));
    }

    /// Copies an expression, with filters that are counted, and with calls in the place of names that have no value.
    fn inner(&mut self, markup: &Markup<'a>) {
        let words = words(markup.inner);
        let mut at = 0;
        while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
            at += self.word(markup, at.checked_sub(1).and_then(|before| words.get(before)), rest);
        }
    }

    /// Looks at the first of `words`; how many of them it took.
    fn word(&mut self, markup: &Markup<'a>, before: Option<&Placed<'a>>, words: &[Placed<'a>]) -> usize {
        let Some((Word::Name(name), start, end)) = words.first().copied() else { return 1 };
        let before = before.map(|(word, ..)| *word);
        if before == Some(Word::Sign('|')) || markup.keyword() == "filter" && before == Some(Word::Name("filter")) {
            if FILTERS.contains(&name) {
                self.copy_to(markup.inner_at + start);
                self.put(&format!("{MEASURED}{name}"), markup.inner_at + end);
            }
            return 1;
        }
        if before == Some(Word::Sign('.')) || self.own.contains(name) {
            return 1;
        }
        let (path, taken, end) = path(name, end, words);
        if path.len() > 1 && !is_excused(&words[taken..]) && (self.missing)(&path) {
            self.copy_to(markup.inner_at + start);
            let place = self.place(markup.inner_at + start);
            self.put(&format!("{UNDEFINED}(at={})", self.places.len()), markup.inner_at + end);
            self.places.push(Place { name: path.join("."), ..place });
        }
        taken
    }
}

type Placed<'a> = (Word<'a>, usize, usize);

/// `vars.a["b"]` as its names, with how many words that is and the byte behind it.
fn path<'a>(name: &'a str, mut end: usize, words: &[Placed<'a>]) -> (Vec<&'a str>, usize, usize) {
    let (mut path, mut taken) = (vec![name], 1);
    loop {
        let (name, more) = match &words[taken..] {
            [(Word::Sign('.'), ..), (Word::Name(name), ..), ..] => (*name, 2),
            [(Word::Sign('['), ..), (Word::Text(name), ..), (Word::Sign(']'), ..), ..] if !name.contains('\\') => {
                (*name, 3)
            }
            _ => return (path, taken, end),
        };
        path.push(name);
        taken += more;
        end = words[taken - 1].2;
    }
}

/// Whether what follows a path asks if it is defined, or goes on in a way that Tera itself looks at.
fn is_excused(after: &[Placed<'_>]) -> bool {
    use Word::{Name, Sign};
    let after: Vec<Word<'_>> = after.iter().take(3).map(|(word, ..)| *word).collect();
    matches!(
        after[..],
        [Sign('.' | '[' | '(' | '?'), ..]
            | [Sign('|'), Name("default"), ..]
            | [Name("is"), Name("defined" | "undefined"), ..]
            | [Name("is"), Name("not"), Name("defined" | "undefined")]
    )
}

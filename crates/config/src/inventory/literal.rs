//! Values of INI inventories: Python literals if possible, text otherwise, as in Ansible.
//!
//! `80` is a number, `True` a boolean, `[1, 'a']` a list; `yes`, `0644` and `10.0.0.1` are text.
//! Complex numbers, bytes, and numbers that do not fit into 64 bits stay text.

use serde_json::{Map, Number, Value};

/// Maximum nesting of a literal.
const DEPTH_MAX: usize = 32;

/// The literal in `text`, or `text` itself.
pub fn value(text: &str) -> Value {
    let mut parser = Parser { rest: text.trim_start_matches([' ', '\t']), depth: 0 };
    match parser.value() {
        Some(value) if parser.at_end() => value,
        _ => Value::from(text),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }
    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
    /// Whether only blanks and a comment remain.
    fn at_end(&mut self) -> bool {
        self.skip();
        self.rest.is_empty() || self.rest.starts_with('#')
    }

    /// A value, or several values with commas, which form a tuple.
    fn value(&mut self) -> Option<Value> {
        let first = self.single_value()?;
        self.skip();
        if !self.rest.starts_with(',') {
            return Some(first);
        }
        let mut items = vec![first];
        while self.eat(",") && !self.at_end() {
            items.push(self.single_value()?);
        }
        Some(Value::Array(items))
    }

    fn single_value(&mut self) -> Option<Value> {
        self.skip();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let value = match self.rest.chars().next()? {
            '[' => self.items('[', ']').map(|(items, _)| Value::Array(items)),
            // Parentheses without a comma enclose one value and form no tuple.
            '(' => self.items('(', ')').map(|(mut items, commas)| match (items.len(), commas) {
                (1, false) => items.remove(0),
                _ => Value::Array(items),
            }),
            '{' => self.dict_or_set(),
            '\'' | '"' => self.strings(),
            'r' | 'R' | 'u' | 'U' if matches!(self.rest.as_bytes().get(1), Some(b'\'' | b'"')) => self.strings(),
            '+' | '-' | '.' | '0'..='9' => self.number(),
            _ => self.keyword(),
        };
        self.depth -= 1;
        value
    }

    fn keyword(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let value = match word {
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    /// The items between two brackets, and whether there was a comma.
    fn items(&mut self, open: char, close: char) -> Option<(Vec<Value>, bool)> {
        self.rest = self.rest.strip_prefix(open)?;
        let (mut items, mut commas) = (Vec::new(), false);
        loop {
            if self.eat(close.encode_utf8(&mut [0; 4])) {
                return Some((items, commas));
            }
            if !items.is_empty() && !commas {
                return None;
            }
            items.push(self.single_value()?);
            let comma = self.eat(",");
            self.skip();
            if !comma && !self.rest.starts_with(close) {
                return None;
            }
            commas |= comma;
        }
    }

    fn dict_or_set(&mut self) -> Option<Value> {
        let before = self.rest;
        self.rest = self.rest.strip_prefix('{')?;
        let mut map = Map::new();
        loop {
            if self.eat("}") {
                return Some(Value::Object(map));
            }
            let key = self.single_value()?;
            if !self.eat(":") {
                if !map.is_empty() {
                    return None;
                }
                // Without a colon after the first item, the braces enclose a set, which becomes a
                // list.
                self.rest = before;
                let (items, _) = self.items('{', '}')?;
                let mut once: Vec<Value> = Vec::new();
                for item in items {
                    if !once.contains(&item) {
                        once.push(item);
                    }
                }
                return Some(Value::Array(once));
            }
            let key = match key {
                Value::String(text) => text,
                Value::Array(_) | Value::Object(_) => return None,
                other => other.to_string(),
            };
            let value = self.single_value()?;
            map.insert(key, value);
            let comma = self.eat(",");
            self.skip();
            if !comma && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        // A number has at most one sign, because two signs form an expression, not a literal.
        let negative = self.eat("-");
        if !negative {
            self.eat("+");
        }
        self.skip();
        let exponent = |at: usize| {
            let before = &self.rest.as_bytes()[..at];
            matches!(before.last(), Some(b'e' | b'E')) && !before.starts_with(b"0x") && !before.starts_with(b"0X")
        };
        let ends = |(at, c): &(usize, char)| {
            !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.') || matches!(c, '+' | '-') && exponent(*at))
        };
        let end = self.rest.char_indices().find(ends).map_or(self.rest.len(), |(at, _)| at);
        let (text, rest) = self.rest.split_at(end);
        let value = number(text, negative)?;
        self.rest = rest;
        Some(value)
    }

    /// One string, or several adjacent ones, which are concatenated.
    fn strings(&mut self) -> Option<Value> {
        let mut out = String::new();
        loop {
            let raw = self.rest.starts_with(['r', 'R']);
            let body = self.rest.strip_prefix(['r', 'R', 'u', 'U']).unwrap_or(self.rest);
            let quote = body.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
            let triple = quote.to_string().repeat(3);
            let (open, body) = match body.strip_prefix(&triple) {
                Some(body) => (triple.as_str(), body),
                None => (&triple[..1], &body[1..]),
            };
            let mut at = 0;
            loop {
                let left = &body[at..];
                if left.starts_with(open) {
                    break;
                }
                let c = left.chars().next()?;
                at += c.len_utf8();
                if c == '\\' {
                    let escaped = body[at..].chars().next()?;
                    if raw {
                        out.extend(['\\', escaped]);
                        at += escaped.len_utf8();
                    } else {
                        at += escape(&body[at..], escaped, &mut out)?;
                    }
                } else {
                    out.push(c);
                }
            }
            self.rest = &body[at + open.len()..];
            self.skip();
            let more = self.rest.strip_prefix(['r', 'R', 'u', 'U']).unwrap_or(self.rest);
            if !more.starts_with(['\'', '"']) {
                return Some(Value::String(out));
            }
        }
    }
}

/// Decodes the escape sequence after a backslash. Returns the length of the sequence in bytes.
fn escape(left: &str, escaped: char, out: &mut String) -> Option<usize> {
    let hex = |digits: usize| {
        let text = left.get(1..1 + digits).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        Some((char::from_u32(u32::from_str_radix(text, 16).ok()?)?, 1 + digits))
    };
    let (c, length) = match escaped {
        'n' => ('\n', 1),
        't' => ('\t', 1),
        'r' => ('\r', 1),
        'a' => ('\x07', 1),
        'b' => ('\x08', 1),
        'f' => ('\x0c', 1),
        'v' => ('\x0b', 1),
        '\\' | '\'' | '"' => (escaped, 1),
        'x' => hex(2)?,
        'u' => hex(4)?,
        'U' => hex(8)?,
        '0'..='7' => {
            let digits = left.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            (char::from_u32(u32::from_str_radix(&left[..digits], 8).ok()?)?, digits)
        }
        'N' => return None,
        other => {
            out.push('\\');
            (other, other.len_utf8())
        }
    };
    out.push(c);
    Some(length)
}

fn number(text: &str, negative: bool) -> Option<Value> {
    // Underscores are allowed only between digits.
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    let bare = text.replace('_', "");
    let lower = bare.to_ascii_lowercase();
    let radix = |prefix: &str, radix| lower.strip_prefix(prefix).map(|digits| i128::from_str_radix(digits, radix).ok());
    let whole = match radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)) {
        Some(value) => Some(value?),
        None if bare.bytes().all(|b| b.is_ascii_digit()) => {
            let zeros = bare.bytes().all(|b| b == b'0');
            Some(bare.parse::<i128>().ok().filter(|_| zeros || !bare.starts_with('0'))?)
        }
        None => None,
    };
    if let Some(value) = whole {
        return i64::try_from(if negative { -value } else { value }).ok().map(Value::from);
    }
    if !bare.contains(|c: char| c.is_ascii_digit())
        || lower.contains(|c: char| !(c.is_ascii_digit() || ".e+-".contains(c)))
    {
        return None;
    }
    let value: f64 = bare.parse().ok()?;
    Number::from_f64(if negative { -value } else { value }).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::json;

    #[test]
    fn literals_are_parsed_like_literal_eval() {
        let table = [
            ("80", json!(80)),
            ("-1", json!(-1)),
            ("1_000", json!(1000)),
            ("0x1F", json!(31)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("True", json!(true)),
            ("None", json!(null)),
            ("'a b'", json!("a b")),
            (r#""a\n\x41\u00e9\101" 'b'"#, json!("a\nA\u{e9}Ab")),
            (r"r'a\n'", json!("a\\n")),
            ("'''it's'''", json!("it's")),
            ("[1, 'a', [True]]", json!([1, "a", [true]])),
            ("[]", json!([])),
            ("(1)", json!(1)),
            ("(1,)", json!([1])),
            ("1, 2", json!([1, 2])),
            ("{'a': {'b': 1}, 2: 'c'}", json!({"a": {"b": 1}, "2": "c"})),
            ("{'a', 'b', 'a'}", json!(["a", "b"])),
            ("80 # the port", json!(80)),
        ];
        for (text, want) in table {
            assert_eq!(value(text), want, "{text}");
        }
    }

    #[test]
    fn other_values_stay_text() {
        let deep = "[".repeat(1000);
        let texts = [
            "",
            "yes",
            "true",
            "0644",
            "10.0.0.1",
            "a b",
            "a#b",
            "1_",
            "--1",
            "1 2",
            "[1 2]",
            "[1",
            "{'a': 1",
            "'a",
            "+",
            "1+2j",
            "-o X=y",
            "nan",
            "inf",
            "1e999",
            "99999999999999999999",
            "b'x'",
            "{{ x }}",
            "é",
            "'\\N{DASH}'",
            "{'a': 1 'b'}",
            "[,]",
            &deep,
        ];
        for text in texts {
            assert_eq!(value(text), json!(text), "{text}");
        }
    }
}

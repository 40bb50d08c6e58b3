//! `printf` with Go's verbs `%s %d %v %q %t %x %X %o %b %c %f %e %g %%`, with flags, width and
//! precision.

use super::budget::fits;
use super::values::{kind, quote_text, value_text};
use crate::go_value;
use serde_json::Value;

/// Maximum width of a field.
const WIDTH_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Form {
    left: bool,
    plus: bool,
    zero: bool,
    sharp: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats `arguments` by `format`. Err: the reason why the format does not fit the arguments. Go
/// prints a message as part of the text instead.
pub(super) fn printf(format: &str, arguments: &[&Value]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = arguments.iter();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut form = Form::default();
        while let Some(flag) = chars.next_if(|c| "-+#0 ".contains(*c)) {
            match flag {
                '-' => form.left = true,
                '+' => form.plus = true,
                '0' => form.zero = true,
                '#' => form.sharp = true,
                _ => return Err("the flag ` ` is not supported".to_owned()),
            }
        }
        form.width = digits(&mut chars)?.unwrap_or(0);
        if chars.next_if_eq(&'.').is_some() {
            form.precision = Some(digits(&mut chars)?.unwrap_or(0));
        }
        let verb = chars.next().ok_or("the format ends with `%`; write `%%` for a percent sign")?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("there is no argument for `%{verb}`"))?;
        let text = format_one(&form, verb, value)?;
        fits(1, out.len() + text.len() + form.width)?;
        pad(&mut out, &form, &text, value.is_number());
    }
    match rest.len() {
        0 => Ok(out),
        more => Err(format!("`{format}` leaves {more} arguments unused")),
    }
}

fn digits(chars: &mut std::iter::Peekable<std::str::Chars>) -> Result<Option<usize>, String> {
    let mut text = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        text.push(digit);
    }
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|n| *n <= WIDTH_MAX);
    number.map(Some).ok_or_else(|| format!("the field is wider than {WIDTH_MAX}"))
}

fn format_one(form: &Form, verb: char, value: &Value) -> Result<String, String> {
    let wrong = || format!("`%{verb}` cannot print {}", kind(value));
    if let (Value::Array(items), false) = (value, verb == 'v') {
        let parts: Result<Vec<String>, String> = items.iter().map(|item| format_one(form, verb, item)).collect();
        return Ok(format!("[{}]", parts?.join(" ")));
    }
    let whole = match value {
        Value::Number(n) if !n.is_f64() => n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)),
        _ => None,
    };
    let float = value.as_f64().filter(|_| value.is_f64());
    let signed = |text: String| if form.plus && !text.starts_with('-') { format!("+{text}") } else { text };
    let cut = |text: &str| match form.precision {
        Some(most) => text.chars().take(most).collect(),
        None => text.to_owned(),
    };
    let radix = |n: i128, digits: String, mark: &str| {
        let mark = if form.sharp { mark } else { "" };
        signed(format!("{}{mark}{digits}", if n < 0 { "-" } else { "" }))
    };
    Ok(match (verb, value, whole, float) {
        (_, Value::Number(_), ..) if form.precision.is_some() && !"feg".contains(verb) => {
            return Err(format!("a precision of `%{verb}` is supported for strings only"));
        }
        ('v', Value::String(text), ..) => cut(text),
        ('v', _, Some(_), _) => signed(value_text(value)),
        ('v', ..) => value_text(value),
        ('s', Value::String(text), ..) => cut(text),
        ('q', Value::String(text), ..) => quote_text(&cut(text)),
        ('x', Value::String(text), ..) => hex::encode(cut(text)),
        ('X', Value::String(text), ..) => hex::encode_upper(cut(text)),
        ('t', Value::Bool(b), ..) => b.to_string(),
        ('d', _, Some(n), _) => signed(n.to_string()),
        ('x', _, Some(n), _) => radix(n, format!("{:x}", n.unsigned_abs()), "0x"),
        ('X', _, Some(n), _) => radix(n, format!("{:X}", n.unsigned_abs()), "0X"),
        ('o', _, Some(n), _) => radix(n, format!("{:o}", n.unsigned_abs()), "0"),
        ('b', _, Some(n), _) => radix(n, format!("{:b}", n.unsigned_abs()), "0b"),
        ('c', _, Some(n), _) => u32::try_from(n).ok().and_then(char::from_u32).ok_or_else(wrong)?.to_string(),
        ('f', _, _, Some(n)) => signed(format!("{n:.*}", form.precision.unwrap_or(6))),
        ('e', _, _, Some(n)) => signed(exponent(n, form.precision.unwrap_or(6))),
        ('g', _, _, Some(n)) if form.precision.is_none() => signed(go_value::float(n)),
        _ if "sqxXtdobcfeg".contains(verb) => return Err(wrong()),
        _ => return Err(format!("`%{verb}` is not supported; supported: %s %d %v %q %t %x %X %o %b %c %f %e %g %%")),
    })
}

/// Scientific notation with at least two digits in the exponent.
fn exponent(n: f64, precision: usize) -> String {
    let text = format!("{n:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn pad(out: &mut String, form: &Form, text: &str, number: bool) {
    let missing = form.width.saturating_sub(text.chars().count());
    if form.left {
        out.push_str(text);
        out.extend(std::iter::repeat_n(' ', missing));
    } else if form.zero && number {
        let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
        out.push_str(sign);
        out.extend(std::iter::repeat_n('0', missing));
        out.push_str(digits);
    } else {
        out.extend(std::iter::repeat_n(' ', missing));
        out.push_str(text);
    }
}

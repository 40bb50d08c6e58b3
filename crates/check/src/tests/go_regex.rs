//! Tests regular expressions of Go: the texts that they match, and the expressions that are
//! rejected.

use crate::go_regex::go_regex;
use proptest::prelude::*;

/// A pattern, texts that it matches, and texts that it does not match.
const CASES: &[(&str, &[&str], &[&str])] = &[
    (r"^\d$", &["7"], &["٣", "a"]),
    (r"^\w$", &["a", "_"], &["é", "-"]),
    (r"^[\w.]+\s\\d\.$", &["a.b \\d."], &["a.b\u{a0}\\d."]),
    (r"^.\b", &["a", "a-", "éa"], &["ab", "é", "é a"]),
    (r"^[^\d]$", &["a", "٣"], &["7"]),
    (r"^[\D]$", &["a"], &["7"]),
    (r"^\Qa.b\E+$", &["a.b", "a.bbb"], &["aXb", "a.ba.b"]),
    (r"^\Qa*", &["a*b"], &["ab"]),
    (r"\<b\>", &["<b>"], &["b"]),
    (r"^a\z", &["a"], &["a\n"]),
    (r"^a$", &["a"], &["a\n", "b\na"]),
    (r"(?m)^a$", &["b\na\nc"], &["ab"]),
    (r"^a.b$", &["a-b"], &["a\nb"]),
    (r"(?s)^a.b$", &["a\nb"], &["ab"]),
    (r"^[^a]$", &["\n"], &["a"]),
    (r"(?i)^STRASSE$", &["strasse"], &["straße"]),
    (r"^(?P<year>[0-9]{4})-(?<month>\d{2})", &["2026-11"], &["26-11"]),
    (r#"^{"a": ?\d}$"#, &[r#"{"a": 1}"#], &[r#"{"a": x}"#]),
    (r"^x{,2}$", &["x{,2}"], &["xx", ""]),
    (r"^x{2,}?$", &["xx", "xxx"], &["x"]),
    (r"^[[]&&~~a--]$", &["[&&~~a--]"], &["a"]),
    (r"^[[&~]+$", &["[&~"], &["a"]),
    (r"^[+--]+$", &["+,-"], &["."]),
    (r"^[]a-]+$", &["]a-"], &["b"]),
    (r"^[[:alpha:][:digit:]_]+$", &["a1_"], &["-", ":"]),
    (r"^[[:x]+$", &["[:x"], &["a"]),
    (r"^\x41\x{e9}\101\0$", &["AéA\0"], &["A"]),
    (r"^\p{Greek}\pN\p{^L}\PL$", &["α1--"], &["a1--", "α1a-"]),
    (r"^\a\f\v\t$", &["\u{7}\u{c}\u{b}\t"], &["t"]),
    (r"^\_\-\/\!$", &["_-/!"], &["_-/"]),
    (r"^(|a)*b$", &["aab", "b"], &["c"]),
    (r"(?U)^a+$", &["aa"], &[""]),
    ("^a{0}$", &[""], &["a"]),
];

#[test]
fn patterns_mean_what_they_mean_in_go() {
    for (pattern, found, not) in CASES {
        let regex = go_regex(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        found.iter().for_each(|text| assert!(regex.is_match(text), "{pattern} in {text:?}"));
        not.iter().for_each(|text| assert!(!regex.is_match(text), "{pattern} not in {text:?}"));
    }
}

#[test]
fn what_go_does_not_know_is_refused_and_so_is_what_would_explode() {
    let faulty = [
        "(",
        ")",
        "[",
        "[a",
        "a**",
        "a+{2}",
        "*a",
        "a{1001}",
        "a{1,99999}",
        r"\",
        r"\Z",
        r"\C",
        r"\u0041",
        r"\1",
        r"\8",
        r"\e",
        r"a\E",
        "(?x)a b",
        "(?u:a)",
        "(?=a)",
        "(?<!a)",
        r"[z-a]",
        r"[\d-z",
        r"\p{Klingon}",
        r"\x{110000}",
        r"\xg1",
        r"[\b]",
        "[[:nope:]]",
        "(?P<n",
        "(?P<>a)",
        "(?<n-m>a)",
        r"(\w{1000}){1000}",
    ];
    for pattern in faulty {
        assert!(go_regex(pattern).is_err(), "{pattern}");
    }
    assert!(go_regex(&"(".repeat(200)).is_err());
    assert!(go_regex(&format!("{}a{}", "(".repeat(200), ")".repeat(200))).is_err());
    assert!(go_regex(&"a".repeat(20_000)).is_err());
}

proptest! {
    #[test]
    fn any_text_quoted_finds_itself_and_nothing_panics(text in "\\PC{0,12}", odd in r"[\\\[\]{}()a-c0-2,^:?*+QE.|-]{0,16}") {
        prop_assume!(!text.contains("\\E"));
        let quoted = go_regex(&format!("^\\Q{text}\\E$")).unwrap();
        prop_assert!(quoted.is_match(&text));
        let _ = go_regex(&odd);
    }

    #[test]
    fn plain_words_are_left_alone(words in "[a-z ]{1,12}", text in "[a-z ]{0,24}") {
        prop_assert_eq!(go_regex(&words).unwrap().is_match(&text), text.contains(&words));
    }
}

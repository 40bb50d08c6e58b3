//! Tests when each matcher holds, and the laws between matchers.

use super::super::matcher::Matcher;
use super::*;
use crate::go_value::Numeric;
use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Loads a matcher as written in a check file.
fn matcher(written: &Value) -> Matcher {
    let text = format!("matching: {{m: {{content: 1, matches: {written}}}}}");
    checks(&text).remove(0).assertions.remove(0).matcher
}

fn ask(written: Value, actual: Value) -> Result<bool, String> {
    matcher(&written).matches(&actual)
}

fn ok(written: Value, actual: Value) -> bool {
    ask(written, actual) == Ok(true)
}

#[test]
fn literals_convert_between_text_and_number() {
    assert!(ok(json!("0644"), json!("0644")));
    assert!(ok(json!(644), json!("0644")), "goss compares as numbers then");
    assert!(ok(json!("0"), json!(0)));
    assert!(ok(json!(5), json!("5\n")));
    assert!(ok(json!(5), json!(5.0)));
    assert!(!ok(json!("5"), json!("05")));
    assert!(ok(json!(true), json!(true)));
    assert!(!ok(json!(true), json!("true")));
    assert!(!ok(json!("a"), json!(["a", "b"])));
    assert!(ok(json!("a\nb"), json!(["a", "b"])));
    assert!(ok(json!({"equal": ["a"]}), json!(["a"])));
    assert!(!ok(json!({"equal": "1"}), json!(1)));
    assert!(!ok(json!({"gt": 9_007_199_254_740_992_i64}), json!(9_007_199_254_740_992_i64)));
    assert!(ok(json!({"gt": 9_007_199_254_740_992_i64}), json!(9_007_199_254_740_993_i64)));
}

#[test]
fn what_cannot_be_asked_fails_also_below_not() {
    let big = json!({"gt": 5});
    assert!(ask(big.clone(), json!("many")).is_err());
    assert!(ask(json!({"not": big}), json!("many")).is_err());
    assert!(ask(json!({"or": ["many", big]}), json!("many")) == Ok(true));
    assert!(ask(json!({"or": [big, "many"]}), json!("many")).is_err(), "in the order in which they stand");
    assert!(ask(json!({"gjson": {"a": 1}}), json!("<html>")).is_err());
    assert!(ask(json!({"have-key": {"gt": 1}}), json!({"2": 0, "x": 0})).is_err(), "whichever key comes first");
    assert!(ask(json!({"gjson": {"a": 2, "b": 1}}), json!("{\"a\": 1}")).is_err(), "whichever path comes first");
    assert!(ask(json!(["a"]), json!("a")).is_err());
    assert!(ok(json!({"contain-elements": ["b", "a"]}), json!("a\nb")));
    assert!(ok(json!({"gt": 4}), json!(["5"])), "as lines");
    assert!(ask(json!({"gjson": {"a": {"not": {"lt": 4}}}}), json!("{\"a\": [\"5\"]}")).is_err());
}

/// A number of comparisons within the limit succeeds. A larger number is an error, even if the
/// matcher would hold without the remaining elements.
#[test]
fn many_elements_and_many_matchers() {
    let elements: Vec<Value> = (0..10_000).map(|n| json!(format!("element {n}"))).collect();
    let wanted = |count: usize| (0..count).map(|n| json!(format!("element {}", 9_999 - n))).collect::<Vec<_>>();
    assert!(ok(json!({"contain-elements": wanted(200)}), json!(elements)));
    assert!(!ok(json!({"contain-elements": vec!["element 1"; 20]}), json!(elements)));
    let all = wanted(10_000);
    assert!(ask(json!({"consist-of": all}), json!(elements)).is_err_and(|why| why.contains("too much")));
    assert!(ask(json!({"not": {"contain-elements": all}}), json!(elements)).is_err());
}

/// An explanation costs no more than the answer. For this, all parts of an explanation must share
/// one cost limit (`MatchBudget`).
#[test]
fn what_is_too_much_is_explained_in_time_too() {
    let elements: Vec<Value> = (0..10_000).map(|n| json!(n)).collect();
    let each = [vec![json!({"ge": 0}); 100], vec![json!({"lt": 0}); 100]].concat();
    let many = json!({"contain-elements": each});
    let all = json!({"and": vec![json!({"not": many}); 20]});
    assert!(ask(all.clone(), json!(elements)).is_err());
    assert_eq!(matcher(&all).explain(&json!(elements)).message, "not to contain elements matching");
    // A large regular expression is rejected before it is executed. A small one may search a large
    // text.
    let large = "(a{1,60}){1,60}b";
    let (long, longest) = (json!("a".repeat(200_000)), json!("a".repeat(4 << 20)));
    for written in [json!({"match-regexp": large}), json!({"have-patterns": [format!("/{large}/")]})] {
        assert_eq!(ask(written, long.clone()), Err("too much to compare".to_owned()));
    }
    assert!(ok(json!({"have-patterns": ["/^a+$/", "!/b/"]}), longest));
}

/// The explanations have the fields of goss 0.4.9: `message`, `missing`, `found`, `extra`,
/// `transforms` and `expected`.
#[test]
fn a_failure_is_explained() {
    let told = |written: Value, actual: Value| {
        let told = matcher(&written).explain(&actual);
        format!(
            "{} {} | missing {} | found {} | extra {} | {} | {} of {}\n",
            told.message,
            told.expected,
            json!(told.missing),
            json!(told.found.unwrap_or_default()),
            json!(told.extra),
            json!(told.transforms),
            told.actual,
            told.untransformed,
        )
    };
    let found = [
        told(json!({"have-prefix": "1"}), json!(128)),
        told(json!({"have-prefix": "2"}), json!(128)),
        told(json!({"not": {"have-prefix": "1"}}), json!(128)),
        told(json!(["a", {"gt": 5}, {"have-suffix": "z"}]), json!(["a", "c"])),
        told(json!({"consist-of": ["a", 5]}), json!(["c", "a"])),
        told(json!({"and": ["a", {"or": [5, {"not": "b"}]}]}), json!("b")),
        told(json!({"or": [5, {"have-len": 2}]}), json!("7")),
        told(json!({"gjson": {"n.#": 2, "n.0": {"gt": 5}}}), json!("{\"n\": [\"3\", 4]}")),
        told(json!({"have-patterns": ["a", "!b"]}), json!("a\nb")),
    ]
    .concat();
    expect![[r#"
        matches expectation {"have-prefix":"1"} | missing [] | found [] | extra [] | [] | 128 of null
        to have prefix "2" | missing [] | found [] | extra [] | [{"to-string":{}}] | "128" of 128
        not to have prefix "1" | missing [] | found [] | extra [] | [{"to-string":{}}] | "128" of 128
        to contain elements matching ["a",{"gt":5},{"have-suffix":"z"}] | missing [{"gt":5},{"have-suffix":"z"}] | found ["a"] | extra [] | [] | ["a","c"] of null
        to consist of ["a",{"eq":5}] | missing [{"eq":5}] | found ["a"] | extra ["c"] | [] | ["c","a"] of null
        to equal "a" | missing [] | found [] | extra [] | [] | "b" of "b"
        to satisfy at least one of these matchers [{"eq":5},{"have-len":2}] | missing [] | found [] | extra [] | [] | "7" of null
        to be numerically gt 5 | missing [] | found [] | extra [] | [{"gjson":{"Path":"n.0"}},{"to-numeric":{}}] | 3.0 of "{\"n\": [\"3\", 4]}"
        to have patterns ["a","!b"] | missing ["!b"] | found ["a"] | extra [] | [] | "a\nb" of "a\nb"
    "#]]
    .assert_eq(&found);
}

fn arbitrary_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i8..4).prop_map(Value::from),
        (-3i8..4).prop_map(|n| json!(f64::from(n) / 2.0)),
        "[abc1.\n]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab1]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Any matcher that a check file may contain.
fn arbitrary_matcher() -> impl Strategy<Value = Value> {
    let text = "[abc1]{1,2}";
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        (-3i8..4).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (prop::sample::select(vec!["have-prefix", "have-suffix", "contain-substring", "match-regexp"]), text)
            .prop_map(|(name, text)| json!({name: text})),
        (prop::sample::select(vec!["gt", "ge", "lt", "le", "have-len"]), 0i8..4).prop_map(|(name, n)| json!({name: n})),
        prop::collection::vec(text, 1..3).prop_map(|texts| json!({"have-patterns": texts})),
        arbitrary_value().prop_map(|value| json!({"equal": value})),
        Just(json!({"semver-constraint": ">1.0.0 || 0.x"})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|inner| json!({"not": inner})),
            inner.clone().prop_map(|inner| json!({"have-key": inner})),
            inner.clone().prop_map(|inner| json!({"gjson": {"a": inner}})),
            list.clone().prop_map(Value::from),
            (prop::sample::select(vec!["and", "or", "contain-elements", "consist-of"]), list)
                .prop_map(|(name, list)| json!({name: list})),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(written in arbitrary_matcher()) {
        prop_assert_eq!(matcher(&written).as_written(), written);
    }

    #[test]
    fn the_logic_is_that_of_booleans_and_an_error_is_no_pass(a in arbitrary_matcher(), b in arbitrary_matcher(), value in arbitrary_value()) {
        let (left, right) = (ask(a.clone(), value.clone()), ask(b.clone(), value.clone()));
        prop_assert_eq!(ask(json!({"not": a}), value.clone()), left.clone().map(|holds| !holds));
        prop_assert_eq!(ask(json!({"not": {"not": a}}), value.clone()), left.clone());
        let both = left.clone().and_then(|left| if left { right.clone() } else { Ok(false) });
        let either = left.and_then(|left| if left { Ok(true) } else { right });
        prop_assert_eq!(ask(json!({"and": [a, b]}), value.clone()), both);
        prop_assert_eq!(ask(json!({"or": [a, b]}), value), either);
    }

    #[test]
    fn an_explanation_agrees_with_the_answer(written in arbitrary_matcher(), value in arbitrary_value()) {
        let matcher = matcher(&written);
        let told = matcher.explain(&value);
        prop_assert_eq!(told.message == "matches expectation", matcher.matches(&value) == Ok(true));
        if told.message == "matches expectation" {
            prop_assert_eq!((told.expected, told.actual), (written, value));
        }
    }

    #[test]
    fn lists_are_matched_in_any_order(wanted in prop::collection::vec(arbitrary_matcher(), 1..5), elements in prop::collection::vec(arbitrary_value(), 0..5)) {
        let mut turned = wanted.clone();
        turned.reverse();
        let contains = ok(json!(wanted), json!(elements));
        let told = matcher(&json!({"consist-of": wanted})).explain(&json!(elements));
        prop_assert_eq!(ok(json!({"contain-elements": turned}), json!(elements)), contains);
        prop_assert_eq!(ok(json!({"consist-of": turned}), json!(elements)), contains && wanted.len() == elements.len());
        if told.message == "to consist of" {
            let found = told.found.as_ref().map_or(0, Vec::len);
            prop_assert_eq!(told.missing.len() + found, wanted.len());
            prop_assert_eq!(told.extra.len() + found, elements.len());
        }
        let one = |element: &Value| ok(wanted[0].clone(), element.clone());
        prop_assert_eq!(ok(json!([wanted[0]]), json!(elements)), elements.iter().any(one));
    }

    #[test]
    fn texts_lists_and_numbers_are_made_of_each_other(texts in prop::collection::vec("[a-z0-9.]{0,3}", 1..4), n in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
        let joined = texts.join("\n");
        prop_assert!(ok(json!(joined), json!(texts)));
        let as_lines = ok(json!({"contain-elements": texts}), json!(joined));
        prop_assert!(as_lines);
        prop_assert_eq!(Numeric::read(&json!(texts)), Numeric::read(&json!(joined)));
        prop_assert!(ok(json!(n), json!(n.to_string())));
        let itself = ["le", "ge", "lt", "gt"].map(|how| ok(json!({how: n}), json!(n)));
        prop_assert_eq!(itself, [true, true, false, false]);
    }
}

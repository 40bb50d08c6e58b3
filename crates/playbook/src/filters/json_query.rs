//! The filter `json_query`, which evaluates an expression of JMESPath.

use super::{Filter, FilterResult, failure, filter_with_difference};
use crate::template::expr;
use crate::vars::scope::value_of;

pub const FILTERS: &[Filter] = &[filter_with_difference(
    "json_query",
    &["expr"],
    |_, value, args| query(&expr::to_json(&value)?, &args.need_text("expr")?),
    "the keys of maps in the result are sorted",
)];

/// Maximum length of an expression in bytes.
const EXPRESSION_MAX: usize = 16 << 10;

fn query(value: &serde_json::Value, text: &str) -> FilterResult {
    if text.len() > EXPRESSION_MAX {
        return Err(failure(format!("json_query: the expression is longer than {EXPRESSION_MAX} bytes")));
    }
    let wrong = |error: &dyn std::fmt::Display| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        failure(format!("json_query: `{text}`: {first}"))
    };
    let compiled = jmespath::compile(text).map_err(|e| wrong(&e))?;
    let data = jmespath::Variable::from_serializable(value).map_err(|e| wrong(&e))?;
    let found = compiled.search(data).map_err(|e| wrong(&e))?;
    let found = serde_json::to_value(&*found).map_err(|e| wrong(&e))?;
    Ok(value_of(&found))
}

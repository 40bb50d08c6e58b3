//! The `dpkg_selections` module: what dpkg is to do with a package, such as `hold`.

use super::apt::is_package_name;
use super::{ModuleCall, ModuleResult, TaskOutcome, require_success};
use crate::run::event::AttributeChange;
use serde_json::json;

pub fn dpkg_selections(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name"])?;
    let wanted = call.required_text(&["selection"])?;
    if !is_package_name(&name) {
        return Err(format!("`{name}` is not the name of a package"));
    }
    let program = call.find_program("dpkg")?;
    call.env.push(("LC_ALL".into(), "C".into()));
    let done = call.run_quietly(&[&program, "--get-selections", &name])?;
    require_success("dpkg --get-selections", &done)?;
    if done.stderr.contains("no packages found matching") {
        let why = format!("Failed to find package '{name}' to perform selection '{wanted}'.");
        return Err(call.ground.node.note_missing(why));
    }
    let predicted = format!("dpkg selection {name}");
    let told = call.predicted_text(&predicted);
    let now = told.unwrap_or_else(|| done.stdout.split_whitespace().nth(1).unwrap_or("not present").to_owned());
    let mut out = TaskOutcome { changed: now != wanted, ..TaskOutcome::default() };
    if out.changed {
        let input = format!("{name} {wanted}").into_bytes();
        let done = call.feed_or_predict(&[&program, "--set-selections"], Some(input), |would| {
            would.set_text(&predicted, &wanted)
        })?;
        require_success("dpkg --set-selections", &done)?;
        out.attributes.push(AttributeChange::new(&name, &now, &wanted));
    }
    Ok(out.with_result(json!({"before": now, "after": wanted})))
}

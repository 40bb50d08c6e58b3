//! The `locale_gen` module: the locales that glibc has, by `/etc/locale.gen` and `locale-gen`.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success, write_file};
use crate::run::event::AttributeChange;
use serde_json::json;
use std::path::Path;

const LOCALE_GEN: &str = "/etc/locale.gen";
const SUPPORTED: &str = "/usr/share/i18n/SUPPORTED";
/// Character sets as `locale -a` writes them, and as they are written elsewhere.
const CHARACTER_SETS: [(&str, &str); 10] = [
    (".utf8", ".UTF-8"),
    (".eucjp", ".EUC-JP"),
    (".iso885915", ".ISO-8859-15"),
    (".cp1251", ".CP1251"),
    (".koi8r", ".KOI8-R"),
    (".armscii8", ".ARMSCII-8"),
    (".euckr", ".EUC-KR"),
    (".gbk", ".GBK"),
    (".gb18030", ".GB18030"),
    (".euctw", ".EUC-TW"),
];

pub fn locale_gen(call: &mut ModuleCall) -> ModuleResult {
    let names = call.list(&["name"]);
    if names.is_empty() {
        return Err("`name` is missing or empty".into());
    }
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    let file = Path::new(LOCALE_GEN);
    if call.ground.node.follow(file).is_none() {
        let why = format!("{LOCALE_GEN} does not exist; is the package `locales` installed?");
        return Err(call.ground.node.note_missing(why));
    }
    call.env.push(("LC_ALL".into(), "C".into()));
    let have = generated_locales(call)?;
    let missing = |have: &[String]| -> Vec<String> {
        names.iter().filter(|name| !have.contains(&usual_name(name))).cloned().collect()
    };
    check_available(call, &missing(&have))?;
    let predicted = format!("locales {}", names.join(" "));
    let told = call.predicted_text(&predicted);
    let now = told.unwrap_or_else(|| state_name(missing(&have).is_empty()).to_owned());
    let mut out = TaskOutcome::default();
    if now != state {
        edit_file(call, file, &names, state == "present")?;
        let program = call.find_program("locale-gen")?;
        let done = call.run_or_predict(&[&program], |would| would.set_text(&predicted, &state))?;
        require_success("locale-gen", &done)?;
        let after = match call.ground.node.is_check_mode() {
            true => state.clone(),
            false => state_name(missing(&generated_locales(call)?).is_empty()).to_owned(),
        };
        out.changed = after != now;
        out.attributes.push(AttributeChange::new("state", now, after));
    }
    Ok(out.with_result(json!({"name": names, "ubuntu_mode": false, "mechanism": "glibc"})))
}

fn state_name(present: bool) -> &'static str {
    if present { "present" } else { "absent" }
}

/// The locales that are generated, with character sets in the usual form.
fn generated_locales(call: &ModuleCall) -> Result<Vec<String>, String> {
    let program = call.find_program("locale")?;
    let done = call.run_quietly(&[&program, "-a"])?;
    require_success("locale -a", &done)?;
    Ok(done.stdout.lines().map(usual_name).collect())
}

fn usual_name(name: &str) -> String {
    CHARACTER_SETS.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Fails if glibc has no source for one of the locales.
fn check_available(call: &ModuleCall, missing: &[String]) -> Result<(), String> {
    if missing.is_empty() {
        return Ok(());
    }
    let text = call.ground.node.read(Path::new(SUPPORTED))?;
    let text = String::from_utf8_lossy(&text);
    let known = |name: &&String| {
        text.lines().any(|line| {
            let mut words = line.trim_start().trim_start_matches('#').split_whitespace();
            words.next() == Some(name.as_str()) && words.next().is_some() && words.next().is_none()
        })
    };
    let unknown: Vec<&str> = missing.iter().filter(|name| !known(name)).map(String::as_str).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "The following locales you have entered are not available on your system: {}",
            unknown.join(", ")
        )),
    }
}

/// Enables or disables the lines of these locales.
fn edit_file(call: &mut ModuleCall, file: &Path, names: &[String], enable: bool) -> Result<(), String> {
    let (real, _) = call.ground.node.follow_trusted(file)?;
    let (_, text) = call.read_text(&real)?;
    let edit = |line: &str| {
        let plain = line.strip_prefix('#').unwrap_or(line).trim_start();
        let found = names.iter().find_map(|name| Some((name, plain.strip_prefix(name.as_str())?.strip_prefix(' ')?)));
        match found.filter(|(_, set)| !set.is_empty()) {
            Some((name, set)) => format!("{}{name} {set}", if enable { "" } else { "# " }),
            None => line.to_owned(),
        }
    };
    let mut new: String = text.lines().map(edit).collect::<Vec<_>>().join("\n");
    if text.ends_with('\n') {
        new.push('\n');
    }
    write_file::write_system_file(call, file, new.into_bytes(), "locale_gen", None)?;
    Ok(())
}

//! Modules that change nothing on the node: `assert`, `debug`, `set_fact`, `stat`.

use super::{Answer, Call, Outcome};
use crate::model::Sha256;
use crate::playbook::{expr, safe};
use rustix::fs::FileType;
use serde_json::{Value, json};

pub fn assert(call: &mut Call) -> Answer {
    let that = match call.task.args.get("that") {
        Some(Value::Array(items)) => items.clone(),
        Some(other) => vec![other.clone()],
        None => return Err("`that` is missing".into()),
    };
    for condition in that {
        let text = condition.as_str().map_or_else(|| condition.to_string(), str::to_owned);
        let text = if condition.is_boolean() {
            if condition == Value::Bool(true) { "true" } else { "false" }.into()
        } else {
            text
        };
        if !expr::truth(call.scope, &text).map_err(|e| expr::explain(&e))? {
            let said = call.text(&["fail_msg", "msg"]);
            return Err(said.unwrap_or_else(|| format!("does not hold: {text}")));
        }
    }
    Ok(Outcome::ok(call.text(&["success_msg"]).unwrap_or_else(|| "all hold".into())))
}

pub fn debug(call: &mut Call) -> Answer {
    if let Some(name) = call.task.args.get("var").and_then(Value::as_str) {
        let name = expr::inner_expression(name).unwrap_or(name);
        let value =
            expr::eval(call.scope, name).and_then(|v| expr::to_json(&v)).unwrap_or_else(|e| json!(expr::explain(&e)));
        let mut out = Outcome::ok(format!("{name} = {value}"));
        out.more.insert(name.to_owned(), value);
        return Ok(out);
    }
    Ok(Outcome::ok(match call.args.get("msg") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "Hello world!".into(),
    }))
}

pub fn set_fact(call: &mut Call) -> Answer {
    let mut facts = call.args.clone();
    facts.remove("cacheable");
    Ok(Outcome { facts, ..Outcome::default() })
}

pub fn stat(call: &mut Call) -> Answer {
    let mut path = call.path(&["path"])?;
    if call.flag("follow", false) {
        path = std::fs::canonicalize(&path).unwrap_or(path);
    }
    let asked = path.clone();
    if let (Some(dir), Some(name)) = (path.parent().and_then(|dir| dir.canonicalize().ok()), path.file_name()) {
        // It only looks, so it may be led anywhere (`/srv/app/current/VERSION`).
        path = dir.join(name);
    }
    let mut out = Outcome::default();
    let Some(stat) = safe::look(&path)? else {
        out.more.insert("stat".into(), json!({"exists": false}));
        return Ok(out);
    };
    let kind = safe::kind(&stat);
    let mode = safe::mode_of(&stat);
    let mut map = json!({
        "exists": true, "path": asked.display().to_string(),
        "isdir": kind == FileType::Directory, "isreg": kind == FileType::RegularFile, "islnk": kind == FileType::Symlink,
        "issock": kind == FileType::Socket, "isfifo": kind == FileType::Fifo, "isblk": kind == FileType::BlockDevice,
        "ischr": kind == FileType::CharacterDevice,
        "mode": format!("{mode:04o}"), "uid": stat.st_uid, "gid": stat.st_gid, "size": stat.st_size, "inode": stat.st_ino,
        "dev": stat.st_dev, "nlink": stat.st_nlink, "mtime": stat.st_mtime, "atime": stat.st_atime, "ctime": stat.st_ctime,
        "executable": mode & 0o111 != 0, "readable": true, "writeable": mode & 0o222 != 0,
        "xusr": mode & 0o100 != 0, "wusr": mode & 0o200 != 0, "rusr": mode & 0o400 != 0,
    });
    if kind == FileType::Symlink {
        map["lnk_target"] = json!(safe::read_link(&path)?.display().to_string());
        map["lnk_source"] = json!(std::fs::canonicalize(&path).map(|p| p.display().to_string()).unwrap_or_default());
    }
    if kind == FileType::RegularFile && call.flag("get_checksum", true) && stat.st_size as u64 <= safe::READ_MAX {
        match call.text(&["checksum_algorithm"]).as_deref() {
            Some("sha256") => map["checksum"] = json!(Sha256::of(&safe::read(&path)?).to_string()),
            Some(other) => return Err(format!("`{other}` sums are not known, only sha256")),
            None => {}
        }
    }
    out.more.insert("stat".into(), map);
    Ok(out)
}

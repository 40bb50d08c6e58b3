//! The environment variables of goss, as defaults of `remoor check --file`. An option takes
//! precedence. Without `--file`, no variable has an effect.

use super::args::{CheckArgs, CheckFormat};
use super::error::CommandError;
use super::format::Format;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The check file of goss, if none is named.
const DEFAULT_FILE: &str = "./goss.yaml";

/// Fills in the arguments that were not given. `read` reads an environment variable.
pub fn apply(mut args: CheckArgs, read: &dyn Fn(&str) -> Option<String>) -> Result<CheckArgs, CommandError> {
    let here = &mut args.here;
    if here.file.is_empty() {
        return Ok(args);
    }
    let read = |name: &str| read(name).filter(|value| !value.is_empty());
    for file in here.file.iter_mut().filter(|file| *file == Path::new("")) {
        *file = read("GOSS_FILE").map_or_else(|| DEFAULT_FILE.into(), PathBuf::from);
    }
    if !here.add.is_empty() || here.autoadd.is_some() {
        return Ok(args);
    }
    if here.vars.is_empty() {
        here.vars.extend(read("GOSS_VARS").map(PathBuf::from));
    }
    here.vars_inline = here.vars_inline.take().or_else(|| read("GOSS_VARS_INLINE"));
    let read = |name: &'static str| read(name).map(|value| (name, value));
    here.retry_timeout = here.retry_timeout.or(parse(read("GOSS_RETRY_TIMEOUT"))?);
    here.sleep = here.sleep.or(parse(read("GOSS_SLEEP"))?);
    here.parallel = here.parallel.or(parse(read("GOSS_MAX_CONCURRENT"))?.map(|count: u16| count.clamp(1, 256)));
    if here.serve.is_some() {
        here.endpoint = here.endpoint.take().or_else(|| read("GOSS_ENDPOINT").map(|(_, path)| path));
        here.cache = here.cache.or(parse(read("GOSS_CACHE"))?);
    }
    if args.output.is_none() && !args.json && !args.render {
        args.output = match read("GOSS_FMT") {
            Some((_, format)) if format == "json_oneline" => Some(CheckFormat::Common(Format::Json)),
            format => parse(format)?,
        };
    }
    Ok(args)
}

/// Parses the value of a variable.
fn parse<T: FromStr<Err: std::fmt::Display>>(variable: Option<(&str, String)>) -> Result<Option<T>, CommandError> {
    let Some((name, value)) = variable else { return Ok(None) };
    match value.parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(why) => Err(CommandError::usage_error(format!("the environment variable {name}: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{self, Verb};

    fn parse_and_apply(line: &str, variables: &[(&str, &str)]) -> Result<CheckArgs, String> {
        let line = format!("remoor check {line}");
        let Verb::Check(args) = args::parse(line.split_whitespace().map(Into::into)).unwrap().verb else { panic!() };
        let read = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        apply(args, &read).map_err(|stop| stop.message)
    }

    #[test]
    fn variables_are_defaults_of_checks_on_this_machine() {
        let all = [
            ("GOSS_FILE", "a.yaml"),
            ("GOSS_VARS", "v.yaml"),
            ("GOSS_VARS_INLINE", "{}"),
            ("GOSS_FMT", "tap"),
            ("GOSS_RETRY_TIMEOUT", "30s"),
            ("GOSS_SLEEP", "2s"),
            ("GOSS_MAX_CONCURRENT", "500"),
        ];
        let args = parse_and_apply("--file", &all).unwrap();
        assert_eq!((&args.here.file[..], &args.here.vars[..]), (&["a.yaml".into()][..], &["v.yaml".into()][..]));
        assert!(matches!(args.output, Some(CheckFormat::Goss(_))), "{:?}", args.output);
        assert_eq!((args.here.parallel, args.here.vars_inline.as_deref()), (Some(256), Some("{}")));
        let args = parse_and_apply("--file b.yml --vars w.yml -o table", &all).unwrap();
        assert_eq!((&args.here.file[..], &args.here.vars[..]), (&["b.yml".into()][..], &["w.yml".into()][..]));
        assert_eq!(args.output, Some(CheckFormat::Common(Format::Table)));
        assert_eq!(parse_and_apply("--file", &[]).unwrap().here.file, [PathBuf::from("./goss.yaml")]);
        assert!(parse_and_apply("w1", &all).unwrap().here.vars.is_empty(), "a check of nodes reads no variable");
        let refused = parse_and_apply("--file", &[("GOSS_SLEEP", "soon")]).unwrap_err();
        assert!(refused.starts_with("the environment variable GOSS_SLEEP: \"soon\" is not a duration"), "{refused}");
    }
}

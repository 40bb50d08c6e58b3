//! The `remoor:` block at the beginning of a check file. It is read before the rest of the file is
//! rendered.

use super::extensions;
use super::yaml::{self, Yaml, YamlKey, YamlNode};
use remoor_model::{Fault, Normalizer, ServiceName, did_you_mean};
use serde_json::{Map, Value};

/// The template language of the file. Its `remoor:` block is never a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Template {
    /// Tera 2.
    #[default]
    Tera,
    /// Go's templates, as goss reads them.
    Go,
    /// The text is not rendered.
    None,
}

/// The settings of a check file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    pub service: ServiceName,
    /// Host groups, and the cluster roles `manager` and `worker`. If the list is empty, the file
    /// applies to every node that has the service.
    pub roles: Vec<String>,
    /// A Tera expression; the file applies to nodes for which it is true.
    pub when: Option<String>,
    pub template: Template,
    /// Default values of `vars`; values of the inventory take precedence.
    pub vars: Map<String, Value>,
    pub depends_on: Vec<ServiceName>,
    pub digest: DigestOptions,
    /// Whether the `remoor:` block itself contains checks: certificates or groups.
    pub has_checks: bool,
}

/// Additions to the manifest of the service; the fields are as in `ServiceManifest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DigestOptions {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub secret: Vec<String>,
    pub normalize: Vec<String>,
}

pub(super) const KEYS: [&str; 7] = ["service", "roles", "when", "template", "vars", "depends-on", "digest"];
pub(super) const DIGEST_KEYS: [&str; 4] = ["include", "exclude", "secret", "normalize"];

/// Reads the `remoor:` block, and returns its settings and the text for goss. In this text, the
/// lines of the block are blank, so that line numbers stay valid. A block that contains checks is
/// not removed, because `parse` reads them and goss ignores the block.
///
/// A file without the block is plain goss: the service has the name of the file, all roles apply,
/// and the file is not a template.
pub fn header(file: &str, text: &str) -> Result<(Header, String), Vec<Fault>> {
    let Some((start, end)) = block(text) else {
        let stem = file.rsplit('/').next().unwrap_or(file).split('.').next().unwrap_or(file);
        if let Some(at) = text.lines().position(|line| line.starts_with("remoor:")) {
            let fault = Fault::error(file, line_number(at), 1, "`remoor:` is not the first block of the file");
            return Err(vec![fault.hint("move it to the top, above all templating")]);
        }
        let header = Header { service: stem.into(), template: Template::None, ..Header::default() };
        return Ok((header, text.to_owned()));
    };
    let mut faults = Vec::new();
    let (mut own, mut rest) = (String::new(), String::new());
    for (number, line) in text.lines().enumerate() {
        let inside = (start..end).contains(&number);
        let (mine, other) = if inside { (&mut own, &mut rest) } else { (&mut rest, &mut own) };
        mine.push_str(line);
        mine.push('\n');
        other.push('\n');
        if inside && let Some(at) = ["{{", "{%", "{#"].iter().filter_map(|mark| line.find(mark)).min() {
            let column = line[..at].chars().count() + 1;
            faults.push(
                Fault::error(
                    file,
                    line_number(number),
                    line_number(column - 1),
                    "the `remoor:` block may not be templated",
                )
                .hint("it is read before anything is rendered; `when` takes an expression without braces"),
            );
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let tree = yaml::parse(file, &own)?;
    let mut reader = Reader { file, faults };
    let header = reader.file(&tree);
    if !reader.faults.is_empty() {
        return Err(reader.faults);
    }
    let rest = if header.has_checks { text.to_owned() } else { rest };
    Ok((header, rest))
}

/// Whether a file begins with a `remoor:` block. A file without one is plain goss.
pub fn has_header(text: &str) -> bool {
    block(text).is_some()
}

fn line_number(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// The range of line indexes of the `remoor:` block: from the `remoor:` line up to the next block,
/// which is not included. Comments may precede the `remoor:` block.
fn block(text: &str) -> Option<(usize, usize)> {
    let skip = |line: &str| line.trim().is_empty() || line.starts_with('#') || line.trim_end() == "---";
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| skip(line));
    let (start, _) = lines.next().filter(|(_, line)| line.starts_with("remoor:"))?;
    let mut end = start + 1;
    for (number, line) in lines {
        if line.starts_with([' ', '\t']) {
            end = number + 1;
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            break;
        }
    }
    Some((start, end))
}

struct Reader<'a> {
    file: &'a str,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn file(&mut self, tree: &YamlNode) -> Header {
        let mut header = Header::default();
        let Some((key, block)) = tree.pairs().first() else { return header };
        if !matches!(block.yaml, Yaml::Map(_)) {
            self.faults.push(key.fault(self.file, format!("`remoor` is {}, not a map", block.kind())));
            return header;
        }
        for (key, node) in block.pairs() {
            match key.text.as_str() {
                "service" => header.service = self.text(key, node).into(),
                "roles" => header.roles = self.texts(key, node),
                "when" => header.when = Some(self.text(key, node)),
                "depends-on" => header.depends_on = self.texts(key, node).into_iter().map(ServiceName).collect(),
                "digest" => header.digest = self.digest(key, node),
                "template" => header.template = self.template(key, node),
                "vars" => match node.value() {
                    Value::Object(vars) => header.vars = vars,
                    Value::Null => {}
                    _ => self.report_wrong_kind(key, node, "a map"),
                },
                // `parse` reads these keys together with the other checks.
                name if extensions::keys().any(|key| key == name) => header.has_checks = true,
                _ => self.report_unknown_key(key, &KEYS.into_iter().chain(extensions::keys()).collect::<Vec<_>>()),
            }
        }
        if header.service.as_str().is_empty() && self.faults.is_empty() {
            self.faults.push(key.fault(self.file, "`remoor` does not name a service").hint("write `service: NAME`"));
        }
        header
    }

    fn digest(&mut self, key: &YamlKey, node: &YamlNode) -> DigestOptions {
        let mut digest = DigestOptions::default();
        if !matches!(node.yaml, Yaml::Map(_)) {
            self.report_wrong_kind(key, node, "a map");
        }
        for (key, node) in node.pairs() {
            match key.text.as_str() {
                "include" => digest.include = self.paths(key, node),
                "exclude" => digest.exclude = self.paths(key, node),
                "secret" => digest.secret = self.paths(key, node),
                "normalize" => digest.normalize = self.patterns(key, node),
                _ => self.report_unknown_key(key, &DIGEST_KEYS),
            }
        }
        digest
    }

    fn template(&mut self, key: &YamlKey, node: &YamlNode) -> Template {
        match self.text(key, node).as_str() {
            "tera" => Template::Tera,
            "none" => Template::None,
            "go" => Template::Go,
            other => {
                let fault = node.fault(self.file, format!("unknown template language `{other}`"));
                self.faults.push(fault.hint("known: tera, go, none"));
                Template::None
            }
        }
    }

    fn report_unknown_key(&mut self, key: &YamlKey, known: &[&str]) {
        let hint =
            did_you_mean(&key.text, known.iter().copied()).unwrap_or_else(|| format!("known: {}", known.join(", ")));
        self.faults.push(key.fault(self.file, format!("unknown key `{}`", key.text)).hint(hint));
    }

    fn report_wrong_kind(&mut self, key: &YamlKey, node: &YamlNode, wanted: &str) {
        self.faults.push(node.fault(self.file, format!("`{}` is {}, not {wanted}", key.text, node.kind())));
    }

    fn text(&mut self, key: &YamlKey, node: &YamlNode) -> String {
        match &node.yaml {
            Yaml::Text(text) => text.clone(),
            _ => {
                self.report_wrong_kind(key, node, "a string");
                String::new()
            }
        }
    }

    /// Reads absolute paths or globs, as in `files` of `remoor.yml`.
    fn paths(&mut self, key: &YamlKey, node: &YamlNode) -> Vec<String> {
        let paths = self.texts(key, node);
        for path in &paths {
            if !path.starts_with('/') {
                self.faults.push(node.fault(self.file, format!("`{path}` is not an absolute path")));
            } else if let Err(error) = globset::Glob::new(path) {
                self.faults.push(node.fault(self.file, format!("`{path}` is not a valid glob: {}", error.kind())));
            }
        }
        paths
    }

    /// Reads regular expressions that are matched against lines. The fault of an invalid expression
    /// has the position of this expression.
    fn patterns(&mut self, key: &YamlKey, node: &YamlNode) -> Vec<String> {
        let patterns = self.texts(key, node);
        let Yaml::List(items) = &node.yaml else { return patterns };
        for (pattern, item) in patterns.iter().zip(items) {
            if let Err(error) = Normalizer::check(pattern) {
                self.faults.push(item.fault(self.file, error.to_string()));
            }
        }
        patterns
    }

    fn texts(&mut self, key: &YamlKey, node: &YamlNode) -> Vec<String> {
        match &node.yaml {
            Yaml::List(items) => items.iter().map(|item| self.text(key, item)).collect(),
            _ => {
                self.report_wrong_kind(key, node, "a list");
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn faults(text: &str) -> String {
        header("checks/x.yml", text).unwrap_err().iter().map(|fault| format!("{fault}\n")).collect()
    }

    #[test]
    fn the_block_is_cut_out_and_lines_stay() {
        let text = "# about\n\nremoor:\n  service: etcd # name\n\n  roles: [web]\n# c\n  vars: {a: 1}\n{% set x = 1 %}\nport:\n";
        let (header, rest) = header("f", text).unwrap();
        assert_eq!(
            (header.service.as_str(), &header.roles[..], header.template),
            ("etcd", &["web".to_owned()][..], Template::Tera)
        );
        assert_eq!(header.vars["a"], 1);
        assert_eq!(rest, "# about\n\n\n\n\n\n\n\n{% set x = 1 %}\nport:\n");
    }

    #[test]
    fn a_flow_block_and_none_at_all() {
        let (flow, rest) =
            header("f", "remoor: {service: a, when: 'node.facts.x == 1', template: none}\nport: {}\n").unwrap();
        assert_eq!(
            (flow.service.as_str(), flow.when.as_deref(), flow.template),
            ("a", Some("node.facts.x == 1"), Template::None)
        );
        assert_eq!(rest, "\nport: {}\n");
        let (plain, rest) = header("checks/nginx.yml", "port: {}\n").unwrap();
        assert_eq!((plain.service.as_str(), plain.template, &*rest), ("nginx", Template::None, "port: {}\n"));
    }

    #[test]
    fn faults_have_positions() {
        expect![[r#"
            checks/x.yml:3:3: unknown key `role`
              hint: did you mean `roles`?
            checks/x.yml:4:10: `roles` is a string, not a list
            checks/x.yml:5:13: unknown template language `jinja`
              hint: known: tera, go, none
            checks/x.yml:6:12: unknown key `incude`
              hint: did you mean `include`?
            checks/x.yml:6:42: `(` is no regular expression: unclosed group
            checks/x.yml:6:47: `.*` drops every line
        "#]]
        .assert_eq(&faults(
            "remoor:\n  service: a\n  role: [web]\n  roles: web\n  template: jinja\n  digest: {incude: [], normalize: [\"^x\", \"(\", .*]}\n",
        ));
        expect![[r#"
            checks/x.yml:2:12: the `remoor:` block may not be templated
              hint: it is read before anything is rendered; `when` takes an expression without braces
        "#]]
        .assert_eq(&faults("remoor:\n  service: {{ x }}\nport: {}\n"));
        expect![[r#"
            checks/x.yml:2:1: `remoor:` is not the first block of the file
              hint: move it to the top, above all templating
        "#]]
        .assert_eq(&faults("{% set a = 1 %}\nremoor: {service: a}\n"));
        expect![[r#"
            checks/x.yml:1:1: `remoor` does not name a service
              hint: write `service: NAME`
        "#]]
        .assert_eq(&faults("remoor: {roles: [a]}\n"));
        expect![[r#"
            checks/x.yml:1:54: `yes` is a boolean for some YAML readers and a string for others
              hint: write `true`, or "yes" for the string
        "#]]
        .assert_eq(&faults("remoor: {service: a, template: go, any-of: [], when: yes}\n"));
    }
}

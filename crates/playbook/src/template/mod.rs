//! Evaluates expressions and templates, scans them without evaluation, and limits their work and
//! output. Filters and tests belong in `filters`, and the variables that a template reads in
//! `vars`.

pub(crate) mod bounds;
pub(crate) mod dialect;
pub(crate) mod expr;
pub(crate) mod lint;
pub(crate) mod python_source;
pub(crate) mod template_fault;
pub(crate) mod tera_text;
pub(crate) mod undefined_chain;

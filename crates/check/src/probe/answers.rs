//! The answers of one probe.

use super::super::load::Assertion;
use super::{ProbeAnswer, ProbeError};
use std::collections::BTreeMap;

/// The answers by property. A missing property was not read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeAnswers {
    properties: BTreeMap<&'static str, ProbeAnswer>,
    /// Answers about the entries of a property that has an assertion for each entry.
    entries: BTreeMap<(&'static str, String), ProbeAnswer>,
}

impl ProbeAnswers {
    pub fn insert(&mut self, property: &'static str, answer: ProbeAnswer) {
        self.properties.insert(property, answer);
    }

    pub fn insert_entry(&mut self, property: &'static str, entry: &str, answer: ProbeAnswer) {
        self.entries.insert((property, entry.to_owned()), answer);
    }

    /// The answer about a property, without its entries.
    pub fn get(&self, property: &str) -> Option<&ProbeAnswer> {
        self.properties.get(property)
    }

    /// The answer that decides about `assertion`. An answer about the whole property holds for each
    /// entry without an answer of its own.
    pub fn answer_to(&self, assertion: &Assertion) -> ProbeAnswer {
        let entry = assertion.entry.as_ref().and_then(|entry| self.entries.get(&(assertion.property, entry.clone())));
        let answer = entry.or_else(|| self.properties.get(assertion.property));
        answer.cloned().unwrap_or_else(|| Err(ProbeError::Unknown("the probe returned no answer".to_owned())))
    }
}

impl<const N: usize> From<[(&'static str, ProbeAnswer); N]> for ProbeAnswers {
    fn from(answers: [(&'static str, ProbeAnswer); N]) -> Self {
        answers.into_iter().collect()
    }
}

impl FromIterator<(&'static str, ProbeAnswer)> for ProbeAnswers {
    fn from_iter<I: IntoIterator<Item = (&'static str, ProbeAnswer)>>(answers: I) -> Self {
        Self { properties: answers.into_iter().collect(), entries: BTreeMap::new() }
    }
}

//! Errors as text.

use std::error::Error;
use std::iter::successors;

/// An error and its causes, on one line.
pub fn error_with_causes(error: &dyn Error) -> String {
    let causes = successors(Some(error), |cause| (*cause).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::error_with_causes;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Step(&'static str, #[source] Option<Box<Step>>);

    #[test]
    fn the_outermost_error_comes_first() {
        let error = Step("can't join", Some(Box::new(Step("can't dial", Some(Box::new(Step("timed out", None)))))));
        assert_eq!(error_with_causes(&error), "can't join: can't dial: timed out");
        assert_eq!(error_with_causes(&Step("alone", None)), "alone");
    }
}

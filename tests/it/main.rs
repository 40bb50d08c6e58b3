//! The one test binary: what crosses module borders. Tests of one module stand beside its code.

mod sim;

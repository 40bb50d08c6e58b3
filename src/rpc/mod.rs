//! To be written.

pub mod view;

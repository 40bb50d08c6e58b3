//! Replacement for the crate of the same name, which openraft uses for a dozen histograms. Those
//! histograms can be read only with openraft's feature `runtime-stats`, which is off here. The real
//! crate fills tables for every supported width. The tables use 26 MB in each manager, more than
//! all its other memory. This replacement counts samples and keeps no values. It has no other use.
//! Before you turn `runtime-stats` on, remove the line under `[patch]` from `Cargo.toml`.

use std::fmt;
use std::marker::PhantomData;

/// A histogram that counts its samples and stores no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    samples: u64,
    data: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Histogram<T> {
    pub fn new() -> Self {
        Self { samples: 0, data: PhantomData }
    }

    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, _value: u64, count: u64) {
        self.samples = self.samples.saturating_add(count);
    }

    pub fn total(&self) -> u64 {
        self.samples
    }

    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats { samples: self.samples, ..PercentileStats::default() }
    }
}

/// The statistics of a histogram: its number of samples. Every percentile is 0, because no values
/// are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[samples: {}]", self.samples)
    }
}

/// A chart that prints nothing.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart;

impl AsciiChart {
    pub fn new() -> Self {
        Self
    }

    #[must_use]
    pub fn add(self, _name: impl Into<String>, _histogram: Histogram) -> Self {
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

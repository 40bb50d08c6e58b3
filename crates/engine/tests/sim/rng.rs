//! A seeded random number generator: splitmix64. The same seed gives the same run on every machine.

#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5151_7a11_0c0f_fee5)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number from `low` (inclusive) to `high` (exclusive).
    pub fn in_range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    pub fn up_to(&mut self, n: usize) -> usize {
        self.in_range(0, n as u64) as usize
    }

    /// Returns true with a chance of `permille` thousandths.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.next() % 1000 < permille
    }
}

//! Random numbers from a seed: the same on every machine.

/// Our own generator (SplitMix64): with a dependency's generator, a seed could mean another run
/// after an update.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Draws a number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Draws a number from `low` to `high`, both included.
    pub(crate) fn of(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in one of `cases` cases.
    pub(crate) fn one_in(&mut self, cases: u64) -> bool {
        cases > 0 && self.below(cases) == 0
    }
}

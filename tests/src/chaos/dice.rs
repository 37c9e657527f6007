//! `Dice`: the same numbers for the same seed, on every machine (splitmix64).

use std::ops::RangeInclusive;

#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Creates independent dice for part `part` of the same run.
    pub(super) fn part(seed: u64, part: u64) -> Self {
        let mut dice = Self(seed ^ part.wrapping_mul(0xA076_1D64_78BD_642F));
        dice.next();
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn of(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_parts_differ() {
        let draw = |mut dice: Dice| [dice.next(), dice.next()];
        assert_eq!(draw(Dice::part(7, 1)), draw(Dice::part(7, 1)));
        assert_ne!(draw(Dice::part(7, 1)), draw(Dice::part(7, 2)));
        let mut dice = Dice::part(1, 1);
        assert!((0..1_000).all(|_| (3..=5).contains(&dice.of(3..=5))));
    }
}

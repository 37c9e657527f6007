//! The same checks on as many inputs as there is time for, without a fuzzer.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::checks;

/// Reads a number from the environment; anything else is an error, not a default.
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number"))
        }
        Err(_) => default,
    }
}

/// A generator (SplitMix64): the whole run follows from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(120)).map(|_| self.next() as u8).collect()
    }
}

/// Draws a new input, or an old one with a few bytes changed, dropped, doubled or crossed with
/// another.
fn input(random: &mut Random, kept: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = if random.below(4) == 0 || kept.len() < 2 {
        random.bytes()
    } else {
        kept[random.below(kept.len())].clone()
    };
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(4) {
            0 => bytes.insert(at, random.next() as u8),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if !kept.is_empty() => {
                let other = &kept[random.below(kept.len())];
                bytes.truncate(at);
                bytes.extend(other.iter().skip(at));
            }
            _ if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
    let place = random.below(512);
    match kept.get_mut(place) {
        Some(old) => old.clone_from(&bytes),
        None => kept.push(bytes.clone()),
    }
    bytes
}

/// Checks `LOCK_INPUTS` inputs (1 000 000), from `LOCK_SEED` on (1); on all cores.
#[test]
#[ignore = "as long as one likes: LOCK_INPUTS=50000000 cargo test --release -p lock-tests --test inputs -- --ignored --nocapture"]
fn no_input_of_a_long_run_panics() {
    let inputs = setting("LOCK_INPUTS", 1_000_000);
    let seed = setting("LOCK_SEED", 1);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let begun = Instant::now();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let done = &done;
            let share = inputs / threads + u64::from(thread < inputs % threads);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(thread));
                let mut kept = Vec::new();
                for _ in 0..share {
                    let bytes = input(&mut random, &mut kept);
                    let (name, check) = checks::ALL[random.below(checks::ALL.len())];
                    if catch_unwind(|| check(&bytes)).is_err() {
                        panic!("the check {name} fails on the bytes {bytes:?} (seed {seed})");
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner();
    let took = begun.elapsed();
    assert_eq!(done, inputs);
    // A test reports by printing.
    #[allow(clippy::print_stdout)]
    {
        println!("{done} inputs from seed {seed}, 0 panics, {took:.1?}");
    }
}

//! The registers protected by a lock: two counters, and only one refuses old tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The duration of a section: between reading a register and writing it back.
pub(super) const SECTION: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Register {
    plain: AtomicU64,
    plain_writes: AtomicU64,
    fenced: Mutex<Fenced>,
}

/// The register that checks tokens.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Fenced {
    value: u64,
    writes: u64,
    /// The highest token seen.
    highest: u64,
    /// How many writes and reads were refused because their token was too low.
    pub(super) stopped: u64,
    pub(super) reads_stopped: u64,
}

impl Fenced {
    /// Returns how many updates are missing in the register.
    pub(super) fn lost(&self) -> u64 {
        self.writes - self.value
    }

    /// Reads the value and records the token, unless a newer token was seen.
    fn read(&mut self, token: u64) -> Option<u64> {
        let is_old = token < self.highest;
        self.highest = self.highest.max(token);
        (!is_old).then_some(self.value)
    }
}

impl Register {
    pub(super) fn fenced(&self) -> MutexGuard<'_, Fenced> {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many updates are missing in the register that does not check tokens.
    pub(super) fn lost(&self) -> u64 {
        self.plain_writes.load(Ordering::SeqCst) - self.plain.load(Ordering::SeqCst)
    }

    /// Reads both registers, waits, and writes both back incremented.
    pub(super) async fn update(&self, token: u64) {
        let plain = self.plain.load(Ordering::SeqCst);
        let fenced = self.fenced().read(token);
        tokio::time::sleep(SECTION).await;
        self.plain.store(plain + 1, Ordering::SeqCst);
        self.plain_writes.fetch_add(1, Ordering::SeqCst);
        let mut now = self.fenced();
        match fenced {
            Some(value) if token >= now.highest => {
                now.value = value + 1;
                now.writes += 1;
            }
            _ => now.stopped += 1,
        }
    }

    /// Reads the register that checks tokens, as one of many readers.
    pub(super) async fn read(&self, token: u64) {
        {
            let mut fenced = self.fenced();
            if fenced.read(token).is_none() {
                fenced.reads_stopped += 1;
            }
        }
        tokio::time::sleep(SECTION).await;
    }
}

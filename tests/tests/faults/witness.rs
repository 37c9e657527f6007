//! `Witness`: the resource protected by a lock, which notices a broken lock.

use std::sync::Mutex;

use lockcore::LockGuard;

/// The number of visitors inside, and the highest token that has written.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    inside: usize,
    visits: usize,
    highest: u64,
}

/// A visit, which lasts until it is dropped.
pub(crate) struct Visit<'a>(&'a Witness);

impl Witness {
    /// Enters with a guard. Panics if another visitor is inside, or a higher token has been seen.
    pub(crate) fn enter(&self, guard: &LockGuard) -> Visit<'_> {
        let mut seen = self.seen.lock().expect("no panic inside");
        assert_eq!(seen.inside, 0, "two are inside at once");
        assert!(guard.fencing_token().get() > seen.highest, "the token did not rise");
        seen.highest = guard.fencing_token().get();
        seen.inside += 1;
        seen.visits += 1;
        Visit(self)
    }

    pub(crate) fn visits(&self) -> usize {
        self.seen.lock().expect("no panic inside").visits
    }

    /// Writes with fencing; refuses if a higher token has written.
    pub(crate) fn write(&self, token: u64) -> bool {
        let mut seen = self.seen.lock().expect("no panic inside");
        let accepted = token >= seen.highest;
        seen.highest = seen.highest.max(token);
        accepted
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Ok(mut seen) = self.0.seen.lock() {
            seen.inside -= 1;
        }
    }
}

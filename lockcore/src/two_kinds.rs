//! Names that are used as a mutex and to read, write or hold permits: the two do not exclude each
//! other.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::key::LockName;

/// More than a program has that uses one name in both ways by mistake; names that come after are
/// not looked at.
const MOST: usize = 1_024;

/// The names that one node reads, writes or has permits of, until one of them is a mutex as well.
#[derive(Debug, Default)]
pub(crate) struct TwoKinds {
    /// Who uses mutexes only pays for no more than a look at this.
    is_looking: AtomicBool,
    has_warned: AtomicBool,
    shared: Mutex<HashSet<LockName>>,
}

impl TwoKinds {
    /// Whether this is the first name that is used in both ways.
    pub(crate) fn is_first(&self, lock: &LockName) -> bool {
        if lock.is_shared() {
            self.note(lock);
            return false;
        }
        if !self.is_looking.load(Ordering::Relaxed) {
            return false;
        }
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_both = shared.contains(&lock.clone().shared());
        drop(shared);
        let is_first = is_both && !self.has_warned.swap(true, Ordering::Relaxed);
        if is_first {
            self.is_looking.store(false, Ordering::Relaxed);
        }
        is_first
    }

    fn note(&self, lock: &LockName) {
        if self.has_warned.load(Ordering::Relaxed) {
            return;
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() < MOST && !shared.contains(lock) {
            shared.insert(lock.clone());
            self.is_looking.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutex(name: &str) -> LockName {
        LockName::from(name)
    }

    #[test]
    fn a_name_that_is_used_in_both_ways_is_told_of_once() {
        let kinds = TwoKinds::default();
        assert!(!kinds.is_first(&mutex("a")), "no read yet");
        assert!(!kinds.is_first(&mutex("a").shared()));
        assert!(!kinds.is_first(&mutex("b")), "another name");
        assert!(kinds.is_first(&mutex("a")));
        assert!(!kinds.is_first(&mutex("a")), "once");
        kinds.is_first(&mutex("c").shared());
        assert!(!kinds.is_first(&mutex("c")), "once for all names");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let kinds = TwoKinds::default();
        for number in 0..2 * MOST {
            kinds.is_first(&mutex(&number.to_string()).shared());
        }
        assert_eq!(kinds.shared.lock().expect("no panic").len(), MOST);
    }
}

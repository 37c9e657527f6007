//! How many attempts of one `Locks` may wait at the same time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{LockError, LockErrorKind};

/// The room that the waiting attempts of one `Locks` share.
#[derive(Clone)]
pub(crate) struct Room(Arc<Shared>);

struct Shared {
    limit: u32,
    taken: AtomicU32,
}

/// A place in it, freed on drop: whatever ends an attempt ends this.
pub(crate) struct Seat(Arc<Shared>);

impl Room {
    pub(crate) fn new(limit: u32) -> Self {
        Self(Arc::new(Shared { limit, taken: AtomicU32::new(0) }))
    }

    pub(crate) fn enter(&self) -> Result<Seat, LockError> {
        let limit = self.0.limit;
        let more = |taken| (taken < limit).then_some(taken + 1);
        match self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Seat(Arc::clone(&self.0))),
            Err(_) => Err(LockError::with_detail(
                LockErrorKind::QueueFull,
                format!(
                    "this Locks has as many waiting attempts as its max_waiting allows ({limit})"
                ),
            )),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} of {})", self.0.taken.load(Ordering::Relaxed), self.0.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_has_a_place_again_when_one_leaves() {
        let room = Room::new(2);
        let first = room.enter().unwrap();
        let _second = room.enter().unwrap();
        let error = room.enter().map(drop).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::QueueFull);
        assert!(error.to_string().contains("max_waiting"), "{error}");
        drop(first);
        room.enter().map(drop).unwrap();
        room.enter().map(drop).unwrap();
        assert_eq!(format!("{room:?}"), "Room(1 of 2)");
    }
}

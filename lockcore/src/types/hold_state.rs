//! The state of a hold.

/// Whether a lock is held, uncertain or lost, as far as this process knows without a request to the
/// server. Returned by [`LockGuard::state`](crate::LockGuard::state).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// The lock is held: the server is connected, and has confirmed the last renewal that was sent.
    Held,
    /// The lock is held, but the server is unreachable, has refused the last renewal or did not
    /// confirm it within the [request timeout](crate::LocksBuilder::request_timeout). The hold is
    /// lost at the [deadline](crate::LockGuard::deadline) unless a renewal succeeds before.
    Uncertain,
    /// The hold has ended, or the server may have granted the lock to another client:
    /// [`is_lost`](crate::LockGuard::is_lost) lists the causes.
    Lost,
}

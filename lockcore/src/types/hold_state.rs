//! The state of a hold.

/// The state of a hold, as far as the guard knows without asking the server; returned by
/// [`LockGuard::state`](crate::LockGuard::state).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// The lock is held: as of the last request, the server is connected and has confirmed the last
    /// renewal. Reading the state sends no request.
    Held,
    /// The lock is held, but the server is unreachable, has refused the last renewal or did not
    /// confirm it within the [request timeout](crate::LocksBuilder::request_timeout). The hold is
    /// lost at the [deadline](crate::LockGuard::deadline) unless a renewal succeeds before.
    Uncertain,
    /// The hold has ended, or may have ended: [`is_lost`](crate::LockGuard::is_lost) lists the
    /// causes.
    Lost,
}

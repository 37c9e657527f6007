//! The state of a hold.

/// The state of a hold, as its guard knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Held. As far as the last request showed, the server is connected, and it has answered the
    /// last renewal. Nothing is sent to find out.
    Held,
    /// The server is unreachable, has refused the last renewal or did not answer it within the
    /// [request timeout](crate::LocksBuilder::request_timeout); the lease has not expired yet.
    /// Unless a renewal succeeds before the [deadline](crate::LockGuard::deadline), the hold is
    /// lost then.
    Uncertain,
    /// The lease has expired or may have expired, or the hold was force-released.
    Lost,
}

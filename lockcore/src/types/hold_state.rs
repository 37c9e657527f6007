//! The state of a hold.

/// The state of a hold, as its guard knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// A hold that lasts. As far as the last request showed, the server is connected, and it has
    /// answered the last renewal. Nothing is sent to find out.
    Held,
    /// A hold that lasts, and whose server is unreachable, has refused the last renewal or did not
    /// answer it within the [request timeout](crate::LocksBuilder::request_timeout). Unless a
    /// renewal succeeds before the [deadline](crate::LockGuard::deadline), the hold is lost then.
    Uncertain,
    /// A hold that has ended, or may have: [`is_lost`](crate::LockGuard::is_lost) has the causes.
    Lost,
}

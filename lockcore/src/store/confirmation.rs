//! How a written grant or renewal is confirmed before the node relies on it.

use std::time::Duration;

use proto::ConfigError;

/// The confirmation that each grant and renewal needs before the node relies on it: see
/// `require_replicas` and `require_fsync`. If none is required, the server's reply suffices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) by: ConfirmedBy,
    /// The longest time that the command WAIT or WAITAOF waits for the copies.
    pub(crate) timeout: Duration,
}

/// The copies of a write that must exist before the node relies on the write, besides the copy in
/// the memory of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfirmedBy {
    /// Copies in the memory of this many replicas, confirmed by the Redis command WAIT.
    Replicas(u32),
    /// Copies on the server's disk and on the disks of this many replicas, confirmed by the Redis
    /// command WAITAOF.
    Fsync { replicas: u32 },
}

impl Confirmation {
    /// Returns the name of the builder option that requires this confirmation, for error messages.
    pub(crate) fn option(&self) -> &'static str {
        match self.by {
            ConfirmedBy::Replicas(_) => "require_replicas",
            ConfirmedBy::Fsync { .. } => "require_fsync",
        }
    }

    /// Creates the error for a configuration, store or server with which this confirmation cannot
    /// be used. `range` completes the error text: how the builder option must be set, and why.
    pub(crate) fn refused(&self, range: &'static str) -> ConfigError {
        ConfigError::new(self.option(), "set", range)
    }

    /// Fails if writes wait for the disk and [`timeout`](Self::timeout) is a third of the lease or
    /// more. Holds are renewed after a third of the lease.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), ConfigError> {
        match self.by {
            ConfirmedBy::Fsync { .. } if self.timeout >= lease / 3 => {
                let value =
                    format!("on with a timeout of {:?} and a lease of {lease:?}", self.timeout);
                let range = "used with a timeout below a third of the lease: shorten the timeout \
                    of require_replicas, otherwise the request_timeout, or lengthen the lease";
                Err(ConfigError::new(self.option(), value, range))
            }
            ConfirmedBy::Fsync { .. } | ConfirmedBy::Replicas(_) => Ok(()),
        }
    }

    /// Fails if writes wait for the disk and `leave_in_outage` is set, so that callers continue
    /// without the lock during an outage. With a slow disk, they would continue although the lock
    /// is held.
    pub(crate) fn check_outage(&self, leaves_in_outage: bool) -> Result<(), ConfigError> {
        match self.by {
            ConfirmedBy::Fsync { .. } if leaves_in_outage => {
                let range = "unset with require_fsync (fail_open of lock-tower sets it): with a \
                    slow disk, callers would continue without the lock";
                Err(ConfigError::new("leave_in_outage", "set", range))
            }
            ConfirmedBy::Fsync { .. } | ConfirmedBy::Replicas(_) => Ok(()),
        }
    }

    /// Returns the oldest server version (major, minor) that has the command for this confirmation,
    /// and the command's name. `None` if every supported version has the command.
    #[cfg(feature = "redis")]
    pub(crate) fn needs(&self) -> Option<((u32, u32), &'static str)> {
        match self.by {
            ConfirmedBy::Replicas(_) => None,
            ConfirmedBy::Fsync { .. } => Some(((7, 2), "WAITAOF")),
        }
    }

    /// Fails if writes wait for the disk and the connections belong to the application's own client
    /// or pool (`are_of_user`). The timeouts of such connections may be shorter than a write to the
    /// disk.
    #[cfg(feature = "redis")]
    pub(crate) fn check_connections(&self, are_of_user: bool) -> Result<(), ConfigError> {
        match self.by {
            ConfirmedBy::Fsync { .. } if are_of_user => Err(self.refused(
                "unset with your own client, configuration or pool, which have their own timeouts: \
                 connect with a URL",
            )),
            ConfirmedBy::Fsync { .. } | ConfirmedBy::Replicas(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_of_the_disk_is_below_a_third_of_the_lease() {
        let lease = Duration::from_secs(6);
        for (by, timeout_ms, is_right) in [
            (ConfirmedBy::Fsync { replicas: 0 }, 1_999, true),
            (ConfirmedBy::Fsync { replicas: 0 }, 2_000, false),
            (ConfirmedBy::Replicas(1), 2_000, true),
        ] {
            let confirmation = Confirmation { by, timeout: Duration::from_millis(timeout_ms) };
            assert_eq!(confirmation.check_lease(lease).is_ok(), is_right, "{confirmation:?}");
        }
    }
}

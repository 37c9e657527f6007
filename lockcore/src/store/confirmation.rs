//! How a written grant or renewal is confirmed before the node relies on it.

use std::time::Duration;

use proto::ConfigError;

/// How a write is confirmed, and the longest time for it. Without a confirmation, a write counts
/// once its server has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) by: ConfirmedBy,
    pub(crate) timeout: Duration,
}

/// The copies needed for a write in addition to the memory of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfirmedBy {
    /// Copies in the memory of this number of replicas, confirmed by WAIT.
    Replicas(u32),
    /// Copies on the disk of the server and on the disks of this number of replicas, confirmed by
    /// WAITAOF.
    Fsync { replicas: u32 },
}

impl Confirmation {
    /// Returns the builder option's name that requires this confirmation.
    pub(crate) fn option(&self) -> &'static str {
        match self.by {
            ConfirmedBy::Replicas(_) => "require_replicas",
            ConfirmedBy::Fsync { .. } => "require_fsync",
        }
    }

    /// Returns the error for a store or a server that cannot confirm writes so. `range` is the
    /// required state of the option, with the reason.
    pub(crate) fn refused(&self, range: &'static str) -> ConfigError {
        ConfigError::new(self.option(), "set", range)
    }

    /// Returns an error if a write to a slow disk could last longer than a third of the lease.
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

    /// Returns an error for a request whose caller continues without the lock while the store is
    /// unreachable, if writes wait for the disk.
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

    /// Returns the oldest server version, major and minor, that has the command to confirm writes,
    /// and the command's name. `None` if all supported versions have it.
    #[cfg(feature = "redis")]
    pub(crate) fn needs(&self) -> Option<((u32, u32), &'static str)> {
        match self.by {
            ConfirmedBy::Replicas(_) => None,
            ConfirmedBy::Fsync { .. } => Some(((7, 2), "WAITAOF")),
        }
    }

    /// Returns an error for connections that the user's own client or pool opens, if writes wait
    /// for the disk. Their timeouts may be shorter than the disk takes.
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

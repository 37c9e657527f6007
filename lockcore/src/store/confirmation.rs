//! The way in which the write of a grant or a renewal is confirmed before it counts.

use std::time::Duration;

use proto::ConfigError;

/// The way in which a write is confirmed, and the longest time for it. Without one, a write counts
/// once its server has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) by: ConfirmedBy,
    pub(crate) timeout: Duration,
}

/// The copies that a write needs beside the memory of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfirmedBy {
    /// The memory of this number of replicas.
    Replicas(u32),
    /// The disk of the server, and the disks of this number of replicas.
    Fsync { replicas: u32 },
}

impl Confirmation {
    /// The option of the builder that asks for it.
    pub(crate) fn option(&self) -> &'static str {
        match self.by {
            ConfirmedBy::Replicas(_) => "require_replicas",
            ConfirmedBy::Fsync { .. } => "require_fsync",
        }
    }

    /// Refuses a store or servers that cannot have it: the `range` says why.
    pub(crate) fn refused(&self, range: &'static str) -> ConfigError {
        ConfigError::new(self.option(), "set", range)
    }

    /// Refuses a lease that a write to a slow disk could outlast.
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

    /// Refuses a request whose caller goes on without the lock while the store is away.
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

    /// The oldest server that has the command for it, if that is not one of the oldest that carry
    /// locks; with the name of the command.
    #[cfg(feature = "redis")]
    pub(crate) fn needs(&self) -> Option<((u32, u32), &'static str)> {
        match self.by {
            ConfirmedBy::Replicas(_) => None,
            ConfirmedBy::Fsync { .. } => Some(((7, 2), "WAITAOF")),
        }
    }

    /// Refuses connections that are opened by a client or a pool of the user: these have time-outs
    /// of their own, which may be shorter than the disk takes.
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

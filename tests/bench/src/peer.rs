//! `Peer`: a compared lock, and the abilities.

/// An ability of a lock that a workload needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    /// Acquires free locks.
    Take,
    /// Releases a lock in the background when its guard is dropped.
    Drop,
    /// Releases a lock in both ways, each by a separate program.
    BothEnds,
    /// Waits for a held lock.
    Wait,
    /// Waits for a lock held by another process.
    HandOff,
    /// Waits in a queue of at most this length.
    Queue(usize),
    /// Renews its holds.
    Renew,
    /// Supports reads and writes.
    ReadWrite,
    /// Supports several holders at a time.
    Permits,
    /// Hands off a lock only when replicas have the writes, or else as without replicas.
    Replicated,
    /// Hands off a lock only when the writes are on the disk, or else as without.
    Synced,
    /// Leaves nothing behind when a wait is cancelled.
    Cancel,
    /// Serves HTTP.
    Http,
    /// Is held by a majority of three primaries, or compared with such locks.
    Quorum,
}

#[derive(Debug)]
pub(crate) struct Peer {
    /// The name in the command file.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// How a waiter waits, for the reader.
    pub(crate) waits: &'static str,
    pub(crate) can: &'static [Ability],
}

impl Peer {
    pub(crate) fn can(&self, needed: Ability) -> bool {
        self.can.iter().any(|ability| match (ability, needed) {
            (Ability::Queue(most), Ability::Queue(waiters)) => *most >= waiters,
            (ability, needed) => *ability == needed,
        })
    }

    /// The kind of server that stores the lock.
    pub(crate) fn server(&self) -> Server {
        match self.id {
            "postgres" => Server::Postgres,
            "etcd" => Server::Etcd,
            id if id.ends_with("-quorum") => Server::Primaries,
            _ => Server::Redis,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Redis,
    /// Three Redis servers; a lock is held by a majority.
    Primaries,
    Postgres,
    Etcd,
}

impl Server {
    pub(crate) fn is_redis(self) -> bool {
        matches!(self, Self::Redis | Self::Primaries)
    }
}

use Ability::{
    BothEnds, Cancel, Drop, HandOff, Http, Permits, Queue, Quorum, ReadWrite, Renew, Replicated,
    Synced, Take, Wait,
};

/// All peers, in table order.
pub(crate) const PEERS: &[Peer] = &[
    Peer { id: "bare", title: "bare", waits: "polls at once", can: &[Take, Wait] },
    Peer {
        id: "bare-mutex",
        title: "bare, behind a mutex",
        waits: "in the process; polls at once",
        can: &[Wait],
    },
    Peer { id: "publish", title: "bare publish", waits: "message; no lock", can: &[HandOff] },
    Peer {
        id: "ours",
        title: "**lockcore**",
        waits: "queue, message",
        can: &[
            Take,
            Wait,
            HandOff,
            Queue(100_000),
            Renew,
            Cancel,
            Replicated,
            Synced,
            Quorum,
            BothEnds,
        ],
    },
    Peer {
        id: "ours-alone",
        title: "lockcore, `batch_limit(1)`",
        waits: "queue, message",
        can: &[Wait],
    },
    Peer {
        id: "ours-dropped",
        title: "**lockcore**, guards dropped",
        waits: "queue, message",
        can: &[Drop, BothEnds],
    },
    Peer {
        id: "ours-1",
        title: "lockcore, `require_replicas(1)`",
        waits: "queue, message, renewal, `WAIT`",
        can: &[Replicated],
    },
    Peer {
        id: "ours-2",
        title: "lockcore, `require_replicas(2)`",
        waits: "queue, message, renewal, `WAIT`",
        can: &[Replicated],
    },
    Peer {
        id: "ours-fsync",
        title: "lockcore, `require_fsync(true)`",
        waits: "queue, message, renewal, `WAITAOF`",
        can: &[Synced],
    },
    Peer {
        id: "ours-read-write",
        title: "**lockcore**, `read` and `write`",
        waits: "queue, message",
        can: &[ReadWrite],
    },
    Peer {
        id: "ours-permits",
        title: "**lockcore**, `permit`",
        waits: "queue, message",
        can: &[Permits],
    },
    Peer {
        id: "against",
        title: "lockcore, other revision",
        waits: "queue, message",
        can: &[Take, Wait, HandOff, Queue(100_000), Renew, Cancel, BothEnds],
    },
    Peer {
        id: "against-dropped",
        title: "lockcore, other revision, guards dropped",
        waits: "queue, message",
        can: &[Drop, BothEnds],
    },
    Peer {
        id: "rslock",
        title: "rslock",
        waits: "polls every 0 to 200 ms",
        can: &[Take, Wait, HandOff],
    },
    Peer {
        id: "rlock",
        title: "rlock",
        waits: "polls every 100 ms",
        can: &[Take, Wait, HandOff, Renew, Cancel],
    },
    Peer {
        id: "distkit",
        title: "distkit",
        waits: "polls every 50 ms",
        can: &[Take, Wait, HandOff],
    },
    Peer {
        id: "redisson-rs",
        title: "redisson (Rust crate)",
        waits: "polls every 50 or 100 ms, in and out of a queue",
        // A wait cancelled in the queue stays there, and blocks the lock from then on.
        can: &[Take, Wait, HandOff],
    },
    Peer {
        id: "distributed-lock",
        title: "distributed-lock, on Redis",
        waits: "does not wait",
        can: &[Take],
    },
    Peer {
        id: "redisson-fair",
        title: "Redisson RFairLock",
        waits: "queue, message",
        // A queue with 100 000 waiters would take hours: each hand-off reads all of them.
        can: &[Take, Wait, HandOff, Queue(10_000), Renew, Cancel],
    },
    Peer {
        id: "redisson",
        title: "Redisson RLock",
        waits: "message to all",
        can: &[Take, Wait, HandOff, Renew, Cancel],
    },
    Peer {
        id: "redisson-read-write",
        title: "Redisson RReadWriteLock",
        waits: "message to all",
        can: &[ReadWrite],
    },
    Peer {
        id: "redisson-permits",
        title: "Redisson RPermitExpirableSemaphore",
        waits: "message to all",
        can: &[Permits],
    },
    Peer {
        id: "redsync",
        title: "redsync",
        waits: "polls every 50 to 250 ms",
        can: &[Take, Wait, HandOff, Cancel],
    },
    Peer {
        id: "redis-py",
        title: "redis-py",
        waits: "polls every 100 ms",
        can: &[Take, Wait, HandOff, Cancel],
    },
    Peer {
        id: "redis-fifo-lock",
        title: "redis-fifo-lock",
        waits: "queue, blocked connection",
        // Each waiter has a connection.
        can: &[Take, Wait, HandOff, Queue(1_000), Renew, Cancel],
    },
    Peer {
        id: "postgres",
        title: "PostgreSQL advisory lock",
        waits: "server queue, a session each",
        can: &[Take, Wait, HandOff],
    },
    Peer {
        id: "etcd",
        title: "etcd, one node",
        waits: "watch, then a read; a session each",
        can: &[Take, Wait, HandOff],
    },
    Peer {
        id: "ours-quorum",
        title: "**lockcore**, quorum",
        waits: "queue, message",
        can: &[Quorum, Renew, Cancel],
    },
    Peer {
        id: "rslock-quorum",
        title: "rslock, quorum",
        waits: "polls every 0 to 200 ms",
        can: &[Quorum],
    },
    Peer {
        id: "redsync-quorum",
        title: "redsync, quorum",
        waits: "polls every 50 to 250 ms",
        can: &[Quorum, Cancel],
    },
    Peer { id: "http-plain", title: "without", waits: "–", can: &[Http] },
    Peer { id: "http-bare", title: "two bare scripts", waits: "–", can: &[Http] },
    Peer {
        id: "http-bare-mutex", title: "bare scripts, behind a mutex", waits: "–", can: &[Http]
    },
    Peer { id: "http-memory", title: "layer, memory", waits: "–", can: &[Http] },
    Peer { id: "http-layer", title: "layer, Redis", waits: "–", can: &[Http] },
    Peer { id: "http-extractor", title: "extractor, Redis", waits: "–", can: &[Http] },
];

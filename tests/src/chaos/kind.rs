//! `Kind`: a kind of fault, and the habits of the clients meanwhile.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A kind of fault; a run has one kind, or all kinds in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing happens.
    Calm,
    /// A process is killed (SIGKILL), and another starts.
    Kill,
    /// A process is stopped (SIGSTOP), often past its leases, and continued.
    Stop,
    /// A connection is cut within a request.
    CutRequest,
    /// A connection is cut within a reply.
    CutReply,
    /// A reply is lost after the script has run, or a request before.
    Lost,
    /// A reply is lost and the connection stays: all later replies reach other requests.
    Swallow,
    /// A request or a reply is late, perhaps later than a lease.
    Delay,
    /// Connections stay open and carry nothing, one way or both.
    Freeze,
    /// A request runs a second time, at once or later.
    Replay,
    /// The server closes a connection (CLIENT KILL).
    ClientKill,
    /// The server loses all scripts (SCRIPT FLUSH).
    ScriptFlush,
    /// The server's memory is full for a moment.
    MemoryFull,
    /// The connection for messages is cut, or silent.
    Subscription,
    /// Half of all attempts are cancelled, at any moment.
    Cancel,
    /// Nothing renews the leases, and holders stay until the lease expires.
    ShortLease,
    /// The server is stopped (SIGSTOP) for a while.
    ServerStop,
    /// All kinds happen in one run.
    Mixed,
}

/// The habits of the clients under a kind of fault.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// The lease in ms.
    pub(super) lease_ms: RangeInclusive<u64>,
    /// The percentage of attempts with a lease that is never renewed.
    pub(super) fixed: u64,
    /// The percentage of holders that stay until such a lease has expired, or until a renewable
    /// lease was renewed.
    pub(super) overstay: u64,
    /// The percentage of cancelled attempts.
    pub(super) cancel: u64,
    /// Whether a request may fail because its reply could belong to another request.
    pub(super) out_of_step: bool,
    /// One of this many attempts works on the registers.
    pub(super) works: usize,
    pub(super) slow: u64,
    pub(super) slow_us: u64,
    /// The number of clients per child.
    pub(super) clients: u64,
    /// True if all clients use the same lock at a time.
    pub(super) together: bool,
    /// The request timeout.
    pub(super) request_timeout: Duration,
}

impl Kind {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 18] = [
        Self::Calm,
        Self::Kill,
        Self::Stop,
        Self::CutRequest,
        Self::CutReply,
        Self::Lost,
        Self::Swallow,
        Self::Delay,
        Self::Freeze,
        Self::Replay,
        Self::ClientKill,
        Self::ScriptFlush,
        Self::MemoryFull,
        Self::Subscription,
        Self::Cancel,
        Self::ShortLease,
        Self::ServerStop,
        Self::Mixed,
    ];

    /// Returns true if a node may be found disconnected, or silent for as long as a request may
    /// take.
    pub(super) fn disturbs_connections(self) -> bool {
        let quiet =
            [Self::Calm, Self::ScriptFlush, Self::MemoryFull, Self::Cancel, Self::ShortLease];
        !quiet.contains(&self)
    }

    /// Whether every process stays alive and soon reconnects, so that no grant expires unclaimed.
    pub(super) fn claims_everything(self) -> bool {
        let brief =
            [Self::CutRequest, Self::CutReply, Self::Lost, Self::ClientKill, Self::Subscription];
        brief.contains(&self) || !self.disturbs_connections() && self != Self::ShortLease
    }

    /// Returns true if processes are stopped, so that each control must notice something.
    pub(super) fn needs_losses(self) -> bool {
        self == Self::Stop
    }

    pub(super) fn habits(self) -> Habits {
        let (lease_ms, fixed) = match self {
            // The cost of a dead or stopped process for the others.
            Self::Kill | Self::Stop => (100..=300, 30),
            Self::ShortLease => (100..=200, 100),
            Self::Delay | Self::Freeze | Self::Mixed => (150..=500, 40),
            kind if kind.claims_everything() => (5_000..=10_000, 10),
            _ => (300..=900, 20),
        };
        let request_timeout = match self {
            kind if !kind.disturbs_connections() => 2_000,
            kind if kind.claims_everything() => 500,
            _ => 200,
        };
        // One client per node: otherwise a reply to another client reports a grant whose message
        // was lost.
        let together = self == Self::Subscription;
        let clients = if together { 1 } else { 8 };
        // When a process is stopped, some clients must be between their read and their write.
        let (works, slow, slow_us) =
            if self.needs_losses() { (1, 70, 20_000) } else { (4, 20, 4_000) };
        Habits {
            works,
            slow,
            slow_us,
            clients,
            together,
            lease_ms,
            fixed,
            out_of_step: matches!(self, Self::Swallow | Self::Mixed),
            overstay: if self.claims_everything() { 0 } else { 4 },
            cancel: if self == Self::Cancel { 50 } else { 5 },
            request_timeout: Duration::from_millis(request_timeout),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::CutRequest => "cut-request",
            Self::CutReply => "cut-reply",
            Self::Lost => "lost",
            Self::Swallow => "swallow",
            Self::Delay => "delay",
            Self::Freeze => "freeze",
            Self::Replay => "replay",
            Self::ClientKill => "client-kill",
            Self::ScriptFlush => "script-flush",
            Self::MemoryFull => "memory-full",
            Self::Subscription => "subscription",
            Self::Cancel => "cancel",
            Self::ShortLease => "short-lease",
            Self::ServerStop => "server-stop",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("no kind of fault is called {text}"))
    }
}

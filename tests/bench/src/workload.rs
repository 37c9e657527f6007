//! `Workload`: how each lock is used, and the values in its table.

use crate::peer::Ability;

/// Which lock a turn takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Takes a free lock in each turn of each task.
    Own,
    /// Takes another lock name in each turn.
    Fresh,
    /// Takes the same lock in all turns.
    One,
    /// Takes one of this many locks, all alike.
    Shared(usize),
    /// Takes one of this many locks, the n-th with a probability proportional to 1 / n.
    Zipf(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Runs tasks that take turns.
    Turns { processes: usize, tasks: usize, keys: Keys, hold_us: u64, patience_us: u64 },
    /// Hands a lock off from one process to another and back.
    HandOff,
    /// Fills one queue with this many waiters.
    Depth(usize),
    /// Cancels the waits for this many locks at once, and then ends the hold of another lock.
    Flood(usize),
    /// Holds this many locks at the same time.
    Holds(usize),
    /// Opens this many connections, each requesting a lock on one of `keys` keys.
    Http { connections: usize, keys: usize },
}

/// A column of a workload's table: the name of the value, its heading, and the digits after the
/// point.
pub(crate) type Column = (&'static str, &'static str, usize);

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: Kind,
    /// The latency between client and server each way.
    pub(crate) each_way_ms: u64,
    /// The number of threads of a program's runtime; 0: as many as the machine has.
    pub(crate) threads: usize,
    /// Whether the workload is part of the short run.
    pub(crate) quick: bool,
    pub(crate) needs: Ability,
    /// The value whose ratio to the bare baseline is shown.
    pub(crate) base: &'static str,
    /// The columns; the first column is compared and drawn.
    pub(crate) columns: &'static [Column],
}

const PAIR: &[Column] = &[
    ("pair_p50", "pair p50, µs", 1),
    ("pair_p99", "p99", 1),
    ("pair_p999", "p99.9", 1),
    ("turns_s", "pairs/s", 0),
    ("server_us", "server CPU, µs", 1),
    ("script_us", "scripts, µs", 1),
    ("client_us", "client CPU, µs", 1),
    ("commands", "commands", 2),
];

const MANY: &[Column] = &[
    ("turns_s", "pairs/s", 0),
    ("pair_p50", "pair p50, µs", 0),
    ("pair_p99", "p99", 0),
    ("pair_p999", "p99.9", 0),
    ("server_us", "server CPU, µs", 1),
    ("script_us", "scripts, µs", 1),
    ("client_us", "client CPU, µs", 1),
    ("commands", "commands", 2),
    ("resident_mb", "client RSS, MB", 1),
];

const HOT: &[Column] = &[
    ("turns_s", "turns/s", 0),
    ("in_order", "in order, %", 1),
    ("wait_p50", "wait p50, µs", 0),
    ("wait_p99", "p99", 0),
    ("wait_p999", "p99.9", 0),
    ("longest_ms", "longest wait, ms", 1),
    ("without", "tasks without a turn", 1),
    ("server_us", "server CPU, µs", 1),
    ("script_us", "scripts, µs", 1),
    ("client_us", "client CPU, µs", 1),
    ("commands", "commands", 2),
];

/// The longest wait is compared.
const QUORUM_HOT: &[Column] = &[
    ("longest_ms", "longest wait, ms", 1),
    ("turns_s", "turns/s", 0),
    ("in_order", "in order, %", 1),
    ("wait_p50", "wait p50, µs", 0),
    ("wait_p99", "p99", 0),
    ("without", "tasks without a turn", 1),
    ("server_us", "server CPU, µs", 1),
    ("client_us", "client CPU, µs", 1),
    ("commands", "commands", 2),
];

const STORM: &[Column] = &[
    ("attempts_s", "attempts/s", 0),
    ("turns_s", "turns/s", 0),
    ("given_up", "cancelled, %", 1),
    ("in_order", "in order, %", 1),
    ("free_ms", "free for another process after, ms (5 000: or later)", 1),
    ("server_us", "server CPU, µs", 1),
    ("client_us", "client CPU, µs", 1),
];

const HAND_OFF: &[Column] = &[
    ("hand_p50", "p50, µs", 0),
    ("hand_p99", "p99", 0),
    ("hand_p999", "p99.9", 0),
    ("commands", "commands", 2),
    ("server_us", "server CPU, µs", 1),
];

const FLOOD: &[Column] = &[
    ("hand_p50", "p50, µs", 0),
    ("hand_p99", "p99", 0),
    ("server_us", "server CPU of a flood, µs", 0),
];

const DEPTH: &[Column] = &[
    ("hand_over_us", "hand-off, µs of scripts", 1),
    ("enqueue_us", "enqueue", 1),
    ("leave_us", "leave of the last waiter", 1),
    ("waiter_server_b", "a waiter in the server, B", 0),
    ("waiter_client_b", "a waiter in the client, B", 0),
];

const HOLDS: &[Column] = &[
    ("scripts_s", "scripts/s", 1),
    ("server_share", "server CPU, %", 2),
    ("client_share", "client CPU, %", 2),
    ("hold_server_b", "a hold in the server, B", 0),
    ("hold_client_b", "a hold in the client, B", 0),
];

const HTTP: &[Column] = &[
    ("requests_s", "requests/s", 0),
    ("request_p50", "p50, µs", 0),
    ("request_p99", "p99", 0),
    ("request_p999", "p99.9", 0),
    ("in_order", "in order, %", 1),
    ("server_us", "Redis CPU, µs", 1),
    ("client_us", "HTTP server CPU, µs", 1),
];

const fn turns(processes: usize, tasks: usize, keys: Keys, hold_us: u64) -> Kind {
    Kind::Turns { processes, tasks, keys, hold_us, patience_us: 0 }
}

const fn hot(id: &'static str, title: &'static str, processes: usize, tasks: usize) -> Workload {
    Workload {
        id,
        title,
        kind: turns(processes, tasks, Keys::One, 0),
        each_way_ms: 0,
        threads: 0,
        quick: tasks * processes == 64,
        needs: Ability::Wait,
        base: "bare",
        columns: HOT,
    }
}

const fn ends(
    id: &'static str,
    title: &'static str,
    (threads, each_way_ms): (usize, u64),
) -> Workload {
    Workload {
        id,
        title,
        kind: turns(1, 100, Keys::Fresh, 0),
        each_way_ms,
        threads,
        quick: false,
        needs: Ability::BothEnds,
        base: "ours",
        columns: MANY,
    }
}

const fn depth(id: &'static str, title: &'static str, waiters: usize) -> Workload {
    Workload {
        id,
        title,
        kind: Kind::Depth(waiters),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Queue(waiters),
        base: "ours",
        columns: DEPTH,
    }
}

const fn http(id: &'static str, title: &'static str, connections: usize, keys: usize) -> Workload {
    Workload {
        id,
        title,
        kind: Kind::Http { connections, keys },
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Http,
        base: "http-plain",
        columns: HTTP,
    }
}

/// A free lock in each turn of one task.
const OWN: Kind = turns(1, 1, Keys::Own, 0);

const fn quorum(
    id: &'static str,
    title: &'static str,
    kind: Kind,
    each_way_ms: u64,
    columns: &'static [Column],
) -> Workload {
    let (needs, base) = (Ability::Quorum, "rslock-quorum");
    Workload { id, title, kind, each_way_ms, threads: 0, quick: false, needs, base, columns }
}

/// All workloads, in the order of the page.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        id: "pair",
        title: "A free lock: acquire and release, one task",
        kind: turns(1, 1, Keys::Own, 0),
        each_way_ms: 0,
        threads: 0,
        quick: true,
        needs: Ability::Take,
        base: "bare",
        columns: PAIR,
    },
    Workload {
        id: "pair-dropped",
        title: "A free lock, guard dropped: one task",
        kind: turns(1, 1, Keys::Own, 0),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Drop,
        base: "ours-dropped",
        columns: PAIR,
    },
    Workload {
        id: "pairs-256",
        title: "Free locks: 256 tasks, a key each",
        kind: turns(1, 256, Keys::Own, 0),
        each_way_ms: 0,
        threads: 0,
        quick: true,
        needs: Ability::Take,
        base: "bare",
        columns: MANY,
    },
    Workload {
        id: "hand-off",
        title: "Hand-off from one process to another",
        kind: Kind::HandOff,
        each_way_ms: 0,
        threads: 0,
        quick: true,
        needs: Ability::HandOff,
        base: "publish",
        columns: HAND_OFF,
    },
    Workload {
        id: "hand-off-replicas",
        title: "Two replicas: hand-off from one process to another",
        kind: Kind::HandOff,
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Replicated,
        base: "ours",
        columns: HAND_OFF,
    },
    Workload {
        id: "hand-off-fsync",
        title: "`appendfsync always`: hand-off from one process to another",
        kind: Kind::HandOff,
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Synced,
        base: "ours",
        columns: HAND_OFF,
    },
    hot("hot-1x2", "One hot lock: 2 tasks of one process", 1, 2),
    hot("hot-1x16", "One hot lock: 16 tasks of one process", 1, 16),
    hot("hot-1x64", "One hot lock: 64 tasks of one process", 1, 64),
    hot("hot-1x256", "One hot lock: 256 tasks of one process", 1, 256),
    hot("hot-4x1", "One hot lock: 4 processes, 1 task each", 4, 1),
    hot("hot-4x4", "One hot lock: 4 processes, 4 tasks each", 4, 4),
    hot("hot-4x16", "One hot lock: 4 processes, 16 tasks each", 4, 16),
    hot("hot-4x64", "One hot lock: 4 processes, 64 tasks each", 4, 64),
    Workload {
        id: "shared",
        title: "64 workers on 16 locks, sections of 11 ms",
        kind: turns(1, 64, Keys::Shared(16), 11_000),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Wait,
        base: "bare",
        columns: HOT,
    },
    Workload {
        id: "zipf",
        title: "256 tasks on 1 000 locks, the n-th with weight 1 / n",
        kind: turns(1, 256, Keys::Zipf(1_000), 0),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Wait,
        base: "bare",
        columns: HOT,
    },
    Workload {
        id: "read-write",
        title: "Reads and writes, one turn in ten writes: 4 × 16 tasks, sections of 1 ms",
        kind: turns(4, 16, Keys::One, 1_000),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::ReadWrite,
        base: "ours-read-write",
        columns: HOT,
    },
    Workload {
        id: "permits",
        title: "10 permits: 4 × 16 tasks, sections of 1 ms",
        kind: turns(4, 16, Keys::One, 1_000),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Permits,
        base: "ours-permits",
        columns: HOT,
    },
    Workload {
        id: "storm",
        title: "Cancel storm: 4 × 16 tasks that cancel after 0 to 20 ms, sections of 1 ms",
        kind: Kind::Turns {
            processes: 4,
            tasks: 16,
            keys: Keys::One,
            hold_us: 1_000,
            patience_us: 20_000,
        },
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Cancel,
        base: "ours",
        columns: STORM,
    },
    ends(
        "ends-1",
        "Guards released and dropped: 100 tasks on one thread, a name for each turn",
        (1, 0),
    ),
    ends("ends-2", "Guards released and dropped: 100 tasks on two threads", (2, 0)),
    ends("ends-25ms", "Guards released and dropped, 25 ms each way: 100 tasks", (2, 25)),
    Workload {
        id: "flood",
        title: "5 000 waits for other locks cancelled at once: hand-off of a guard that ends \
            meanwhile",
        kind: Kind::Flood(5_000),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::BothEnds,
        base: "ours",
        columns: FLOOD,
    },
    depth("depth-1", "A queue of 1", 1),
    depth("depth-100", "A queue of 100", 100),
    depth("depth-1000", "A queue of 1 000", 1_000),
    depth("depth-10000", "A queue of 10 000", 10_000),
    depth("depth-100000", "A queue of 100 000", 100_000),
    Workload {
        id: "holds",
        title: "10 000 held locks",
        kind: Kind::Holds(10_000),
        each_way_ms: 0,
        threads: 0,
        quick: false,
        needs: Ability::Renew,
        base: "ours",
        columns: HOLDS,
    },
    Workload {
        id: "pair-1ms",
        title: "1 ms each way: a free lock, one task",
        kind: turns(1, 1, Keys::Own, 0),
        each_way_ms: 1,
        threads: 0,
        quick: false,
        needs: Ability::Take,
        base: "bare",
        columns: PAIR,
    },
    Workload {
        id: "hand-off-1ms",
        title: "1 ms each way: hand-off from one process to another",
        kind: Kind::HandOff,
        each_way_ms: 1,
        threads: 0,
        quick: false,
        needs: Ability::HandOff,
        base: "publish",
        columns: HAND_OFF,
    },
    Workload {
        id: "hot-1x64-1ms",
        title: "1 ms each way, one hot lock: 64 tasks of one process",
        kind: turns(1, 64, Keys::One, 0),
        each_way_ms: 1,
        threads: 0,
        quick: false,
        needs: Ability::Wait,
        base: "bare",
        columns: HOT,
    },
    quorum("quorum-pair", "Three primaries: a free lock, one task", OWN, 0, PAIR),
    quorum(
        "quorum-pair-1ms",
        "Three primaries, 1 ms each way: a free lock, one task",
        OWN,
        1,
        PAIR,
    ),
    quorum(
        "quorum-hand-off",
        "Three primaries: hand-off from one process to another",
        Kind::HandOff,
        0,
        HAND_OFF,
    ),
    quorum(
        "quorum-hot-4x16",
        "Three primaries, one hot lock: 4 processes, 16 tasks each",
        turns(4, 16, Keys::One, 0),
        0,
        QUORUM_HOT,
    ),
    http("http-1", "HTTP: 1 connection, 10 000 keys", 1, 10_000),
    http("http-64", "HTTP: 64 connections, 10 000 keys", 64, 10_000),
    http("http-hot", "HTTP: 64 connections, one key", 64, 1),
];

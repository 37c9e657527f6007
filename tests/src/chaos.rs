//! Chaos: child processes lock on a real server while a seeded schedule breaks things around them;
//! afterwards the records of the clients and the server are checked.
//!
//! | module | content |
//! |---|---|
//! | `kind` | the kinds of faults, and the habits of the clients during each |
//! | `form` | the demands on a lock: only locked, also read, or held in permits |
//! | `client` | a child process: locks, works, and records each step |
//! | `record`, `history` | a line of a record, and all records read back |
//! | `nemesis` | the faults of a seed, in order, and their execution |
//! | `trace` | every command of the server, followed as it runs |
//! | `register` | the protected resource: pairs of registers, fenced, and unfenced as a control |
//! | `gauge` | the number of permits in use, as counted by their holders |
//! | `checker` | the laws that the records must satisfy |
//! | `run` | a run from the first process to the verdict |
//! | `takeover`, `dead`, `stall` | the wait behind a killed holder, and behind dead waiters; the cost of dead waiters for the others |
//! | `failover` | failovers by real sentinels under load, and the cost of each |
//! | `power` | a server that loses power under load, and the cost with and without fsync |
//! | `quorum` | faults of one quorum primary at a time |
//! | `dropped`, `frozen` | dropped guards compared with released guards; a frozen primary, and the other primaries |
//! | `replays` | requests sent twice, to processes killed and paused at each step |
//! | `storm` | how many nodes reconnect to a server that is slow to accept each |
//! | `crowd`, `interrupted`, `lost` | a node with many waiters whose connection breaks, or with many holds lost at once |

mod checker;
mod client;
mod clock;
mod crowd;
mod dead;
mod dice;
mod dropped;
mod failover;
mod form;
mod frozen;
mod gauge;
mod history;
mod interrupted;
mod kind;
mod leftovers;
mod lost;
mod nemesis;
mod outcome;
mod power;
mod quorum;
mod record;
mod register;
#[cfg(feature = "replays")]
mod replays;
mod run;
mod stall;
mod storm;
mod takeover;
mod trace;
mod violation;
mod worker;

pub use client::live;
pub use crowd::{Crowd, Look};
pub use dead::{crowd, hand_over_past_the_dead};
pub use dropped::{GuardEnd, Turns, Workers, hand_over_in_a_flood, ping_in_a_burst, turns_of};
pub use failover::{Failover, FailoverPlan, Fault, failover_table};
pub use form::Forms;
pub use frozen::{FrozenPrimary, frozen_primary};
pub use interrupted::{Interrupted, interrupted};
pub use kind::Kind;
pub use lost::{Lost, lost};
pub use outcome::{Outcome, Plan};
pub use power::{PowerCost, PowerPlan};
pub use quorum::{PrimaryFault, QuorumFault, QuorumOutcome, Relay, buy_from_quorum, quorum_faults};
#[cfg(feature = "replays")]
pub use replays::{ReplayFault, Replays, replays, serve_replays};
pub use run::run;
pub use stall::{Unrelated, turns_past_the_dead, unrelated_past_the_dead};
pub use storm::{Storm, storm};
pub use takeover::{Takeover, hold, takeovers};
pub use violation::{Violation, What};

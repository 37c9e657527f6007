//! Chaos: child processes lock on a real server while a seeded schedule breaks things around them;
//! what each saw and what the server did is checked afterwards.
//!
//! | module | what it holds |
//! |---|---|
//! | `kind` | the kinds of faults, and how the clients behave under each |
//! | `form` | the demands of a lock: it is locked only, read, too, or held in permits |
//! | `client` | a child process: locks, works, and writes down what it sees |
//! | `record`, `history` | one line of that, and all of it read back |
//! | `nemesis` | the faults of a seed, in order, and doing them |
//! | `trace` | every command of the server, followed as it runs |
//! | `register` | what the locks protect: pairs of registers, fenced, and unfenced as a control |
//! | `gauge` | how much of the permits is in use, as those count who use them |
//! | `checker` | what must hold of all this |
//! | `run` | one run from the first process to the verdict |
//! | `takeover`, `dead`, `stall` | how long the next waits behind a killed holder, and behind the dead; what the dead cost the others |
//! | `failover` | failovers by real sentinels under load, and what each cost |
//! | `crowd`, `interrupted`, `lost` | one node with many waiters whose link breaks, or many holds that are lost at once |

mod checker;
mod client;
mod clock;
mod crowd;
mod dead;
mod dice;
mod failover;
mod form;
mod gauge;
mod history;
mod interrupted;
mod kind;
mod leftovers;
mod lost;
mod nemesis;
mod outcome;
mod record;
mod register;
mod run;
mod stall;
mod takeover;
mod trace;
mod violation;
mod worker;

pub use client::live;
pub use crowd::{Crowd, Look};
pub use dead::{crowd, hand_over_past_the_dead};
pub use failover::{Failover, FailoverPlan, Fault, failover_table};
pub use form::Forms;
pub use interrupted::{Interrupted, interrupted};
pub use kind::Kind;
pub use lost::{Lost, lost};
pub use outcome::{Outcome, Plan};
pub use run::run;
pub use stall::{Unrelated, turns_past_the_dead, unrelated_past_the_dead};
pub use takeover::{Takeover, hold, takeovers};
pub use violation::{Violation, What};

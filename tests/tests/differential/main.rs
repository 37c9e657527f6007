//! The scripts on a real server against the protocol as a function, in both layouts of the keys:
//! after every command of a random sequence, the same answer, the same messages and the same keys.
//!
//! Of each layout 64 sequences of some 200 commands, or as many as `DIFFERENTIAL_CASES` says (256
//! in `scripts/test --all`), the same at each run unless `DIFFERENTIAL_SEED` is another number. A
//! sequence that fails is shortened for as many milliseconds as `DIFFERENTIAL_SHRINK` says, and
//! shown.
//!
//! | module | content |
//! |---|---|
//! | `fuzz` | many random sequences, and a short one that fails |
//! | `case` | one sequence: events of all kinds, and commands |
//! | `draw` | the commands, drawn at random |
//! | `judge` | the comparison of one command |
//! | `layout` | the differences between the layouts: a trait, kept by `queue` and `redisson` |
//! | `world` | the server, its nodes, and all messages |

mod case;
mod draw;
mod fuzz;
mod judge;
mod layout;
mod queue;
mod random;
mod redisson;
mod world;

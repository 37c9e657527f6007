//! The store's own commands on a real server: what each leaves in the keys, tells its caller and
//! says to others. Finding numbers are those of the review of the protocol's first draft.

mod asking;
mod bench;
mod claim;
mod cost;
mod dialect;
mod forced;
mod memory_full;
mod message;
mod moving;
mod node;
mod passed_over;
mod queue;
mod refused_write;
mod repetition;
mod reply;
mod several;
mod strange;
mod token;
mod tombstone;

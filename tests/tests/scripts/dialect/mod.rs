//! The dialect of Redisson: what its scripts leave in the keys that JVMs know.

mod bench;
mod claim;
mod forced;
mod foreign;
mod memory_full;
mod message;
mod passed_over;
mod queue;
mod refused_write;
mod repetition;
mod reply;
mod several;
mod strange;
mod token;
mod tombstone;

//! The scripts of the dialect of Redisson on a real server: what each leaves in the keys that JVMs
//! know, tells its caller and says to others.

mod asking;
mod bench;
mod claim;
mod forced;
mod memory_full;
mod message;
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

//! Our locks and Redisson's `RFairLock` in one queue: a real JVM with the real Redisson, and a real
//! server.
//!
//! The JVM's program stands in `tests/redisson`; Maven builds it once a version of Redisson, into
//! the target directory. `scripts/test` runs these tests where Java and Maven are; this command
//! runs them alone: `cargo test -p lock-tests --test redisson -- --ignored`. `REDISSON_VERSION`
//! chooses another version than that of the POM.

mod bench;
mod damage;
mod expiry;
mod grace;
mod hand_over;
mod jvm;
mod killed;
mod mixed;
mod order;
mod plain;
mod program;
mod script;
mod sentinel;
mod trying;

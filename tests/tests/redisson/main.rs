//! Our locks and Redisson's `RFairLock` in one queue: a real JVM with the real Redisson, and a real server.
//!
//! The JVM's program stands in `tests/redisson`; Maven builds it once a version of Redisson, into the
//! target directory. Without Maven or its registry these tests say so in one line and check nothing;
//! with `REDISSON=insist` they fail. `REDISSON_VERSION` chooses another version than that of the POM.

mod bench;
mod damage;
mod expiry;
mod grace;
mod hand_over;
mod jvm;
mod killed;
mod order;
mod plain;
mod program;
mod script;
mod trying;

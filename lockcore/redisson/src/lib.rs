//! The key layout of Redisson's fair lock for lockcore, without I/O: locks with a queue shared with
//! JVMs, as specified in the project's `docs/redisson.md`.
//!
//! This crate is for lockcore, which depends on an exact version. The API is not stable.
//!
//! [`REDISSON`] is the layout, as nodes and stores use it. It combines the rules of each command,
//! as a pure function of a lock's state ([`LockState::step`]), and the [`scripts`] with their calls
//! and replies. A *foreign* member is a JVM thread that waits for or holds a lock.

mod function;
mod layout;
pub mod scripts;
mod wire;

pub use function::{
    ALIVE_MS, Call, GRACE_MS, Hold, JVM_STEP_MS, LEADING, LOOKED_AT, LastToken, LockState, Message,
    Peers, SHORT_SCORE_MS, SKIPPED_MS, SLACK_MS, SUSPECTS_MS, SWEEP, Suspects, is_hold, is_member,
    is_token, step,
};
pub use layout::{REDISSON, RedissonLayout};

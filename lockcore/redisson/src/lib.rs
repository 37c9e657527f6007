//! Redisson's layout for lockcore, without I/O: a lock with a queue shared with JVMs, as specified
//! in the project's `docs/redisson.md`.
//!
//! For lockcore; no stable API. lockcore depends on an exact version of this crate.
//!
//! [`REDISSON`] is the layout, as nodes and stores use it. Below it are the rules of each command
//! as a pure function of a lock's state ([`LockState::step`]), and the [`scripts`] with their calls
//! and replies.

mod function;
mod layout;
pub mod scripts;
mod wire;

pub use function::{
    ALIVE_MS, Call, GRACE_MS, Hold, JVM_STEP_MS, LEADING, LOOKED_AT, LastToken, LockState, Message,
    PASSED_OVER_MS, Peers, SHORT_SCORE_MS, SLACK_MS, SUSPECTS_MS, SWEEP, Suspects, is_hold,
    is_member, is_token, step,
};
pub use layout::{REDISSON, RedissonLayout};

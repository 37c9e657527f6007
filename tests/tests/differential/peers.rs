//! Queues that are shared with JVMs, without a JVM: the scripts against the protocol as a function,
//! and each rule for such queues as a fact. With a real one: the test binary `redisson`.

mod bench;
pub(crate) mod jvms;
mod place;
mod told;

use crate::case::Kind;
use crate::fuzz;

/// A thread that listens, and two of a JVM that is gone.
pub(crate) const THREADS: [&str; 3] = [
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:42",
];

pub(crate) fn listens(member: &str) -> bool {
    member == THREADS[0]
}

#[test]
fn lua_and_rust_agree_on_every_command_in_a_queue_shared_with_jvms() {
    fuzz::run(Kind::Peers, 8);
}

//! JVMs, without a JVM, in a random sequence. With a real one: the test binary `redisson`.

pub(crate) mod jvms;

/// A thread that listens, and two of a JVM that is gone.
pub(crate) const THREADS: [&str; 3] = [
    "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:42",
];

pub(crate) fn listens(member: &str) -> bool {
    member == THREADS[0]
}

//! Queues that are shared with JVMs, without a JVM: the scripts against the protocol as a function,
//! and each rule for such queues as a fact. With a real one: the test binary `redisson`.

mod bench;
mod place;
mod random;
mod sequence;
mod told;
mod world;

//! Locks by a majority of independent Redis servers: the marks of primaries, the cost of a pair,
//! the order of a crowd, and faults of one primary at a time.

mod away;
mod cost;
mod crowd;
mod faults;
mod marks;
mod primaries;
mod relay;

//! Locks by a majority of independent Redis servers: how primaries are known, what they cost, and
//! the order in which a crowd is served.

mod away;
mod cost;
mod crowd;
mod faults;
mod marks;
mod primaries;
mod relay;

//! Locks by a majority of independent Redis servers: the server identities of primaries, the cost
//! of a pair, the order of a crowd, faults of a single primary, and zones with a cut link.

mod away;
mod cost;
mod crowd;
mod faults;
mod marks;
mod primaries;
mod relay;
mod zones;

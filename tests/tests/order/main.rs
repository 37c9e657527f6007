//! Order and cost on a real server: the order of grants, their cost, and the keys that are left.

mod cost;
mod crowd;
mod leftovers;

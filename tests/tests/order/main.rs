//! Order and cost on a real server: who is served when, what it costs the server, and what is left.

mod cost;
mod crowd;
mod leftovers;

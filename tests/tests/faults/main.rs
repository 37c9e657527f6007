//! Faults: processes that die or freeze, connections that break, servers that go, refuse or lie.

mod access;
mod common;
mod cut;
mod deaf;
mod fake;
mod flushed;
mod forged;
mod half_open;
mod killed;
mod leaked;
mod lost_reply;
mod memory_full;
mod on_its_way;
mod passed_over;
mod pool;
mod refused;
mod restarted;
mod runtime;
mod script;
mod shutdown;
mod stopped;
mod warned;
mod witness;

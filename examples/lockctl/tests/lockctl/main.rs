//! `lockctl` from the outside: the built program against a real `redis-server`.

mod cluster;
mod command;
mod common;
mod holders;
mod lost;
mod next_version;
mod quorum;
mod shown;
mod signals;
mod terminal;
mod top;
mod usage;
mod wait;

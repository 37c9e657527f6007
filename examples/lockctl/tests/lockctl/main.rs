//! `lockctl` as its users meet it: the built program against a real `redis-server`.

mod cluster;
mod command;
mod common;
mod lost;
mod shown;
mod signals;
mod usage;
mod wait;

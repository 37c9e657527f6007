//! The extractors in routers, called directly and over real sockets, on an in-memory store and on
//! Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body;
mod disconnect;
mod forms;
mod key;
mod lifetime;
mod lock_by;
mod lost;
mod nodes;
mod question_mark;
mod rejection;
mod rejection_log;

mod release;
mod share;
mod stack;
mod streaming;
mod support;
mod websocket;

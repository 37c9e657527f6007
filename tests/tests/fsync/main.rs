//! `require_fsync`: grants and renewals that count only once they are on the disk of the server.
//!
//! WAITAOF came with Redis 7.2. Tests that need it are ignored, and run on a newer server by
//! `REDIS_SERVER=target/servers/valkey-9.1.2 cargo test -p lock-tests --all-features --test fsync --
//! --ignored`, as in `scripts/test --servers`.

mod common;
mod connect;
mod late;
mod meets;
mod others;
mod power;

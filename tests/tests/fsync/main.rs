//! `require_fsync`: grants and renewals that count only once they are on the server's disk.
//!
//! WAITAOF was added in Redis 7.2, and waits for the disk with `everysec` in Redis 8.2 or newer.
//! Tests that need such a server are ignored. `scripts/test --servers` runs them, as does
//! `REDIS_SERVER=target/servers/redis-8.2.3 cargo test -p lock-tests --all-features --test fsync --
//! --include-ignored`; on Valkey with `--skip everysec`.

mod always;
mod common;
mod connect;
mod everysec;
mod power;

//! `require_fsync`: grants and renewals that count only once they are on the disk of the server.
//!
//! WAITAOF came with Redis 7.2, and waits for the disk with `everysec` on Redis 8.2 or newer. Tests
//! that need such a server are ignored. `scripts/test --servers` runs them, as does
//! `REDIS_SERVER=target/servers/redis-8.2.3 cargo test -p lock-tests --all-features --test fsync --
//! --include-ignored`; on Valkey with `--skip everysec`.

mod always;
mod common;
mod connect;
mod everysec;
mod power;

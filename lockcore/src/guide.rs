//! The manual: one page for each question that comes up before the first lock is in production.
//!
//! In reading order: [`choosing`], [`keys`], [`leases`], [`fencing`], [`cancellation`],
//! [`overload`], [`runtimes`], [`redis`], [`quorum`], [`observability`], [`alerts`], [`testing`].
//! The repository's `docs/README.md` lists these among all chapters: from a first service in ten
//! minutes, before them, to running it, after them.

#[doc = include_str!("guide/choosing.md")]
pub mod choosing {}

#[doc = include_str!("guide/keys.md")]
pub mod keys {}

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("guide/overload.md")]
pub mod overload {}

#[doc = include_str!("guide/runtimes.md")]
pub mod runtimes {}

#[doc = include_str!("guide/redis.md")]
pub mod redis {}

#[doc = include_str!("guide/quorum.md")]
pub mod quorum {}

#[doc = include_str!("guide/observability.md")]
pub mod observability {}

#[doc = include_str!("guide/alerts.md")]
pub mod alerts {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

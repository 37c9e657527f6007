//! A Tower layer that takes a fair distributed lock, keyed from each request, before it calls the
//! inner service.
//!
//! This crate is an empty shell: nothing of it is built yet. Use [`lockcore`] directly until it is.
//!
//! [`lockcore`]: https://docs.rs/lockcore

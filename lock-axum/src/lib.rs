//! Extractors that hand axum handlers the guard of a fair distributed lock.
//!
//! This crate is an empty shell: nothing of it is built yet. Use [`lockcore`] directly until it is.
//!
//! [`lockcore`]: https://docs.rs/lockcore

//! TLS: a real server that speaks it, certificates of the tests' own, and all that does not fit.

mod authority;
mod cluster;
mod refused;
mod rotated;
mod sentinels;
mod setup;
mod trusted;

//! The dashboard in a router: its pages, its JSON, its events and its form.
#![allow(clippy::unwrap_used, reason = "tests")]

mod events;
mod pages;
mod release;
mod support;

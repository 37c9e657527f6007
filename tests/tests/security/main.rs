//! Security: what a user with the least rights may do, and what stands in no log.

mod rights;
mod secrets;

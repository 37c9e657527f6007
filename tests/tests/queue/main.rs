//! The scripts of the queue on a real server: against the protocol as a function after every
//! command of random sequences, and where other programs' keys stand in the way.

mod case;
mod comparison;
mod fuzz;
#[path = "../differential/random.rs"]
mod random;
mod server;
mod snapshot;
mod world;

use case::Kind;

#[test]
fn lua_and_rust_agree_on_locks() {
    fuzz::run(Kind::Locks);
}

#[test]
fn lua_and_rust_agree_on_reads_and_writes() {
    fuzz::run(Kind::ReadWrite);
}

#[test]
fn lua_and_rust_agree_on_permits_with_weights() {
    fuzz::run(Kind::Semaphore);
}

#[test]
fn lua_and_rust_agree_where_requests_for_one_name_have_different_limits() {
    fuzz::run(Kind::MixedLimits);
}

#[test]
fn lua_and_rust_agree_when_keys_are_damaged_from_outside() {
    fuzz::run(Kind::Damaged);
}

#[test]
fn lua_and_rust_agree_on_what_is_another_program_s_and_leave_it_alone() {
    fuzz::run(Kind::Strange);
}

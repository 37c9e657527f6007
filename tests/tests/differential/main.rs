//! The scripts of the dialect of Redisson on a real server against its function: after every
//! command of a random sequence, the same answer, the same messages and the same keys. The queue's
//! own are compared by the test binary `queue`.
//!
//! 256 sequences of some 200 commands, or as many as `DIFFERENTIAL_CASES` says, the same at each
//! run unless `DIFFERENTIAL_SEED` is another number. A sequence that fails is shortened before it
//! is shown.

#[path = "../scripts/asking.rs"]
#[expect(dead_code, reason = "the test binary `scripts` uses more of it")]
mod asking;
mod case;
mod company;
mod comparison;
mod fuzz;
#[path = "../scripts/node.rs"]
mod node;
mod peers;
mod random;
mod several;
mod snapshot;
mod world;

use case::Kind;

#[test]
fn lua_and_rust_agree_on_every_command_beside_jvms() {
    fuzz::run(Kind::Jvms, 2);
}

#[test]
fn lua_and_rust_agree_on_every_command_when_keys_are_damaged_from_outside() {
    fuzz::run(Kind::Damaged, 4);
}

#[test]
fn lua_and_rust_agree_on_what_is_another_program_s_and_leave_it_alone() {
    fuzz::run(Kind::Strange, 4);
}

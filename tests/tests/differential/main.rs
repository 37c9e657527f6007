//! The scripts on a real server against the protocol as a function: after every command of a random
//! sequence, the same answer, the same messages and the same keys.

mod case;
mod comparison;
#[path = "../scripts/node.rs"]
mod node;
mod random;
mod snapshot;
mod world;

use case::Kind;

#[tokio::test]
async fn lua_and_rust_agree_on_every_command_of_our_own_nodes() {
    case::run_all(Kind::Own, 1..=24).await;
}

#[tokio::test]
async fn lua_and_rust_agree_on_every_command_with_foreign_members_in_between() {
    case::run_all(Kind::Foreign, 101..=124).await;
}

#[tokio::test]
async fn lua_and_rust_agree_on_every_command_when_keys_are_damaged_from_outside() {
    case::run_all(Kind::Damaged, 201..=216).await;
}

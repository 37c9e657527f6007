//! A renewal or a touch never goes alone: in its script are another program's key and a lock that
//! is not held, now before it and now behind.

use std::fmt::Debug;

use lockcore::LockErrorKind;
use lockcore::internals::{LockName, Member, Presence, Renewed, Reply, StoreError, Touched};

use crate::node::Node;

/// A key of another program.
pub(crate) const STRANGE: &str = "person:1";

pub(crate) async fn renew(
    node: &Node,
    member: &Member,
    by: usize,
) -> Result<Reply<Renewed>, StoreError> {
    let asked = among_others(node, member.clone(), node.member(30_000), by);
    let (answer, other) = apart(node.store.renew(asked).await?, by);
    assert_eq!(other, Renewed::NotHeld);
    answer
}

pub(crate) async fn touch(
    node: &Node,
    members: &[Member],
    by: usize,
) -> Result<Reply<Touched>, StoreError> {
    let stranger = vec![node.member(30_000); 2];
    let asked = among_others(node, members.to_vec(), stranger, by);
    let (answer, other) = apart(node.store.touch(asked).await?, by);
    assert_eq!(other.members, [Presence::Gone; 2]);
    answer
}

fn among_others<T: Clone>(node: &Node, ours: T, other: T, by: usize) -> Vec<(LockName, T)> {
    let (strange, free) = (LockName::from(STRANGE), LockName::from("not held"));
    let mut asked = vec![(strange, other.clone()), (node.lock.clone(), ours), (free, other)];
    asked.rotate_left(by % 3);
    asked
}

/// The answer for the node's lock, and the outcome for the one that is not held.
fn apart<T: Debug>(
    mut each: Vec<Result<Reply<T>, StoreError>>,
    by: usize,
) -> (Result<Reply<T>, StoreError>, T) {
    each.rotate_right(by % 3);
    let [strange, answer, free] = each.try_into().expect("three answers");
    assert_eq!(strange.expect_err("a strange key").kind, LockErrorKind::WrongType);
    (answer, free.expect("answered").outcome)
}

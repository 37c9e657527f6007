//! A renewal or a touch never goes alone: in its script are another program's key and a lock that
//! is not held, now before it and now behind.

use lockcore::LockErrorKind;
use lockcore::internals::{Answer, Command, LockName, Presence, Renewed, StoreError};

use crate::node::Node;

/// A key of another program.
pub(crate) const STRANGE: &str = "person:1";

/// Runs a renewal or a touch of the node's lock.
pub(crate) async fn run(node: &Node, command: &Command, by: usize) -> Result<Answer, StoreError> {
    let stranger = node.member(30_000);
    let other = match command {
        Command::Touch { .. } => Command::Touch { members: vec![stranger.clone(), stranger] },
        _ => Command::Renew { members: vec![stranger] },
    };
    let (strange, free) = (LockName::from(STRANGE), LockName::from("not held"));
    let mut asked = [(&strange, &other), (&node.lock, command), (&free, &other)];
    asked.rotate_left(by % 3);
    let mut each = node.store.run_together(&asked).await?;
    each.rotate_right(by % 3);
    let [strange, answer, free] = each.try_into().expect("three answers");
    assert_eq!(strange.expect_err("a strange key").kind, LockErrorKind::WrongType);
    match free.expect("answered") {
        Answer::Renewed(reply) => assert_eq!(reply.outcome, [Renewed::NotHeld]),
        Answer::Touched(reply) => assert_eq!(reply.outcome.members, [Presence::Gone; 2]),
        other => panic!("{other:?}"),
    }
    answer
}

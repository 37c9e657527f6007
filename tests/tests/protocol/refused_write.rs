//! A server that accepts no writes: nothing may be reported that did not happen.

use proto::{Command, Demand, LockErrorKind, Member, Mode, Presence};
use redis::cmd;

use crate::asking::{acquire, grant, leave, reduce, touch};
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;

facts! {
    scripts: [
        without_enough_replicas_nobody_is_told_of_a_grant_that_was_not_written,
        without_enough_replicas_nothing_is_half_written_and_no_message_is_sent,
        a_replica_does_not_say_that_a_hold_which_it_lacks_is_not_held,
    ],
}

/// All commands that would change something, for a holder, a waiting member and a newcomer.
fn writing(bench: &Bench, holder: &Member, waiting: &Member, newcomer: &Member) -> Vec<Command> {
    let mut commands = vec![
        acquire(newcomer, Mode::Wait, 10),
        Command::Release { member: holder.clone() },
        Command::Renew { members: vec![holder.clone()] },
        Command::Confirm { member: holder.clone() },
        touch(&[waiting]),
        leave(&[(waiting, true), (holder, false)]),
        Command::ForceRelease { member: None },
    ];
    if !bench.side.has_peers() {
        commands.push(reduce(holder));
    }
    commands
}

/// Checks that no command runs, changes a key or sends a message.
async fn are_refused(bench: &mut Bench, node: &Node, commands: &[Command]) {
    let before = bench.everything().await;
    for command in commands {
        let error = node.run(command.clone()).await.expect_err("the server takes no writes");
        assert_eq!(error.kind, LockErrorKind::ReadOnly, "{command:?}: {error:?}");
        assert_eq!(bench.everything().await, before, "{command:?}");
    }
}

// Finding 5.
async fn without_enough_replicas_nobody_is_told_of_a_grant_that_was_not_written(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let behind = a.queue(30_000).await;
    bench.end_lease().await;
    bench.redis().configure("min-replicas-to-write", "1").await;
    let newcomer = a.member(30_000);
    let refused = [
        acquire(&newcomer, Mode::Try, 10),
        acquire(&newcomer, Mode::Wait, 10),
        Command::Release { member: holder },
        touch(&[&behind]),
        leave(&[(&behind, true)]),
        Command::ForceRelease { member: None },
    ];
    are_refused(&mut bench, &a, &refused).await;
    assert_eq!(b.heard().await, []);

    bench.redis().configure("min-replicas-to-write", "0").await;
    let touched = b.touch(&[&waiting]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(grant(&touched).member, waiting);
}

// Finding 5, with a revoked holder.
async fn without_enough_replicas_nothing_is_half_written_and_no_message_is_sent(mut bench: Bench) {
    let all = [Demand::EXCLUSIVE, Demand::READ, Demand::permits(2, 3).expect("two of three")];
    let demands = if bench.side.has_peers() { &all[..1] } else { &all };
    for by in ["NOREPLICAS", "READONLY"] {
        for demand in demands {
            bench.redis().configure("min-replicas-to-write", "0").await;
            let () = bench.redis().ask(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
            bench.restart().await;
            let (a, b) = (bench.node().await, bench.node().await);
            let holder = a.hold_for(*demand, 30_000).await;
            let waiting = b.queue(30_000).await;
            let newcomer = a.member_for(*demand, 30_000);
            let refused = writing(&bench, &holder, &waiting, &newcomer);
            match by {
                "NOREPLICAS" => bench.redis().configure("min-replicas-to-write", "1").await,
                _ => bench.redis().ask(cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await,
            }
            are_refused(&mut bench, &a, &refused).await;
            assert_eq!(a.heard().await, []);
            assert_eq!(b.heard().await, []);
        }
    }
}

// The primary may have the hold.
async fn a_replica_does_not_say_that_a_hold_which_it_lacks_is_not_held(mut bench: Bench) {
    let node = bench.node().await;
    let member = node.member(30_000);
    let () = bench.redis().ask(cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await;
    let renewals = [Command::Renew { members: vec![member.clone()] }, Command::Confirm { member }];
    are_refused(&mut bench, &node, &renewals).await;
}

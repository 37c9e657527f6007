//! A server that takes no writes: nothing may be said that did not happen.

use lockcore::LockErrorKind;
use lockcore::internals::{Command, Demand, Member, Mode, Presence, wire};
use redis::{Value, cmd};

use crate::asking::{acquire, grant, leave, reduce, touch};
use crate::bench::Bench;
use crate::node::Node;

/// All commands that would change something, for a member that holds, one that waits and a new one.
fn writing(holder: &Member, waiting: &Member, newcomer: &Member) -> Vec<Command> {
    vec![
        acquire(newcomer, Mode::Wait, 10),
        Command::Release { member: holder.clone() },
        Command::Renew { members: vec![holder.clone()] },
        Command::Confirm { member: holder.clone() },
        reduce(holder),
        touch(&[waiting]),
        leave(&[(waiting, true), (holder, false)]),
        Command::ForceRelease { member: None },
    ]
}

/// None of these runs, changes a key or sends a message.
async fn are_refused(bench: &mut Bench, node: &Node, commands: &[Command], by: &str) {
    let before = bench.everything().await;
    for command in commands {
        let call = wire::queue::command(&bench.lock, &node.id, "lockcore", command, [0, 0]);
        let refused = bench.redis.try_ask::<Value>(&call).await.expect_err(by);
        // Before Redis 7, an error inside a script comes wrapped in an ERR.
        let wrapped = refused.detail().is_some_and(|said| said.contains(&format!("-{by} ")));
        assert!(refused.code() == Some(by) || wrapped, "{command:?}: {refused}");
        assert_eq!(bench.everything().await, before, "{command:?}");
    }
}

// Finding 5.
#[tokio::test]
async fn without_enough_replicas_nobody_is_told_of_a_grant_that_was_not_written() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let behind = a.queue(30_000).await;
    bench.end_lease().await;
    bench.redis.configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;

    let newcomer = a.member(30_000);
    let refused = [
        acquire(&newcomer, Mode::Try, 10),
        acquire(&newcomer, Mode::Wait, 10),
        Command::Release { member: holder },
        touch(&[&behind]),
        leave(&[(&behind, true)]),
        Command::ForceRelease { member: None },
    ];
    for command in refused {
        let error = a.run(command).await.expect_err("no replica");
        assert_eq!((error.kind, error.may_have_run), (LockErrorKind::ReadOnly, false), "{error:?}");
    }
    assert_eq!(b.heard(&mut bench.redis).await, []);
    assert_eq!(bench.everything().await, before);

    bench.redis.configure("min-replicas-to-write", "0").await;
    let touched = b.touch(&[&waiting]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(grant(&touched).member, waiting);
}

// Finding 5, with somebody to be told off.
#[tokio::test]
async fn without_enough_replicas_nothing_is_half_written_and_no_message_is_sent() {
    for by in ["NOREPLICAS", "READONLY"] {
        for demand in [Demand::ALONE, Demand::READ, Demand::permits(2, 3).expect("two of three")] {
            let mut bench = Bench::start().await;
            let (a, b) = (bench.node().await, bench.node().await);
            let holder = a.hold_for(demand, 30_000).await;
            let waiting = b.queue(30_000).await;
            let refused = writing(&holder, &waiting, &a.member_for(demand, 30_000));
            // The scripts that are rare are not known to the server from the start.
            for name in ["confirm", "reduce", "force_release"] {
                let source = wire::queue::script(name).expect("a script");
                let _: String = bench.redis.ask(cmd("SCRIPT").arg("LOAD").arg(source)).await;
            }
            match by {
                "NOREPLICAS" => bench.redis.configure("min-replicas-to-write", "1").await,
                _ => bench.redis.ask(cmd("REPLICAOF").arg("127.0.0.1").arg(1)).await,
            }
            are_refused(&mut bench, &a, &refused, by).await;
            assert_eq!(a.heard(&mut bench.redis).await, []);
            assert_eq!(b.heard(&mut bench.redis).await, []);
        }
    }
}

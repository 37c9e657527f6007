//! Messages on a node's channel that no script has sent.

use std::time::Duration;

use lock_tests::eventually;
use lockcore::{HoldState, Locks};

use crate::common::{
    LONG, SOON, channel, granted, held, holder, listens, queue, queued, release, setup, soon,
};

fn number(member: &str) -> String {
    member.split(':').nth(1).expect("a member has a number").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_name_nobody_who_waits_grant_nothing() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.direct().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    let member = queue(&mut setup.redis, "k").await.remove(0);
    let node = far.node().to_string();
    let number = number(&member);
    let unknown = number.parse::<u64>().expect("a number") + 4_711;
    let foreign = member.replace(&node, near.node().as_str());
    let messages = [
        "p".to_owned(),
        format!("p {number}"),
        format!("p 5 {number}"),
        format!("p 5 {number} 30000 {number}"),
        format!("p 0 {number} x"),
        format!("p -1 {number} 30000"),
        format!("p 99999999999999999999 {number} 30000"),
        format!("p 1 {number} 0"),
        format!("p 9 {unknown} 30000"),
        format!("p 9 {member} 30000"),
        // The form of a grant in Redisson's layout.
        String::new(),
        "g".to_owned(),
        "hello".to_owned(),
        format!("g {member}"),
        format!("g {member} 5"),
        format!("g {member} 0 x"),
        format!("g {member} -1 30000"),
        format!("g {member} 99999999999999999999 30000"),
        format!("g {member} 1 0"),
        format!("g {foreign} 9 30000"),
        "g someone:1 9 30000".to_owned(),
        format!("r {unknown}"),
        format!("r {foreign}"),
        "\u{0}\u{1}".to_owned(),
    ];
    for message in &messages {
        assert_eq!(setup.redis.publish(&channel(&node), message).await, 1, "{message}");
    }
    // Messages are read in order: the genuine message comes last, and the guard has its token.
    assert!(!waiting.is_finished());
    let before = guard.fencing_token();
    release(guard).await;
    let guard = granted(waiting).await;
    assert!(guard.fencing_token() > before);
    assert_eq!(holder(&mut setup.redis, "k").await, Some(member));
    assert_eq!(far.status().holding, 1);
    assert_eq!(guard.state(), HoldState::Held);
    release(guard).await;
    listens(&mut setup.redis, &node, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_grant_of_a_waiting_member_is_caught_by_confirm_grants() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let builder = Locks::builder().confirm_grants(true);
    let far = soon("a connection", builder.connect(setup.server.url())).await.expect("accepted");
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    let member = queue(&mut setup.redis, "k").await.remove(0);
    let before = lock_tests::CommandStats::read(&mut setup.redis).await.calls("evalsha");
    let forged = format!("p {} {} 30000", guard.fencing_token().get() + 1, number(&member));
    assert_eq!(setup.redis.publish(&channel(far.node().as_str()), &forged).await, 1);
    let redis = &mut setup.redis;
    eventually("it asks the server", SOON, async || {
        lock_tests::CommandStats::read(redis).await.calls("evalsha") > before
    })
    .await;
    assert_eq!(far.status().holding, 0);
    assert!(!waiting.is_finished());
    assert_eq!(guard.state(), HoldState::Held);
    let before = guard.fencing_token().get() + 1;
    release(guard).await;
    let guard = tokio::time::timeout(Duration::from_secs(10), granted(waiting)).await;
    let guard = guard.expect("the true grant is believed");
    assert!(guard.fencing_token().get() > before);
    assert_eq!(holder(&mut setup.redis, "k").await, Some(member));
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_report_that_a_plain_waiter_is_superseded_ends_nothing() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.direct().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    let member = queue(&mut setup.redis, "k").await.remove(0);
    let forged = format!("s {}", number(&member));
    assert_eq!(setup.redis.publish(&channel(far.node().as_str()), &forged).await, 1);
    // Messages are read in order, so the genuine grant arrives after the forged message.
    assert!(!waiting.is_finished());
    release(guard).await;
    let guard = granted(waiting).await;
    assert_eq!(holder(&mut setup.redis, "k").await, Some(member));
    release(guard).await;
}

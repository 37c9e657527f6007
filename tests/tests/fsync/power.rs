//! The proof: a server that loses its power under load.

use lock_tests::chaos::{PowerCost, PowerPlan};

/// The losses in each run of the tests; `LOCK_POWER` says another number, as `scripts/torture` and
/// `scripts/test --all` do.
const ROUNDS: usize = 120;
/// The number of servers at the same time: a round is mostly the second between two fsyncs.
const SERVERS: usize = 8;

/// Plays the losses. Some have to take away bytes that were written: otherwise nothing is proved.
async fn played(fsync: bool) -> PowerCost {
    let rounds = std::env::var("LOCK_POWER").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let seed = std::process::id().into();
    let plan = PowerPlan { rounds, servers: SERVERS, appendfsync: "everysec", fsync, seed };
    let cost = plan.run().await;
    println!("require_fsync({fsync}), seed {seed}: {cost}");
    assert!(cost.cut * 20 >= cost.rounds, "void: {cost}");
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn no_loss_of_power_gives_a_lock_to_two_where_a_grant_waits_for_the_disk() {
    let with = played(true).await;
    assert!(with.grants > with.rounds, "hardly any load: {with}");
    assert_eq!((with.overlaps, with.fallen, with.lost), (0, 0, 0), "{with}");
    // The same load finds what it looks for.
    let without = played(false).await;
    assert!(without.overlaps > 0 && without.lost > 0, "{without}");
}

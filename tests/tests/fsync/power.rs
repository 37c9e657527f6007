//! The proof: a server that loses power under load.

use lock_tests::chaos::{PowerCost, PowerPlan};

/// The number of losses in each run of the tests; `LOCK_POWER` overrides it, as `scripts/test
/// --all` and `scripts/torture` do.
const ROUNDS: usize = 120;
/// The number of servers at the same time: a round is mostly the time between two losses.
const SERVERS: usize = 8;

/// Runs the losses. Some of them must remove written bytes: otherwise nothing is proved.
#[allow(clippy::print_stdout, reason = "scripts/torture reads the line")]
async fn played(appendfsync: &'static str, fsync: bool) -> PowerCost {
    let rounds = std::env::var("LOCK_POWER").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let seed = std::process::id().into();
    // With `always`, bytes are not on the disk only while the server waits for it.
    let in_sync = appendfsync == "always";
    let plan = PowerPlan { rounds, servers: SERVERS, appendfsync, in_sync, fsync, seed };
    let cost = plan.run().await;
    println!("appendfsync {appendfsync}, require_fsync({fsync}), seed {seed}: {cost}");
    assert!(cost.cut * 20 >= cost.rounds, "void: {cost}");
    assert!(cost.grants > cost.rounds, "hardly any load: {cost}");
    cost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Redis 8.2 or newer in REDIS_SERVER: scripts/test --servers"]
async fn no_loss_of_power_gives_a_lock_to_two_with_everysec() {
    let with = played("everysec", true).await;
    assert_eq!((with.overlaps, with.fallen, with.lost), (0, 0, 0), "{with}");
    finds_what_it_looks_for().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn no_loss_of_power_gives_a_lock_to_two_with_always() {
    let with = played("always", true).await;
    assert_eq!((with.overlaps, with.fallen, with.lost), (0, 0, 0), "{with}");
    finds_what_it_looks_for().await;
}

/// The same load where no grant waits for the disk.
async fn finds_what_it_looks_for() {
    let without = played("everysec", false).await;
    assert!(without.overlaps > 0 && without.lost > 0, "{without}");
}

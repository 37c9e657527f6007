//! A quorum primary: its tokens continue above those of the other primaries, and an emptied primary
//! draws no value before a process has begun an epoch.

use proto::wire::TokenFloors;
use proto::{Command, Demand, Mode};

use crate::asking::{acquire, grant, token_of};
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    queue: [a_primary_goes_on_from_the_tokens_of_the_others_and_not_from_its_clock],
    queue_scripts: [a_primary_without_its_counter_draws_no_number_and_says_so],
}

/// µs between the values of two primaries, and from there to the clock.
const APART_US: u64 = 60_000_000;

const DEMANDS: [Demand; 2] = [Demand::EXCLUSIVE, Demand::READ];

fn of_a_primary(floor_us: u64, epoch_us: u64) -> TokenFloors {
    TokenFloors { floor_us, elsewhere_us: 0, latest_us: floor_us, epoch_us }
}

async fn a_primary_goes_on_from_the_tokens_of_the_others_and_not_from_its_clock(mut bench: Bench) {
    let epoch_us = bench.now_ms().await * 1_000 - 9 * APART_US;
    bench.become_primary(epoch_us);
    bench.set_counter(Some(epoch_us)).await;
    let (a, b) = (bench.node().await, bench.node().await);
    let mut ahead_us = epoch_us;
    let mut others_are_ahead = || {
        ahead_us += APART_US;
        a.set_token_floors(of_a_primary(ahead_us, epoch_us));
        b.set_token_floors(of_a_primary(ahead_us, epoch_us));
        ahead_us + 1
    };

    for demand in [Demand::EXCLUSIVE, Demand::READ, permits(1, 2)] {
        let token = others_are_ahead();
        let member = a.member_for(demand, 30_000);
        assert_eq!(grant(&a.wait(&member).await).token.get(), token, "{demand}");
        a.release(&member).await;
    }
    let token = others_are_ahead();
    let holder = a.member(30_000);
    assert_eq!(grant(&a.wait(&holder).await).token.get(), token, "free");
    let token = others_are_ahead();
    assert_eq!(grant(&a.confirm(&holder).await).token.get(), token, "confirmed");
    others_are_ahead();
    b.queue(30_000).await;
    let token = others_are_ahead();
    a.release(&holder).await;
    let heard = b.heard().await;
    assert_eq!(token_of(&heard[0]), token, "handed over: {heard:?}");
    assert_eq!(bench.counter().await, token);
}

// Also with a lock key: then only the counter was removed, and its epoch is over all the same.
async fn a_primary_without_its_counter_draws_no_number_and_says_so(mut bench: Bench) {
    let epoch_us = bench.now_ms().await * 1_000 - APART_US;
    bench.become_primary(epoch_us);
    let (a, b) = (bench.node().await, bench.node().await);
    for node in [&a, &b] {
        node.set_token_floors(of_a_primary(epoch_us, epoch_us));
    }
    let asked = |mode| DEMANDS.map(|demand| acquire(&a.member_for(demand, 30_000), mode, 10));
    refuses_all(&mut bench, &a, &[asked(Mode::Wait), asked(Mode::Try)].concat()).await;
    bench.set_counter(Some(epoch_us)).await;
    let holder = a.hold(30_000).await;
    b.queue(30_000).await;
    let release = Command::Release { member: holder.clone() };
    let drawing =
        [&[Command::Confirm { member: holder }, release][..], &asked(Mode::Wait)].concat();
    refuses_all(&mut bench, &a, &drawing).await;
    // A further read would have the token of the first.
    bench.set_counter(Some(epoch_us)).await;
    for _holder in 0..2 {
        a.force_release().await;
    }
    let reader = a.member_for(Demand::READ, 30_000);
    grant(&a.wait(&reader).await);
    let again = a.member_for(Demand::READ, 30_000);
    let shared = [Mode::Wait, Mode::Try].map(|mode| acquire(&again, mode, 10));
    refuses_all(&mut bench, &a, &shared).await;
}

async fn refuses_all(bench: &mut Bench, node: &Node, commands: &[Command]) {
    for another in [false, true] {
        bench.set_counter(None).await;
        if another {
            // Another program's key at that name is not of the epoch either.
            let key = bench.counter_key();
            let () = bench.redis().ask(redis::cmd("SET").arg(key).arg("text")).await;
        }
        let before = bench.everything().await;
        for command in commands {
            let error = node.run(command.clone()).await.expect_err("its epoch is over");
            assert!(error.detail.contains("FORGOTTEN"), "{command:?}: {error:?}");
        }
        assert_eq!(bench.everything().await, before);
    }
}

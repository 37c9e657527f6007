//! The values of one counter: shared tokens of parts, tokens above all token floors, and positions.

use proto::wire::TokenFloors;
use proto::{Demand, Event, Renewed};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::parts::permits;

facts! {
    queue: [
        a_token_is_above_the_floor_whatever_becomes_of_the_counter,
        a_token_of_a_lost_counter_is_above_the_server_s_time,
        reads_that_are_held_together_share_a_token_and_later_ones_have_a_new_one,
        parts_share_no_token_from_before_a_failover,
        the_head_gets_no_token_from_before_a_failover,
        who_asks_for_a_part_s_token_gets_none_from_before_a_failover,
        readers_of_one_run_share_a_token_and_a_lock_has_one_above_all_before_it,
        a_score_is_drawn_from_the_counter_of_tokens,
    ],
}

const DEMANDS: [Demand; 2] = [Demand::EXCLUSIVE, Demand::READ];

async fn a_token_is_above_the_floor_whatever_becomes_of_the_counter(mut bench: Bench) {
    let a = bench.node().await;
    for demand in DEMANDS {
        let floor_us = (bench.now_ms().await + 5_000) * 1_000;
        let lost = [None, Some(5), Some(floor_us - 1)];
        let too_great = [Some((1 << 53) - 1), Some(1 << 53)];
        for counter in lost.into_iter().chain(too_great).chain([Some(floor_us)]) {
            bench.set_counter(counter).await;
            a.set_seen(floor_us);
            let member = a.member_for(demand, 30_000);
            let token = grant(&a.wait(&member).await).token.get();
            assert_eq!(token, floor_us + 1, "{demand} at {counter:?}");
            a.release(&member).await;
        }
        bench.set_counter(Some(floor_us + 77)).await;
        let member = a.member_for(demand, 30_000);
        assert_eq!(grant(&a.wait(&member).await).token.get(), floor_us + 78, "{demand}");
        a.release(&member).await;
    }
}

async fn a_token_of_a_lost_counter_is_above_the_server_s_time(mut bench: Bench) {
    let a = bench.node().await;
    for demand in DEMANDS {
        bench.set_counter(None).await;
        a.set_seen(1);
        let now_us = bench.now_ms().await * 1_000;
        let member = a.member_for(demand, 30_000);
        assert!(grant(&a.wait(&member).await).token.get() > now_us, "{demand}");
        a.release(&member).await;
    }
}

async fn reads_that_are_held_together_share_a_token_and_later_ones_have_a_new_one(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut reads = Vec::new();
    let mut tokens = Vec::new();
    for node in [&a, &b, &a] {
        if reads.len() == 2 {
            node.release(&reads[0]).await;
        }
        let read = node.member_for(Demand::READ, 30_000);
        tokens.push(grant(&node.wait(&read).await).token);
        reads.push(read);
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    b.release(&reads[1]).await;
    a.release(&reads[2]).await;
    let later = grant(&a.wait(&a.member_for(Demand::READ, 30_000)).await).token;
    assert!(later > tokens[0]);
}

fn of_another_server(token: u64) -> TokenFloors {
    TokenFloors { floor_us: token, elsewhere_us: token, latest_us: token, epoch_us: 0 }
}

async fn parts_share_no_token_from_before_a_failover(mut bench: Bench) {
    for demand in [Demand::READ, permits(1, 3)] {
        bench.restart().await;
        let a = bench.node().await;
        let first = grant(&a.wait(&a.member_for(demand, 30_000)).await).token;
        a.set_token_floors(of_another_server(first.get()));
        assert!(grant(&a.wait(&a.member_for(demand, 30_000)).await).token > first, "{demand}");
    }
}

async fn the_head_gets_no_token_from_before_a_failover(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold_for(permits(1, 2), 30_000).await;
    a.hold_for(permits(1, 2), 30_000).await;
    let head = a.queue_for(permits(1, 2), 30_000).await;
    a.queue_for(permits(1, 2), 30_000).await;
    let (_, shared) = bench.shared().await;
    a.release(&holder).await;
    assert_eq!(bench.shared().await.1, shared, "of the same server");
    a.set_token_floors(of_another_server(shared));
    a.release(&head).await;
    let (_, new) = bench.shared().await;
    assert!(new > shared, "{new} after {shared}, which was issued elsewhere");
}

async fn who_asks_for_a_part_s_token_gets_none_from_before_a_failover(mut bench: Bench) {
    for which in 0..4 {
        bench.restart().await;
        let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
        a.hold_for(Demand::READ, 30_000).await;
        let lock = c.queue(30_000).await;
        let read = b.queue_for(Demand::READ, 30_000).await;
        let (_, shared) = bench.shared().await;
        // The other node has not seen the tokens of the earlier server.
        c.leave(&lock).await;
        assert_eq!(bench.shared().await, (2, shared));
        b.set_token_floors(of_another_server(shared + 5));
        let token = match which {
            0 => grant(&b.confirm(&read).await).token,
            1 => grant(&b.wait(&read).await).token,
            2 => grant(&b.touch(&[&read]).await).token,
            _ => grant(&b.reduce(&read).await).token,
        };
        assert!(token.get() > shared + 5, "{which}: {token} after {shared} and 5 more");
        assert_eq!(bench.shared().await, (2, token.get()), "{which}");
    }
}

async fn readers_of_one_run_share_a_token_and_a_lock_has_one_above_all_before_it(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let read = a.member_for(Demand::READ, 30_000);
    let reads = grant(&a.wait(&read).await).token;
    let lock = b.queue(30_000).await;
    a.queue_for(Demand::READ, 30_000).await;
    a.queue_for(Demand::READ, 30_000).await;
    a.release(&read).await;
    let heard = b.heard().await;
    let [Event::Granted { token: of_lock, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert!(*of_lock > reads);
    b.release(&lock).await;
    let (used, later) = bench.shared().await;
    assert!(used == 2 && later > of_lock.get());
    let joining = b.member_for(Demand::READ, 30_000);
    assert_eq!(grant(&b.wait(&joining).await).token.get(), later);
    assert_eq!(b.confirm(&joining).await.outcome, [Renewed::Held]);
}

async fn a_score_is_drawn_from_the_counter_of_tokens(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.member(30_000);
    let token = grant(&a.wait(&holder).await).token.get();
    let next = a.queue(30_000).await;
    let (mut state, _) = bench.state().await;
    assert_eq!(state.of_queue().queue.get(&next), Some(token + 1));
    bench.set_counter(Some(5)).await;
    let last = a.queue(30_000).await;
    let (mut state, _) = bench.state().await;
    assert!(state.of_queue().queue.get(&last) > Some(token + 1));
}

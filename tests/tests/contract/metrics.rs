//! The values of the metrics, and the complete list of metrics in the manual.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use futures_util::poll;
use lock_tests::{Delay, LIMIT, Raw, RedisServer, eventually, eventually_some};
use lockcore::{Acquire, LockErrorKind, LockGuard, Locks, MemoryStore, Quorum, WhenBusy};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redis::cmd;

use crate::backend::{SOON, granted, ms, until_waiting, wait_as};

/// Runs `work` on one thread and in paused time, with two nodes on one in-memory store. Returns the
/// resulting metrics.
fn measured(work: impl AsyncFnOnce(Locks, Locks)) -> String {
    recorded(true, async |recorded| {
        let store = MemoryStore::new();
        let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
        work(a, b).await;
        recorded.render()
    })
}

/// Runs `work` on one thread; it can read the metrics so far.
fn recorded<T>(is_paused: bool, work: impl AsyncFnOnce(PrometheusHandle) -> T) -> T {
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(is_paused).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(recorder.handle())))
}

/// The value of a counter, or the number of values in a histogram, over all classes; 0 if there is
/// none.
fn count(measured: &str, name: &str) -> u64 {
    let is_end = |c: char| c == ' ' || c == '{';
    let lines = measured.lines().filter(|line| line.starts_with(name));
    let values = lines.filter(|line| line[name.len()..].starts_with(is_end));
    values
        .map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>().expect("a count"))
        .sum()
}

/// The value with exactly these labels, if it was ever set.
fn value(measured: &str, name: &str) -> Option<f64> {
    let value = measured.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse().expect("a number"))
}

/// The lines of the counters above zero.
fn counted(measured: &str) -> BTreeSet<&str> {
    let names = |line: &&str| line.starts_with("lockcore_") && line.contains("_total");
    measured.lines().filter(names).filter(|line| !line.ends_with(" 0")).collect()
}

/// The gauges of a class: waiting, holding, and the oldest of each in whole seconds.
fn gauges(measured: &str, class: &str) -> Option<[u64; 4]> {
    let names = ["waiting", "holding", "oldest_wait_seconds", "oldest_hold_seconds"];
    let of = |name| value(measured, &format!("lockcore_{name}{{class=\"{class}\"}}"));
    let [Some(waiting), Some(holding), Some(wait), Some(hold)] = names.map(of) else { return None };
    Some([waiting as u64, holding as u64, wait as u64, hold as u64])
}

#[test]
fn a_hand_over_counts_as_one_and_a_grant_of_a_free_lock_does_not() {
    let free = measured(async |a, _| a.lock("key").await.unwrap().release().await.unwrap());
    assert_eq!(count(&free, "lockcore_hand_offs_total"), 0);
    assert_eq!(count(&free, "lockcore_wait_seconds_count"), 1);
    assert_eq!(count(&free, "lockcore_queue_length_count"), 0);

    let handed_over = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        let waiting = wait_as(1, &b, "key").await;
        guard.release().await.expect("held");
        granted(waiting).await.release().await.expect("held");
    });
    assert_eq!(count(&handed_over, "lockcore_hand_offs_total"), 1);
    assert_eq!(count(&handed_over, "lockcore_wait_seconds_count"), 2);
    assert_eq!(count(&handed_over, "lockcore_hold_seconds_count"), 2);
    assert_eq!(count(&handed_over, "lockcore_queue_length_count"), 1);
}

#[test]
fn an_acquire_that_ends_without_the_lock_counts_by_its_cause() {
    let refused = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        assert!(b.try_lock("key").await.expect("an answer").is_none());
        for _ in 0..2 {
            let error = b.lock_timeout("key", ms(100)).await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::Timeout);
        }
        let mut waiting = Box::pin(b.lock("key"));
        assert!(poll!(waiting.as_mut()).is_pending());
        let error = b.key("key").queue_limit(1).lock().await.expect_err("full");
        assert_eq!(error.kind(), LockErrorKind::QueueFull);
        // A caller that cancels was not refused.
        drop(waiting);
        let newest = || b.key("key").when_busy(WhenBusy::KeepNewest);
        let mut older = Box::pin(newest().lock());
        assert!(poll!(older.as_mut()).is_pending());
        let newer = tokio::spawn(newest().lock());
        assert_eq!(older.await.expect_err("a newer one").kind(), LockErrorKind::Superseded);
        drop(guard);
        granted(newer).await.release().await.expect("held");
    });
    let of = |cause| {
        let name = format!("lockcore_refused_total{{cause=\"{cause}\",class=\"default\"}}");
        value(&refused, &name)
    };
    assert_eq!([of("busy"), of("timeout"), of("queue_full")], [Some(1.0), Some(2.0), Some(1.0)]);
    assert_eq!(of("superseded"), Some(1.0));
    assert_eq!(count(&refused, "lockcore_cancelled_total"), 1);
    let named = |line: &&&str| line.starts_with("lockcore_refused_total{");
    assert_eq!(counted(&refused).iter().filter(named).count(), 4, "{refused}");
}

#[test]
fn each_class_has_its_own_waits_holds_and_ends() {
    let rendered = measured(async |a, b| {
        let guard = a.key("key").class("orders").lock().await.expect("free");
        let waiting = tokio::spawn(b.key("key").class("wallet").lock());
        until_waiting(1, &b, "key").await;
        let mut cancelled = Box::pin(b.key("key").class("reports").lock());
        assert!(poll!(cancelled.as_mut()).is_pending());
        drop(cancelled);
        assert!(a.force_release("key").await.expect("an answer"));
        guard.lost().await;
        drop(guard);
        granted(waiting).await.release().await.expect("held");
    });
    let classes = |name: &str| -> Vec<&str> {
        let prefix = format!("lockcore_{name}{{class=\"");
        let lines = rendered.lines().filter(|line| !line.ends_with(" 0"));
        let lines = lines.filter_map(|line| line.strip_prefix(&prefix));
        lines.map(|line| line.split('"').next().expect("a class")).collect()
    };
    let sorted = |name| {
        let mut classes = classes(name);
        classes.sort_unstable();
        classes
    };
    assert_eq!(sorted("wait_seconds_count"), ["orders", "wallet"]);
    assert_eq!(sorted("hold_seconds_count"), ["orders", "wallet"]);
    assert_eq!(sorted("queue_length_count"), ["reports", "wallet"]);
    assert_eq!(sorted("lost_total"), ["orders"]);
    assert_eq!(sorted("cancelled_total"), ["reports"]);
}

#[test]
fn a_predicted_wait_counts_by_its_error_and_an_early_refusal_by_its_cause() {
    let rendered = measured(async |a, _| {
        let early = || a.key("key").class("orders").wait(ms(60_000)).refuse_early(true);
        for _ in 0..100 {
            let guard = early().lock().await.expect("free");
            tokio::time::sleep(ms(10)).await;
            guard.release().await.expect("held");
        }
        let guard = a.lock("key").await.expect("free");
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(early().lock())).collect();
        for wait in &mut waits {
            assert!(poll!(wait.as_mut()).is_pending());
        }
        let error = early().wait(ms(1)).lock().await.expect_err("three are ahead");
        assert_eq!(error.kind(), LockErrorKind::WaitTooLong);
        tokio::time::sleep(ms(1_000)).await;
        drop(guard);
        for wait in waits {
            wait.await.expect("its turn").release().await.expect("held");
        }
    });
    let name = |name: &str| format!("lockcore_{name}{{class=\"orders\"}}");
    // Nobody had to wait in the first hundred.
    assert_eq!(value(&rendered, &name("wait_prediction_error_seconds_count")), Some(3.0));
    // Expected: 0, 10 and 20 ms. It used to be a second each.
    let sum = value(&rendered, &name("wait_prediction_error_seconds_sum")).expect("it is there");
    assert!((-3.1..-2.9).contains(&sum), "{sum}");
    let refused = "lockcore_refused_total{cause=\"wait_too_long\",class=\"orders\"}";
    assert_eq!(value(&rendered, refused), Some(1.0), "{rendered}");
}

#[test]
fn gauges_show_the_waits_and_holds_of_a_class_and_the_oldest_of_each() {
    recorded(true, async |recorded| {
        let locks = Locks::in_memory();
        let guard = locks.key("key").class("orders").lock().await.expect("free");
        let mut waits = Vec::new();
        for _ in 0..3 {
            let mut wait = Box::pin(locks.key("key").class("wallet").lock());
            assert!(poll!(wait.as_mut()).is_pending());
            waits.push(wait);
        }
        tokio::time::sleep(ms(10_500)).await;
        let rendered = recorded.render();
        let [waiting, holding, oldest_wait, oldest_hold] =
            gauges(&rendered, "wallet").expect("set");
        assert_eq!([waiting, holding, oldest_hold], [3, 0, 0]);
        assert!((9..=10).contains(&oldest_wait), "{oldest_wait}");
        let [waiting, holding, oldest_wait, oldest_hold] =
            gauges(&rendered, "orders").expect("set");
        assert_eq!([waiting, holding, oldest_wait], [0, 1, 0]);
        assert!((9..=10).contains(&oldest_hold), "{oldest_hold}");
        drop((waits, guard));
    });
}

/// Begins a wait and a hold, ends both, and asserts that all gauges are zero soon after.
fn is_zero_after(
    end: impl AsyncFnOnce(&mut Option<Locks>, Pin<Box<Acquire>>, LockGuard),
    is_connected: bool,
) {
    recorded(true, async |recorded| {
        let mut locks = Some(Locks::builder().namespace("shop").in_memory().expect("in range"));
        let (guard, wait) = {
            let locks = locks.as_ref().expect("it is there");
            let guard = locks.lock("key").await.expect("free");
            let mut wait = Box::pin(locks.lock("key"));
            assert!(poll!(wait.as_mut()).is_pending());
            (guard, wait)
        };
        tokio::time::sleep(ms(1_500)).await;
        let of = |name: &str| {
            let labels = "class=\"default\",lock_namespace=\"shop\"";
            value(&recorded.render(), &format!("lockcore_{name}{{{labels}}}")).expect("it is set")
        };
        assert_eq!([of("waiting"), of("holding")], [1.0, 1.0]);
        end(&mut locks, wait, guard).await;
        tokio::time::sleep(ms(1_500)).await;
        for name in ["waiting", "holding", "oldest_wait_seconds", "oldest_hold_seconds"] {
            assert_eq!(of(name), 0.0, "{name}");
        }
        let rendered = recorded.render();
        assert_eq!(value(&rendered, "lockcore_releasing{lock_namespace=\"shop\"}"), Some(0.0));
        let connected = "lockcore_connected{connection=\"commands\",lock_namespace=\"shop\"}";
        let connected = value(&rendered, connected).expect("it is set");
        assert!(if is_connected { connected == 1.0 } else { connected.is_nan() }, "{connected}");
    });
}

#[test]
fn gauges_are_zero_once_nothing_waits_or_holds() {
    is_zero_after(async |_, wait, guard| drop((wait, guard)), true);
    is_zero_after(
        async |_, wait, guard| {
            guard.release().await.expect("held");
            wait.await.expect("its turn").release().await.expect("held");
        },
        true,
    );
}

#[test]
fn gauges_are_zero_after_the_end_of_a_locks() {
    is_zero_after(async |locks, wait, guard| drop((wait, guard, locks.take())), false);
    is_zero_after(async |locks, wait, guard| drop((locks.take(), guard, wait)), false);
}

// For example in the state of a router, or in a static.
#[test]
fn a_locks_that_was_shut_down_is_not_shown_as_disconnected_although_a_clone_lives_on() {
    is_zero_after(
        async |locks, wait, guard| {
            drop((wait, guard));
            locks.as_ref().expect("it is there").shutdown(SOON).await;
        },
        false,
    );
    recorded(false, async |recorded| {
        let server = RedisServer::start();
        let locks = Locks::connect(server.url()).await.expect("it runs");
        let connected = || {
            let of = |of| format!("lockcore_connected{{connection=\"{of}\"}}");
            let rendered = recorded.render();
            ["commands", "subscription"].map(|name| value(&rendered, &of(name)))
        };
        eventually("it is set", SOON, async || connected() == [Some(1.0); 2]).await;
        locks.shutdown(SOON).await;
        let is_nan = |value: Option<f64>| value.is_some_and(f64::is_nan);
        eventually("it is set", SOON, async || connected().into_iter().all(is_nan)).await;
        assert_eq!(value(&recorded.render(), "lockcore_servers_down"), Some(0.0));
        drop(locks);
    });
}

#[test]
fn gauges_are_zero_after_the_end_of_a_runtime() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        let guard = runtime.block_on(async {
            let locks = Locks::in_memory();
            let guard = locks.lock("key").await.expect("free");
            tokio::time::sleep(ms(1_500)).await;
            (locks, guard)
        });
        assert_eq!(gauges(&recorder.handle().render(), "default"), Some([0, 1, 0, 1]));
        drop(runtime);
        assert_eq!(gauges(&recorder.handle().render(), "default"), Some([0; 4]));
        drop(guard);
    });
}

#[test]
fn a_gauge_tells_the_round_trip_of_the_last_answer() {
    recorded(false, async |recorded| {
        let server = RedisServer::start();
        let delay = Delay::start(server.address(), ms(20));
        let locks = Locks::connect(&format!("redis://{}", delay.address())).await.expect("it runs");
        let guard = locks.lock("key").await.expect("free");
        let round_trip = async || {
            let name = "lockcore_round_trip_seconds";
            value(&recorded.render(), name).filter(|seconds| *seconds > 0.0)
        };
        let seconds = eventually_some("it is set", SOON, round_trip).await;
        assert!(seconds >= 0.04, "{seconds}");
        drop(guard);
    });
}

#[test]
fn an_idle_node_sets_no_gauge() {
    recorded(true, async |recorded| {
        let locks = Locks::in_memory();
        locks.lock("key").await.expect("free").release().await.expect("held");
        tokio::time::sleep(ms(2_500)).await;
        metrics::gauge!("lockcore_releasing").set(7.0);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(value(&recorded.render(), "lockcore_releasing"), Some(7.0));
        // The next request is seen at once.
        let guard = locks.lock("key").await.expect("free");
        tokio::time::sleep(ms(100)).await;
        assert_eq!(value(&recorded.render(), "lockcore_releasing"), Some(0.0));
        drop(guard);
    });
}

#[test]
fn gauges_show_a_lost_connection_and_the_age_of_a_wait_without_one() {
    recorded(false, async |recorded| {
        let mut server = RedisServer::start();
        let locks = Locks::connect(server.url()).await.expect("a node connects");
        let connected = async |is_up: f64| {
            eventually("it is told", SOON, async || {
                let rendered = recorded.render();
                let of =
                    |of| value(&rendered, &format!("lockcore_connected{{connection=\"{of}\"}}"));
                [of("commands"), of("subscription")] == [Some(is_up); 2]
            })
            .await;
        };
        connected(1.0).await;
        server.kill();
        connected(0.0).await;
        // The wait is backing off, and nothing else is due.
        let mut wait = Box::pin(locks.lock("key"));
        assert!(poll!(wait.as_mut()).is_pending());
        eventually("its age grows", SOON, async || {
            gauges(&recorded.render(), "default").is_some_and(|[_, _, age, _]| age >= 3)
        })
        .await;
        drop(wait);
        eventually("it is gone", SOON, async || {
            gauges(&recorded.render(), "default").is_some_and(|seen| seen == [0; 4])
        })
        .await;
    });
}

#[test]
fn renewals_and_losses_are_counted() {
    let lost = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(b.force_release("key").await.expect("an answer"));
        guard.lost().await;
    });
    assert_eq!(count(&lost, "lockcore_lost_total"), 1);
    // Renewals are a third of 30 s apart, or up to a thirtieth less.
    let renewed = count(&lost, "lockcore_renewals_total{outcome=\"renewed\"}");
    assert!((5..=7).contains(&renewed), "{renewed}");
    assert_eq!(count(&lost, "lockcore_renewals_total{outcome=\"failed\"}"), 0);
}

// The LockLost alert reads this counter. A server that evicts lock keys would break exclusion
// unseen, because most holds end before their next renewal.
#[test]
fn a_loss_found_by_the_release_is_counted_once_for_a_release_and_for_a_drop() {
    let server = RedisServer::start();
    let lost = recorded(false, async |recorded| {
        let mut redis = Raw::connect(&server.url()).await;
        let locks = Locks::connect(&server.url()).await.expect("a server");
        let guard = locks.lock("one").await.expect("free");
        redis.ask::<()>(cmd("DEL").arg("lock:{one}")).await;
        assert_eq!(guard.release().await.expect_err("gone").kind(), LockErrorKind::Lost);
        let guard = locks.lock("two").await.expect("free");
        redis.ask::<()>(cmd("DEL").arg("lock:{two}")).await;
        drop(guard);
        eventually("two losses are counted", LIMIT, async || {
            count(&recorded.render(), "lockcore_lost_total") == 2
        })
        .await;
        locks.lock("three").await.expect("free").release().await.expect("held");
        recorded.render()
    });
    assert_eq!(count(&lost, "lockcore_lost_total"), 2);
}

#[test]
fn a_loss_found_by_the_release_of_a_batch_counts_for_the_class_of_the_last_guard() {
    let server = RedisServer::start();
    recorded(false, async |recorded| {
        let mut redis = Raw::connect(&server.url()).await;
        let [a, b] = [Locks::connect(&server.url()).await, Locks::connect(&server.url()).await]
            .map(|locks| locks.expect("a server"));
        let guard = b.lock("key").await.expect("free");
        let waiting = ["orders", "wallet"].map(|class| a.key("key").class(class));
        let mut served = Vec::new();
        for (number, request) in (1..).zip(waiting) {
            served.push(tokio::spawn(request.lock()));
            until_waiting(number, &b, "key").await;
        }
        guard.release().await.expect("held");
        let [first, second] = served.try_into().expect("two");
        granted(first).await.release().await.expect("held");
        let last = granted(second).await;
        redis.ask::<()>(cmd("DEL").arg("lock:{key}")).await;
        assert_eq!(last.release().await.expect_err("gone").kind(), LockErrorKind::Lost);
        let rendered = recorded.render();
        assert_eq!(count(&rendered, "lockcore_lost_total"), 1);
        assert_eq!(value(&rendered, "lockcore_lost_total{class=\"wallet\"}"), Some(1.0));
    });
}

#[test]
fn a_loss_found_by_the_release_of_a_quorum_hold_is_counted_once() {
    let servers = [(); 3].map(|()| RedisServer::start());
    recorded(false, async |recorded| {
        let quorum = || Quorum::new(servers.iter().map(RedisServer::url));
        Locks::builder().init_quorum(quorum()).await.expect("they are new");
        let locks = Locks::connect(quorum()).await.expect("three primaries");
        let guard = locks.lock("key").await.expect("free");
        for server in &servers {
            let mut redis = Raw::connect(&server.url()).await;
            eventually("it is held", LIMIT, async || redis.exists("lock:{key}").await).await;
            redis.ask::<()>(cmd("DEL").arg("lock:{key}")).await;
        }
        assert_eq!(guard.release().await.expect_err("gone").kind(), LockErrorKind::Lost);
        assert_eq!(value(&recorded.render(), "lockcore_lost_total{class=\"default\"}"), Some(1.0));
    });
}

#[test]
fn a_request_to_a_quorum_and_its_hold_count_once_and_by_their_class() {
    let rendered = recorded(true, async |recorded| {
        let stores: Vec<_> = (0..3).map(|_| MemoryStore::new()).collect();
        let on_quorum = || Locks::builder().on_memory_quorum(&stores).expect("three stores");
        let [a, b] = [on_quorum(), on_quorum()];
        let guard = a.key("key").class("orders").lock().await.expect("free");
        assert!(b.key("key").class("wallet").try_lock().await.expect("an answer").is_none());
        let wait = b.key("key").class("wallet").wait(ms(100)).lock();
        assert_eq!(wait.await.expect_err("held").kind(), LockErrorKind::Timeout);
        let mut cancelled = Box::pin(b.key("key").class("reports").lock());
        assert!(poll!(cancelled.as_mut()).is_pending());
        drop(cancelled);
        guard.release().await.expect("held");
        let guard = b.key("key").class("wallet").lock().await.expect("free");
        assert!(a.force_release("key").await.expect("an answer"));
        guard.lost().await;
        drop(guard);
        // A leak is neither a loss nor a refusal.
        let leaked = a.lock("other").await.expect("free");
        let again = leaked.reenter().expect("held");
        leaked.leak();
        again.release().await.expect_err("it was leaked");
        recorded.render()
    });
    let of_requests = ["lost_total", "refused_total", "cancelled_total"];
    let counted: BTreeSet<_> = counted(&rendered)
        .into_iter()
        .filter(|line| of_requests.iter().any(|name| line.contains(name)))
        .collect();
    let expected = [
        "lockcore_cancelled_total{class=\"reports\"} 1",
        "lockcore_lost_total{class=\"wallet\"} 1",
        "lockcore_refused_total{cause=\"busy\",class=\"wallet\"} 1",
        "lockcore_refused_total{cause=\"timeout\",class=\"wallet\"} 1",
    ];
    assert_eq!(counted, BTreeSet::from(expected), "{rendered}");
    for name in ["wait", "hold"] {
        let of = |class| {
            value(&rendered, &format!("lockcore_{name}_seconds_count{{class=\"{class}\"}}"))
        };
        assert_eq!([of("orders"), of("wallet"), of("quorum")], [Some(1.0), Some(1.0), None]);
        assert_eq!(of("default"), Some(1.0), "{name}");
    }
}

#[test]
fn each_primary_of_a_quorum_has_its_own_gauges() {
    recorded(true, async |recorded| {
        let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
        let guard = locks.key("key").class("orders").lock().await.expect("free");
        tokio::time::sleep(ms(1_500)).await;
        let rendered = recorded.render();
        let of = |primary, name: &str, label: &str| {
            value(&rendered, &format!("lockcore_{name}{{{label},primary=\"{primary}\"}}"))
        };
        for primary in 1..=3 {
            assert_eq!(of(primary, "connected", "connection=\"commands\""), Some(1.0));
        }
        assert_eq!(of(1, "holding", "class=\"orders\""), Some(1.0));
        assert_eq!(of(2, "holding", "class=\"quorum\""), Some(1.0));
        assert_eq!(value(&rendered, "lockcore_holding{class=\"orders\"}"), None);
        drop(guard);
    });
}

// A process that starts meanwhile must not end the alert.
#[test]
fn a_quorum_primary_that_is_away_at_the_start_is_shown_as_disconnected_until_it_is_back() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    recorded(false, async |recorded| {
        let quorum = || Quorum::new(servers.iter().map(RedisServer::url));
        Locks::builder().init_quorum(quorum()).await.expect("they are new");
        let (quorum, first) = (quorum(), &mut servers[0]);
        first.kill();
        let locks = Locks::builder().namespace("shop").connect(quorum).await.expect("two of three");
        let is_connected = || {
            let labels = "connection=\"commands\",lock_namespace=\"shop\",primary=\"1\"";
            value(&recorded.render(), &format!("lockcore_connected{{{labels}}}"))
        };
        assert_eq!(is_connected(), Some(0.0));
        first.restart();
        eventually("it is connected", LIMIT, async || is_connected() == Some(1.0)).await;
        drop(locks);
    });
}

// A label of such a name is renamed: with several `Locks` in a pod, a query mixes up their gauges.
#[test]
fn no_label_is_one_that_prometheus_sets_by_itself_on_kubernetes() {
    let rendered = recorded(true, async |recorded| {
        let locks = Locks::builder().namespace("shop").in_memory_quorum(3).expect("3 stores");
        let guard = locks.lock("key").await.expect("free");
        tokio::time::sleep(ms(1_500)).await;
        drop(guard);
        recorded.render()
    });
    assert!(rendered.contains("=\"shop\",primary=\"3\""), "{rendered}");
    for label in ["job", "instance", "namespace", "pod", "container", "service", "endpoint", "node"]
    {
        for before in ['{', ','] {
            assert!(!rendered.contains(&format!("{before}{label}=\"")), "{label}: {rendered}");
        }
    }
}

/// The gauge of a connection to the first primary of a quorum; `quorum` if it counts.
fn of_first(recorded: &PrometheusHandle, connection: &str) -> Option<f64> {
    let labels = format!("connection=\"{connection}\",primary=\"1\"");
    value(&recorded.render(), &format!("lockcore_connected{{{labels}}}"))
}

// The quorum has no reserve then.
#[test]
fn a_quorum_primary_that_is_connected_but_does_not_count_is_shown_as_missing() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    recorded(false, async |recorded| {
        let max_lease = Duration::from_secs(2);
        let quorum = Quorum::new(servers.iter().map(RedisServer::url)).max_lease(max_lease);
        let builder = || Locks::builder().lease(max_lease);
        builder().init_quorum(quorum.clone()).await.expect("they are new");
        let locks = builder().connect(quorum.clone()).await.expect("three");
        assert_eq!(of_first(&recorded, "quorum"), Some(1.0));
        servers[0].restart();
        eventually("it is connected, and does not count", LIMIT, async || {
            drop(locks.lock("key").await.expect("two of three"));
            of_first(&recorded, "commands") == Some(1.0)
                && of_first(&recorded, "quorum") == Some(0.0)
        })
        .await;
        eventually("it counts", LIMIT, async || of_first(&recorded, "quorum") == Some(1.0)).await;
        let _ = locks.shutdown(Duration::ZERO).await;
        eventually("it is told", LIMIT, async || {
            of_first(&recorded, "quorum").is_some_and(f64::is_nan)
        })
        .await;
    });
}

#[test]
fn a_quorum_primary_that_was_never_connected_raises_no_alert_after_the_end_of_a_locks() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    for is_shut_down in [false, true] {
        recorded(false, async |recorded| {
            let quorum = Quorum::new(servers.iter().map(RedisServer::url));
            if !is_shut_down {
                Locks::builder().init_quorum(quorum.clone()).await.expect("they are new");
                servers[0].kill();
            }
            let locks = Locks::connect(quorum).await.expect("two of three");
            let gauges =
                || ["commands", "subscription", "quorum"].map(|of| of_first(&recorded, of));
            assert_eq!(gauges(), [Some(0.0); 3]);
            let locks = match is_shut_down {
                true => {
                    let _ = locks.shutdown(Duration::ZERO).await;
                    Some(locks)
                }
                false => {
                    drop(locks);
                    None
                }
            };
            eventually("nothing is away", LIMIT, async || {
                gauges().iter().all(|gauge| gauge.is_some_and(f64::is_nan))
            })
            .await;
            drop(locks);
        });
    }
}

// A counter that begins at 1 shows no increase to an alert, and "no data" to a panel.
#[test]
fn all_counters_begin_at_0_with_each_cause_that_the_manual_names() {
    let manual = include_str!("../../../lockcore/src/guide/observability.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut expected = BTreeSet::new();
    for row in rows.filter(|row| row.contains("| counter |")) {
        let (name, _) = row.split_once('`').expect("a name in code");
        let classes: &[&str] = match row.contains("| yes |") {
            true => &["class=\"default\"", "class=\"orders\""],
            false => &[""],
        };
        let values = row.split_once("label `").map(|(_, label)| {
            let (label, values) = label.split_once("`: ").expect("values");
            let values = values.trim_end_matches(" |").replace(" or ", ", ");
            let values = values.split(", ").map(|value| value.split(' ').next().expect("a word"));
            values.map(|value| format!("{label}=\"{value}\"")).collect::<Vec<_>>()
        });
        for class in classes {
            for value in values.as_deref().unwrap_or(&[String::new()]) {
                let labels = [value.as_str(), class].into_iter().filter(|label| !label.is_empty());
                let labels = labels.collect::<Vec<_>>().join(",");
                let labels = Some(labels).filter(|labels| !labels.is_empty());
                let labels = labels.map_or(String::new(), |labels| format!("{{{labels}}}"));
                expected.insert(format!("{name}{labels} 0"));
            }
        }
    }
    let rendered = measured(async |a, _| drop(a.key("key").class("orders")));
    let counters: BTreeSet<_> =
        rendered.lines().filter(|line| line.contains("_total") && !line.starts_with('#')).collect();
    assert_eq!(counters, expected.iter().map(String::as_str).collect());
    assert!(counters.len() > 20, "{counters:?}");
    // On a quorum, only the classes named by requests.
    let rendered = recorded(true, async |recorded| {
        let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
        locks.key("key").class("orders").lock().await.expect("free").release().await.expect("held");
        recorded.render()
    });
    assert!(!rendered.contains("_total{class=\"quorum\""), "{rendered}");
}

#[test]
fn the_manual_names_every_metric_and_no_other() {
    fn names(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let starts = text.match_indices("lockcore_").map(|(at, _)| &text[at..]);
        starts.map(|name| name.split(|c| !is_part(c)).next().unwrap_or(name)).collect()
    }
    let mut counted = names(include_str!("../../../lockcore/src/node/observe.rs"));
    counted.extend(names(include_str!("../../../lockcore/src/node/class/metrics.rs")));
    counted.extend(names(include_str!("../../../lockcore/src/node/observe/gauges.rs")));
    assert_eq!(counted, names(include_str!("../../../lockcore/src/guide/observability.md")));
    assert!(counted.len() >= 10, "{counted:?}");
}

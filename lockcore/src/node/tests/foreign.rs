//! Tests with code from outside this crate: wakers that use the node when they are dropped, and
//! wakers and subscribers that panic.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt as _;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::unanswered::Keeping;
use super::{SOON, soon};
use crate::api::locks::Locks;
use crate::foreign::testing::panics;
use crate::store::memory::MemoryStore;

/// A waker that uses the node when it is dropped.
struct UsesTheNode(Locks);

impl Wake for UsesTheNode {
    fn wake(self: Arc<Self>) {}
}

impl Drop for UsesTheNode {
    fn drop(&mut self) {
        let _ = self.0.status();
    }
}

#[tokio::test]
async fn a_hold_does_not_keep_the_waker_of_its_acquisition() {
    let locks = Locks::in_memory();
    let waker = Arc::new(UsesTheNode(locks.clone()));
    let mut acquire = Box::pin(locks.lock("key"));
    let polled = acquire.as_mut().poll(&mut Context::from_waker(&Arc::clone(&waker).into()));
    assert!(polled.is_ready());
    drop(acquire);
    assert_eq!(Arc::strong_count(&waker), 1);
}

/// Runs the work on a separate thread. Returns false if the work has not ended in time: a thread
/// that waits for itself would hang the test.
fn ends_on_another_thread<F: Future<Output = ()>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> bool {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work());
        ended.send(())
    });
    end.recv_timeout(SOON).is_ok()
}

/// Ends something by `end`, which polls a future with the waker. Then passes on the reply to the
/// release or leave that `end` has sent. The waker must be dropped before.
async fn end_with_a_late_reply(is_held: bool, end: impl AsyncFnOnce(&Locks, &mut Context<'_>)) {
    let store = MemoryStore::new();
    let other = Locks::builder().on_memory(&store).expect("options");
    let (keeping, locks) = Keeping::start(&store, SOON);
    let theirs = is_held.then_some(other.lock("silent"));
    let _theirs = futures_util::future::OptionFuture::from(theirs).await;
    let waker = Arc::new(UsesTheNode(locks.clone()));
    let weak = Arc::downgrade(&waker);
    let waker = Waker::from(waker);
    end(&locks, &mut Context::from_waker(&waker)).await;
    drop(waker);
    let kept = weak.strong_count();
    assert_eq!(keeping.kept.pass_on(), 1);
    assert_eq!(kept, 0, "nothing has the waker, even before the reply");
}

// A server's reply arrives later than that of an in-memory store: the node is then the last to
// know the hold or the attempt.
#[test]
fn a_waker_that_uses_the_node_when_dropped_finds_no_mutex_held() {
    let released = || {
        end_with_a_late_reply(false, async |locks, context| {
            let mut acquire = Box::pin(locks.lock("silent"));
            assert!(acquire.as_mut().poll(context).is_ready(), "and the guard is dropped");
        })
    };
    assert!(ends_on_another_thread(released), "the waker of an acquisition hangs");
    let cancelled = || {
        end_with_a_late_reply(true, async |locks, context| {
            assert!(Box::pin(locks.lock("silent")).as_mut().poll(context).is_pending());
        })
    };
    assert!(ends_on_another_thread(cancelled), "the waker of a cancelled acquisition hangs");
    let not_awaited = || {
        end_with_a_late_reply(false, async |locks, context| {
            let guard = locks.lock("silent").await.expect("free");
            assert!(Box::pin(guard.release()).as_mut().poll(context).is_pending());
        })
    };
    assert!(ends_on_another_thread(not_awaited), "the waker of a release hangs");
}

/// A waker that counts its calls.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_release_is_woken_although_its_acquisition_was_dropped_meanwhile() {
    let (keeping, locks) = Keeping::start(&MemoryStore::new(), SOON);
    let mut acquire = Box::pin(locks.lock("silent"));
    let mut release = Box::pin(acquire.as_mut().await.expect("free").release());
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    assert!(release.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(acquire);
    assert_eq!(keeping.kept.pass_on(), 1);
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    release.await.expect("held until now");
}

#[tokio::test]
async fn a_reply_is_passed_on_although_the_waker_of_its_caller_panics() {
    let (keeping, locks) = Keeping::start(&MemoryStore::new(), SOON);
    let mut forced = pin!(locks.force_release("silent"));
    assert!(forced.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    assert_eq!(keeping.kept.pass_on(), 1);
    assert!(!soon(forced).await.expect("a reply"));
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_noticed_although_the_waker_of_another_watcher_panics() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let node = Locks::builder().on_memory(&MemoryStore::new()).expect("options");
    let quorum = Locks::builder().on_memory_quorum(&stores).expect("3 stores");
    for locks in [node, quorum] {
        let guard = Arc::new(locks.lock("key").await.expect("free"));
        let token = guard.cancellation_token();
        let mut cancelled = pin!(token.cancelled());
        let mut first = pin!(guard.lost());
        let mut first_owned = pin!(guard.lost_owned());
        let waker = panics();
        let mut panicking = Context::from_waker(&waker);
        assert!(cancelled.as_mut().poll(&mut panicking).is_pending());
        assert!(first.as_mut().poll(&mut panicking).is_pending());
        assert!(first_owned.as_mut().poll(&mut panicking).is_pending());
        let owned = tokio::spawn(soon(guard.lost_owned()));
        let shared = Arc::clone(&guard);
        let lost = tokio::spawn(async move { soon(shared.lost()).await });
        tokio::task::yield_now().await;
        assert!(locks.force_release("key").await.expect("an answer"));
        owned.await.expect("it is woken");
        lost.await.expect("it is woken");
        assert!(token.is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_cancelled_although_a_watcher_of_its_positions_panics() {
    let locks = Locks::in_memory();
    let guard = locks.lock("key").await.expect("free");
    let mut acquire = Box::pin(locks.lock("key"));
    assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut positions = acquire.positions();
    positions.mark_unchanged();
    let waker = panics();
    {
        let mut changed = pin!(positions.changed());
        assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(acquire)));
        assert!(dropped.is_ok(), "the panic has propagated");
    }
    assert_eq!(locks.status().waiting, 0);
    drop(guard);
    let _guard = soon(locks.lock("key")).await.expect("free");
}

/// A subscriber that panics once, when the span `acquire` is left for the nth time.
struct PanicsOnExit {
    exits_before: AtomicIsize,
}

impl Subscriber for PanicsOnExit {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "acquire"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        if self.exits_before.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new("left"));
        }
    }
}

impl PanicsOnExit {
    fn after(exits_before: isize) -> Dispatch {
        Dispatch::new(Self { exits_before: AtomicIsize::new(exits_before) })
    }
}

/// A subscriber that lives on: with a single subscriber, tracing consults the thread that first
/// reaches a span, which may have none.
pub(super) static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| PanicsOnExit::after(isize::MAX));

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_when_a_span_is_left_costs_no_lock() {
    LazyLock::force(&ANOTHER);
    // The span is left by the request, and by the poll that takes the grant.
    for exits_before in 0..2 {
        let store = MemoryStore::new();
        let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
        let subscriber = PanicsOnExit::after(exits_before);
        let polled = tracing::dispatcher::with_default(&subscriber, || {
            let mut acquire = Box::pin(a.lock("key"));
            let mut context = Context::from_waker(Waker::noop());
            catch_unwind(AssertUnwindSafe(|| acquire.as_mut().poll(&mut context)))
        });
        let inner = subscriber.downcast_ref::<PanicsOnExit>().expect("this subscriber");
        assert!(inner.exits_before.load(Ordering::Relaxed) < 0, "it has not panicked");
        drop(polled);
        drop(soon(b.lock("key")).await.expect("free"));
        assert_eq!((a.status().waiting, a.status().holding), (0, 0));
    }
}

/// A subscriber that panics once it is armed: when a span of this name is cloned, or when one of
/// its clones is dropped.
struct PanicsOnClone {
    span: &'static str,
    is_on_drop: bool,
    is_armed: AtomicBool,
}

impl PanicsOnClone {
    fn of(span: &'static str, is_on_drop: bool) -> Dispatch {
        LazyLock::force(&ANOTHER);
        Dispatch::new(Self { span, is_on_drop, is_armed: AtomicBool::new(false) })
    }

    fn arm(subscriber: &Dispatch) {
        let this = subscriber.downcast_ref::<Self>().expect("this subscriber");
        this.is_armed.store(true, Ordering::Relaxed);
    }

    fn has_panicked(subscriber: &Dispatch) -> bool {
        let this = subscriber.downcast_ref::<Self>().expect("this subscriber");
        !this.is_armed.load(Ordering::Relaxed)
    }

    fn panic_if(&self, is_on_drop: bool) {
        if self.is_on_drop == is_on_drop && self.is_armed.swap(false, Ordering::Relaxed) {
            resume_unwind(Box::new("cloned or dropped"));
        }
    }
}

impl Subscriber for PanicsOnClone {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == self.span
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.panic_if(false);
        id.clone()
    }

    fn try_close(&self, _: Id) -> bool {
        self.panic_if(true);
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_when_a_guard_is_shared_leaves_no_hold_without_a_guard() {
    let locks = Locks::in_memory();
    let subscriber = PanicsOnClone::of("hold", false);
    let acquired = tracing::dispatcher::with_default(&subscriber, || {
        Box::pin(locks.lock("key")).now_or_never()
    });
    let guard = acquired.expect("at once").expect("free");
    PanicsOnClone::arm(&subscriber);
    let shared = catch_unwind(AssertUnwindSafe(|| guard.reenter()));
    assert!(shared.is_err() && PanicsOnClone::has_panicked(&subscriber));
    assert_eq!(guard.hold_count(), 1);
    drop(guard);
    drop(soon(locks.lock("key")).await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_when_it_has_the_holders_of_a_wait_ends_no_wait() {
    let locks = Locks::in_memory();
    let held = locks.lock("key").await.expect("free");
    let subscriber = PanicsOnClone::of("acquire", true);
    PanicsOnClone::arm(&subscriber);
    let mut wait = Box::pin(locks.key("key").record_holders(true).lock());
    tracing::dispatcher::with_default(&subscriber, || {
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| wait.as_mut().poll(&mut context)));
        assert!(polled.expect("the panic has not propagated").is_pending());
    });
    assert!(PanicsOnClone::has_panicked(&subscriber));
    drop(held);
    drop(soon(wait).await.expect("its turn"));
}

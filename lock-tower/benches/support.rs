//! The services and layers for the bench and the test of allocations, and a store that always
//! grants.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use lock_tower::{HttpLock, HttpLockLayer, Lock, LockError, LockLayer, RequestBody};
use lockcore::internals::{
    Acquired, Answer, Answers, Command, Grant, Inspection, Left, Link, LockName, Presence,
    Released, Renewed, Reply, Store, StoreFuture, Touched, locks_on, new_node,
};
use lockcore::{FencingToken, LockKey, Locks};
use tokio::sync::watch;
use tower::{Layer as _, Service};

/// Everything here is ready at the first poll: no executor gets between.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("these stores answer at once"),
    }
}

pub(crate) fn key() -> LockKey {
    LockKey::new("bench").expect("a name")
}

/// One hold by lockcore alone: a cost that is not the layer's.
pub(crate) fn hold(locks: &Locks, key: &LockKey) {
    let guard = now(locks.lock(key)).expect("free");
    now(guard.release()).expect("held");
}

pub(crate) type Plain = fn(u64) -> std::future::Ready<Result<u64, LockError>>;

pub(crate) fn plain() -> tower::util::ServiceFn<Plain> {
    tower::service_fn(|number| std::future::ready(Ok(black_box(number) + 1)))
}

pub(crate) fn call<S: Service<u64>>(service: &mut S) {
    drop(black_box(now(service.call(black_box(1)))));
}

pub(crate) fn plain_locked(
    locks: &Locks,
    key: Option<LockKey>,
) -> Lock<tower::util::ServiceFn<Plain>, impl Fn(&u64) -> Option<LockKey>> {
    LockLayer::new(locks.clone(), move |_: &u64| key.clone()).layer(plain())
}

pub(crate) type HttpResult = Result<Response<Empty<Bytes>>, Infallible>;
pub(crate) type Http<B> = fn(Request<B>) -> std::future::Ready<HttpResult>;

pub(crate) type HttpInner = tower::util::ServiceFn<Http<RequestBody<String>>>;

pub(crate) fn http<B>() -> tower::util::ServiceFn<Http<B>> {
    tower::service_fn(|request| {
        black_box(&request);
        std::future::ready(Ok(Response::new(Empty::new())))
    })
}

pub(crate) fn call_http<S: Service<Request<String>>>(service: &mut S, request: Request<String>) {
    drop(black_box(now(service.call(request))));
}

pub(crate) fn http_locked(
    locks: &Locks,
    key: Option<LockKey>,
) -> HttpLock<HttpInner, impl Fn(&Request<String>) -> Option<LockKey>> {
    HttpLockLayer::new(locks.clone(), move |_: &Request<String>| key.clone()).layer(http())
}

/// A request as servers, routers and other layers leave it: the map of extensions is there already.
pub(crate) fn with_extension() -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(7u8);
    request
}

/// A `Locks` on [`Granting`]; in a runtime.
pub(crate) fn granting() -> Locks {
    let store = Granting { tokens: AtomicU64::new(1), link: watch::Sender::new(Link::Up) };
    locks_on(Arc::new(store), new_node())
}

/// A store that grants every request at once and remembers nothing, so that the rest of the cost is
/// not the store's.
#[derive(Debug)]
struct Granting {
    tokens: AtomicU64,
    link: watch::Sender<Link>,
}

impl Granting {
    fn reply<T>(&self, outcome: T) -> Reply<T> {
        Reply {
            outcome,
            grants: Vec::new(),
            first_end_ms: Some(30_000),
            now_us: Some(self.tick()),
            passed_over: 0,
            more: false,
        }
    }

    fn tick(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    fn answer(&self, command: &Command) -> Answer {
        match command {
            Command::Acquire { member, .. } => {
                let mut reply = self.reply(Acquired::Granted);
                let token = reply.now_us.and_then(|now_us| FencingToken::try_from(now_us).ok());
                let (member, token) = (member.clone(), token.expect("below 2^53"));
                reply.grants.push(Grant { member, token, left_ms: 30_000 });
                Answer::Acquired(reply)
            }
            Command::Release { .. } | Command::ForceRelease { .. } => {
                Answer::Released(self.reply(Released::Released))
            }
            Command::Renew { .. } | Command::Confirm { .. } => {
                Answer::Renewed(self.reply(vec![Renewed::Held; command.renews().len()]))
            }
            Command::Touch { members } => {
                let members = vec![Presence::Holding; members.len()];
                Answer::Touched(self.reply(Touched { members, listeners: 1 }))
            }
            Command::Leave { leaving } => Answer::Left(self.reply(vec![Left::Left; leaving.len()])),
            Command::Reduce { .. } => unreachable!("nothing here becomes a part"),
            Command::Inspect => Answer::Inspected(Inspection {
                holds: Vec::new(),
                waiters: Vec::new(),
                token: None,
                now_us: self.tick(),
            }),
        }
    }
}

impl Store for Granting {
    fn run(&self, _lock: &LockName, command: &Command) -> StoreFuture<Answer> {
        StoreFuture::ready(Ok(self.answer(command)))
    }

    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers> {
        let answers = commands.iter().map(|(_, command)| Ok(self.answer(command)));
        StoreFuture::ready(Ok(answers.collect()))
    }

    fn ping(&self) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn reopen_subscription(&self) {}

    fn close(&self) {}
}

//! `Proxy`: a TCP proxy between clients and a server, which understands Redis well enough to break
//! a chosen connection, direction or reply.

mod connection;
mod fault;
mod frames;
mod gates;
mod listener;
mod next_version;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::Port;
use fault::Action;
pub use fault::{Fault, Request};
use listener::Listener;
use next_version::NextVersion;
use shared::{Shared, lock};

/// The bound of an action that takes no time, such as closing a socket.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The connections affected by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Every connection.
    All,
    /// Connections that have sent a SUBSCRIBE (or PSUBSCRIBE, SSUBSCRIBE).
    Subscriptions,
    /// Connections without a SUBSCRIBE, including new ones.
    Commands,
}

impl Connections {
    fn include(self, subscribed: bool) -> bool {
        match self {
            Self::All => true,
            Self::Subscriptions => subscribed,
            Self::Commands => !subscribed,
        }
    }
}

/// The direction affected by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the client to the server.
    Requests,
    /// From the server to the client, including messages of subscriptions.
    Replies,
    /// Both directions: like a half-open connection.
    Both,
}

/// A proxy on its own loopback port. Each method takes effect before it returns.
///
/// It runs on a dedicated thread, so it continues while the test's runtime is blocked, paused or
/// gone. Requests and replies are passed on whole: only [`cut_request`](Self::cut_request) and
/// [`cut_reply`](Self::cut_reply) strike in the middle.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    /// The listener, which accepts connections; `None` while they are refused.
    listener: Mutex<Option<Listener>>,
    /// The runtime; `None` only while dropping.
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Starts a proxy to the server, which need not be up.
    #[must_use]
    pub fn start(server: SocketAddr) -> Self {
        Self::start_as(None, server)
    }

    /// Starts a proxy whose clients are nodes of the next version of the protocol: they write and
    /// read `~3` where this version has `~2`, in scripts as well.
    #[must_use]
    pub fn start_next_version(server: SocketAddr) -> Self {
        Self::start_as(Some(NextVersion::default()), server)
    }

    fn start_as(version: Option<NextVersion>, server: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a thread can be started");
        let proxy = Self {
            port: Port::free(),
            shared: Arc::new(Shared::new(server, version)),
            listener: Mutex::new(None),
            runtime: Some(runtime),
        };
        proxy.accept();
        proxy
    }

    /// Returns the proxy's URL, `redis://127.0.0.1:<port>/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Returns the address to which clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the number of connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted()
    }

    /// Returns the number of open connections of this kind.
    #[must_use]
    pub fn open(&self, which: Connections) -> usize {
        self.shared.matching(which).len()
    }

    /// Returns the number of requests passed on to the server since the start; constant while
    /// frozen.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Returns the number of replies and messages passed on to clients since the start; constant
    /// while frozen.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.shared.replies.load(Ordering::SeqCst)
    }

    /// Cuts every connection, like [`cut`](Self::cut).
    pub async fn cut_all(&self) -> usize {
        self.cut(Connections::All).await
    }

    /// Cuts the connections that have sent a SUBSCRIBE, like [`cut`](Self::cut).
    pub async fn cut_subscriptions(&self) -> usize {
        self.cut(Connections::Subscriptions).await
    }

    /// Cuts the connections that have sent no SUBSCRIBE, like [`cut`](Self::cut).
    pub async fn cut_commands(&self) -> usize {
        self.cut(Connections::Commands).await
    }

    /// Cuts the connections, on both sides; returns their number.
    ///
    /// Their sockets are closed on return; the server needs a moment to notice.
    pub async fn cut(&self, which: Connections) -> usize {
        let connections = self.shared.matching(which);
        connections.iter().for_each(|connection| connection.cut());
        for connection in &connections {
            connection.closed().await;
        }
        connections.len()
    }

    /// Stops all frames in that direction on such connections, including new ones, until
    /// [`thaw`](Self::thaw). The proxy keeps them meanwhile.
    ///
    /// With [`Flow::Replies`] the server executes requests, and the client receives the replies on
    /// thaw.
    ///
    /// # Panics
    ///
    /// If a frame is in flight to a receiver that does not read.
    pub async fn freeze(&self, which: Connections, flow: Flow) {
        let shared = self.shared.clone();
        // The wait runs on the proxy's runtime because of its clock: the test's clock may be
        // paused.
        self.runtime()
            .spawn(async move { timeout(AT_ONCE, shared.gates.close(which, flow)).await })
            .await
            .expect("closing a gate does not panic")
            .expect("frames on their way arrive");
    }

    /// Ends every [`freeze`](Self::freeze) and [`hold_replies`](Self::hold_replies): the kept
    /// frames are passed on, in order.
    pub fn thaw(&self) {
        self.shared.gates.open(Connections::All, Flow::Both);
    }

    /// Holds all replies to commands, until [`release_replies`](Self::release_replies): the server
    /// executes, but no client receives a reply. Messages of subscriptions still arrive.
    ///
    /// # Panics
    ///
    /// As [`freeze`](Self::freeze).
    pub async fn hold_replies(&self) {
        self.freeze(Connections::Commands, Flow::Replies).await;
    }

    /// Ends [`hold_replies`](Self::hold_replies): the replies are passed on, in order.
    pub fn release_replies(&self) {
        self.shared.gates.open(Connections::Commands, Flow::Replies);
    }

    /// Loses the reply to the very next request on any command connection, like
    /// [`lose_reply`](Self::lose_reply).
    ///
    /// On a new connection that is the client library's handshake: to hit a specific command, use
    /// `lose_reply`.
    pub fn drop_next_reply(&self) -> Fault {
        self.lose_reply(|_| true)
    }

    /// Loses the next matching request: the connection is cut, and the server has not received it.
    pub fn lose_request(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::LoseRequest, matching)
    }

    /// Holds the next matching request and all requests after it on its connection until released.
    /// The server receives them even if the client has gone away since.
    pub fn hold_request(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::HoldRequest, matching)
    }

    /// Loses the reply to the next matching request: the server has executed it, the reply is
    /// swallowed, and the connection is cut.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn lose_reply(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::LoseReply, matching)
    }

    /// Swallows the reply to the next matching request, and passes on everything else: the client
    /// takes later replies for replies to earlier requests.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn swallow_reply(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::SwallowReply, matching)
    }

    /// Holds the reply to the next matching request, and all replies after it on its connection,
    /// until released: the server has executed the request.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn hold_reply(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::HoldReply, matching)
    }

    /// Changes nothing, and has struck once the next matching request has a reply. If its
    /// connection ends before that, it never strikes.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn notice_reply(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::NoticeReply, matching)
    }

    /// Cuts the connection within the next matching request, after `at` bytes of it (modulo its
    /// length, so that it is never whole): the server cannot have run it.
    pub fn cut_request(
        &self,
        at: usize,
        matching: impl Fn(&Request) -> bool + Send + 'static,
    ) -> Fault {
        self.shared.arm(Action::CutRequest(at), matching)
    }

    /// Cuts the connection within the reply to the next matching request, after `at` bytes of it
    /// (modulo its length): the server has executed it.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn cut_reply(
        &self,
        at: usize,
        matching: impl Fn(&Request) -> bool + Send + 'static,
    ) -> Fault {
        self.shared.arm(Action::CutReply(at), matching)
    }

    /// Runs the next matching request twice, the second time on another connection, before its
    /// reply is passed on. For servers without a password.
    ///
    /// Replies can be distinguished only on connections that never subscribed.
    pub fn repeat(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::CopyAtOnce, matching)
    }

    /// Keeps a copy of the next matching request, which runs on another connection when released,
    /// whatever has happened since. For servers without a password.
    pub fn repeat_later(&self, matching: impl Fn(&Request) -> bool + Send + 'static) -> Fault {
        self.shared.arm(Action::CopyLater, matching)
    }

    /// Refuses new connections, like a stopped server; open connections are not affected.
    ///
    /// # Panics
    ///
    /// If another process listens on the port as soon as it is closed.
    pub async fn refuse(&self) {
        let listener = lock(&self.listener).take();
        let Some(listener) = listener else { return };
        // On the proxy's runtime, as in `freeze`.
        self.runtime()
            .spawn(async { timeout(AT_ONCE, listener.stop()).await })
            .await
            .expect("closing a port does not panic")
            .expect("a closed port refuses connections");
    }

    /// Accepts connections again.
    ///
    /// # Panics
    ///
    /// If the proxy cannot listen on the port.
    pub fn accept(&self) {
        let _context = self.runtime().enter();
        lock(&self.listener)
            .get_or_insert_with(|| Listener::start(self.address(), self.shared.clone()));
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("a proxy runs until it is dropped")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // closes all sockets; waiting is not allowed in async tests
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address()).finish_non_exhaustive()
    }
}

//! The one subscription on which a node hears of its grants, reopened when it fails.
//!
//! # Implementation notes
//!
//! - Messages only save time: only the server decides which client holds a lock. Whatever message
//!   is lost, the next touch asks the server and acts on the answer. So a message that cannot be
//!   read is ignored, and nothing is repeated here.
//! - After each reconnect the node hears `Resubscribed`, and asks for what it may have missed.
//! - Both connections have to reach the same server. A subscription that the server of the scripts
//!   does not count, or that is at another primary than the commands, is closed and opened again.
//! - When the subscription breaks, the connection for commands is looked at too, since it probably
//!   broke as well.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use redis::Msg;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::connector::{Connector, Place, Subscribed};
use super::failure;
use super::keys;
use super::link::{Backoff, LASTED};
use super::value::fencing_token;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::member::{Member, NodeId};
use crate::store::{Event, Link, Listener};

/// A PING this often shows that the connection still stands.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// What a node listens to.
pub(crate) struct Channels {
    node: NodeId,
    grants: String,
    /// With JVMs about: the channels of this node's members.
    pokes: Option<String>,
}

impl Channels {
    pub(crate) fn new(prefix: &str, node: &NodeId, peers: bool) -> Self {
        Self {
            node: node.clone(),
            grants: keys::grants_channel(prefix, node.as_str()),
            pokes: peers.then(|| keys::pokes_pattern(node)),
        }
    }

    async fn subscribe(&self, open: &mut PubSub) -> Result<(), StoreError> {
        let subscribed = open.subscribe(&self.grants).await;
        subscribed
            .map_err(|error| failure::of_subscribing(&error, &format!("&{}", self.grants)))?;
        if let Some(pattern) = &self.pokes {
            let subscribed = open.psubscribe(pattern).await;
            // A pattern has to be among the user's channels as it stands, and this one is never
            // twice the same.
            let all = "&* (allchannels), which redisson_peers needs to subscribe to a pattern";
            subscribed.map_err(|error| failure::of_subscribing(&error, all))?;
        }
        Ok(())
    }
}

/// A subscription of one node.
pub(crate) struct Subscription {
    state: watch::Receiver<Link>,
    reopen: Arc<Notify>,
}

struct Task {
    connector: Arc<Connector>,
    channels: Channels,
    /// The user may say who it is.
    introduce: bool,
    request_timeout: Duration,
    listener: Arc<dyn Listener>,
    state: watch::Sender<Link>,
    reopen: Arc<Notify>,
    /// Told when this connection goes: the other one probably went too.
    suspicion: Arc<Notify>,
}

impl Subscription {
    /// Subscribed when this returns, and kept so until `closed`.
    pub(crate) async fn connect(
        connector: Arc<Connector>,
        channels: Channels,
        introduce: bool,
        request_timeout: Duration,
        listener: Arc<dyn Listener>,
        suspicion: Arc<Notify>,
        closed: CancellationToken,
    ) -> Result<Self, LockError> {
        let (sender, state) = watch::channel(Link::Up);
        let reopen = Arc::new(Notify::new());
        let task = Task {
            connector,
            channels,
            introduce,
            request_timeout,
            listener,
            state: sender,
            reopen: Arc::clone(&reopen),
            suspicion,
        };
        let first = task.open().await.map_err(LockError::of_store)?;
        tokio::spawn(async move {
            tokio::select! {
                () = task.run(first) => {}
                () = closed.cancelled() => {}
            }
            task.state.send_replace(Link::down("closed"));
        });
        Ok(Self { state, reopen })
    }

    pub(crate) fn state(&self) -> watch::Receiver<Link> {
        self.state.clone()
    }

    /// Opens it anew: the server does not count it.
    pub(crate) fn reopen(&self) {
        self.reopen.notify_one();
    }
}

impl Task {
    async fn run(&self, first: Subscribed) {
        let mut open = first;
        let mut backoff = Backoff::new();
        loop {
            let Subscribed { connection, place } = open;
            let (sink, stream) = connection.split();
            let opened = Instant::now();
            let reason = self.serve(sink, stream, place.as_ref()).await;
            warn!(%reason, "the subscription to Redis broke");
            self.state.send_replace(Link::down(reason));
            self.suspicion.notify_one();
            if opened.elapsed() > LASTED {
                backoff = Backoff::new();
            } else {
                backoff.pause().await;
            }
            open = self.open_again(&mut backoff).await;
            self.state.send_replace(Link::Up);
            self.listener.hear(Event::Resubscribed);
        }
    }

    async fn open(&self) -> Result<Subscribed, StoreError> {
        let mut open = self.connector.subscription(self.introduce).await?;
        let subscribing = self.channels.subscribe(&mut open.connection);
        match tokio::time::timeout(self.request_timeout, subscribing).await {
            Ok(Ok(())) => Ok(open),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(StoreError::refused(LockErrorKind::Unavailable, "no subscription in time"))
            }
        }
    }

    async fn open_again(&self, backoff: &mut Backoff) -> Subscribed {
        loop {
            match self.open().await {
                Ok(open) => return open,
                Err(error) => {
                    self.state.send_replace(Link::broken(&error));
                }
            }
            backoff.pause().await;
        }
    }

    /// Passes messages on until the connection goes. Returns why it did.
    async fn serve(
        &self,
        sink: PubSubSink,
        mut stream: PubSubStream,
        place: Option<&Place>,
    ) -> Arc<str> {
        // What was asked for while there was no connection is answered by this one.
        let _ = self.reopen.notified().now_or_never();
        let heartbeat = heartbeat(sink, self.request_timeout);
        tokio::pin!(heartbeat);
        loop {
            tokio::select! {
                biased;
                message = stream.next() => match message {
                    Some(message) => self.pass_on(&message),
                    None => return Arc::from("connection closed by the server"),
                },
                reason = &mut heartbeat => return reason,
                () = self.connector.left(place) => return Arc::from("commands go to another server"),
                () = self.reopen.notified() => return Arc::from("the server does not know it"),
            }
        }
    }

    fn pass_on(&self, message: &Msg) {
        let node = &self.channels.node;
        if message.from_pattern() && self.channels.pokes.is_some() {
            if let Some(member) = keys::poked_member(message.get_channel_name(), node) {
                self.listener.hear(Event::Poked { number: member.number() });
            }
            return;
        }
        match read(message.get_payload_bytes(), node) {
            Some(event) => self.listener.hear(event),
            None => debug!("a message on our channel cannot be read"),
        }
    }
}

async fn heartbeat(mut sink: PubSubSink, timeout: Duration) -> Arc<str> {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        match tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return failure::of_connecting(&error).detail,
            Err(_) => return Arc::from("no answer to a ping"),
        }
    }
}

/// `g <member> <token> <ms left>` or `r <member>`, of a member of `node`, which may hold spaces. Of
/// a resource with permits: `p <token> <number> <ms left> …` or `r <number> …`.
pub(super) fn read(payload: &[u8], node: &NodeId) -> Option<Event> {
    // The text of another node's member is no message to this one, whatever its number.
    let number = |text: &str| {
        Member::parse(text).filter(|member| member.is_of(node)).map(|member| member.number())
    };
    let payload = std::str::from_utf8(payload).ok()?;
    if let Some(grants) = payload.strip_prefix("p ") {
        return several(grants);
    }
    if let Some(revoked) = payload.strip_prefix("r ") {
        let alone = || Some(vec![number(revoked)?]);
        return Some(Event::Revoked { numbers: numbers(revoked).or_else(alone)? });
    }
    let mut parts = payload.strip_prefix("g ")?.rsplitn(3, ' ');
    let left_ms = parts.next()?.parse().ok()?;
    let token = fencing_token(parts.next()?)?;
    let number = number(parts.next()?)?;
    Some(Event::Granted { token, grants: vec![(number, left_ms)] })
}

fn several(text: &str) -> Option<Event> {
    let (token, grants) = text.split_once(' ')?;
    let token = fencing_token(token)?;
    let numbers = numbers(grants)?;
    let pairs = numbers.chunks_exact(2);
    let is_whole = pairs.remainder().is_empty();
    let grants = pairs.map(|pair| (pair[0], pair[1])).collect();
    is_whole.then_some(Event::Granted { token, grants })
}

/// All of them, or nothing: no member is a number.
fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(' ').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::FencingToken;

    fn read(payload: &[u8]) -> Option<Event> {
        super::read(payload, &NodeId::of("AAAAAAAAAAAAAAAAAAAAAA"))
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::try_from(number).expect("a token")
    }

    #[test]
    fn a_grant_is_read_even_if_its_label_has_spaces() {
        let grant = b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web 1 17 42 1795242275666200 10000";
        let token = token(1_795_242_275_666_200);
        assert_eq!(read(grant), Some(Event::Granted { token, grants: vec![(7, 10_000)] }));
    }

    #[test]
    fn a_revocation_is_read() {
        let revoked = read(b"r ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:web 1 17");
        assert_eq!(revoked, Some(Event::Revoked { numbers: vec![7] }));
    }

    #[test]
    fn grants_and_revocations_of_several_are_read() {
        let several = Event::Granted { token: token(17), grants: vec![(1, 10_000), (5, 300)] };
        assert_eq!(read(b"p 17 1 10000 5 300"), Some(several));
        assert_eq!(read(b"r 1 5"), Some(Event::Revoked { numbers: vec![1, 5] }));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for payload in [
            &b""[..],
            b"g",
            b"g x",
            b"g x y z",
            b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:x 9007199254740992 5",
            b"g m 1795242275666200 5",
            b"r a b",
            b"g ~1BAAAAAAAAAAAAAAAAAAAAA:7:30000:x 1795242275666200 5",
            b"r ~1BAAAAAAAAAAAAAAAAAAAAA:7:30000:x",
            b"0",
            b"\xff\xfe",
            b"g ~1AAAAAAAAAAAAAAAAAAAAAA:7:30000:x 1 -1",
            b"p",
            b"p 17",
            b"p 17 1",
            b"p 17 1 2 3",
            b"p x 1 2",
            b"p 9007199254740992 1 2",
        ] {
            assert_eq!(read(payload), None);
        }
    }
}

//! `Connection`: a client's connection through the proxy.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;

use super::Flow;
use super::fault::{Action, Fault, Request};
use super::frames::Frames;
use super::next_version::NextVersion;
use super::shared::{Shared, lock};
use crate::resp;

/// A connection: two sockets, and a task that passes frames between them.
pub(super) struct Connection {
    subscribed: AtomicBool,
    cut: CancellationToken,
    closed: CancellationToken,
    /// What to do with the reply to each unanswered request, in order.
    unanswered: Mutex<VecDeque<Unanswered>>,
}

/// A reply that is still to come.
#[derive(Default)]
struct Unanswered {
    fault: Option<Fault>,
    /// The request, if a copy of it must run.
    copy: Option<Vec<u8>>,
}

/// Why a connection ends.
enum End {
    /// Closed by either side, or cut.
    Closed,
    /// Cut by a fault.
    Struck(Fault),
}

impl Connection {
    pub(super) fn start(shared: &Arc<Shared>, client: TcpStream) {
        let connection = Arc::new(Self {
            subscribed: AtomicBool::new(false),
            cut: CancellationToken::new(),
            closed: CancellationToken::new(),
            unanswered: Mutex::default(),
        });
        let number = shared.enlist(connection.clone());
        let shared = shared.clone();
        tokio::spawn(async move {
            let end = connection.run(&shared, client).await;
            // Both sockets are closed: the connection may count as closed now.
            shared.strike_off(number);
            connection.closed.cancel();
            if let End::Struck(fault) = end {
                fault.strike();
            }
        });
    }

    pub(super) fn subscribed(&self) -> bool {
        self.subscribed.load(Ordering::SeqCst)
    }

    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    async fn run(&self, shared: &Shared, client: TcpStream) -> End {
        let run = async {
            let Ok(server) = TcpStream::connect(shared.server).await else {
                return End::Closed;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true)); // at worst it is slower
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                end = self.pass_requests(shared, from_client, to_server) => end,
                end = self.pass_replies(shared, from_server, to_client) => end,
            }
        };
        tokio::select! {
            () = self.cut.cancelled() => End::Closed,
            end = run => end,
        }
    }

    async fn pass_requests(
        &self,
        shared: &Shared,
        client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
    ) -> End {
        let mut frames = Frames::new(client);
        while let Some(mut frame) = frames.next().await {
            let request = Request::new(resp::arguments(&frame));
            if let Some(version) = &shared.version {
                frame = version.request(&request, frame);
            }
            if ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"].iter().any(|name| request.is(name)) {
                self.subscribed.store(true, Ordering::SeqCst);
            }
            let mut fault = shared.take_fault(&request, self.subscribed());
            match fault.as_ref().map(Fault::action) {
                Some(Action::LoseRequest) => {
                    return fault.map_or(End::Closed, End::Struck);
                }
                Some(Action::HoldRequest) => {
                    if let Some(fault) = fault.take() {
                        fault.hold().await;
                    }
                }
                Some(Action::CutRequest(at)) => {
                    let _pass = shared.gates.pass(self.subscribed(), Flow::Requests).await;
                    let _ = server.write_all(&frame[..at % frame.len()]).await; // cut either way
                    return fault.map_or(End::Closed, End::Struck);
                }
                Some(Action::CopyLater) => {
                    if let Some(fault) = fault.take() {
                        let server = shared.server;
                        let frame = frame.clone();
                        tokio::spawn(async move {
                            fault.hold().await;
                            run_copy(server, &frame).await;
                        });
                    }
                }
                Some(
                    Action::LoseReply
                    | Action::SwallowReply
                    | Action::HoldReply
                    | Action::NoticeReply
                    | Action::CutReply(_)
                    | Action::CopyAtOnce,
                )
                | None => {}
            }
            let copy = matches!(fault.as_ref().map(Fault::action), Some(Action::CopyAtOnce));
            let unanswered = Unanswered { fault, copy: copy.then(|| frame.clone()) };
            let _pass = shared.gates.pass(self.subscribed(), Flow::Requests).await;
            // Counted before sending: a client that has its reply finds both counted.
            lock(&self.unanswered).push_back(unanswered);
            shared.requests.fetch_add(1, Ordering::SeqCst);
            if server.write_all(&frame).await.is_err() {
                return End::Closed;
            }
        }
        End::Closed
    }

    async fn pass_replies(
        &self,
        shared: &Shared,
        server: OwnedReadHalf,
        mut client: OwnedWriteHalf,
    ) -> End {
        let mut frames = Frames::new(server);
        while let Some(mut frame) = frames.next().await {
            if shared.version.is_some() {
                frame = NextVersion::reply(frame);
            }
            if !self.subscribed() && !resp::is_push(&frame) {
                let next = lock(&self.unanswered).pop_front().unwrap_or_default();
                let Unanswered { fault, copy } = next;
                match fault.as_ref().map(Fault::action) {
                    Some(Action::LoseReply) => return fault.map_or(End::Closed, End::Struck),
                    Some(Action::SwallowReply) => {
                        fault.iter().for_each(Fault::strike);
                        continue;
                    }
                    Some(Action::NoticeReply) => fault.iter().for_each(Fault::strike),
                    Some(Action::HoldReply) => {
                        if let Some(fault) = fault {
                            fault.hold().await;
                        }
                    }
                    Some(Action::CutReply(at)) => {
                        let _pass = shared.gates.pass(self.subscribed(), Flow::Replies).await;
                        let _ = client.write_all(&frame[..at % frame.len()]).await; // cut either way
                        return fault.map_or(End::Closed, End::Struck);
                    }
                    Some(Action::CopyAtOnce) => {
                        if let (Some(fault), Some(copy)) = (fault, copy) {
                            run_copy(shared.server, &copy).await;
                            fault.strike();
                        }
                    }
                    // These faults strike at the request, and need nothing at the reply.
                    Some(
                        Action::LoseRequest
                        | Action::HoldRequest
                        | Action::CutRequest(_)
                        | Action::CopyLater,
                    )
                    | None => {}
                }
            }
            let _pass = shared.gates.pass(self.subscribed(), Flow::Replies).await;
            shared.replies.fetch_add(1, Ordering::SeqCst);
            if client.write_all(&frame).await.is_err() {
                return End::Closed;
            }
        }
        End::Closed
    }
}

/// Runs a request on a dedicated connection, and returns when it has run.
async fn run_copy(server: SocketAddr, request: &[u8]) {
    // A stopped server runs no copies.
    let Ok(mut connection) = TcpStream::connect(server).await else { return };
    if connection.write_all(request).await.is_ok() {
        let (replies, _requests) = connection.into_split();
        Frames::new(replies).next().await;
    }
}

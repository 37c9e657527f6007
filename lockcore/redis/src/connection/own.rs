//! The multiplexed connection of this crate: many requests on one socket, answered in order.
//!
//! # Implementation notes
//!
//! - A caller writes the request itself, so that no task has to be woken. Only after the reader,
//!   the task of the connection, has woken several callers for replies read together, it sends all
//!   their new requests in a single write. On a runtime with a single thread, a caller that then
//!   blocks the thread delays them: writing each at once would cost more in every other case.
//! - Bytes that are not written yet may wait for the server, or, on a runtime with a single thread,
//!   only for the reader: for example after a task has dropped many guards. The reader alone times
//!   requests out, so only a timed-out request shows that the server is the reason.
//! - A timed-out request stays in the queue: its reply, if any, is discarded in order, and never
//!   delivered to the next request. So are all but the last reply to a transaction.
//! - All requests on a connection have the same timeout, so they expire in the order of sending,
//!   and the reader needs a single timer.
//! - Only the reader delivers replies, and without the mutex: a recipient may send, drop the
//!   connection, or wake application tasks.
//! - When the runtime ends, it drops the reader and with it the recipients, without a reply.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{RedisError, ServerError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf};
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

use super::decoder::Decoder;
use super::{Answered, Recipient, Transport, checked, closed};
use crate::call::Packed;
use crate::failure;
use crate::foreign;
use crate::task::Begin;

/// Maximum number of bytes that wait to be written while the server does not respond. Above it, the
/// next request fails, and the connection has to be replaced.
const MAX_UNWRITTEN: usize = 16 << 20;
/// The number of pending requests for which the queue keeps its memory while it is empty.
const KEPT: usize = 1_024;
/// How soon after its last reply a server closes the connection if that reply says why. An earlier
/// error, such as a full memory, is about its own request.
const FAREWELL: Duration = Duration::from_millis(100);
/// Initial size of the read buffer in bytes. The buffers for reading and for writing shrink to this
/// size when they are empty.
const READ: usize = 16 << 10;

/// A multiplexed connection: requests are sent without waiting for the replies to earlier requests,
/// and replies arrive in the same order. Clones share the connection. Dropping the last clone
/// closes it.
#[derive(Clone)]
pub(super) struct OwnConnection(Arc<Handle>);

/// The callers' handle, shared by all clones of a connection. Dropping it closes the connection.
/// The reader task holds only [`Shared`], and so does not keep the connection open.
struct Handle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
}

struct State {
    /// The timeout of requests sent from now on. Shortened once, after the setup of the connection.
    timeout: Duration,
    /// The write half of the socket; or the error that closed the connection.
    outgoing: Result<Outgoing, RedisError>,
    /// The requests that wait for a reply, in the order of sending.
    pending: VecDeque<Pending>,
    /// Wakes the reader task; `None` before the task has run for the first time.
    reader: Option<Waker>,
    /// True if the reader task is about to run, and then writes all requests. Until then, callers
    /// only append their requests: they neither write to the socket nor wake the task.
    reader_comes: bool,
}

struct Outgoing {
    socket: Box<dyn AsyncWrite + Send + Unpin>,
    /// Encoded requests. The first `written` bytes are already written to the socket.
    requests: Vec<u8>,
    written: usize,
}

struct Pending {
    deadline: Instant,
    /// The number of replies to this request that are still to arrive. Only the last is delivered.
    answers: usize,
    /// Gets the reply. `None` once the request has timed out, because the reply is then discarded.
    recipient: Option<Box<dyn Recipient>>,
}

impl OwnConnection {
    /// Creates a connection on a connected socket, and starts its reader task. `timeout` is the
    /// timeout of each request.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub(super) fn start<S>(socket: S, timeout: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(socket);
        let outgoing = Outgoing { socket: Box::new(write), requests: Vec::new(), written: 0 };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                timeout,
                outgoing: Ok(outgoing),
                pending: VecDeque::new(),
                reader: None,
                reader_comes: true,
            }),
        });
        tokio::spawn(Reader {
            shared: Arc::clone(&shared),
            socket: read,
            decoder: Decoder::default(),
            bytes: vec![0; READ],
            filled: 0,
            values: Vec::new(),
            answered: Vec::new(),
            last_words: None,
            lets_go: false,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
        });
        Self(Arc::new(Handle(shared)))
    }
}

impl Transport for OwnConnection {
    fn send_packed<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered> {
        Box::pin(self.send_packed(command))
    }

    fn give(&self, _: Begin, command: &Packed, recipient: Box<dyn Recipient>) {
        self.give(command, recipient);
    }

    // Checking costs nothing here, so the time of the last success does not matter.
    fn why_closed(&self, _last_success: Instant) -> Option<RedisError> {
        self.0.0.state().outgoing.as_ref().err().cloned()
    }

    fn takes_transactions(&self) -> bool {
        true
    }

    fn shorten_timeout(&self, timeout: Duration) {
        let mut state = self.0.0.state();
        debug_assert!(state.pending.is_empty() && timeout <= state.timeout, "{timeout:?}");
        state.timeout = timeout;
        let reader = state.reader.clone();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn end(&self) {
        self.0.end();
    }

    fn unanswered(&self) -> Option<usize> {
        Some(self.0.0.state().pending.len())
    }
}

impl OwnConnection {
    /// Sends an encoded command, and waits for the reply. Errors and cancel safety are as for
    /// [`Connection::send`](super::Connection::send).
    pub(super) async fn send_packed(&self, command: &Packed) -> Answered {
        let (answer, answered) = oneshot::channel();
        // Fails only if the caller no longer waits.
        self.give(command, Box::new(move |result: Answered| drop(answer.send(result))));
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    fn give(&self, command: &Packed, recipient: Box<dyn Recipient>) {
        let mut state = self.0.0.state();
        match state.send(command) {
            Ok((deadline, reader)) => {
                let answers = command.answers;
                state.pending.push_back(Pending { deadline, answers, recipient: Some(recipient) });
                drop(state);
                if let Some(reader) = reader {
                    reader.wake();
                }
            }
            Err(why) => {
                drop(state);
                deliver(recipient, Err(why));
            }
        }
    }
}

impl Handle {
    /// Closes the connection, and wakes the reader task, which fails the pending requests and ends.
    fn end(&self) {
        let mut state = self.0.state();
        state.end(closed());
        let reader = state.reader.clone();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection with the error `why`, unless it is closed already. Returns the
    /// recipients of all pending requests. The caller passes the error to them, without holding the
    /// mutex.
    fn end(&self, why: RedisError) -> Vec<Box<dyn Recipient>> {
        let mut state = self.state();
        state.end(why);
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        pending.into_iter().filter_map(|pending| pending.recipient).collect()
    }
}

impl State {
    /// Encodes a command, and writes it to the socket, unless the reader task is about to do so.
    ///
    /// Returns the deadline of the request, and the waker of the reader task if it has to be woken.
    /// The caller must append the request with this deadline to `pending`, and then wake the task.
    ///
    /// # Errors
    /// The connection is closed, or the server does not respond, and too many bytes are not written
    /// yet.
    fn send(&mut self, command: &Packed) -> Result<(Instant, Option<Waker>), RedisError> {
        let outgoing = self.outgoing.as_mut().map_err(|why| why.clone())?;
        let is_late = self.pending.front().is_some_and(|oldest| oldest.recipient.is_none());
        if is_late && outgoing.requests.len() - outgoing.written > MAX_UNWRITTEN {
            return Err(failure::unsent("the server leaves too many requests unread"));
        }
        let is_first = outgoing.requests.is_empty();
        command.write(&mut outgoing.requests);
        let deadline = Instant::now() + self.timeout;
        let Some(reader) = self.reader.as_ref().filter(|_| !self.reader_comes) else {
            return Ok((deadline, None));
        };
        // Written here, although the reader could write several requests at once: its task would be
        // woken to run next on this thread. If the caller blocks the thread, for example after it
        // has dropped a guard, the request would stay unsent, and all replies unread.
        //
        // If the socket did not accept all bytes, it wakes the reader later, which writes the rest.
        // Unconstrained, because the caller may have used up the budget of its task: the socket
        // would then accept nothing, and wake the reader only when this thread is free.
        let write = unconstrained(poll_fn(|cx| Poll::Ready(outgoing.write(cx))));
        let mut cx = Context::from_waker(reader);
        if !is_first || matches!(pin!(write).poll(&mut cx), Poll::Ready(Ok(()))) {
            return Ok((deadline, None));
        }
        self.reader_comes = true;
        Ok((deadline, Some(reader.clone())))
    }

    fn end(&mut self, why: RedisError) {
        if self.outgoing.is_ok() {
            self.outgoing = Err(why);
        }
    }
}

impl Outgoing {
    /// Writes as many bytes as the socket accepts. If some are left, the socket wakes the task of
    /// `cx` once it accepts more.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.requests.len() {
            let left = &self.requests[self.written..];
            match Pin::new(&mut self.socket).poll_write(cx, left)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.written += written,
                Poll::Pending => {
                    // Only past the half, so that fewer bytes are moved than were written.
                    if self.written > self.requests.len() / 2 {
                        self.requests.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
            }
        }
        self.requests.clear();
        self.requests.shrink_to(READ);
        self.written = 0;
        // TLS may buffer bytes that the socket did not accept.
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}

/// The task of a connection. It reads and delivers the replies, and writes the requests that
/// callers leave to it.
struct Reader<S> {
    shared: Arc<Shared>,
    socket: ReadHalf<S>,
    decoder: Decoder,
    /// The read buffer. The first `filled` bytes were read from the socket, and are not decoded
    /// yet.
    bytes: Vec<u8>,
    filled: usize,
    /// Decoded replies that are not matched with requests yet. Empty between two reads.
    values: Vec<Value>,
    /// Replies to be delivered, with their recipients. Empty between two reads.
    answered: Vec<(Box<dyn Recipient>, Value)>,
    /// The last reply and its time, if it was an error. It then explains why the connection ended,
    /// because servers send an error before they close a connection.
    last_words: Option<(Instant, ServerError)>,
    /// True if the last run of the task left requests unwritten, so that callers woken by replies
    /// could first add theirs. The next run then writes in any case.
    lets_go: bool,
    /// The request timeout of the connection, as this task last read it. If it has become shorter,
    /// the timer is set again.
    timeout: Duration,
    /// Fires no later than the deadline of the first pending request.
    timer: Pin<Box<Sleep>>,
}

impl<S: AsyncRead> Future for Reader<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.run(cx) {
            Ok(()) => Poll::Pending,
            Err(why) => {
                for recipient in self.shared.end(why.clone()) {
                    deliver(recipient, Err(why.clone()));
                }
                Poll::Ready(())
            }
        }
    }
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        drop(self.shared.end(closed()));
    }
}

impl<S: AsyncRead> Reader<S> {
    /// Reads and delivers replies, fails expired requests, and writes requests, as far as possible
    /// without waiting. Called each time the task is woken. On `Err` the caller closes the
    /// connection with this error.
    fn run(&mut self, cx: &mut Context<'_>) -> Result<(), RedisError> {
        let mut state = self.shared.state();
        if let Err(why) = &state.outgoing {
            return Err(why.clone());
        }
        match &mut state.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            None => state.reader = Some(cx.waker().clone()),
        }
        let timeout = state.timeout;
        drop(state);
        if timeout < self.timeout {
            self.timeout = timeout;
            self.timer.as_mut().reset(Instant::now() + timeout);
        }
        let mut answers = 0;
        while let Poll::Ready(read) = self.read(cx) {
            read.map_err(|error| match self.last_words.take() {
                Some((at, words)) if at.elapsed() < FAREWELL => failure::ended(&words),
                _ => error.into(),
            })?;
            answers += self.hand_out()?;
        }
        self.expire(cx);
        self.lets_go = answers > 1 && !self.lets_go;
        if self.lets_go {
            cx.waker().wake_by_ref();
            return Ok(());
        }
        let mut state = self.shared.state();
        state.reader_comes = false;
        match &mut state.outgoing {
            Ok(outgoing) => Ok(outgoing.write(cx)?),
            Err(why) => Err(why.clone()),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.filled == self.bytes.len() {
            self.bytes.resize(2 * self.filled, 0);
        }
        let mut into = ReadBuf::new(&mut self.bytes[self.filled..]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut into))?;
        self.filled += match into.filled().len() {
            0 => return Poll::Ready(Err(closed_by_server())),
            read => read,
        };
        Poll::Ready(Ok(()))
    }

    /// Decodes and delivers all complete replies in the read buffer. Returns the number of
    /// delivered replies. Fails if the bytes are not a reply, or if no request waits for a reply.
    fn hand_out(&mut self) -> Result<usize, RedisError> {
        let mut left = &self.bytes[..self.filled];
        let decoded = loop {
            match self.decoder.next(&mut left) {
                Ok(Some(value)) => self.values.push(value),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let taken = self.filled - left.len();
        if taken > 0 {
            self.bytes.copy_within(taken..self.filled, 0);
            self.filled -= taken;
        }
        if self.filled == 0 {
            self.bytes.truncate(READ);
            self.bytes.shrink_to(READ);
        }
        self.last_words = match self.values.last() {
            None => self.last_words.take(),
            Some(Value::ServerError(error)) => Some((Instant::now(), error.clone())),
            Some(_) => None,
        };
        let mut is_unasked = false;
        let mut state = self.shared.state();
        for value in self.values.drain(..) {
            match state.pending.front_mut() {
                Some(pending) if pending.answers > 1 => pending.answers -= 1,
                Some(_) => {
                    // A request without a recipient has timed out.
                    let recipient = state.pending.pop_front().and_then(|asked| asked.recipient);
                    self.answered.extend(recipient.map(|recipient| (recipient, value)));
                }
                None => is_unasked = true,
            }
        }
        if state.pending.is_empty() {
            state.pending.shrink_to(KEPT);
        }
        let answers = self.answered.len();
        // Several replies wake several tasks, and each may send a request. The reader then writes
        // all these requests in a single write.
        state.reader_comes |= answers > 1;
        drop(state);
        for (recipient, value) in self.answered.drain(..) {
            deliver(recipient, checked(value));
        }
        decoded?;
        // An error without a request is the reason why the server refuses this client.
        match self.last_words.take_if(|_| is_unasked) {
            Some((_, words)) => Err(failure::ended(&words)),
            None if is_unasked => Err(failure::unasked()),
            None => Ok(answers),
        }
    }

    /// Fails the requests that have timed out, and sets the timer for the next deadline.
    fn expire(&mut self, cx: &mut Context<'_>) {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let mut next = now + self.timeout;
            let mut over = Vec::new();
            for pending in &mut self.shared.state().pending {
                if pending.deadline > now {
                    next = pending.deadline;
                    break;
                }
                over.extend(pending.recipient.take());
            }
            self.timer.as_mut().reset(next);
            for recipient in over {
                deliver(recipient, Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            }
        }
    }
}

/// Passes the reply to a request on. If the recipient panics, as by a waker that it calls, the
/// other requests still get their replies.
fn deliver(recipient: Box<dyn Recipient>, answer: Answered) {
    foreign::call("the recipient of a reply", || recipient.take(answer));
}

fn closed_by_server() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed by the server")
}

#[cfg(test)]
mod tests;

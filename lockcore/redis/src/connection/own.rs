//! Our multiplexed connection: many requests on one socket, answered in order.
//!
//! # Implementation notes
//!
//! - A caller writes the request itself if none is pending, so that no task has to be woken.
//!   Otherwise the reader writes it: the reader has just woken several callers for replies read
//!   together, and sends all their new requests in a single write.
//! - A timed-out request stays in the queue: its reply, if any, is discarded in order, and never
//!   delivered to the next request. So are all but the last reply to a transaction.
//! - All requests on a connection have the same timeout, so they expire in the order of sending,
//!   and the reader needs a single timer.
//! - Only the reader delivers replies, and without the mutex: a recipient may send, drop the
//!   connection, or wake application tasks.
//! - When the runtime ends, it drops the reader and with it the recipients, without a reply.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{RedisError, ServerError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::decoder::Decoder;
use super::{Answered, Recipient, Transport, checked};
use crate::call::Packed;
use crate::failure;
use crate::task::Begin;

/// Maximum bytes that wait for the socket. A peer that leaves more unread is given up.
const MAX_UNWRITTEN: usize = 16 << 20;
/// The read buffer size, also kept for the next read.
const READ: usize = 16 << 10;

/// A connection shared by all clones, and closed with the last.
#[derive(Clone)]
pub(super) struct OwnConnection(Arc<Handle>);

/// The connection as held by users; the reader holds only the shared part.
struct Handle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
}

struct State {
    /// The timeout of each request.
    timeout: Duration,
    /// The write half, or why the connection is closed.
    outgoing: Result<Outgoing, RedisError>,
    /// The requests without a reply, in order.
    pending: VecDeque<Pending>,
    /// Wakes the reader; `None` before the first run.
    reader: Option<Waker>,
    /// The reader is about to run, and writes everything sent until then.
    reader_comes: bool,
}

struct Outgoing {
    socket: Box<dyn AsyncWrite + Send + Unpin>,
    /// Encoded requests, of which the first `written` bytes are written.
    requests: Vec<u8>,
    written: usize,
}

struct Pending {
    deadline: Instant,
    /// The number of replies still to come. The recipient gets the last.
    answers: usize,
    /// `None` once the request has timed out.
    recipient: Option<Box<dyn Recipient>>,
}

impl OwnConnection {
    /// Starts a connection on a connected socket, with this timeout for each request.
    ///
    /// # Panics
    /// Outside a tokio runtime.
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
    fn ask<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered> {
        Box::pin(self.ask(command))
    }

    /// The reader delivers the reply; if the command cannot be sent, the recipient gets the error
    /// before this returns.
    fn give(
        &self,
        _: (Begin, &tokio::runtime::Handle),
        command: &Packed,
        recipient: Box<dyn Recipient>,
    ) {
        self.give(command, recipient);
    }

    // This costs nothing here.
    fn why_closed(&self, _last_success: Instant) -> Option<RedisError> {
        self.0.0.state().outgoing.as_ref().err().cloned()
    }

    fn takes_transactions(&self) -> bool {
        true
    }

    /// Shortens the timeout of all later requests. No request is pending, because requests must
    /// expire in the order of sending.
    fn settle(&self, timeout: Duration) {
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
    /// As [`Connection::send`](super::Connection::send).
    pub(super) async fn ask(&self, command: &Packed) -> Answered {
        let (answer, answered) = oneshot::channel();
        // If the receiver was dropped, the caller is gone.
        self.give(command, Box::new(move |told: Answered| drop(answer.send(told))));
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
                recipient.take(Err(why));
            }
        }
    }
}

impl Handle {
    /// Closes the connection and wakes the reader, which then ends.
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

    /// Closes the connection, and takes the recipients of all pending requests.
    fn end(&self, why: RedisError) -> Vec<Box<dyn Recipient>> {
        let mut state = self.state();
        state.end(why);
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        pending.into_iter().filter_map(|pending| pending.recipient).collect()
    }
}

impl State {
    /// Writes a command, or leaves that to the reader, which may then need the returned waker. The
    /// caller must append a pending entry with the returned deadline.
    fn send(&mut self, command: &Packed) -> Result<(Instant, Option<Waker>), RedisError> {
        let outgoing = self.outgoing.as_mut().map_err(|why| why.clone())?;
        if outgoing.requests.len() - outgoing.written > MAX_UNWRITTEN {
            return Err(failure::unsent("the server leaves too many requests unread"));
        }
        let is_idle = self.pending.is_empty() && outgoing.requests.is_empty();
        command.write(&mut outgoing.requests);
        let deadline = Instant::now() + self.timeout;
        let Some(reader) = self.reader.as_ref().filter(|_| !self.reader_comes) else {
            return Ok((deadline, None));
        };
        // The reader writes the rest: the socket wakes it.
        if is_idle && outgoing.write(&mut Context::from_waker(reader)).is_ok() {
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
    /// Writes as much as the socket accepts; the socket wakes the task when it accepts more.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.requests.len() {
            let left = &self.requests[self.written..];
            match Pin::new(&mut self.socket).poll_write(cx, left)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.written += written,
                Poll::Pending => {
                    // This way each byte is moved at most once.
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
        // TLS buffers bytes that the socket did not accept.
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}

/// The task that reads replies, and writes requests that their callers do not write.
struct Reader<S> {
    shared: Arc<Shared>,
    socket: ReadHalf<S>,
    decoder: Decoder,
    /// The read buffer; the first `filled` bytes are read and not decoded.
    bytes: Vec<u8>,
    filled: usize,
    /// Decoded, and not delivered; both lists are empty between two reads.
    values: Vec<Value>,
    answered: Vec<(Box<dyn Recipient>, Value)>,
    /// The last reply, if it was an error: servers send an error before they close a connection.
    last_words: Option<ServerError>,
    /// Whether the reader yielded to other tasks in the last run.
    lets_go: bool,
    /// The request timeout that the timer was set by.
    timeout: Duration,
    /// Fires no later than the first request's deadline.
    timer: Pin<Box<Sleep>>,
}

impl<S: AsyncRead> Future for Reader<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.run(cx) {
            Ok(()) => Poll::Pending,
            Err(why) => {
                for recipient in self.shared.end(why.clone()) {
                    recipient.take(Err(why.clone()));
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
    /// Reads and writes as far as possible; an error closes the connection.
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
                Some(words) => failure::ended(&words),
                None => error.into(),
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

    /// Delivers complete replies, and returns how many.
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
            Some(Value::ServerError(error)) => Some(error.clone()),
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
        let answers = self.answered.len();
        // Several replies wake several tasks: they send before the reader writes for all.
        state.reader_comes |= answers > 1;
        drop(state);
        for (recipient, value) in self.answered.drain(..) {
            recipient.take(checked(value));
        }
        decoded?;
        // A server that refuses this client reports the error before any request.
        match self.last_words.take_if(|_| is_unasked) {
            Some(words) => Err(failure::ended(&words)),
            None if is_unasked => Err(failure::unasked()),
            None => Ok(answers),
        }
    }

    /// Fails the requests that have timed out.
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
                recipient.take(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            }
        }
    }
}

fn closed() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed").into()
}

fn closed_by_server() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed by the server")
}

#[cfg(test)]
mod tests;

//! The body of a response from behind a lock: a refusal, the inner body, or that with the lock in it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tower::BoxError;

use crate::answers::Answers;
use crate::config::{Config, OnLost};
use crate::error::LockError;
use crate::hold::Hold;
use crate::journal::Journal;
use crate::loss::Loss;
use crate::release::{Lasted, Releasing};

/// The body of an [`HttpLock`](crate::HttpLock)'s response.
///
/// Under [`hold_until_body_end`](crate::HttpLockLayer::hold_until_body_end) it carries the lock; dropping it
/// gives the lock back.
#[pin_project]
pub struct LockBody<B: Body> {
    #[pin]
    kind: Kind<B>,
}

#[pin_project(project = KindProjection)]
enum Kind<B: Body> {
    Refusal(Option<Bytes>),
    Open(#[pin] B),
    /// The keeper is boxed: the other kinds are the usual ones and stay small.
    /// The body is dropped before the lock is given back: nothing of it is left when the next has the lock.
    Held(#[pin] Option<B>, Box<Keeper<B::Data>>),
}

/// The lock, while the body goes out.
struct Keeper<D> {
    stage: Stage<D>,
    stops: bool,
    releases_in_background: bool,
    journal: Option<Journal>,
    answers: Arc<Answers>,
}

enum Stage<D> {
    Holding(Hold, Option<Pin<Box<Loss>>>),
    /// The last frame waits until the lock is given back.
    Releasing(Option<Frame<D>>, Pin<Box<Releasing>>),
    /// The inner body may have more, if the hold was lost and work was to go on.
    Open,
    Over,
}

impl<B: Body> LockBody<B> {
    pub(crate) fn refusal(body: Bytes) -> Self {
        Self { kind: Kind::Refusal(Some(body).filter(|body| !body.is_empty())) }
    }

    pub(crate) fn open(body: B) -> Self {
        Self { kind: Kind::Open(body) }
    }

    pub(crate) fn held(
        body: B,
        hold: Hold,
        journal: Journal,
        config: &Config,
        answers: &Arc<Answers>,
    ) -> Self {
        let keeper = Keeper {
            stage: Stage::Holding(hold, None),
            stops: config.on_lost == OnLost::Stop,
            releases_in_background: config.release_in_background,
            journal: Some(journal),
            answers: Arc::clone(answers),
        };
        Self { kind: Kind::Held(Some(body), Box::new(keeper)) }
    }
}

impl<B> Body for LockBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Refusal(body) => {
                Poll::Ready(body.take().map(|body| Ok(Frame::data(body.into()))))
            }
            KindProjection::Open(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            KindProjection::Held(body, keeper) => keeper.poll_frame(body, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Refusal(body) => body.is_none(),
            Kind::Open(body) => body.is_end_stream(),
            Kind::Held(body, keeper) => match keeper.stage {
                Stage::Over => true,
                Stage::Open => body.as_ref().is_none_or(B::is_end_stream),
                // There is a frame to come, or an error.
                Stage::Holding(..) | Stage::Releasing(..) => false,
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Refusal(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Open(body) => body.size_hint(),
            Kind::Held(body, keeper) => match &keeper.stage {
                Stage::Holding(..) | Stage::Open => {
                    body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
                }
                Stage::Releasing(frame, _) => {
                    let data = frame.as_ref().and_then(Frame::data_ref);
                    SizeHint::with_exact(data.map_or(0, Buf::remaining) as u64)
                }
                Stage::Over => SizeHint::with_exact(0),
            },
        }
    }
}

impl<D: From<Bytes>> Keeper<D> {
    fn poll_frame<B>(
        &mut self,
        mut body: Pin<&mut Option<B>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<D>, BoxError>>>
    where
        B: Body<Data = D>,
        B::Error: Into<BoxError>,
    {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Open => {
                    let Some(body) = body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
                    let frame = ready!(body.poll_frame(cx));
                    return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
                }
                Stage::Holding(hold, loss) => {
                    let loss = loss.get_or_insert_with(|| Box::pin(hold.loss()));
                    if loss.as_mut().poll(cx).is_ready() {
                        if self.stops {
                            body.set(None);
                            return Poll::Ready(Some(self.lost()));
                        }
                        self.end(); // the lock is gone, the work is to go on
                        self.stage = Stage::Open;
                        continue;
                    }
                    let mut inner = body.as_mut().as_pin_mut().expect("there until it has ended");
                    let frame = ready!(inner.as_mut().poll_frame(cx));
                    if matches!(frame, Some(Ok(_))) && !inner.is_end_stream() {
                        return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
                    }
                    body.set(None);
                    match frame {
                        Some(Err(error)) => {
                            self.end();
                            self.stage = Stage::Over;
                            return Poll::Ready(Some(Err(error.into())));
                        }
                        last => self.give_back(last.and_then(Result::ok)),
                    }
                }
                Stage::Releasing(frame, releasing) => {
                    let lasted = ready!(releasing.as_mut().poll(cx));
                    let frame = frame.take();
                    if lasted == Lasted::NotToTheEnd && self.stops {
                        return Poll::Ready(Some(self.lost()));
                    }
                    self.end();
                    self.stage = Stage::Over;
                    return Poll::Ready(frame.map(Ok));
                }
            }
        }
    }

    fn give_back(&mut self, last: Option<Frame<D>>) {
        let Stage::Holding(hold, _) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        let releasing = match self.releases_in_background {
            true => Releasing::new(std::iter::empty()), // the drop of the hold does it
            false => hold.release(),
        };
        self.stage = Stage::Releasing(last, Box::pin(releasing));
    }

    /// The last that the client gets: trailers where there is a client that reads them, or a body that is cut.
    fn lost(&mut self) -> Result<Frame<D>, BoxError> {
        let error = LockError::lost();
        self.journal.iter_mut().for_each(|journal| journal.refused(&error));
        self.journal = None;
        self.stage = Stage::Over;
        self.answers.refusals.last_frame(&error).ok_or_else(|| error.into())
    }

    fn end(&mut self) {
        self.journal.iter_mut().for_each(Journal::served);
        self.journal = None;
    }
}

impl<B: Body + Default> Default for LockBody<B> {
    fn default() -> Self {
        Self::open(B::default())
    }
}

impl<B: Body> fmt::Debug for LockBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Refusal(_) => "LockBody::Refusal",
            Kind::Open(_) => "LockBody::Open",
            Kind::Held(..) => "LockBody::Held",
        })
    }
}

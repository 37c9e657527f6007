//! The options of the layers for HTTP that concern responses, and the methods that set them.

use std::sync::Arc;

use http::{Extensions, HeaderMap, Version};

use crate::hold::place::Place;
use crate::http::caller::{Caller, trace_parent};
use crate::http::connection::Connection;
use crate::http::deadline::Deadlines;
use crate::http::read_ahead::ReadBounds;
use crate::refusal::http::Refusals;

/// Half of the streams that hyper, and with it axum and tonic, lets a client open at a time.
const HALF_OF_THE_STREAMS: usize = 100;

/// The settings of a layer that concern its responses.
#[derive(Debug, Clone)]
pub(crate) struct ResponseOptions {
    pub(crate) refusals: Refusals,
    pub(crate) hold_until_body_end: bool,
    pub(crate) server_timing: bool,
    pub(crate) read_ahead: ReadBounds,
    /// The most requests of one connection that may wait.
    pub(crate) waiting_per_connection: usize,
    pub(crate) deadlines: Deadlines,
    /// Whether the header `traceparent` is the label of a request.
    pub(crate) labels_by_trace: bool,
    /// Whether the layer is switched off.
    pub(crate) passes_all: bool,
}

impl Default for ResponseOptions {
    fn default() -> Self {
        Self {
            refusals: Refusals::default(),
            hold_until_body_end: false,
            server_timing: false,
            read_ahead: ReadBounds::default(),
            waiting_per_connection: HALF_OF_THE_STREAMS,
            deadlines: Deadlines::default(),
            labels_by_trace: false,
            passes_all: false,
        }
    }
}

impl ResponseOptions {
    /// The place of a request among those of its connection that wait.
    pub(crate) fn place(&self, version: Version, extensions: &Extensions) -> Option<Place> {
        let connection = Connection::of(version, extensions)?;
        Some(connection.place(self.waiting_per_connection))
    }

    /// The options for the response to a request with these headers. All requests share them,
    /// except for those of gRPC-Web.
    pub(crate) fn of_request(self: &Arc<Self>, headers: &HeaderMap) -> Arc<Self> {
        match self.refusals.of_request(headers) {
            Some(refusals) => Arc::new(Self { refusals, ..Self::clone(self) }),
            None => Arc::clone(self),
        }
    }

    /// The caller of the request with these headers and extensions, as far as it is believed.
    pub(crate) fn caller(&self, headers: &HeaderMap, extensions: &Extensions) -> Caller {
        Caller {
            deadline: self.deadlines.of(headers, extensions),
            trace: self.labels_by_trace.then(|| trace_parent(headers)).flatten(),
        }
    }
}

/// The switch of the layers that read the key, on a type with a field `response_options`.
macro_rules! enabled {
    () => {
        /// Switches the layer on or off. The default is `true`. With `false` every request passes,
        /// as without the layer.
        ///
        /// This is for a layer that a flag switches on and off:
        /// `ServiceBuilder::new().layer(layer.enabled(flag))`. `tower`'s `option_layer` cannot take
        /// this layer, since it changes the types of the bodies. A
        /// [`LockLayer`](crate::LockLayer) changes no types, so `option_layer` takes it.
        #[doc(alias = "option_layer")]
        pub fn enabled(mut self, enabled: bool) -> Self {
            self.response_options.passes_all = !enabled;
            self
        }
    };
}
pub(crate) use enabled;

/// The option of the layers that otherwise hold until the response.
macro_rules! hold_until_body_end {
    () => {
        /// Holds the lock until the server has taken the last frame of the response's body, instead
        /// of until the response is there. This is for bodies that are produced under the lock. A
        /// body that fails or is dropped releases the lock, too.
        ///
        /// The last frame, or the error of a body that fails, waits until the lock is released: at
        /// most 500 ms, and not with [`release_in_background`](Self::release_in_background). A
        /// frame that the server has taken may not have reached the client.
        ///
        /// If the hold is lost meanwhile, the body ends with an error; under [`grpc`](Self::grpc)
        /// with trailers that say ABORTED.
        ///
        /// **Set [`max_hold`](Self::max_hold) with it**: otherwise a client that stops reading
        /// keeps the lock.
        pub fn hold_until_body_end(mut self, until_body_end: bool) -> Self {
            self.response_options.hold_until_body_end = until_body_end;
            self
        }
    };
}
pub(crate) use hold_until_body_end;

/// The options of the layers for HTTP, on a type with a field `response_options`.
macro_rules! response_options {
    () => {
        /// Reports to the client the wait of its request, in milliseconds, and how many waiters
        /// were ahead when it was queued: `Server-Timing: lock;dur=12.3, lock-queue;desc=4`. The
        /// second part is left out if it was not queued. Off by default, since it shows every
        /// client how contended a key is.
        pub fn server_timing(mut self, server_timing: bool) -> Self {
            self.response_options.server_timing = server_timing;
            self
        }

        /// Ends the wait of a request when its caller's deadline is near: at the earliest deadline
        /// of these sources, less the [`handler_reserve`](Self::handler_reserve), and never after
        /// the [`wait`](Self::wait). A request whose time has passed does not wait. A wait that
        /// ends in this way is refused as one that times out: [`Busy`](crate::Cause::Busy), 423, or
        /// for permits [`LimitReached`](crate::Cause::LimitReached), 429. No source by default. A
        /// client that chooses its deadline can shorten no wait but its own.
        pub fn deadline_from(
            mut self,
            sources: impl IntoIterator<Item = crate::http::DeadlineSource>,
        ) -> Self {
            self.response_options.deadlines.sources.extend(sources);
            self
        }

        /// The part of a caller's time that the handler needs: a wait ends that long before the
        /// deadline. Zero by default.
        pub fn handler_reserve(mut self, reserve: std::time::Duration) -> Self {
            self.response_options.deadlines.reserve = reserve;
            self
        }

        /// Labels a request with its header `traceparent` ([W3C Trace
        /// Context](https://www.w3.org/TR/trace-context/)), in place of the layer's
        /// [`label`](Self::label): the label of a holder then tells the trace of the request that
        /// holds, and with [`record_holders`](Self::record_holders) the span of one that waits has
        /// it. Off by default: a client can send the trace of another, and labels are shown to all
        /// that may inspect.
        ///
        /// A header that is no [`TraceParent`](lockcore::TraceParent), or that is there twice, is
        /// ignored, as the specification demands: a trace does not decide whether a request is
        /// served. Where your own spans have traces,
        /// [`trace_links`](lockcore::LocksBuilder::trace_links) needs no header.
        pub fn label_by_trace(mut self, by_trace: bool) -> Self {
            self.response_options.labels_by_trace = by_trace;
            self
        }

        /// The bytes of memory that the body of one request may take while the request waits: its
        /// data, which is copied, its trailers, and 128 bytes for each piece. The default is 4 MiB,
        /// the largest message of gRPC. The frame that goes beyond the bound is kept, too.
        ///
        /// On HTTP/2 and later the requests of a connection share one window for their bodies: an
        /// unread body would take the window from the others, also from the request that holds the
        /// lock. So a request with a larger body is refused
        /// ([`Cause::BodyLimit`](crate::Cause::BodyLimit), 413) if it still waits 100 ms after that
        /// much has arrived. A request that need not wait has no bound.
        ///
        /// On HTTP/1 the body is read only to see whether the client is still there: up to 64 KiB,
        /// or up to this bound if it is lower. No request is refused for a larger body. It is read
        /// no further, and as long as a part of it is unread, a client that is gone is not noticed.
        /// A body that fails ends the wait
        /// ([`Cause::BodyFailed`](crate::Cause::BodyFailed)), on HTTP/2 as well. To let large
        /// uploads wait, read them before, in a layer outside or with lock-axum's `LockedBody`.
        pub fn read_ahead(mut self, bytes: usize) -> Self {
            self.response_options.read_ahead.each = bytes;
            self
        }

        /// The bytes of memory that all requests of this layer and its clones may take for bodies
        /// that are read ahead. The default is 64 MiB. The first 64 KiB of each request do not
        /// count, so that a client with large bodies cannot take the room of requests with small
        /// ones. [`queue_limit`](Self::queue_limit) and
        /// [`max_waiting`](lockcore::LocksBuilder::max_waiting) bound how many requests wait, and
        /// with that the memory of these shares.
        ///
        /// A request that finds no room is refused
        /// ([`Cause::ReadAheadFull`](crate::Cause::ReadAheadFull), 503) if it still waits 100 ms
        /// later. The layer does not tell clients apart: one that needs more than the 64 KiB
        /// competes with all others for this room.
        pub fn read_ahead_total(mut self, bytes: usize) -> Self {
            self.response_options.read_ahead.set_total(bytes);
            self
        }

        /// The most requests of one HTTP/2 connection that may wait for a lock at the same time;
        /// 100 by default, half of the streams that hyper, axum and tonic let a client open. A
        /// request that is queued beyond it leaves the queue, and is refused
        /// ([`Cause::ConnectionFull`](crate::Cause::ConnectionFull), 503). Otherwise the waiters of
        /// one busy key could use up all streams of a connection, and no other request of it would
        /// be served: those of a proxy, or of a gRPC client, share one or a few.
        ///
        /// Only where the layer knows the connection: where a
        /// [`Connection`](crate::http::Connection) is in the extensions of the request, as
        /// [`PerConnection`](crate::http::PerConnection) puts it there. Elsewhere keep the
        /// [`queue_limit`](Self::queue_limit) well below the server's `max_concurrent_streams`.
        pub fn waiting_per_connection(mut self, requests: usize) -> Self {
            self.response_options.waiting_per_connection = requests;
            self
        }

        /// Sets another status for one cause of refusal. It has no effect with
        /// [`grpc`](Self::grpc), where the status is 200, or with
        /// [`respond_with`](Self::respond_with).
        pub fn status(mut self, cause: crate::Cause, status: http::StatusCode) -> Self {
            self.response_options.refusals = self.response_options.refusals.status(cause, status);
            self
        }

        /// Refuses in gRPC's format, and in gRPC-Web's where the request is gRPC-Web. For a whole
        /// tonic server or one of its services.
        pub fn grpc(mut self) -> Self {
            self.response_options.refusals = self.response_options.refusals.grpc();
            self
        }

        /// Refuses with responses of your own.
        pub fn respond_with<F>(mut self, respond: F) -> Self
        where
            F: Fn(&crate::LockError) -> http::Response<bytes::Bytes> + Send + Sync + 'static,
        {
            self.response_options.refusals = self.response_options.refusals.respond_with(respond);
            self
        }

        /// Sets all refusals at once: for several layers that answer alike.
        pub fn refusals(mut self, refusals: crate::Refusals) -> Self {
            self.response_options.refusals = refusals;
            self
        }
    };
}
pub(crate) use response_options;

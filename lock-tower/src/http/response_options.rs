//! The options that only layers for HTTP have, and the macros for their setters.

use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderMap, Version};

use crate::hold::place::Place;
use crate::http::caller::{Caller, trace_parent};
use crate::http::connection::Connection;
use crate::http::deadline::Deadlines;
use crate::http::read_ahead::ReadBounds;
use crate::refusal::http::Refusals;

/// The default maximum of waiting requests per connection: half of hyper's default limit of
/// concurrent streams per client, which axum and tonic inherit.
const HALF_OF_THE_STREAMS: usize = 100;

/// The settings that only layers for HTTP have, such as the format of refusals and the bounds for
/// reading ahead.
#[derive(Debug, Clone)]
pub(crate) struct ResponseOptions {
    pub(crate) refusals: Refusals,
    pub(crate) hold_until_body_end: bool,
    pub(crate) server_timing: bool,
    /// How much memory the bodies of waiting requests may take.
    pub(crate) read_ahead: ReadBounds,
    /// The maximum number of requests per connection that wait for a lock at the same time.
    pub(crate) waiting_per_connection: usize,
    pub(crate) deadlines: Deadlines,
    /// True if the trace context in the header `traceparent` becomes the label of the request's
    /// locks.
    pub(crate) labels_by_trace: bool,
    /// True if the layer is switched off, so that every request passes without a lock.
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
    /// Returns a [`Place`] for the request among the waiting requests on its connection; `None` if
    /// the connection is unknown, or not shared.
    pub(crate) fn place(&self, version: Version, extensions: &Extensions) -> Option<Place> {
        let connection = Connection::of(version, extensions)?;
        Some(connection.place(self.waiting_per_connection))
    }

    /// Returns the options for a request with these headers. They are equal to `self`, except that
    /// a layer set to gRPC refuses only gRPC requests in this format.
    pub(crate) fn of_request(self: &Arc<Self>, headers: &HeaderMap) -> Arc<Self> {
        match self.refusals.of_request(headers) {
            Some(refusals) => Arc::new(Self { refusals, ..Self::clone(self) }),
            None => Arc::clone(self),
        }
    }

    /// Reads the caller's deadline and trace context from the request. Each is `None` unless the
    /// layer is set to read it. Puts the deadline into the extensions.
    pub(crate) fn caller(&self, parts: &mut Parts) -> Caller {
        Caller {
            deadline: self.deadlines.read(parts),
            trace: self.labels_by_trace.then(|| trace_parent(&parts.headers)).flatten(),
        }
    }
}

/// Defines the setter `enabled`, for layers that read the key. The type has a field
/// `response_options`.
macro_rules! enabled {
    () => {
        /// Switches the layer on or off. The default is `true`. With `false` every request passes
        /// as if there were no layer.
        ///
        /// Use it for a layer controlled by a flag:
        /// `ServiceBuilder::new().layer(layer.enabled(flag))`. `tower`'s `option_layer` cannot take
        /// this layer, because it changes the body types. A [`LockLayer`](crate::LockLayer) changes
        /// no types, so `option_layer` takes it.
        #[doc(alias = "option_layer")]
        pub fn enabled(mut self, enabled: bool) -> Self {
            self.response_options.passes_all = !enabled;
            self
        }
    };
}
pub(crate) use enabled;

/// Defines the setter `hold_until_body_end`, for a type with a field `response_options`.
macro_rules! hold_until_body_end {
    () => {
        /// Holds the lock until the server has taken the response body's last frame, instead of
        /// only until the response is ready. For bodies that the handler produces under the lock. A
        /// body that fails or is dropped also releases the lock. Off by default.
        ///
        /// The last frame, or the error of a failed body, is sent after the lock is released: at
        /// most 500 ms later, and at once with
        /// [`release_in_background`](Self::release_in_background). The client may receive a frame
        /// later than the server takes it.
        ///
        /// If the lock is lost meanwhile, the body ends with an error; under [`grpc`](Self::grpc)
        /// with ABORTED in the trailers.
        ///
        /// **Combine it with [`max_hold`](Self::max_hold)**: otherwise a client that stops reading
        /// keeps the lock.
        pub fn hold_until_body_end(mut self, until_body_end: bool) -> Self {
            self.response_options.hold_until_body_end = until_body_end;
            self
        }
    };
}
pub(crate) use hold_until_body_end;

/// Defines the setters that all layers for HTTP have, for a type with a field `response_options`.
macro_rules! response_options {
    () => {
        /// Adds the header `Server-Timing` to responses, with the request's wait in milliseconds
        /// and the number of waiters ahead when it was queued: `lock;dur=12.3, lock-queue;desc=4`.
        /// The second part is omitted if the request was not queued. Off by default, because it
        /// shows every client how contended a key is.
        pub fn server_timing(mut self, server_timing: bool) -> Self {
            self.response_options.server_timing = server_timing;
            self
        }

        /// Ends a request's wait before its caller stops waiting: at the earliest deadline from
        /// these sources, less the [`handler_reserve`](Self::handler_reserve). The wait also ends
        /// after the maximum [`wait`](Self::wait). A request past the deadline does not wait. The
        /// refusal is the same as for a timed-out wait: [`Busy`](crate::Cause::Busy), 423, or for
        /// permits [`LimitReached`](crate::Cause::LimitReached), 429. By default there is no
        /// source. A client that chooses its deadline can shorten only its own wait. The handler
        /// finds the deadline in the request's extensions, as a
        /// [`Deadline`](crate::http::Deadline).
        pub fn deadline_from(
            mut self,
            sources: impl IntoIterator<Item = crate::http::DeadlineSource>,
        ) -> Self {
            self.response_options.deadlines.sources.extend(sources);
            self
        }

        /// Reserves part of the caller's time for the handler: a wait ends this long before the
        /// deadline from [`deadline_from`](Self::deadline_from). Zero by default.
        pub fn handler_reserve(mut self, reserve: std::time::Duration) -> Self {
            self.response_options.deadlines.reserve = reserve;
            self
        }

        /// Labels a request with the header `traceparent` ([W3C Trace
        /// Context](https://www.w3.org/TR/trace-context/)), instead of the layer's
        /// [`label`](Self::label). The label of a lock holder then shows the trace of the holding
        /// request. With [`record_holders`](Self::record_holders) this label also appears in the
        /// span of a waiting request. Off by default, because a client can send a foreign trace,
        /// and labels are visible to everyone who may inspect locks.
        ///
        /// A header that is invalid (see [`TraceParent`](lockcore::TraceParent)) or repeated is
        /// ignored, as the specification demands: a trace does not decide whether a request is
        /// served. If your own spans have traces,
        /// [`trace_links`](lockcore::LocksBuilder::trace_links) needs no header.
        pub fn label_by_trace(mut self, by_trace: bool) -> Self {
            self.response_options.labels_by_trace = by_trace;
            self
        }

        /// Sets how many bytes of memory a request body may take while the request waits. The sum
        /// includes the data, which is copied, the trailers, and 128 bytes for each buffered frame.
        /// Small frames are merged. The default is 4 MiB, gRPC's default maximum message size. The
        /// frame that exceeds the bound is still kept.
        ///
        /// On HTTP/2 and later the requests on a connection share one flow-control window for their
        /// bodies: an unread body would take the window from the other requests, including the
        /// request that holds the lock. So a request with a larger body is refused
        /// ([`Cause::BodyLimit`](crate::Cause::BodyLimit), 413) if it still waits 100 ms after
        /// exceeding the bound. The bound does not apply to a request that need not wait.
        ///
        /// On HTTP/1 the body is read only to detect a disconnect: up to 64 KiB of memory, which is
        /// 32 to 64 KiB of data, or up to this bound if lower. No request is refused for a larger
        /// body. The rest stays unread during the wait, and meanwhile a disconnect is not detected.
        /// A failed body ends the wait ([`Cause::BodyFailed`](crate::Cause::BodyFailed)), also on
        /// HTTP/2. To let large uploads wait, read them first, in an outer layer or with
        /// lock-axum's `LockedBody`, as a type that reads the whole body.
        pub fn read_ahead(mut self, bytes: usize) -> Self {
            self.response_options.read_ahead.each = bytes;
            self
        }

        /// Sets how many bytes of memory the bodies of all waiting requests of this layer and its
        /// clones may take together. The default is 64 MiB. The first 64 KiB of each request are
        /// not included, so that a client with large bodies cannot take the room of requests with
        /// small bodies. The memory for these shares is limited by the number of waiting requests:
        /// see [`queue_limit`](Self::queue_limit) and
        /// [`max_waiting`](lockcore::LocksBuilder::max_waiting).
        ///
        /// A request whose body finds no room is refused
        /// ([`Cause::ReadAheadFull`](crate::Cause::ReadAheadFull), 503) if it still waits 100 ms
        /// later. The layer does not distinguish clients: all requests that need more than 64 KiB
        /// compete for this room.
        pub fn read_ahead_total(mut self, bytes: usize) -> Self {
            self.response_options.read_ahead.set_total(bytes);
            self
        }

        /// Sets the maximum number of requests per HTTP/2 connection that wait for a lock at the
        /// same time; 100 by default, half the streams that hyper, axum and tonic grant a client. A
        /// request queued beyond this limit leaves the queue, and is refused
        /// ([`Cause::ConnectionFull`](crate::Cause::ConnectionFull), 503). Otherwise the waiters
        /// for a busy key could use up all streams of a connection, and its other requests would
        /// not be served: a proxy or a gRPC client sends all requests over one or a few
        /// connections.
        ///
        /// This works only if the layer knows the connection:
        /// [`PerConnection`](crate::http::PerConnection) puts a
        /// [`Connection`](crate::http::Connection) into the extensions of each request. Otherwise
        /// keep the [`queue_limit`](Self::queue_limit) well below the server's
        /// `max_concurrent_streams`.
        pub fn waiting_per_connection(mut self, requests: usize) -> Self {
            self.response_options.waiting_per_connection = requests;
            self
        }

        /// Sets the status of refusals with this cause, instead of the default in the table of
        /// [`Refusals`](crate::Refusals). Has no effect on refusals in [gRPC format](Self::grpc),
        /// where the status is 200, or with [`respond_with`](Self::respond_with).
        pub fn status(mut self, cause: crate::Cause, status: http::StatusCode) -> Self {
            self.response_options.refusals = self.response_options.refusals.status(cause, status);
            self
        }

        /// Refuses gRPC requests in gRPC format, and gRPC-Web requests in gRPC-Web format. All
        /// other requests are still refused as problem+json. For a tonic server, a single service,
        /// or a gateway for gRPC and HTTP.
        pub fn grpc(mut self) -> Self {
            self.response_options.refusals = self.response_options.refusals.grpc();
            self
        }

        /// Refuses requests with the responses that `respond` returns, instead of problem+json.
        pub fn respond_with<F>(mut self, respond: F) -> Self
        where
            F: Fn(&crate::LockError) -> http::Response<bytes::Bytes> + Send + Sync + 'static,
        {
            self.response_options.refusals = self.response_options.refusals.respond_with(respond);
            self
        }

        /// Sets all options of refusals at once, for several layers that refuse in the same way.
        pub fn refusals(mut self, refusals: crate::Refusals) -> Self {
            self.response_options.refusals = refusals;
            self
        }
    };
}
pub(crate) use response_options;

//! An axum router with pages for operators, which show all locks in a [`Locks`] store.
//!
//! **The pages have no authentication of their own.** They show lock names and the labels of all
//! requests to every visitor. Nest them behind your operators' authentication, or serve them on a
//! separate listener that only operators can reach. They are served only under IP addresses,
//! `localhost` and the [names you add](Dashboard::hosts), because any other name could belong to a
//! site that poses as the dashboard.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::Router;
//! use axum::extract::Request;
//! use axum::middleware::{Next, from_fn};
//! use axum::response::Response;
//! use http::StatusCode;
//! use lock_dashboard::Dashboard;
//! use lockcore::Locks;
//!
//! /// Replace this with your service's authentication.
//! async fn only_operators(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     match request.headers().get("authorization") {
//!         Some(secret) if secret == "Bearer of-the-operators" => Ok(next.run(request).await),
//!         _ => Err(StatusCode::UNAUTHORIZED),
//!     }
//! }
//!
//! let locks = Locks::builder().namespace("shop").in_memory()?;
//! let dashboard = Dashboard::new(locks).into_router().layer(from_fn(only_operators));
//! // With `nest` instead, the path with a trailing slash would be 404.
//! let app: Router = Router::new().nest_service("/admin/locks", dashboard);
//! # use tower::ServiceExt as _;
//! # let get = |path: &str| axum::extract::Request::get(path);
//! # let request = get("/admin/locks/node").body(axum::body::Body::empty()).unwrap();
//! # assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 401);
//! # let request = get("/admin/locks/node").header("authorization", "Bearer of-the-operators");
//! # let request = request.body(axum::body::Body::empty()).unwrap();
//! # assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Pages
//!
//! | path | shows | costs |
//! |---|---|---|
//! | `node` | this process: connections, waits and holds, by class and individually; the last ten minutes as a graph, and the hottest names of the last 24 hours | no server load |
//! | `lock?name=order:42` | a lock: holders, and queue with positions, ages and the time until each turn; for a free name, similar busy locks | as much server load as it shows, regardless of the number of waiters; for a free name, a survey, as `overview` |
//! | `overview?has=order` | all held or awaited locks in the namespace, or only those with a given text in their name or their holder's label; sorted by longest queue, oldest wait or oldest holder | a [survey](lockcore::operate::Survey::next_page) of at most 1 000 locks or 2 seconds; at most one every 2 seconds, never two at once, and at most 20 % of the time |
//! | `release` | by POST, if [enabled](Dashboard::allow_release): releases all holds on a lock | |
//!
//! The path where the dashboard is nested redirects to `node`; with
//! [`nest_service`](Router::nest_service) also with a trailing slash. The query parameters `from`
//! (how many entries to skip) and `most` (how many to show) select a part from a list. The default
//! is the first 100 entries; `most` is at most 1 000. A page with a partial list says so.
//!
//! Each path responds with JSON to `Accept: application/json`, and to `Accept: text/event-stream`
//! with events that update an open page every second. One task for each *different* page renders
//! its updates, and ends when the page closes. At most 16 *different* pages update at a time.
//! Further event streams are refused (503), so their pages do not update. An event stream ends
//! after 10 seconds and the browser reconnects. So a graceful shutdown of your server waits for
//! open pages at most that long, or not at all with [`until`](Dashboard::until).
//!
//! The pages work without JavaScript and load nothing from elsewhere, enforced by a content
//! security policy. With [`redact_names`](lockcore::LocksBuilder::redact_names) they show no lock
//! names. The name of a lock an operator looks up is part of the page's URL, which access logs may
//! record.

mod accept;
mod form;
mod history;
mod host;
mod live;
mod lock;
mod meant;
mod node;
mod overview;
mod page;
mod plot;
mod refusal;
mod release;
mod turns;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, pending};
use http::StatusCode;
use http::header::LOCATION;
use lockcore::Locks;
use serde::Deserialize;

use history::History;
use host::Host;
use live::Live;
use overview::{LastSurvey, Which};
use turns::Queues;

/// The maximum number of holders, and of waiters, that a page shows.
const MOST_SHOWN: u32 = 1_000;
/// The maximum size in bytes for a submitted form.
const MAX_FORM: usize = 64 << 10;
/// The maximum number of queues, or parts of queues, whose turns are observed for the pages of
/// locks. Each takes about 100 kB if it has 1 000 waiters. More than the pages that update at a
/// time, so that these do not replace each other.
const MAX_QUEUES: usize = 64;

/// The pages that show the locks in a [`Locks`] store, and their settings.
///
/// The pages have no authentication: see [the crate documentation](self).
#[derive(Debug, Clone)]
#[must_use = "a dashboard serves nothing until into_router() is called"]
pub struct Dashboard {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    end: End,
}

/// The future whose completion ends the event streams of all open pages.
type End = Shared<BoxFuture<'static, ()>>;

impl Dashboard {
    /// Creates a dashboard for `locks`. Its pages are read-only, and served under IP addresses and
    /// `localhost`.
    pub fn new(locks: Locks) -> Self {
        let end = pending().boxed().shared();
        Self { locks, allows_release: false, hosts: Vec::new(), end }
    }

    /// Sets whether operators may release a lock by force, with [`Locks::force_release`]. The
    /// lock's holders keep running, and only a resource that checks fencing tokens refuses their
    /// writes. Off by default: a release is then refused with 403.
    ///
    /// Each successful release is a `tracing` event at `warn`, with the lock name (unless names are
    /// redacted), the holders' labels, and the browser's address if the router is served [with
    /// it](Router::into_make_service_with_connect_info). Your authentication has to log which
    /// operator it was.
    ///
    /// The release form contains a token that is also in a cookie, so that no other site can submit
    /// the form for a signed-in operator. A request is also refused if the browser reports a
    /// foreign origin, or if the [host name](Self::hosts) is not the dashboard's.
    ///
    /// The form also contains the holders that its page has shown; of more than 64, the oldest. If
    /// none of them holds any more, and another does, nothing is released (409), unless there are a
    /// thousand holders. A program that submits the form can also send `holders`: a JSON list of
    /// `member` texts from the lock's JSON, all or some. Without the field, it releases whoever
    /// holds. A form may have 64 KiB.
    pub fn allow_release(mut self, allow: bool) -> Self {
        self.allows_release = allow;
        self
    }

    /// Adds host names under which the dashboard is served, each with or without a port. A request
    /// for another name is refused (421), because another site could make its own name resolve to
    /// the dashboard's address, and a browser would then let that site read the pages and submit
    /// the form. IP addresses and `localhost` are always accepted; by default nothing else is.
    ///
    /// A request's name is in the `Host` header or, in HTTP/2, in the authority. A proxy in front
    /// of the dashboard may have set another name. Repeated calls add names.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = lockcore::Locks::in_memory();
    /// use lock_dashboard::Dashboard;
    ///
    /// let dashboard = Dashboard::new(locks).hosts(["locks.internal", "ops.example:8443"]);
    /// # let _: axum::Router = dashboard.into_router();
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics if an item is not a host name with an optional port.
    #[track_caller]
    pub fn hosts<S: AsRef<str>>(mut self, hosts: impl IntoIterator<Item = S>) -> Self {
        for host in hosts {
            self.hosts.push(Host::new(host.as_ref()));
        }
        self
    }

    /// Sets a future whose completion ends the event streams of open pages. It should complete when
    /// a graceful shutdown starts, so that the shutdown does not wait for open pages. The future is
    /// polled only while a page is open, so it must also complete if the shutdown started before it
    /// was first polled.
    ///
    /// ```
    /// # async fn example(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    /// # let locks = lockcore::Locks::in_memory();
    /// use axum::Router;
    /// use lock_dashboard::Dashboard;
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let end = CancellationToken::new();
    /// let dashboard = Dashboard::new(locks).until(end.clone().cancelled_owned()).into_router();
    /// let app: Router = Router::new().nest_service("/locks", dashboard);
    /// let interrupted = async move {
    ///     tokio::signal::ctrl_c().await.unwrap_or_default();
    ///     end.cancel();
    /// };
    /// axum::serve(listener, app).with_graceful_shutdown(interrupted).await
    /// # }
    /// ```
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        self.end = end.boxed().shared();
        self
    }

    /// Returns the router with the pages, to [nest](Router::nest_service) at a separate path.
    ///
    /// Within a tokio runtime, this also starts the task that records the last ten minutes; outside
    /// a runtime, the first page view starts it. The task ends when the router is dropped.
    pub fn into_router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let Self { locks, allows_release, hosts, end } = self;
        let (live, survey) = (Live::default(), LastSurvey::default());
        let queues = Queues::new(MAX_QUEUES);
        let history = History::default();
        history.begin(&locks);
        let board =
            Arc::new(Board { locks, allows_release, hosts, end, live, survey, queues, history });
        Router::new()
            .route("/", get(to_node))
            .route("/node", get(node::show))
            .route("/lock", get(lock::show))
            .route("/overview", get(overview::show))
            .route("/release", post(release::release))
            .route("/dashboard.css", get(page::css))
            .route("/dashboard.js", get(page::js))
            .fallback(accept::no_page)
            .method_not_allowed_fallback(accept::no_method)
            .layer(DefaultBodyLimit::max(MAX_FORM))
            .layer(from_fn_with_state(Arc::clone(&board), host::check))
            .with_state(board)
    }
}

/// The state that all pages share: the locks, the settings, the open event streams, and the results
/// that are kept between requests.
#[derive(Debug)]
struct Board {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    /// Ends the event streams of open pages when it completes.
    end: End,
    live: Live,
    survey: LastSurvey,
    queues: Queues,
    history: History,
}

/// A page that is updated while it is open, with the parameters that select its content. All
/// visitors of the same topic receive the same rendered content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Topic {
    Node,
    Lock { name: String, from: u32, most: u32 },
    Overview(Which),
}

impl Board {
    /// Renders the topic's current content, without the frame of the page, for the event streams.
    async fn render(&self, topic: &Topic) -> Arc<str> {
        match topic {
            Topic::Node => node::fragment(self),
            Topic::Lock { name, from, most } => lock::fragment(self, name, (*from, *most)).await,
            Topic::Overview(which) => overview::fragment(self, which).await,
        }
        .into_string()
        .into()
    }
}

/// The query parameters that select a part of a list.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
struct Part {
    /// The number of entries to skip.
    from: u32,
    /// The requested number of entries to show.
    most: u32,
}

impl Default for Part {
    fn default() -> Self {
        Self { from: 0, most: 100 }
    }
}

impl Part {
    /// Returns how many entries to show: the requested number, but at least 1 and at most
    /// [`MOST_SHOWN`].
    fn most(self) -> u32 {
        self.most.clamp(1, MOST_SHOWN)
    }
}

/// Handles `GET /`: redirects to the page `node`. The target is relative, like all links, so that
/// the pages work behind a proxy that rewrites paths.
async fn to_node(OriginalUri(uri): OriginalUri) -> Response {
    let folder = uri.path().rsplit('/').next().unwrap_or_default();
    let node = if folder.is_empty() { "node".to_owned() } else { format!("{folder}/node") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, node)]).into_response()
}

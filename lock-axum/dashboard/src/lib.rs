//! Pages for operators that show all locks in a [`Locks`] store, to nest into your router.
//!
//! **The pages have no authentication of their own.** They show lock names and the labels of all
//! requests to every visitor. Nest them behind your operators' authentication, or serve them on a
//! separate listener that only operators can reach. They are served at IP addresses, `localhost`
//! and the [names you add](Dashboard::hosts): any other name could be a site posing as the
//! dashboard.
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
//! [`nest_service`](Router::nest_service) also with a trailing slash. `from` and `most` select a
//! part of a list: 100 entries by default, at most 1 000. A page with a partial list says so.
//!
//! Each path responds with JSON to `Accept: application/json`, and to `Accept: text/event-stream`
//! with events that update an open page every second. A single task serves all open pages and ends
//! when the last page closes. At most 16 *different* pages update at a time; further event streams
//! are refused (503), and their pages do not update. An event stream ends after 10 seconds and the
//! browser reconnects: a graceful shutdown of your server waits at most that long, or not at all
//! with [a token](Dashboard::until).
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
use http::StatusCode;
use http::header::LOCATION;
use lockcore::Locks;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use history::History;
use host::Host;
use live::Live;
use overview::{LastSurvey, Which};
use turns::Queues;

/// Maximum form size in bytes.
const MAX_FORM: usize = 8 << 10;

/// Pages that show the locks in a [`Locks`] store.
///
/// They have no authentication: see [the crate documentation](self).
#[derive(Debug, Clone)]
pub struct Dashboard {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    end: CancellationToken,
}

impl Dashboard {
    /// Creates read-only pages.
    pub fn new(locks: Locks) -> Self {
        let end = CancellationToken::new();
        Self { locks, allows_release: false, hosts: Vec::new(), end }
    }

    /// Lets operators release a lock by force, with [`Locks::force_release`]: its holders keep
    /// running, and only a resource that checks fencing tokens refuses their writes. Off by
    /// default: the response is then 403.
    ///
    /// Each successful release is a `tracing` event at `warn`, with the lock name (unless names are
    /// redacted), the holders' labels, and the browser's address if the router is served [with
    /// it](Router::into_make_service_with_connect_info). Your authentication has to log which
    /// operator it was.
    ///
    /// The form contains a token that is also in a cookie, so that no other site can submit it for
    /// a signed-in operator. A request is also refused if the browser reports a foreign origin, or
    /// if the [host name](Self::hosts) is not the dashboard's.
    pub fn allow_release(mut self, allow: bool) -> Self {
        self.allows_release = allow;
        self
    }

    /// Adds host names of the dashboard, each with or without a port. A request for another name is
    /// refused (421): another site could make its name resolve to the dashboard's address, and a
    /// browser would then let that site read the pages and submit the form. IP addresses and
    /// `localhost` are always accepted; by default nothing else is.
    ///
    /// The name is taken from the `Host` header or, in HTTP/2, from the authority: behind a proxy,
    /// it may be a name set by the proxy. Repeated calls add names.
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
    /// If an item is not a host name with an optional port.
    #[track_caller]
    pub fn hosts<S: AsRef<str>>(mut self, hosts: impl IntoIterator<Item = S>) -> Self {
        for host in hosts {
            self.hosts.push(Host::new(host.as_ref()));
        }
        self
    }

    /// Ends the events of open pages when the token is cancelled, so that a graceful shutdown does
    /// not wait for them: cancel it when the shutdown starts.
    ///
    /// ```
    /// # async fn example(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    /// # let locks = lockcore::Locks::in_memory();
    /// use axum::Router;
    /// use lock_dashboard::Dashboard;
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let end = CancellationToken::new();
    /// let dashboard = Dashboard::new(locks).until(end.clone()).into_router();
    /// let app: Router = Router::new().nest_service("/locks", dashboard);
    /// let interrupted = async move {
    ///     tokio::signal::ctrl_c().await.unwrap_or_default();
    ///     end.cancel();
    /// };
    /// axum::serve(listener, app).with_graceful_shutdown(interrupted).await
    /// # }
    /// ```
    pub fn until(mut self, end: CancellationToken) -> Self {
        self.end = end;
        self
    }

    /// Returns the routes, to [nest](Router::nest_service) at a path of their own.
    ///
    /// Within a tokio runtime, this starts the task that samples the last ten minutes, which ends
    /// with the routes; outside a runtime, the first page view starts it.
    pub fn into_router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let Self { locks, allows_release, hosts, end } = self;
        let (live, survey, queues) = (Live::default(), LastSurvey::default(), Queues::default());
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

/// The state shared by all pages.
#[derive(Debug)]
struct Board {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    /// Cancellation ends the events of open pages.
    end: CancellationToken,
    live: Live,
    survey: LastSurvey,
    queues: Queues,
    history: History,
}

/// A live page part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Topic {
    Node,
    Lock { name: String, from: u32, most: u32 },
    Overview(Which),
}

impl Board {
    /// Renders the current markup.
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

/// The part of a list to show.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
struct Part {
    from: u32,
    most: u32,
}

impl Default for Part {
    fn default() -> Self {
        Self { from: 0, most: 100 }
    }
}

impl Part {
    /// The maximum number of entries in a response.
    fn most(self) -> u32 {
        self.most.clamp(1, 1_000)
    }
}

/// `GET /`: relative, as all links are, so that the pages work behind a proxy that rewrites paths.
async fn to_node(OriginalUri(uri): OriginalUri) -> Response {
    let folder = uri.path().rsplit('/').next().unwrap_or_default();
    let node = if folder.is_empty() { "node".to_owned() } else { format!("{folder}/node") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, node)]).into_response()
}

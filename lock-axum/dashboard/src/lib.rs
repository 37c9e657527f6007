//! Pages that show the locks of a [`Locks`] to operators, to be nested into a router of yours.
//!
//! **They have no authentication of their own.** They show the names of locks and the labels of all
//! requests to each visitor. Nest them only behind the authentication that your
//! service has for its operators, or on a listener of their own that only operators reach. They are
//! served at IP addresses and `localhost`, and at the [names that you give](Dashboard::hosts): any
//! other one may be a site's that wants to be taken for the dashboard.
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
//! /// Stands for the authentication of your service.
//! async fn only_operators(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     match request.headers().get("authorization") {
//!         Some(secret) if secret == "Bearer of-the-operators" => Ok(next.run(request).await),
//!         _ => Err(StatusCode::UNAUTHORIZED),
//!     }
//! }
//!
//! let locks = Locks::builder().namespace("shop").in_memory()?;
//! let dashboard = Dashboard::new(locks).into_router().layer(from_fn(only_operators));
//! // With `nest` in place of it, the path with a slash at its end would be 404.
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
//! | `node` | this process: its connections, its waits and holds, by class and one by one; the last ten minutes as a picture, and the hottest names of the last 24 hours | the server nothing |
//! | `lock?name=order:42` | one lock: its holders, and its queue with positions, ages and the time until each turn; where the name is free, the locks that may be meant | the server as much as it shows, however many wait; where the name is free, a survey, as `overview` |
//! | `overview?has=order` | all locks of the namespace that are held or waited for, or those with a text in their name or the label of their holder: first those with the longest queue, the oldest wait or the holder that asked first | a [survey](lockcore::operate::Survey::next_page) of at most 1 000 locks or 2 seconds; one at a time, at most one in 2 seconds, and for a fifth of the time at most |
//! | `release` | by POST, if it is [switched on](Dashboard::allow_release): releases all holds of a lock | |
//!
//! The path at which the dashboard is nested leads to `node`, also with a slash at its end if it is
//! nested by [`nest_service`](Router::nest_service). `from` and `most` choose a part of a
//! list: 100 entries by default, at most 1 000. A page that does not show all says so.
//!
//! Each path answers with JSON to `Accept: application/json`, and to `Accept: text/event-stream`
//! with the events by which an open page changes each second. However many
//! pages are open, one task serves them, and ends with the last of them. At most 16 *different*
//! pages change at a time; the events of one more are refused (503), and it stands still. Such a
//! response ends after 10 seconds, and the browser asks again: a graceful shutdown of your server
//! waits that long at most, and not at all with [a token](Dashboard::until).
//!
//! The pages can be read without JavaScript, load nothing from elsewhere, and say so to the browser
//! by a content security policy. With [`redact_names`](lockcore::LocksBuilder::redact_names) they
//! name no lock. The name of a lock that an operator looks at is in the address of its page, which
//! access logs may have.

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

/// Most bytes of the form that releases a lock.
const MAX_FORM: usize = 8 << 10;

/// The pages that show the locks of a [`Locks`], and of its store.
///
/// They have no authentication: see [the crate](self).
#[derive(Debug, Clone)]
pub struct Dashboard {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    end: CancellationToken,
}

impl Dashboard {
    /// Pages that only show.
    pub fn new(locks: Locks) -> Self {
        let end = CancellationToken::new();
        Self { locks, allows_release: false, hosts: Vec::new(), end }
    }

    /// Lets operators release a lock by force, as [`Locks::force_release`] does it: its holders are
    /// not stopped, and only a resource that checks fencing tokens refuses their writes. Off by
    /// default: then the answer is 403.
    ///
    /// Each release that found a hold is an event of `tracing` at `warn`: with the name of the
    /// lock, unless names are redacted, the labels of its holders, and the address of the browser,
    /// if the router is served [with it](Router::into_make_service_with_connect_info). Which
    /// operator it was is for your authentication to log.
    ///
    /// The form has a token that is also in a cookie, so that no other site can send it for an
    /// operator who is signed in; a request that the browser says is from another site is refused,
    /// and so is one by a [name](Self::hosts) that is not the dashboard's.
    pub fn allow_release(mut self, allow: bool) -> Self {
        self.allows_release = allow;
        self
    }

    /// The names by which the dashboard is asked for, each with or without a port. A request by
    /// another name is refused (421): another site could have its name resolve to the address of
    /// the dashboard, and a browser would let it read the pages and send the form. IP addresses and
    /// `localhost` are always accepted, and by default nothing else.
    ///
    /// The name is that of the request, by its header `Host` or, in HTTP/2, its authority: behind a
    /// proxy it may be one that the proxy sets. Called again, it adds names.
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
    /// One of them is no name with or without a port.
    #[track_caller]
    pub fn hosts<S: AsRef<str>>(mut self, hosts: impl IntoIterator<Item = S>) -> Self {
        for host in hosts {
            self.hosts.push(Host::new(host.as_ref()));
        }
        self
    }

    /// Ends the events of open pages when the token is cancelled, so that a graceful shutdown does
    /// not wait for them: cancel it where the shutdown begins.
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

    /// The routes, to [nest](Router::nest_service) at a path of their own.
    ///
    /// Within a runtime of tokio it starts the task that samples the last minutes, which ends with
    /// the routes; outside of one, the first visit does.
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

/// The state of all pages.
#[derive(Debug)]
struct Board {
    locks: Locks,
    allows_release: bool,
    hosts: Vec<Host>,
    /// When it is cancelled, the events of open pages end.
    end: CancellationToken,
    live: Live,
    survey: LastSurvey,
    queues: Queues,
    history: History,
}

/// A part of a page that changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Topic {
    Node,
    Lock { name: String, from: u32, most: u32 },
    Overview(Which),
}

impl Board {
    /// The present markup of a part of a page that changes.
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

/// The part of a list that is shown.
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
    /// The most entries of an answer.
    fn most(self) -> u32 {
        self.most.clamp(1, 1_000)
    }
}

/// `GET /`: relative, as all links are, so that the pages work behind a proxy that changes paths.
async fn to_node(OriginalUri(uri): OriginalUri) -> Response {
    let folder = uri.path().rsplit('/').next().unwrap_or_default();
    let node = if folder.is_empty() { "node".to_owned() } else { format!("{folder}/node") };
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, node)]).into_response()
}

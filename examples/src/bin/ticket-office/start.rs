//! The office's startup, from its flags.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use lockcore::{LockErrorKind, Locks};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::database::Database;
use crate::faults::{self, Crew};
use crate::flags::Flags;
use crate::metrics::Metrics;
use crate::office::Office;
use crate::repeats;
use crate::routes::routes;
use crate::say;
use crate::seats::Seats;
use crate::shutdown::{self, Signals};

/// The exit code for a wrong flag, as clap uses it.
const USAGE: u8 = 2;

/// The reason why the office cannot open, and the exit code.
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    pub(crate) fn report(&self) -> ExitCode {
        say::trouble(&self.message);
        ExitCode::from(self.code)
    }
}

pub(crate) async fn run(flags: Flags) -> Result<(), Failure> {
    match flags.buyer() {
        Some(name) => {
            faults::run_buyer(name, locks(&flags).await?, seats(&flags).await?, &flags).await;
            Ok(())
        }
        None => open(flags).await,
    }
}

/// Opens the office, and serves requests until a signal has closed it.
async fn open(flags: Flags) -> Result<(), Failure> {
    let faults = flags.faults().map_err(|message| Failure { code: USAGE, message })?;
    say::events();
    let signals = Signals::listen().map_err(|error| {
        Failure::new(format!(
            "signal handlers cannot \
        be installed: {error}"
        ))
    })?;
    let metrics = Metrics::install().map_err(|error| {
        Failure::new(format!(
            "metrics cannot be \
        installed: {error}"
        ))
    })?;
    let seats = seats(&flags).await?;
    let locks = locks(&flags).await?;
    let once = repeats::layer(&flags, &locks).map_err(|error| Failure {
        code: USAGE,
        message: format!("--redis (or REDIS_URL): {error}"),
    })?;
    let listener = TcpListener::bind(flags.listen)
        .await
        .map_err(|error| Failure::new(format!("--listen {}: {error}", flags.listen)))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::new(format!("--listen {}: {error}", flags.listen)))?;

    let faults =
        faults.map(|url| Crew::new(url.to_owned(), metrics.clone(), flags.seats, flags.lease()));
    let board = Board::start(locks.clone(), seats.clone());
    let office = Office {
        locks,
        seats,
        board,
        shows_locks: flags.shows_locks(),
        metrics,
        faults,
        options: flags.options(),
        pay: flags.pay(),
    };
    say::news(description(&flags));
    if office.shows_locks {
        say::news(format_args!("lock pages: http://{}/locks", reachable(address)));
    }
    say::news(format_args!("open http://{}/", reachable(address)));
    let end = CancellationToken::new();
    let routes = routes(office.clone(), once, end.clone());
    shutdown::serve(listener, routes, office, (signals, end)).await;
    Ok(())
}

async fn seats(flags: &Flags) -> Result<Seats, Failure> {
    let path = flags.database();
    let database = Database::open(path.clone(), flags.seats)
        .await
        .map_err(|error| Failure::new(error.about(path.as_deref())))?;
    Ok(Seats::new(database, flags.seats))
}

/// Creates the locks, on Redis if configured, otherwise in memory.
async fn locks(flags: &Flags) -> Result<Locks, Failure> {
    // Names come from requests: the namespace confines them. A request timeout of 1 s fits leases
    // from 7.5 s on: after a wait, the first lease is a third.
    let builder =
        Locks::builder().namespace("ticket-office").request_timeout(Duration::from_secs(1));
    let locks = match flags.redis() {
        Some(url) => builder.connect(url).await,
        None => builder.in_memory(),
    };
    locks.map_err(|error| Failure {
        code: if error.kind() == LockErrorKind::InvalidOption { USAGE } else { 1 },
        // The URL is not shown: it may contain a password.
        message: format!("--redis (or REDIS_URL): {error}"),
    })
}

fn description(flags: &Flags) -> String {
    let locks = match flags.redis() {
        Some(_) => "locks on Redis",
        None => "in-memory locks, for this process only",
    };
    let database = match flags.database() {
        Some(path) => format!("database {}", path.display()),
        None => "a fresh in-memory database".to_owned(),
    };
    format!("{} seats, {locks}, {database}", flags.seats)
}

/// Returns the host and port by which a browser on this machine reaches the office.
fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

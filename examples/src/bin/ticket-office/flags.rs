//! Command line flags, each with an environment variable except `--faults`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::faults;
use clap::Parser;
use lockcore::LockOptions;

/// The maximum length of a payment. During a payment, the seat's queue does not move.
pub(crate) const MAX_PAY: Duration = Duration::from_secs(30);

/// The highest allowed `--max-wait`, in seconds.
const MAX_WAIT: f64 = 3_600.0;

/// SQLite's name for an in-memory database.
const IN_MEMORY: &str = ":memory:";

/// Sells numbered seats, one buyer at a time and in the order of arrival
#[derive(Debug, Clone, Parser)]
#[command(name = "ticket-office", version)]
pub(crate) struct Flags {
    /// The address to listen on
    #[arg(
        long,
        value_name = "ADDR",
        env = "TICKET_OFFICE_LISTEN",
        default_value = "127.0.0.1:8080"
    )]
    pub(crate) listen: SocketAddr,

    #[arg(
        help = "The SQLite file with the seats, which several processes may share; or :memory: \
            [default: ticket-office.sqlite with Redis, otherwise a fresh in-memory database]",
        long,
        value_name = "PATH",
        env = "TICKET_OFFICE_DATABASE"
    )]
    database: Option<PathBuf>,

    /// The number of seats, 1 to 1000
    #[arg(
        long,
        value_name = "N",
        env = "TICKET_OFFICE_SEATS",
        default_value_t = 20,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) seats: u32,

    /// The length of a payment in milliseconds, 0 to 30000
    #[arg(
        long,
        value_name = "N",
        env = "TICKET_OFFICE_PAY_MS",
        default_value_t = 3000,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(0..=MAX_PAY.as_millis() as u64)
    )]
    pay_ms: u64,

    /// The longest wait of a buyer in seconds; 0 tries once
    #[arg(
        long,
        value_name = "SECS",
        env = "TICKET_OFFICE_MAX_WAIT",
        default_value = "30",
        allow_negative_numbers = true,
        value_parser = wait
    )]
    pub(crate) max_wait: Duration,

    /// The lease of a seat's lock in seconds; renewed while a purchase runs
    #[arg(
        long,
        value_name = "SECS",
        env = "TICKET_OFFICE_LEASE",
        default_value = "10",
        allow_negative_numbers = true,
        value_parser = lease
    )]
    lease: Duration,

    /// The maximum number of buyers waiting for a seat
    #[arg(
        long,
        value_name = "N",
        env = "TICKET_OFFICE_QUEUE_LIMIT",
        default_value_t = 20,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    queue_limit: u32,

    // A help text instead of a doc comment, where brackets would be links.
    #[arg(
        help = "The Redis for locks shared by several processes: \
            redis://[user[:password]@]host[:port][/db], sentinels: \
            redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/name[/db], or some Redis \
            Cluster nodes: redis+cluster://[user[:password]@]host[:port][,host[:port]]… [default: \
            in-memory locks, for this process only]. A repeated purchase with the same \
            Idempotency-Key gets the first response: with redis:// from each process, otherwise \
            only from the process that sent it",
        long,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true // it may contain a password
    )]
    redis: Option<String>,

    /// Shows a panel that starts buyers as processes, and kills, freezes and disconnects them. For
    /// demonstrations: only on a loopback address, with a single Redis server and a database file
    #[arg(long)]
    faults: bool,

    /// The buyer's name, if this process is a buyer of the fault panel.
    #[arg(long, hide = true, env = faults::NAME, hide_env = true)]
    faults_buyer: Option<String>,

    /// The buyer's Redis URL, which leads to the buyer's relay.
    #[arg(long, hide = true, env = faults::REDIS, hide_env = true)]
    faults_redis: Option<String>,
}

impl Flags {
    /// Returns the URL of the Redis with the locks, in a buyer's process the URL of the relay.
    /// `None` for in-memory locks, also if the URL is empty: `REDIS_URL=`.
    pub(crate) fn redis(&self) -> Option<&str> {
        self.faults_redis.as_deref().or(self.redis.as_deref()).filter(|url| !url.is_empty())
    }

    /// Returns the Redis URL of the office for the buyers of the fault panel; `None` if the panel
    /// is off.
    ///
    /// # Errors
    /// A sentence for the user, if `--faults` is set and another flag does not allow the panel.
    pub(crate) fn faults(&self) -> Result<Option<&str>, String> {
        if !self.faults {
            return Ok(None);
        }
        if !self.listen.ip().is_loopback() {
            return Err(format!("--faults: {} is not a loopback address", self.listen));
        }
        if self.database().is_none() {
            return Err("--faults: the buyers need a database file".into());
        }
        let redis = self.redis().filter(|url| faults::split_url(url).is_some());
        redis.map(Some).ok_or_else(|| "--faults: the buyers need a redis:// URL".into())
    }

    /// Returns whether to serve the lock pages. They show the names of all buyers, so only visitors
    /// on this machine may see them: the office has to listen on a loopback address.
    pub(crate) fn shows_locks(&self) -> bool {
        self.listen.ip().is_loopback()
    }

    /// Returns the buyer's name, if this process is a buyer of the fault panel.
    pub(crate) fn buyer(&self) -> Option<&str> {
        self.faults_buyer.as_deref()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the database file; `None` for an in-memory database.
    pub(crate) fn database(&self) -> Option<PathBuf> {
        match &self.database {
            Some(path) if path == IN_MEMORY => None,
            Some(path) => Some(path.clone()),
            None => self.redis().map(|_| PathBuf::from("ticket-office.sqlite")),
        }
    }

    /// Returns the options of each seat's lock: wait, lease and queue limit.
    pub(crate) fn options(&self) -> LockOptions {
        LockOptions::new().wait(self.max_wait).lease(self.lease).queue_limit(self.queue_limit)
    }

    /// Returns the length of a payment for orders that do not set it.
    pub(crate) fn pay(&self) -> Duration {
        Duration::from_millis(self.pay_ms)
    }
}

fn seconds(text: &str, min: f64, max: f64) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (min..=max).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("must be {min} to {max} seconds")),
        Err(_) => Err("not a number of seconds".to_owned()),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    seconds(text, 0.0, MAX_WAIT)
}

fn lease(text: &str) -> Result<Duration, String> {
    seconds(text, LockOptions::MIN_LEASE.as_secs_f64(), LockOptions::MAX_LEASE.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Flags as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_locks_are_shown_on_a_loopback_address_alone() {
        for (listen, shows) in [("127.0.0.1:0", true), ("[::1]:0", true), ("0.0.0.0:0", false)] {
            let flags = Flags::try_parse_from(["ticket-office", "--listen", listen]).unwrap();
            assert_eq!(flags.shows_locks(), shows, "{listen}");
        }
    }

    #[test]
    fn with_redis_the_database_is_a_file_that_others_find() {
        let flags = |arguments: &[&str]| {
            Flags::try_parse_from(std::iter::once(&"ticket-office").chain(arguments)).unwrap()
        };
        assert_eq!(flags(&["--redis", ""]).database(), None);
        let shared = flags(&["--redis", "redis://127.0.0.1/"]).database();
        assert_eq!(shared, Some("ticket-office.sqlite".into()));
        let chosen = flags(&["--redis", "redis://127.0.0.1/", "--database", "x"]).database();
        assert_eq!(chosen, Some("x".into()));
        let fresh = flags(&["--redis", "redis://127.0.0.1/", "--database", ":memory:"]).database();
        assert_eq!(fresh, None);
    }
}

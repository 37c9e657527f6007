//! Command line arguments.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};
use lockcore::{Demand, LockKey, LockOptions};

use crate::exit::{self, Failure};
use crate::top::Order;

/// The maximum wait: a year, in seconds. A longer wait is probably a typing error.
const MAX_WAIT: f64 = 365.0 * 24.0 * 60.0 * 60.0;

const EXEC_CODES: &str = "\
Exit status: the exit status of CMD (128+n if signal n killed it), or
  1      lockctl itself failed
  64     bad usage, for example an invalid URL
  69     Redis is unavailable, or refuses to serve
  74     the hold was lost while CMD ran; CMD and all processes started by CMD got SIGTERM,
         and SIGKILL 5 s later. Or CMD had ended, and the release found that the hold was lost
  75     timed out waiting for the lock, or the queue is full
  126    CMD cannot be executed
  127    CMD was not found
  128+n  signal n ended the wait for the lock

Signals: each terminating signal, including real-time signals, ends the wait for the lock. While \
CMD runs, lockctl forwards these signals and CONT, TSTP, URG and WINCH to CMD. In the foreground \
of a terminal, INT, QUIT, TSTP and WINCH are not forwarded, because the terminal itself sends them \
to CMD, unless CMD has left the process group (timeout, setsid). Not caught are CHLD, PIPE, TTIN, TTOU, fault signals (ILL, TRAP, BUS, FPE, SEGV, SYS), \
KILL and STOP.

KILL, or a fault, ends lockctl without a release: the lock stays held until the lease expires. On \
Linux the kernel then kills CMD at once, unless CMD runs as another user (sudo). Processes started \
by CMD continue, and may then work beside the next holder.

Ctrl-Z and TSTP stop lockctl once they have stopped CMD; STOP stops lockctl at once. Nothing \
renews the lease then: it expires within --lease seconds, and the next waiter acquires the lock. \
After fg, CMD continues beside the next holder until lockctl notices the loss and stops CMD. STOP, \
TTIN and TTOU sent only to lockctl leave CMD running.

Processes left behind by CMD continue without the lock. On systems other than Linux a loss stops \
CMD, but not the processes started by CMD.

CMD's environment contains the lock name in LOCK_KEY and the hold's fencing token in LOCK_TOKEN. \
Permits have no token.

All demands for a name wait in the same queue: a lock excludes locks, reads and permits.";

const INSPECT_CODES: &str = "\
Exit status: 0, also if the name is free; 64 for bad usage; 69 if Redis is unavailable, or refuses \
to serve.";

const RELEASE_CODES: &str = "\
Exit status: 0 if the name was held; 1 if it was free; 64 for bad usage; 69 if Redis is \
unavailable, or refuses to serve.";

const STATUS_CODES: &str = "\
Connects and checks the user's rights, without acquiring a lock. In a quorum, a majority of the \
primaries suffices, even while they do not count yet.

Exit status: 0; 64 if the URL is invalid, or a primary belongs to another quorum; 69 if a server \
cannot be used: stderr then shows the address and the reason.";

const INIT: &str = "\
Without this command, a primary counts only after the longest lease, plus 1 % and 1 s, since a \
process first used it, because it may have lost holds.

Exit status: 0; 64 if the URL is invalid, or if a primary has been used or belongs to another \
quorum: then nothing changes; 69 if a primary is unreachable, or refuses to serve.";

const COST: &str = "\
--all searches the keys of each server with SCAN, 1 000 at a time, and inspects each busy lock, at \
most 20 000 of them. It changes no lock. Locks with a queue shared with JVMs are not found: pass \
--redisson and their names.

Exit status: 0; 64 for bad usage; 69 if a server does not reply: --all then shows the locks of the \
other servers.";

const TOP: &str = "\
Keys: up or k, down or j, page up, page down, home, end; Enter or right opens a lock; Esc, left or \
Backspace goes back; / opens a lock by name; s sorts by the longest queue, the oldest wait, the \
oldest holder; q, Ctrl-C, or Esc in the list quits.

REQUESTED is the time since the holder's first request, including the wait: an upper bound of the \
hold's age. TURN IN is estimated from the turns observed since you opened the lock.

Each refresh searches the keys of each server with SCAN, 1 000 at a time, and inspects each busy \
lock, at most 20 000 of them; the pause afterwards is four times as long, at least a second. It \
changes no lock. If a server does not reply, top names the server and retries. Locks with a queue \
shared with JVMs are not found: pass --redisson and a name.";

/// Fair locks on Redis: one holder at a time, in order of arrival, across machines.
#[derive(Parser)]
#[command(name = "lockctl", version)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) server: Server,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that select the servers, and the namespace of the locks on them.
#[derive(Args)]
pub(crate) struct Server {
    // A help text instead of a doc comment, where brackets would be links.
    #[arg(
        help = "The URL of a Redis server: redis://[user[:password]@]host[:port][/db], a Unix \
            socket: redis+unix:///path, sentinels: \
            redis+sentinel://[user[:password]@]host[:port][,host[:port]]…/name[/db], some Redis \
            Cluster nodes: redis+cluster://[user[:password]@]host[:port][,host[:port]]…, or all \
            quorum primaries: \
            redis+quorum://[user[:password]@]host[:port],host[:port],host[:port]…[/db][?max_lease_ms=N]. \
            With rediss instead of redis, connections use TLS. Percent-encode special characters \
            in the password: # is %23. All users can see arguments (ps): pass a URL with a password \
            in REDIS_URL",
        long,
        global = true,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true, // it may contain a password
        default_value = "redis://127.0.0.1/",
        value_parser = OsStringValueParser::new().try_map(|url| utf8(&url).map(str::to_owned))
    )]
    pub(crate) redis: String,

    /// The namespace of the service's locks: KEY is then a name as used by the service
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// The locks are in one queue with JVMs that use Redisson: KEY is then the name of an RFairLock
    #[arg(long, global = true)]
    pub(crate) redisson: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs a command while holding a lock
    Exec(Exec),
    /// Shows the holders and waiters of a name
    Inspect(Inspect),
    /// Shows the holders of names, or of all locks
    #[command(after_help = COST)]
    Holders(Holders),
    /// Shows the busiest locks, refreshed every second
    #[command(after_help = TOP)]
    Top(Top),
    /// Releases all holds of a name
    Release(Release),
    /// Connects to the servers, and shows their state
    #[command(after_help = STATUS_CODES)]
    Status,
    /// Prepares the primaries of a quorum
    #[command(subcommand)]
    Quorum(Quorum),
    /// Becomes CMD, which the kernel kills when the process PARENT ends
    #[command(hide = true)]
    Become(Become),
}

#[derive(Subcommand)]
pub(crate) enum Quorum {
    /// Marks new servers, which have not granted any lock yet, so that the quorum counts them at
    /// once
    #[command(after_help = INIT)]
    Init,
}

#[derive(Args)]
#[command(after_help = EXEC_CODES)]
pub(crate) struct Exec {
    #[arg(
        help = "The longest wait for the lock, in seconds with fractions, up to a year. Includes \
            the time to connect, which gets at least 0.5 s. 0 tries once [default: no limit]",
        long,
        value_name = "SECS",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| wait(&text))
    )]
    pub(crate) wait: Option<Duration>,

    /// How long the lock stays held if this machine dies, 0.1 to 86400 seconds; renewed while CMD
    /// runs
    #[arg(
        long,
        value_name = "SECS",
        default_value = "30",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| lease(&text))
    )]
    pub(crate) lease: Duration,

    #[arg(
        help = "Refuses to queue if more than N requests would wait, including this request \
            [default: 1000]",
        long,
        value_name = "N",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| queue_limit(&text))
    )]
    pub(crate) queue_limit: Option<u32>,

    #[arg(
        help = "The name of this process in `lockctl inspect`; at most 64 bytes [default: host:pid]",
        long,
        value_name = "TEXT"
    )]
    pub(crate) label: Option<OsString>,

    /// Acquires a read: shares the name with other reads and with permits, not with a lock
    #[arg(long, group = "demand")]
    read: bool,

    /// Acquires an exclusive lock, as by default: the counterpart of --read
    #[arg(long, group = "demand")]
    write: bool,

    #[arg(
        help = "Acquires N of LIMIT permits, or a single permit if only LIMIT is given",
        long,
        group = "demand",
        value_name = "N/LIMIT",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(|text| permits(&text))
    )]
    permits: Option<Demand>,

    /// The lock name; without --namespace, the full name with the namespace: shop:order:42
    #[arg(value_name = "KEY", value_parser = OsStringValueParser::new().try_map(|text| key(&text)))]
    pub(crate) key: String,

    /// The command to run, with its arguments
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl Exec {
    pub(crate) fn demand(&self) -> Demand {
        self.permits.unwrap_or(if self.read { Demand::READ } else { Demand::EXCLUSIVE })
    }
}

#[derive(Args)]
#[command(after_help = INSPECT_CODES)]
pub(crate) struct Inspect {
    /// The lock name; without --namespace, the full name with the namespace: shop:order:42
    #[arg(value_name = "KEY", value_parser = OsStringValueParser::new().try_map(|text| key(&text)))]
    pub(crate) key: String,

    /// Prints JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Holders {
    /// The lock names; without --namespace, the full names with the namespace: shop:order:42
    #[arg(
        value_name = "KEY",
        required_unless_present = "all",
        value_parser = OsStringValueParser::new().try_map(|text| key(&text))
    )]
    pub(crate) keys: Vec<String>,

    /// All held locks, in order of their names
    #[arg(long)]
    pub(crate) all: bool,

    /// Prints JSON, for programs: a line for each lock
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Top {
    /// The name of a lock to open at once; without --namespace, the full name with the namespace
    #[arg(value_name = "KEY", value_parser = OsStringValueParser::new().try_map(|text| key(&text)))]
    pub(crate) key: Option<String>,

    /// The sort order
    #[arg(long = "sort", value_name = "BY", value_enum, default_value = "queue")]
    pub(crate) order: Order,

    /// Prints JSON, for programs: a line for each refresh, with the first 100 locks
    #[arg(long, conflicts_with = "key")]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = RELEASE_CODES)]
pub(crate) struct Release {
    /// Confirms the release; required, because the holder is not stopped and may still be at work
    #[arg(long)]
    pub(crate) force: bool,

    /// The lock name; without --namespace, the full name with the namespace: shop:order:42
    #[arg(value_name = "KEY", value_parser = OsStringValueParser::new().try_map(|text| key(&text)))]
    pub(crate) key: String,
}

#[derive(Args)]
pub(crate) struct Become {
    pub(crate) parent: i32,

    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// A command line without a command to run: it is wrong, or requests the help or the version.
pub(crate) struct NotUsable(clap::Error);

impl Arguments {
    pub(crate) fn read() -> Result<Self, NotUsable> {
        Self::try_parse().map_err(NotUsable)
    }
}

impl NotUsable {
    /// Prints the requested help or version on stdout, or the mistake in one line on stderr.
    /// Returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if matches!(self.0.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            let _ = self.0.print();
            return ExitCode::from(exit::OK);
        }
        Failure::new(exit::USAGE, self.message()).report()
    }

    fn message(&self) -> String {
        match (self.0.kind(), self.0.source(), self.0.get(ContextKind::InvalidArg)) {
            (ErrorKind::ValueValidation, Some(reason), Some(option)) => {
                let option = option.to_string();
                let name = option.split(' ').next().unwrap_or_default();
                format!("{}: {reason}", name.trim_matches(['<', '>']))
            }
            (
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand,
                ..,
            ) => match self.is_of("lockctl quorum") {
                true => "a command is missing: use quorum init".to_owned(),
                false => "a command is missing: use exec, holders, inspect, quorum, release, \
                    status or top; see lockctl --help"
                    .to_owned(),
            },
            (kind, ..) => {
                let is_shape =
                    matches!(kind, ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument);
                let usage = USAGES.iter().find(|(command, _)| is_shape && self.is_of(command));
                let usage = usage
                    .map_or(String::new(), |(command, rest)| format!("; write {command} {rest}"));
                format!("{}{usage}", self.mistake())
            }
        }
    }

    /// Returns clap's description of the mistake in one line, with clap's tip if there is one.
    fn mistake(&self) -> String {
        let text = self.0.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        // The first paragraph describes the mistake; the others are tips and the usage.
        let mut paragraphs = text.split("\n\n");
        let mistake = paragraphs.next().unwrap_or_default();
        let tip = paragraphs.next().filter(|next| next.trim_start().starts_with("tip: "));
        let one_line = |text: &str| {
            text.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
        };
        match tip {
            Some(tip) => format!("{}; {}", one_line(mistake), one_line(tip)),
            None => one_line(mistake),
        }
    }

    /// Returns true if the mistake is in the arguments of `command`, such as `lockctl exec`: clap
    /// then shows the usage of this command.
    fn is_of(&self, command: &str) -> bool {
        let text = self.0.render().to_string();
        text.lines().any(|line| line.starts_with("Usage: ") && line.contains(command))
    }
}

/// The commands whose usage is added to the error for an unknown or missing argument, each with the
/// usage.
const USAGES: [(&str, &str); 4] = [
    ("lockctl exec", "[OPTIONS] KEY -- CMD ARGS"),
    ("lockctl holders", "[--json] [--all] [KEY...]"),
    ("lockctl inspect", "[--json] KEY"),
    ("lockctl release", "--force KEY"),
];

fn utf8(text: &OsStr) -> Result<&str, String> {
    text.to_str().ok_or_else(|| "not UTF-8".to_owned())
}

fn key(text: &OsStr) -> Result<String, String> {
    let text = utf8(text)?;
    LockKey::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Parses seconds, with an optional fraction.
fn seconds(text: &OsStr) -> Result<f64, String> {
    let not_a_number = || format!("'{}' is not a number of seconds", text.to_string_lossy());
    let seconds: f64 = utf8(text)?.parse().map_err(|_| not_a_number())?;
    if seconds.is_finite() { Ok(seconds) } else { Err(not_a_number()) }
}

fn wait(text: &OsStr) -> Result<Duration, String> {
    let seconds = seconds(text)?;
    if !(0.0..=MAX_WAIT).contains(&seconds) {
        return Err(format!("{seconds} is out of range: must be 0 to {MAX_WAIT} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn lease(text: &OsStr) -> Result<Duration, String> {
    let seconds = seconds(text)?;
    let min = LockOptions::MIN_LEASE.as_secs_f64();
    let max = LockOptions::MAX_LEASE.as_secs_f64();
    if !(min..=max).contains(&seconds) {
        return Err(format!("{seconds} is out of range: must be {min} to {max} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn queue_limit(text: &OsStr) -> Result<u32, String> {
    match utf8(text)?.parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err(format!(
            "'{}' is out of range: must be a whole number, 1 to {}",
            text.to_string_lossy(),
            u32::MAX
        )),
    }
}

/// Parses permits such as `3/10`, or `10` for a single permit out of ten.
fn permits(text: &OsStr) -> Result<Demand, String> {
    let text = utf8(text)?;
    let (count, limit) = text.split_once('/').unwrap_or(("1", text));
    let demand = match (count.parse(), limit.parse()) {
        (Ok(count), Ok(limit)) => Demand::permits(count, limit).ok(),
        _ => None,
    };
    demand
        .ok_or_else(|| format!("'{text}' is not N/LIMIT such as 3/10, with 1 <= N <= LIMIT < 2^30"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    fn message(arguments: &[&str]) -> String {
        let all = std::iter::once("lockctl").chain(arguments.iter().copied());
        match Arguments::try_parse_from(all) {
            Ok(_) => panic!("{arguments:?} is accepted"),
            Err(error) => NotUsable(error).message(),
        }
    }

    #[test]
    fn every_usage_error_is_one_line_that_names_the_option() {
        let cases: &[(&[&str], &str)] = &[
            (&["exec", "--wait", "soon", "k", "--", "true"], "--wait"),
            (&["exec", "--wait", "-1", "k", "--", "true"], "--wait"),
            (&["exec", "--wait=-inf", "k", "--", "true"], "--wait"),
            (&["exec", "--wait", "NaN", "k", "--", "true"], "--wait"),
            (&["exec", "--wait", "inf", "k", "--", "true"], "--wait"),
            (&["exec", "--wait", "1e300", "k", "--", "true"], "--wait"),
            (&["exec", "--wait", "", "k", "--", "true"], "--wait"),
            (
                &["exec", "--lease", "0.09", "k", "--", "true"],
                "--lease: 0.09 is out of range: must be 0.1 to 86400 seconds",
            ),
            (&["exec", "--lease", "86401", "k", "--", "true"], "--lease"),
            (&["exec", "--queue-limit", "0", "k", "--", "true"], "--queue-limit"),
            (&["exec", "--queue-limit", "-3", "k", "--", "true"], "--queue-limit"),
            (&["exec", "--queue-limit", "1.5", "k", "--", "true"], "--queue-limit"),
            (&["exec", "--sooner", "k", "--", "true"], "--sooner"),
            (&["exec", "--permits", "0/3", "k", "--", "true"], "--permits"),
            (&["exec", "--permits", "4/3", "k", "--", "true"], "--permits"),
            (&["exec", "--permits", "1/1073741824", "k", "--", "true"], "--permits"),
            (&["exec", "--permits", "-1", "k", "--", "true"], "--permits"),
            (&["exec", "--read", "--write", "k", "--", "true"], "--write"),
            (&["exec", "", "--", "true"], "KEY"),
            (&["exec", "a\nb", "--", "true"], "KEY"),
            (&["exec", "k"], "CMD"),
            (&["exec", "k", "true"], "true"),
            (&["exec", "--", "true"], "KEY"),
            (&["inspect"], "write lockctl inspect [--json] KEY"),
            (&["release"], "write lockctl release --force KEY"),
            (&["holders"], "write lockctl holders [--json] [--all] [KEY...]"),
            (&["inspect", ""], "KEY"),
            (&["unlock", "k"], "unlock"),
            (&[], "exec, holders, inspect, quorum, release, status or top"),
        ];
        for (arguments, named) in cases {
            let message = message(arguments);
            assert!(message.contains(named), "{arguments:?}: {message}");
            assert!(!message.contains('\n'), "{arguments:?}: {message}");
        }
    }

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(wait(OsStr::new("0.25")), Ok(Duration::from_millis(250)));
        assert_eq!(wait(OsStr::new("0")), Ok(Duration::ZERO));
        assert_eq!(lease(OsStr::new("0.1")), Ok(LockOptions::MIN_LEASE));
        assert_eq!(lease(OsStr::new("86400")), Ok(LockOptions::MAX_LEASE));
    }
}

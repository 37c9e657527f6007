//! Refusals by Redis Cluster servers that do not serve a slot at present, and the route of a
//! command from server to server. A refused command did not run.

use std::fmt;
use std::time::Duration;

use super::call::Commands;
use crate::Command;
use crate::error::StoreError;

/// The first pause of a command that was refused because its slot is migrating. Afterwards the
/// command is sent again. A slot migrates within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The maximum pause before a command is sent again. Each pause is twice as long as the previous
/// pause, up to this maximum.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Maximum time, since a command was first sent, in which it is sent again while its slot is
/// migrating. After it the command fails, and the node's own retries follow. The time is short
/// because a refused command counts as a request in flight, and all locks share a limit for these.
const LIMIT: Duration = Duration::from_millis(250);
/// Maximum number of `MOVED` redirects that a command follows before it fails.
const MAX_MOVES: u32 = 5;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The host name or IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Place {
    /// Parses `host:port`. An empty host stands for `asked`, the host that sent the text. `None`
    /// without a valid port.
    pub fn read(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: Self::host(host, asked).to_owned(), port: port.parse().ok()? })
    }

    /// Returns the host `reported` by a server, or the host `asked`, which sent it, if the server
    /// does not know its own.
    pub fn host<'a>(reported: &'a str, asked: &'a str) -> &'a str {
        if reported.is_empty() || reported == "?" { asked } else { reported }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The reason why a Cluster server refused a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// Another server has the slot, at this address. `None` if the address cannot be parsed.
    Moved(Option<Place>),
    /// The slot is migrating, and the refusing server has none of the keys. They may be on the
    /// server at this address.
    Ask(Option<Place>),
    /// The slot is migrating, and the refusing server has only some of the keys.
    Moving,
    /// No server of the Cluster serves the slot.
    Down,
}

impl Redirect {
    /// Parses an error that the server at `asked` sent. `None` if the error is not about a slot.
    pub fn read(error: &StoreError, asked: &str) -> Option<Self> {
        let (code, rest) = error.detail.split_once(' ')?;
        let place = || rest.split(' ').nth(1).and_then(|at| Place::read(at, asked));
        Some(match code {
            "MOVED" => Self::Moved(place()),
            "ASK" => Self::Ask(place()),
            "TRYAGAIN" => Self::Moving,
            "CLUSTERDOWN" => Self::Down,
            _ => return None,
        })
    }

    /// Returns true if the server has not all keys of the command, because the slot is migrating.
    pub fn lacks_keys(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Moving)
    }
}

/// What to do with a refused command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send the command to the server at this address, which has the slot from now on.
    Follow(Place),
    /// Send the command once to the server at this address, directly behind an ASKING command.
    Asking(Place),
    /// Send the command again after a pause, to the server that then has the slot.
    Pause,
    /// Do not send the command again.
    End,
}

/// Decides where a command is sent after each refusal by a Cluster server. The command fails at the
/// sixth `MOVED` redirect, if no server has the slot, or if its slot is still migrating 250 ms
/// after the command was first sent.
#[derive(Debug, Clone)]
pub struct Route {
    /// Whether the command may run on the target server of a slot migration.
    may_ask: bool,
    pause: Duration,
    until: Duration,
    moves: u32,
}

impl Route {
    /// Creates the route of a command that must not run on the target server of a slot migration.
    /// While its slot is migrating, the command is sent again until 250 ms after it was first sent,
    /// or until `request_timeout` after it if that is shorter.
    pub fn new(request_timeout: Duration) -> Self {
        Self { may_ask: false, pause: FIRST_PAUSE, until: LIMIT.min(request_timeout), moves: 0 }
    }

    /// Creates the route of these commands, as by [`new`](Self::new), but renewals may also run on
    /// the target server of a slot migration.
    pub fn of(commands: &Commands<'_>, request_timeout: Duration) -> Self {
        // Other commands could create a key there, which would stop the migration.
        let may_ask = matches!(commands, [(_, Command::Renew { .. }), ..]);
        Self { may_ask, ..Self::new(request_timeout) }
    }

    /// Returns the next step for a command that a server has refused with this redirect. A caller
    /// that cannot take the step uses [`pause`](Self::pause) instead.
    pub fn after(&mut self, redirect: Redirect) -> Step {
        match redirect {
            Redirect::Moved(Some(place)) => {
                self.moves += 1;
                if self.moves <= MAX_MOVES { Step::Follow(place) } else { Step::End }
            }
            Redirect::Ask(Some(place)) if self.may_ask => Step::Asking(place),
            Redirect::Moved(None) | Redirect::Ask(_) | Redirect::Moving => Step::Pause,
            Redirect::Down => Step::End,
        }
    }

    /// Returns the pause before the command is sent again; `None` if no time is left. `passed` is
    /// the time since the command was first sent. `spread` is a random factor from 0.5 to 1.5, so
    /// that commands refused together are not sent together again.
    pub fn pause(&mut self, passed: Duration, spread: f64) -> Option<Duration> {
        let pause = self.pause.mul_f64(spread);
        self.pause = (2 * self.pause).min(MAX_PAUSE);
        (passed + pause < self.until).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LockErrorKind;
    use crate::{LockName, Mode};

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 7 }
    }

    fn route(command: Command) -> Route {
        Route::of(&[(&LockName::from("a"), &command)], Duration::from_secs(2))
    }

    fn acquire() -> Command {
        Command::Acquire { members: Vec::new(), mode: Mode::Wait, queue_limit: 1 }
    }

    #[test]
    fn a_refusal_says_where_the_slot_is() {
        let read = |detail: &str| {
            Redirect::read(&StoreError::refused(LockErrorKind::Unsupported, detail), "asked")
        };
        assert_eq!(read("MOVED 3999 host:7"), Some(Redirect::Moved(Some(place("host")))));
        assert_eq!(read("MOVED 3999 :7"), Some(Redirect::Moved(Some(place("asked")))));
        assert_eq!(read("MOVED 3999"), Some(Redirect::Moved(None)));
        assert_eq!(read("ASK 3999 host:7"), Some(Redirect::Ask(Some(place("host")))));
        assert_eq!(read("TRYAGAIN Multiple keys"), Some(Redirect::Moving));
        assert_eq!(read("CLUSTERDOWN Hash slot not served"), Some(Redirect::Down));
        assert_eq!(read("LOADING it is"), None);
        assert_eq!(read("MOVED"), None);
    }

    #[test]
    fn where_keys_are_missing_a_command_for_other_keys_may_succeed() {
        let lacks = |redirect: Redirect| redirect.lacks_keys();
        assert!(lacks(Redirect::Moving) && lacks(Redirect::Ask(None)));
        assert!(!lacks(Redirect::Down) && !lacks(Redirect::Moved(None)));
    }

    #[test]
    fn a_place_without_a_host_is_on_the_host_that_was_asked() {
        let place = |text| Place::read(text, "asked").map(|place| place.to_string());
        assert_eq!(place("h:1").as_deref(), Some("h:1"));
        assert_eq!(place(":1").as_deref(), Some("asked:1"));
        assert_eq!(place("::1:7").as_deref(), Some("::1:7"));
        assert_eq!(place("h").or(place("h:x")).or(place("h:70000")), None);
    }

    #[test]
    fn only_renewals_go_to_the_server_to_which_their_slot_moves() {
        let ask = || Redirect::Ask(Some(place("target")));
        let renew = Command::Renew { members: Vec::new() };
        assert_eq!(route(renew).after(ask()), Step::Asking(place("target")));
        for other in [acquire(), Command::Touch { members: Vec::new() }, Command::INSPECT] {
            assert_eq!(route(other).after(ask()), Step::Pause);
        }
    }

    #[test]
    fn a_command_is_sent_again_for_a_bounded_time() {
        for (timeout, least, most) in [(2_000, 100, 250), (50, 15, 50)] {
            for spread in [0.5, 1.0, 1.5] {
                let mut route = Route::new(Duration::from_millis(timeout));
                let mut passed = Duration::ZERO;
                while let Some(pause) = route.pause(passed, spread) {
                    passed += pause;
                }
                let took = passed.as_millis();
                assert!((least..most).contains(&took), "{took} ms of {timeout}, {spread}");
            }
        }
    }

    #[test]
    fn a_command_follows_a_bounded_number_of_servers_and_none_where_the_slot_is_down() {
        let mut route = route(acquire());
        let moved = || Redirect::Moved(Some(place("other")));
        let followed = (0..9).filter(|_| route.after(moved()) == Step::Follow(place("other")));
        assert_eq!(followed.count(), 5);
        assert_eq!(route.after(Redirect::Down), Step::End);
    }
}

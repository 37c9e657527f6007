//! The URL of a single server. Each part is applied, or the URL is refused: two processes that read
//! the same URL differently would use two databases.

use redis::{ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion};

use crate::error::{ClientError, ClientErrorKind};
use crate::servers_url;
use crate::tls;

/// The values of the options behind the `?` of a URL, each `None` if absent.
#[derive(Default)]
struct Options {
    db: Option<String>,
    user: Option<String>,
    pass: Option<String>,
    protocol: Option<String>,
}

impl Options {
    /// Stores the value of an option. Returns `Some(true)` if the option is new, `Some(false)` if
    /// it was given before, and `None` if it is not supported.
    fn take(&mut self, name: &str, value: String) -> Option<bool> {
        let option = match name {
            "db" => &mut self.db,
            "user" => &mut self.user,
            "pass" => &mut self.pass,
            "protocol" => &mut self.protocol,
            _ => return None,
        };
        Some(option.replace(value).is_none())
    }
}

/// Parses `redis://[user[:password]@]host[:port][/db][?option…]` or `redis+unix:///path[?option…]`.
/// The schemes `rediss`, `valkey`, `valkeys` and `unix` are accepted too.
///
/// # Errors
/// The URL contains something unsupported. The error does not repeat the URL, which may hold a
/// password.
pub fn read(url: &str) -> Result<ConnectionInfo, ClientError> {
    if servers_url::is_of_several(url) {
        return Err(refused(
            "this URL names several servers, but a single server is needed: write redis:// or \
             redis+unix://",
        ));
    }
    let not_valid = |fault: &str| servers_url::invalid(fault);
    let mut parsed = redis::parse_redis_url(url).ok_or_else(|| not_valid("not a URL"))?;
    if parsed.fragment().is_some() {
        return Err(refused(
            "a # in a URL begins a fragment, and fragments are not supported, including #insecure: \
             write %23 in a user or password; trust your own certificate authority with \
             LocksBuilder::tls_ca",
        ));
    }
    let is_socket = parsed.scheme().ends_with("unix");
    let has_login = !parsed.username().is_empty() || parsed.password().is_some();
    let is_elsewhere = parsed.host_str().is_some_and(|host| !["", "localhost"].contains(&host));
    if is_socket && (has_login || is_elsewhere || parsed.port().is_some()) {
        return Err(refused("write redis+unix:///path?user=USER&pass=PASSWORD&db=DB for a socket"));
    }
    let mut options = Options::default();
    for (name, value) in parsed.query_pairs() {
        // Behind a password, or without a value, the name may be the rest of a password that
        // contains `&`.
        let shown = (options.pass.is_none() && !value.is_empty()).then_some(&*name);
        match options.take(&name, value.into_owned()) {
            Some(true) => {}
            Some(false) => return Err(twice(&name)),
            // This is no option, but the rest of a password that contains a `?`.
            None if !is_socket && parsed.query().is_some_and(|rest| rest.contains('@')) => {
                return Err(not_valid("an unknown option after the ?"));
            }
            None => return Err(servers_url::not_followed(shown)),
        }
    }
    let has_db = !is_socket && !parsed.path().trim_matches('/').is_empty();
    parsed.set_query(None);
    let info = parsed.into_connection_info().map_err(|error| {
        let advice = tls::advice_on_url(&error);
        advice.map_or_else(|| not_valid(error.category()), refused)
    })?;
    let mut settings = info.redis_settings().clone();
    if let Some(db) = options.db {
        let number: Option<u32> = db.parse().ok();
        let number = number.ok_or_else(|| refused("the URL option `db` is not a number"))?;
        if has_db {
            return Err(twice("db"));
        }
        settings = settings.set_db(number.into());
    }
    if let Some(user) = options.user.filter(|user| !user.is_empty()) {
        if settings.username().is_some() {
            return Err(twice("user"));
        }
        settings = settings.set_username(user);
    }
    if let Some(password) = options.pass.filter(|password| !password.is_empty()) {
        if settings.password().is_some() {
            return Err(twice("pass"));
        }
        settings = settings.set_password(password);
    }
    settings = match options.protocol.as_deref() {
        None => settings,
        Some("2" | "resp2") => settings.set_protocol(ProtocolVersion::RESP2),
        Some("3" | "resp3") => settings.set_protocol(ProtocolVersion::RESP3),
        Some(_) => return Err(refused("the URL option `protocol` must be resp2 or resp3")),
    };
    Ok(of_its_user(info.set_redis_settings(settings)))
}

/// Returns `info` with an empty password if it has a user without a password. Without a password,
/// no login would be sent, and the connection would belong to the default user.
pub(crate) fn of_its_user(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings();
    if settings.username().is_none() || settings.password().is_some() {
        return info;
    }
    let settings = settings.clone().set_password("");
    info.set_redis_settings(settings)
}

fn twice(option: &str) -> ClientError {
    refused(&format!("`{option}` occurs twice in the URL"))
}

fn refused(detail: &str) -> ClientError {
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    /// Returns the user, the password and the database in this URL.
    fn login(url: &str) -> (Option<String>, Option<String>, i64) {
        let info = read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let settings = info.redis_settings();
        let [user, password] = [settings.username(), settings.password()];
        (user.map(str::to_owned), password.map(str::to_owned), settings.db())
    }

    fn refusal(url: &str) -> String {
        let Err(error) = read(url) else { panic!("{url} is accepted") };
        assert_eq!(error.kind, ClientErrorKind::InvalidOption, "{error}");
        error.to_string()
    }

    #[test]
    fn a_login_and_a_database_are_the_same_wherever_they_stand() {
        let some = |text: &str| Some(text.to_owned());
        let whole = (some("a@b"), some("p#w/"), 3);
        for url in [
            "redis://a%40b:p%23w%2F@h/3",
            "redis://a%40b:p%23w%2F@h?db=3",
            "redis://h/?db=3&user=a%40b&pass=p%23w%2F",
            "redis://h/3?pass=p%23w%2F&user=a%40b&protocol=2",
            "valkey://h/3?pass=p%23w/&user=a@b",
            "redis+unix:///run/redis?db=3&user=a@b&pass=p%23w/",
            "unix://localhost/run/redis?db=3&user=a@b&pass=p%23w/",
        ] {
            assert_eq!(login(url), whole, "{url}");
        }
        for url in ["redis://h", "redis://h/0", "redis://:@h/?pass=&user=", "redis://h/?db=0"] {
            assert_eq!(login(url), (None, None, 0), "{url}");
        }
        assert_eq!(login("redis://:p@h/"), (None, some("p"), 0));
    }

    #[test]
    fn a_user_without_a_password_is_that_user() {
        for url in ["redis://app@h/", "redis://app:@h/", "redis+unix:///run/redis?user=app"] {
            let user = (Some("app".to_owned()), Some(String::new()), 0);
            assert_eq!(login(url), user, "{url}");
        }
    }

    #[test]
    fn the_protocol_is_that_of_the_url() {
        let protocol = |url: String| read(&url).expect(&url).redis_settings().protocol();
        for (value, expected) in [
            ("2", ProtocolVersion::RESP2),
            ("resp2", ProtocolVersion::RESP2),
            ("3", ProtocolVersion::RESP3),
            ("resp3", ProtocolVersion::RESP3),
        ] {
            assert_eq!(protocol(format!("redis://h/?protocol={value}")), expected);
            assert_eq!(protocol(format!("unix:///s?protocol={value}")), expected);
        }
        let socket = read("redis+unix:///run/a%20socket").expect("a socket");
        assert_eq!(socket.addr(), &ConnectionAddr::Unix("/run/a socket".into()));
    }

    #[test]
    fn an_option_that_is_not_followed_is_refused_with_those_that_are() {
        let followed = ["db", "user", "pass", "protocol", "max_lease_ms"];
        for (url, option) in [
            ("redis://h/3?ssl=true", "ssl"),
            ("redis://h/?tls=true", "tls"),
            ("redis://h/?protocl=resp3", "protocl"),
            ("redis://h/?timeout=5", "timeout"),
            ("redis://h/?max_lease_ms=5000", "max_lease_ms"),
            ("redis://h/?username=app&password=hidden", "username"),
            ("redis://h/?db=3&DB=4", "DB"),
            ("redis+unix:///s?database=3", "database"),
        ] {
            let error = refusal(url);
            assert!(error.contains(&format!("`{option}`")), "{url}: {error}");
            assert!(followed.iter().all(|option| error.contains(option)), "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
        let error = refusal("redis://h/?ssl=true");
        assert!(error.contains("rediss://"), "{error}");
    }

    #[test]
    fn what_may_be_the_rest_of_a_password_is_not_shown() {
        for url in [
            "redis+unix:///s?pass=x&hidden",
            "redis+unix:///s?pass=x&hidden=",
            "redis+unix:///s?pass=x&hid=den",
            "redis+unix:///s?pass=x&hid&den&pass=y",
            "redis://h/?pass=x&hidden",
        ] {
            let error = refusal(url);
            assert!(!error.contains("hid") && !error.contains("den"), "{error}");
            assert!(error.contains("& is %26") && error.contains("max_lease_ms"), "{error}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_followed_or_that_is_given_twice_is_refused() {
        for (url, option) in [
            ("redis://h/?db=three", "db"),
            ("redis://h/?db=-1", "db"),
            ("redis+unix:///s?db=", "db"),
            ("redis://h/?protocol=resp4", "protocol"),
            ("redis://h/?db=3&db=3", "db"),
            ("redis://h/3?db=4", "db"),
            ("redis://app@h/?user=other", "user"),
            ("redis://:hidden@h/?pass=hidden", "pass"),
        ] {
            let error = refusal(url);
            assert!(error.contains(&format!("`{option}`")), "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_fragment_is_refused_with_the_way_to_write_it_in_a_password() {
        for url in [
            "redis://h/#3",
            "redis://h/#insecure",
            "redis://h/3#",
            "redis://user:12#hidden@h/",
            "redis+unix:///s#3",
        ] {
            let error = refusal(url);
            assert!(error.contains("%23") && !error.contains("hidden"), "{url}: {error}");
        }
    }

    #[test]
    fn a_socket_has_its_login_and_database_in_options_alone() {
        for url in [
            "redis+unix://hidden@localhost/run/redis",
            "redis+unix://app:hidden@localhost/run/redis",
            "redis+unix://localhost:7/run/redis",
            "redis+unix://elsewhere/run/redis",
        ] {
            let error = refusal(url);
            assert!(error.contains("redis+unix:///path?"), "{url}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn the_error_of_a_url_says_how_to_write_each_kind_and_not_the_password() {
        for url in [
            "http://u:hidden@h/",
            "h:6379",
            "",
            "redis-sentinel://:hidden@h/name",
            "redis://h/three",
            "redis://user:hid#den@h/",
            "redis://user:hid/den@h/",
            "redis://user:hid?den@h/",
            "redis://user:12/hidden@h/",
            "redis://user:12?hidden=x@h/",
            "redis://u:p@12?hidden=x@h/",
            "redis://user:12?db=3&hidden@h/",
        ] {
            let error = refusal(url);
            for form in [
                "redis://[user",
                "redis+unix:///path",
                "redis+sentinel://",
                "redis+cluster://",
                "redis+quorum://",
                "percent-encode",
            ] {
                assert!(error.contains(form), "{url}: {error}");
            }
            assert!(!error.contains("hidden") && !error.contains("den@"), "{error}");
        }
    }

    #[test]
    fn a_url_of_several_servers_is_not_that_of_one() {
        for url in ["redis+sentinel://h/name", "rediss+cluster://h", "redis+quorum://a,b,c"] {
            let error = refusal(url);
            assert!(error.contains("a single server") && !error.contains("+quorum"), "{error}");
        }
    }
}

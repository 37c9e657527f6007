//! A URL of several servers: `redis+KIND://` or `rediss+KIND://`, and then
//! `[user[:password]@]host[:port][,host[:port]]…[/path][?option[&option]…]`.

use crate::error::{ClientError, ClientErrorKind};

/// Creates the error for an invalid URL. It contains `fault`, which says what is wrong, and how to
/// write a URL of each kind, but not the URL itself, which may hold a password.
pub fn invalid(fault: &str) -> ClientError {
    let detail = format!(
        "the URL is not valid ({fault}): write redis://[user[:password]@]host[:port][/db] or \
         redis+unix:///path; for sentinels redis+sentinel://host[:port],…/primary-name[/db], for a \
         Cluster redis+cluster://host[:port],…, for a quorum redis+quorum://host,host,host[/db]; \
         with rediss for TLS; and percent-encode special characters of user and password: # is \
         %23, & is %26, + is %2B, / is %2F, ? is %3F, @ is %40, % is %25"
    );
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

/// Creates the error for an unsupported URL option, with a list of the supported options. `option`
/// is the option's name; `None` if the error must not show it.
pub(crate) fn not_followed(option: Option<&str>) -> ClientError {
    let instead = match option {
        Some("ssl" | "tls") => ". For TLS, write rediss:// in place of redis://",
        Some(_) => "",
        None => ". In a password, & is %26",
    };
    let option = option.map_or("without a value".to_owned(), |option| format!("`{option}`"));
    let detail = format!(
        "the URL option {option} is not supported: use db, user, pass, protocol or, with \
         redis+quorum://, max_lease_ms{instead}"
    );
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

/// Returns true if the scheme of the URL is for several servers: `redis+sentinel`, `redis+cluster`,
/// `redis+quorum`, or these with `rediss`.
pub(crate) fn is_of_several(url: &str) -> bool {
    let kind = url.strip_prefix("rediss+").or_else(|| url.strip_prefix("redis+"));
    let kind = kind.and_then(|rest| rest.split_once("://")).map(|(kind, _)| kind);
    kind.is_some_and(|kind| ["sentinel", "cluster", "quorum"].contains(&kind))
}

/// The parts of a URL of several servers.
#[allow(missing_debug_implementations, reason = "it may hold a password")]
pub struct ServersUrl<'a> {
    /// The scheme of each connection: `redis` or `rediss`.
    pub scheme: &'static str,
    /// The hosts, each with a port.
    pub hosts: Vec<String>,
    /// The path of the URL, without the leading slash.
    pub path: &'a str,
    /// The options behind the `?`, each as `name=value`.
    pub options: Vec<&'a str>,
    /// User and password, followed by `@`; empty if the URL has none.
    credentials: &'a str,
}

impl<'a> ServersUrl<'a> {
    /// Parses a URL whose scheme is `redis+KIND` or `rediss+KIND`. `kind` is the part after the
    /// plus sign, such as `cluster`. Hosts without a port get `port`. `None` if the URL has another
    /// scheme; `Some(None)` if a host is empty.
    pub fn read(url: &'a str, kind: &str, port: u16) -> Option<Option<Self>> {
        let of_scheme = |scheme: &'static str| {
            let rest = url.strip_prefix(scheme)?.strip_prefix('+')?.strip_prefix(kind)?;
            Some((scheme, rest.strip_prefix("://")?))
        };
        let (scheme, rest) = ["redis", "rediss"].into_iter().find_map(of_scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query.split('&').filter(|option| !option.is_empty()).collect();
        // Search from the end, because passwords may contain `@` or a slash.
        let (credentials, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Option<_> = hosts.split(',').map(|host| with_port(host, port)).collect();
        Some(hosts.map(|hosts| Self { scheme, hosts, path, options, credentials }))
    }

    /// Returns the URL of the server at `host`, ending in `path`, with the credentials and options
    /// of this URL.
    pub(crate) fn of_host(&self, host: &str, path: &str) -> String {
        let Self { scheme, credentials, .. } = self;
        let mark = if self.options.is_empty() { "" } else { "?" };
        let query = self.options.join("&");
        format!("{scheme}://{credentials}{host}/{path}{mark}{query}")
    }

    /// Returns the URL of each server, ending in `path`, with the credentials and options of this
    /// URL.
    pub fn each(&self, path: &str) -> Vec<String> {
        self.hosts.iter().map(|host| self.of_host(host, path)).collect()
    }
}

/// Returns the host, with this port if it has none; `None` if the host is empty.
fn with_port(host: &str, port: u16) -> Option<String> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match (host.is_empty(), has_port) {
        (true, _) => None,
        (false, true) => Some(host.to_owned()),
        (false, false) => Some(format!("{host}:{port}")),
    }
}

//! A URL of several servers: `redis+KIND://` or `rediss+KIND://`, and then
//! `[user[:password]@]host[:port][,host[:port]]…[/path][?option[&option]…]`.

use crate::error::{ClientError, ClientErrorKind};

/// Names the fault of a URL without repeating it, since it may hold a password, and the form of
/// each kind.
pub fn invalid(fault: &str) -> ClientError {
    let detail = format!(
        "the URL is not valid ({fault}): write redis://[user[:password]@]host[:port][/db] or \
         redis+unix:///path; for sentinels redis+sentinel://host[:port],…/primary-name[/db], for a \
         Cluster redis+cluster://host[:port],…, for a quorum redis+quorum://host,host,host[/db]; \
         with rediss for TLS; and percent-encode special characters of user and password: # is \
         %23, / is %2F, ? is %3F, @ is %40, % is %25"
    );
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

/// Names an option that is not followed, and those that are.
pub(crate) fn not_followed(option: &str) -> ClientError {
    let instead = match option {
        "ssl" | "tls" => ". For TLS, write rediss:// in place of redis://",
        _ => "",
    };
    let detail = format!(
        "the option `{option}` of the URL is not followed: db, user, pass and protocol are, and \
         max_lease_ms with redis+quorum://{instead}"
    );
    ClientError::refused(ClientErrorKind::InvalidOption, detail)
}

/// Whether the URL is of one of these kinds.
pub(crate) fn is_of_several(url: &str) -> bool {
    let kind = url.strip_prefix("rediss+").or_else(|| url.strip_prefix("redis+"));
    let kind = kind.and_then(|rest| rest.split_once("://")).map(|(kind, _)| kind);
    kind.is_some_and(|kind| ["sentinel", "cluster", "quorum"].contains(&kind))
}

/// The parts of a URL of several servers.
#[allow(missing_debug_implementations, reason = "it may hold a password")]
pub struct ServersUrl<'a> {
    /// The kind of each connection: `redis` or `rediss`.
    pub scheme: &'static str,
    /// Each with its port.
    pub hosts: Vec<String>,
    /// The path, without the slash in front.
    pub path: &'a str,
    /// The options, as they stand behind the `?`.
    pub options: Vec<&'a str>,
    /// With their `@`, if there are any.
    credentials: &'a str,
}

impl<'a> ServersUrl<'a> {
    /// Reads a URL of this kind of servers. Nothing if it is a URL of another kind; nothing in it
    /// if a host is empty.
    pub fn read(url: &'a str, kind: &str, port: u16) -> Option<Option<Self>> {
        let of_scheme = |scheme: &'static str| {
            let rest = url.strip_prefix(scheme)?.strip_prefix('+')?.strip_prefix(kind)?;
            Some((scheme, rest.strip_prefix("://")?))
        };
        let (scheme, rest) = ["redis", "rediss"].into_iter().find_map(of_scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query.split('&').filter(|option| !option.is_empty()).collect();
        // Passwords may have a slash, too.
        let (credentials, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Option<_> = hosts.split(',').map(|host| with_port(host, port)).collect();
        Some(hosts.map(|hosts| Self { scheme, hosts, path, options, credentials }))
    }

    /// The URL of one server, with the credentials and options of all.
    pub(crate) fn of_host(&self, host: &str, path: &str) -> String {
        let Self { scheme, credentials, .. } = self;
        let mark = if self.options.is_empty() { "" } else { "?" };
        let query = self.options.join("&");
        format!("{scheme}://{credentials}{host}/{path}{mark}{query}")
    }

    /// The URL of each server.
    pub fn each(&self, path: &str) -> Vec<String> {
        self.hosts.iter().map(|host| self.of_host(host, path)).collect()
    }
}

/// The host with its port, or with this one; nothing if there is no host.
fn with_port(host: &str, port: u16) -> Option<String> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match (host.is_empty(), has_port) {
        (true, _) => None,
        (false, true) => Some(host.to_owned()),
        (false, false) => Some(format!("{host}:{port}")),
    }
}

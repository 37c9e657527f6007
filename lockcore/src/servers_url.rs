//! A URL of several servers: `redis+KIND://` or `rediss+KIND://`, and then
//! `[user[:password]@]host[:port][,host[:port]]…[/path][?option[&option]…]`.

/// Its parts.
pub(crate) struct ServersUrl<'a> {
    /// The kind of each connection: `redis` or `rediss`.
    pub(crate) scheme: &'static str,
    /// Each with its port.
    pub(crate) hosts: Vec<String>,
    pub(crate) path: &'a str,
    pub(crate) options: Vec<&'a str>,
    /// With their `@`, if there are any.
    credentials: &'a str,
}

impl<'a> ServersUrl<'a> {
    /// Reads a URL of this kind of servers. Nothing if it is a URL of another kind; nothing in it
    /// if a host is empty.
    pub(crate) fn read(url: &'a str, kind: &str, port: u16) -> Option<Option<Self>> {
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
    pub(crate) fn each(&self, path: &str) -> Vec<String> {
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

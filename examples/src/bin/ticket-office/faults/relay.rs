//! A buyer's connection to Redis: a TCP relay on a separate port, which can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP relay between a buyer's process and Redis, which can cut the buyer off. Dropping it closes
/// all connections.
pub(super) struct Relay {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Relay {
    pub(super) async fn start(server: String) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(accept(listener, server, cut));
        Ok(Self { address, is_cut })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// If `is_cut`, closes all connections, and each new connection at once. Otherwise lets new
    /// connections pass again.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn accept(listener: TcpListener, server: String, mut cut: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = cut.wait_for(|_| false) => return, // the relay was dropped
        };
        if let Ok((client, _)) = accepted {
            tokio::spawn(forward(client, server.clone(), cut.clone()));
        }
    }
}

async fn forward(mut client: TcpStream, server: String, mut cut: watch::Receiver<bool>) {
    let all = async {
        let mut server = TcpStream::connect(server).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        _ = cut.wait_for(|is_cut| *is_cut) => {}
        _ = all => {}
    }
}

/// Splits a `redis://` URL so that the server can be replaced by a relay: returns the part before
/// the server, the server with port, and the rest. Returns `None` for any other URL.
pub(crate) fn split(url: &str) -> Option<(&str, String, &str)> {
    let begin = "redis://".len();
    let rest = url.strip_prefix("redis://")?;
    let end = begin + rest.find(['/', '?']).unwrap_or(rest.len());
    let start = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let server = &url[start..end];
    let has_port = server.rfind(':') > server.rfind(']');
    let server = if has_port { server.to_owned() } else { format!("{server}:6379") };
    Some((&url[..start], server, &url[end..]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_url_is_split_around_its_server() {
        let split = |url| {
            super::split(url).map(|(before, server, rest)| format!("{before} {server} {rest}"))
        };
        assert_eq!(split("redis://host").unwrap(), "redis:// host:6379 ");
        assert_eq!(split("redis://host:1/2").unwrap(), "redis:// host:1 /2");
        assert_eq!(split("redis://u:p@[::1]/").unwrap(), "redis://u:p@ [::1]:6379 /");
        assert_eq!(split("redis://[::1]:7?a=@").unwrap(), "redis:// [::1]:7 ?a=@");
        assert_eq!(split("redis+cluster://host"), None);
        assert_eq!(split("rediss://host"), None);
    }
}

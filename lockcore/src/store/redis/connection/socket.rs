//! Sockets that we connect ourselves, with the user logged in.

use std::io;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisConnectionInfo,
    RedisError, ServerErrorKind,
};
use tokio::net::{TcpStream, lookup_host};

use super::own::OwnConnection;
use crate::certificates::Certificates;
use crate::store::redis::failure;

/// Whether our own connection does for this server.
pub(super) fn is_ours(info: &ConnectionInfo) -> bool {
    let is_known = match info.addr() {
        ConnectionAddr::Tcp(..) => true,
        ConnectionAddr::TcpTls { insecure, .. } => cfg!(feature = "tls") && !insecure,
        ConnectionAddr::Unix(_) => cfg!(unix),
        _ => false,
    };
    is_known && info.redis_settings().protocol() == ProtocolVersion::RESP2
}

/// Connects, and logs in. Each request may take so long.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "TLS alone has certificates"))]
pub(super) async fn open(
    info: &ConnectionInfo,
    certificates: &Certificates,
    timeout: Duration,
) -> Result<OwnConnection, RedisError> {
    let tcp = info.tcp_settings();
    let connection = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            OwnConnection::start(connect(host, *port, tcp).await?, timeout)
        }
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, .. } => {
            let connector = certificates.connector()?;
            let name = rustls::pki_types::ServerName::try_from(host.clone());
            let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream = connect(host, *port, tcp).await?;
            OwnConnection::start(connector.connect(name, stream).await?, timeout)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            OwnConnection::start(tokio::net::UnixStream::connect(path).await?, timeout)
        }
        _ => return Err((ErrorKind::InvalidClientConfig, "no such kind of address").into()),
    };
    log_in(&connection, info.redis_settings()).await?;
    Ok(connection)
}

/// The first address of the host that answers.
async fn connect(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let streams: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if streams.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(streams).await?;
    stream.set_nodelay(settings.nodelay())?;
    let socket = socket2::SockRef::from(&stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

async fn log_in(
    connection: &OwnConnection,
    settings: &RedisConnectionInfo,
) -> Result<(), RedisError> {
    if let Some(password) = settings.password() {
        let mut command = redis::cmd("AUTH");
        command.arg(settings.username()).arg(password);
        // Whatever the server says against it, this user is not let in.
        let kind = ErrorKind::AuthenticationFailed;
        accepted(connection, &command, kind, "the server refused the login").await?;
    }
    if settings.db() != 0 {
        let command = redis::cmd("SELECT").arg(settings.db()).to_owned();
        let kind = ServerErrorKind::ResponseError.into();
        accepted(connection, &command, kind, "the server refused to switch the database").await?;
    }
    Ok(())
}

/// Sends a command; a refusal is said to be of this kind.
async fn accepted(
    connection: &OwnConnection,
    command: &Cmd,
    kind: ErrorKind,
    refusal: &'static str,
) -> Result<(), RedisError> {
    connection.ask(&command.into()).await.map(drop).map_err(|error| match error.code() {
        // The server takes no client now, of any user.
        Some(_) if failure::breaks_connection(&error) => error,
        Some(_) => {
            let said = error.detail().unwrap_or_default().to_owned();
            RedisError::from((kind, refusal, said))
        }
        // It is not the server's.
        None => error,
    })
}

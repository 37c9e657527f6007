//! Opens sockets and logs in, without redis-rs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::PubSub;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisConnectionInfo,
    RedisError, ServerErrorKind,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::decoder::Decoder;
use super::own::OwnConnection;
use crate::certificates::Certificates;
use crate::failure;
use crate::pace::{ConnectAttempt, Step};

/// A bidirectional byte stream: a TCP or Unix socket, or TLS on a TCP socket.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// Returns true if the connection of this crate supports these settings: the protocol RESP2, and an
/// address to which it can connect.
pub(super) fn is_ours(info: &ConnectionInfo) -> bool {
    is_reached(info) && info.redis_settings().protocol() == ProtocolVersion::RESP2
}

/// Returns true if this crate can open a socket to this address. False for TLS without certificate
/// verification or without the feature `tls`: redis-rs is used instead.
fn is_reached(info: &ConnectionInfo) -> bool {
    match info.addr() {
        ConnectionAddr::Tcp(..) => true,
        ConnectionAddr::TcpTls { insecure, .. } => cfg!(feature = "tls") && !insecure,
        ConnectionAddr::Unix(_) => cfg!(unix),
        _ => false,
    }
}

/// Opens a connection of this crate, and logs in. `timeout` is the timeout of each request, also
/// during the login; `attempt` has the timeouts for connecting.
pub(super) async fn open(
    info: &ConnectionInfo,
    certificates: &Certificates,
    timeout: Duration,
    attempt: &ConnectAttempt,
) -> Result<OwnConnection, RedisError> {
    let log_in = |stream| async {
        let connection = OwnConnection::start(stream, timeout);
        log_in(&connection, info.redis_settings()).await?;
        Ok(connection)
    };
    reach(info, certificates, attempt, log_in).await
}

/// Opens a connection for subscriptions, and logs in. `name` is the name of the connection in
/// CLIENT LIST. redis-rs opens the connection, without a name, if `certificates` is `None` or this
/// crate does not support the address.
pub(crate) async fn subscription(
    info: ConnectionInfo,
    certificates: Option<&Certificates>,
    name: &str,
    attempt: &ConnectAttempt,
) -> Result<PubSub, RedisError> {
    match certificates.filter(|_| is_reached(&info)) {
        Some(certificates) => {
            let settings = info.redis_settings();
            let log_in = |mut stream| async {
                introduce(&mut stream, settings, name).await?;
                PubSub::new(settings, stream).await
            };
            reach(&info, certificates, attempt, log_in).await
        }
        None => {
            attempt.begins(Step::RedisRs);
            let opening = async { Client::open(info)?.get_async_pubsub().await };
            timeout(attempt.limit, opening).await.map_err(io::Error::from)?
        }
    }
}

/// Looks up the host, connects, and passes the byte stream to `then`, which logs in. Fails if this
/// takes longer than the timeouts of `attempt`. Records the current step in `attempt`, for the
/// error message.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS uses certificates"))]
async fn reach<T, F: Future<Output = Result<T, RedisError>>>(
    info: &ConnectionInfo,
    certificates: &Certificates,
    attempt: &ConnectAttempt,
    then: impl FnOnce(Box<dyn Duplex>) -> F,
) -> Result<T, RedisError> {
    let addresses = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            attempt.begins(Step::LookUp);
            let found = timeout(attempt.look_up, lookup_host((host.as_str(), *port))).await;
            found.map_err(io::Error::from)??.collect()
        }
        _ => Vec::new(),
    };
    attempt.begins(Step::Tcp);
    let reaching = async {
        let tcp = info.tcp_settings();
        let stream: Box<dyn Duplex> = match info.addr() {
            ConnectionAddr::Tcp(..) => Box::new(connect(addresses, tcp).await?),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, .. } => {
                let connector = certificates.connector().await?;
                let name = rustls::pki_types::ServerName::try_from(host.clone());
                let name =
                    name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                let stream = connect(addresses, tcp).await?;
                attempt.begins(Step::Tls);
                let stream = connector.connect(name, stream).await;
                if let Err(error) = &stream {
                    certificates.note_failed(error).await;
                }
                Box::new(stream?)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
            _ => return Err((ErrorKind::InvalidClientConfig, "unsupported address").into()),
        };
        attempt.begins(Step::Login);
        then(stream).await
    };
    timeout(attempt.limit, reaching).await.map_err(io::Error::from)?
}

/// Connects to all addresses of a host concurrently, and returns the first open connection, with
/// the TCP options in `settings`. Fails if no address accepts a connection, or `addresses` is
/// empty.
async fn connect(addresses: Vec<SocketAddr>, settings: &TcpSettings) -> io::Result<TcpStream> {
    let streams: Vec<_> =
        addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address))).collect();
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

/// Sends AUTH if `settings` has a password, and SELECT if the database is not 0. Fails if the
/// server refuses either.
async fn log_in(
    connection: &OwnConnection,
    settings: &RedisConnectionInfo,
) -> Result<(), RedisError> {
    if let Some(password) = settings.password() {
        let mut command = redis::cmd("AUTH");
        command.arg(settings.username()).arg(password);
        // Any error means that this user is not let in.
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

/// Sets the connection's name with HELLO before redis-rs takes the connection over, because
/// redis-rs cannot name subscriptions. HELLO needs no right except the login. A refused login is
/// not reported here, because the login that follows reports it.
async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    settings: &RedisConnectionInfo,
    name: &str,
) -> Result<(), RedisError> {
    let mut hello = redis::cmd("HELLO");
    hello.arg(2);
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    hello.arg("SETNAME").arg(name);
    stream.write_all(&hello.get_packed_command()).await?;
    stream.flush().await?;
    let (mut decoder, mut bytes) = (Decoder::default(), Vec::new());
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut left = &bytes[..];
        if let Some(answer) = decoder.next(&mut left)? {
            let refused = answer.extract_error().err();
            return refused.filter(failure::breaks_connection).map_or(Ok(()), Err);
        }
        bytes = left.to_vec();
    }
}

/// Sends AUTH or SELECT, and waits for the reply. A refusal becomes an error of this `kind` with
/// the text `refusal`. An error about all clients, such as too many connections, is returned
/// unchanged.
async fn accepted(
    connection: &OwnConnection,
    command: &Cmd,
    kind: ErrorKind,
    refusal: &'static str,
) -> Result<(), RedisError> {
    connection.send_packed(&command.into()).await.map(drop).map_err(|error| match error.code() {
        // The server refuses all clients for now, so the login is not at fault.
        Some(_) if failure::breaks_connection(&error) => error,
        Some(_) => {
            let said = error.detail().unwrap_or_default().to_owned();
            RedisError::from((kind, refusal, said))
        }
        // Not a server error.
        None => error,
    })
}

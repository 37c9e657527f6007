//! `Wire`: a blocking connection to Redis with raw frames and no client library in between.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::resp;

/// A blocking connection that sends and reads raw frames.
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects within `timeout`, which also bounds each later read.
    pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and reads its reply: the text of a simple or bulk string, or of an error.
    pub(crate) fn ask(&mut self, args: &[&str]) -> io::Result<String> {
        self.stream.get_mut().write_all(&resp::request(args))?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.to_owned());
        };
        let length: usize = length.parse().map_err(io::Error::other)?;
        let mut content = vec![0; length + 2];
        self.stream.read_exact(&mut content)?;
        content.truncate(length);
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// Returns the connection itself, for a reader without a time limit.
    pub(crate) fn into_stream(self) -> io::Result<BufReader<TcpStream>> {
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(self.stream)
    }
}

//! `Monitor`: every command that the server runs, in order.

use std::io::{BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::MonitorLine;
use crate::wire::Wire;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A running MONITOR on its own connection and thread: it keeps up while the test's runtime is
/// busy, paused or blocked.
#[derive(Debug)]
pub struct Monitor {
    address: SocketAddr,
    connection: TcpStream,
    /// The command at which the reader ends, sent by `stop` on another connection.
    end_mark: String,
    /// The reader; `None` once stopped.
    reader: Option<JoinHandle<Vec<MonitorLine>>>,
}

impl Monitor {
    /// Starts a MONITOR, which sees every command sent after this call has returned.
    ///
    /// # Panics
    ///
    /// If there is no server, or the server requires a password.
    #[must_use]
    pub fn start(address: SocketAddr) -> Self {
        Self::read_by(address, |stream, end_mark| {
            let mut lines = Vec::new();
            read_lines(stream, end_mark, |line| lines.push(line));
            lines
        })
    }

    /// Starts a MONITOR that passes each command to `each` instead of keeping it, for long runs.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn each(address: SocketAddr, each: impl FnMut(MonitorLine) + Send + 'static) -> Self {
        Self::read_by(address, |stream, end_mark| {
            read_lines(stream, end_mark, each);
            Vec::new()
        })
    }

    fn read_by(
        address: SocketAddr,
        read: impl FnOnce(BufReader<TcpStream>, &str) -> Vec<MonitorLine> + Send + 'static,
    ) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let end_mark = format!("end of monitor {number} of {}", std::process::id());

        let mut wire = Wire::connect(address, ANSWER_LIMIT).expect("the server accepts a monitor");
        let answer = wire.ask(&["MONITOR"]).expect("the server answers a monitor");
        assert_eq!(answer, "+OK", "MONITOR is allowed");
        let stream = wire.into_stream().expect("a socket takes options");
        let connection = stream.get_ref().try_clone().expect("a socket can be shared");
        let reader = thread::spawn({
            let end_mark = end_mark.clone();
            move || read(stream, &end_mark)
        });
        Self { address, connection, end_mark, reader: Some(reader) }
    }

    /// Stops the MONITOR, and returns all commands that ran before this call, in order. If the
    /// server has died meanwhile, these are the commands until then.
    ///
    /// If the server has died meanwhile, these are the commands until then.
    ///
    /// # Panics
    ///
    /// If a line cannot be parsed.
    #[must_use]
    pub fn stop(mut self) -> Vec<MonitorLine> {
        // The reader ends at a command that ran after all others: nothing remains in a buffer.
        let marked = Wire::connect(self.address, ANSWER_LIMIT)
            .and_then(|mut wire| wire.ask(&["ECHO", &self.end_mark]));
        if marked.is_err() {
            let _ = self.connection.shutdown(Shutdown::Both);
        }
        let reader = self.reader.take().expect("a monitor is stopped once");
        reader.join().expect("MONITOR's lines are understood")
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.connection.shutdown(Shutdown::Both); // ends the reader
    }
}

fn read_lines(mut stream: BufReader<TcpStream>, end_mark: &str, mut each: impl FnMut(MonitorLine)) {
    let mut bytes = Vec::new();
    // Line ends inside arguments are escaped: each line is a command.
    while stream.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let Some(text) = bytes.strip_suffix(b"\r\n") else {
            break;
        }; // the server died within a line
        let line = text
            .strip_prefix(b"+")
            .and_then(MonitorLine::parse)
            .unwrap_or_else(|| panic!("not a line of MONITOR: {}", text.escape_ascii()));
        if line.is("ECHO") && line.args.get(1).is_some_and(|arg| arg == end_mark.as_bytes()) {
            break;
        }
        each(line);
        bytes.clear();
    }
}

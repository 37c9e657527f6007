//! The signals that ask `lockctl` to end.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

/// Listens from when it is made; a signal that comes between two calls is not forgotten.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// SIGINT, SIGTERM and SIGHUP, but for those that our parent wants ignored (`nohup`, or a
    /// shell's `&`): CMD inherits that only if we leave it alone.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let all = [
            (Signal::INT, SignalKind::interrupt()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::HUP, SignalKind::hangup()),
        ];
        let heard = all.into_iter().filter(|(signal, _)| ignored >> (signal.as_raw() - 1) & 1 == 0);
        heard
            .map(|(signal, kind)| Ok((signal, unix::signal(kind)?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One that has already come.
    pub(crate) fn pending(&mut self) -> Option<Signal> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(signal) => Some(signal),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        for (signal, heard) in &mut self.0 {
            if heard.poll_recv(cx).is_ready() {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Whether the terminal has sent this signal to our children as well: a Ctrl-C goes to the whole
/// foreground group. A `kill -INT` looks the same; in the foreground of a terminal it is taken for
/// a Ctrl-C, because a command that gets two often takes the second for "at once, without cleaning
/// up".
pub(crate) fn came_from_terminal(signal: Signal) -> bool {
    signal == Signal::INT
        && File::open("/dev/tty")
            .is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// The signals that are ignored in this process, bit n-1 for signal n. None, where there is no
/// `/proc`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

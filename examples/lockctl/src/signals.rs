//! The signals that `lockctl` passes on to CMD.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

/// The number of the last signal. The signals from 34 on are Linux's real-time signals.
const LAST: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

/// The signals of the C library for its threads; musl has one more.
const RESERVED: std::ops::RangeInclusive<i32> =
    32..=if cfg!(target_env = "musl") { 34 } else { 33 };

/// The signals that are not caught.
const LEFT_ALONE: [Signal; 12] = [
    // They cannot be caught.
    Signal::KILL,
    Signal::STOP,
    // They mean a fault of this program, which cannot go on after it.
    Signal::ILL,
    Signal::TRAP,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
    // They are about the children and the output of this process, which also ignores SIGPIPE.
    Signal::CHILD,
    Signal::PIPE,
    // The terminal sends them to a process that may not use it now, and has to stop it.
    Signal::TTIN,
    Signal::TTOU,
];

/// The signals that do not end a process that leaves them alone. Only CMD needs them.
const HARMLESS: [Signal; 4] = [Signal::CONT, Signal::TSTP, Signal::URG, Signal::WINCH];

/// Receives signals from its making on; a signal that comes between two calls is kept.
pub(crate) struct Signals {
    heard: Vec<(i32, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// All signals that would end `lockctl`, but for those that our parent wants ignored (`nohup`,
    /// or a shell's `&`): CMD inherits that only if we leave them alone.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self { heard: Vec::new(), ignored: ignored() };
        for number in (1..=LAST).filter(|number| !RESERVED.contains(number)) {
            let has = |all: &[Signal]| all.iter().any(|signal| signal.as_raw() == number);
            if !has(&LEFT_ALONE) && !has(&HARMLESS) {
                signals.hear(number)?;
            }
        }
        Ok(signals)
    }

    /// Receives also the signals that leave a waiting `lockctl` as it is, or stop it.
    pub(crate) fn listen_for_command(&mut self) -> io::Result<()> {
        HARMLESS.iter().try_for_each(|signal| self.hear(signal.as_raw()))
    }

    fn hear(&mut self, number: i32) -> io::Result<()> {
        if self.ignored >> (number - 1) & 1 == 0 {
            self.heard.push((number, unix::signal(SignalKind::from_raw(number))?));
        }
        Ok(())
    }

    /// The number of the next signal.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// The number of a signal that has already come.
    pub(crate) fn pending(&mut self) -> Option<i32> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => Some(number),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        for (number, heard) in &mut self.heard {
            if heard.poll_recv(cx).is_ready() {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    }
}

/// Whether the terminal has sent this signal to our children as well: a Ctrl-C goes to the whole
/// foreground group. A `kill -INT` looks the same; in the foreground of a terminal it is taken for
/// a Ctrl-C, because a command that gets two often takes the second for "at once, without cleaning
/// up".
pub(crate) fn came_from_terminal(number: i32) -> bool {
    [Signal::INT, Signal::QUIT, Signal::TSTP, Signal::WINCH].iter().any(|it| it.as_raw() == number)
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

//! Signals that `lockctl` forwards to CMD.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use rustix::process::{Pid, Signal, getpgid, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};

/// The last signal number. Signals from 34 on are Linux real-time signals.
const LAST: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

/// The signals that the C library reserves for its threads: 32 and 33, with musl also 34.
const RESERVED: std::ops::RangeInclusive<i32> =
    32..=if cfg!(target_env = "musl") { 34 } else { 33 };

/// The signals that `lockctl` does not catch, so that their default action applies.
const LEFT_ALONE: [Signal; 12] = [
    // They cannot be caught.
    Signal::KILL,
    Signal::STOP,
    // These report a fault in this program, which cannot continue afterwards.
    Signal::ILL,
    Signal::TRAP,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
    // These concern the children and the output of this process, which also ignores SIGPIPE.
    Signal::CHILD,
    Signal::PIPE,
    // The terminal sends these to a process that may not use it now, in order to stop the process.
    Signal::TTIN,
    Signal::TTOU,
];

/// The signals whose default action does not end a process. They are caught only while CMD runs, to
/// be forwarded to CMD.
const HARMLESS: [Signal; 4] = [Signal::CONT, Signal::TSTP, Signal::URG, Signal::WINCH];

/// The signals that `lockctl` catches. A signal that arrives while nobody waits for it is kept for
/// the next call.
pub(crate) struct Signals {
    heard: Vec<(i32, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// Catches all signals that would end `lockctl`, except those ignored by our parent (`nohup`,
    /// or a shell's `&`): CMD inherits an ignored signal only if we do not catch it.
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

    /// Also catches the signals in [`HARMLESS`], to forward them to CMD. Called just before CMD
    /// starts.
    pub(crate) fn listen_for_command(&mut self) -> io::Result<()> {
        HARMLESS.iter().try_for_each(|signal| self.hear(signal.as_raw()))
    }

    /// Catches only these signals.
    #[cfg(test)]
    pub(crate) fn of(numbers: &[i32]) -> io::Result<Self> {
        let mut signals = Self { heard: Vec::new(), ignored: 0 };
        numbers.iter().try_for_each(|number| signals.hear(*number))?;
        Ok(signals)
    }

    fn hear(&mut self, number: i32) -> io::Result<()> {
        if self.ignored >> (number - 1) & 1 == 0 {
            self.heard.push((number, unix::signal(SignalKind::from_raw(number))?));
        }
        Ok(())
    }

    /// Waits for the next signal, and returns its number.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Returns the number of a terminating signal that has already arrived, if any. Signals in
    /// [`HARMLESS`] are kept for [`next`](Self::next).
    pub(crate) fn pending(&mut self) -> Option<i32> {
        let mut cx = Context::from_waker(Waker::noop());
        for (number, heard) in &mut self.heard {
            let is_harmless = HARMLESS.iter().any(|signal| signal.as_raw() == *number);
            if !is_harmless && heard.poll_recv(&mut cx).is_ready() {
                return Some(*number);
            }
        }
        None
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

/// Returns true if the terminal has sent this signal, and so has sent it to CMD as well: Ctrl-C
/// reaches the whole foreground group, unless CMD has left it, as `timeout` and `setsid` do. Such a
/// signal is not forwarded, because a command that receives it twice often takes the second as "at
/// once, without cleanup". In the foreground of a terminal, a `kill -INT` cannot be distinguished
/// from Ctrl-C.
pub(crate) fn came_from_terminal(number: i32, command: Pid) -> bool {
    [Signal::INT, Signal::QUIT, Signal::TSTP, Signal::WINCH].iter().any(|it| it.as_raw() == number)
        && getpgid(Some(command)) == Ok(getpgrp())
        && File::open("/dev/tty")
            .is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Returns the signals that this process ignores, as a mask in which bit n-1 stands for signal n.
/// Zero without `/proc`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

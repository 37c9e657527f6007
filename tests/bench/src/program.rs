//! `Program`: a running process that obeys lines and responds with lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lock_tests::Leash;

/// Linux reports processor time in hundredths of a second, on every machine.
const TICK_US: f64 = 10_000.0;
const PAGE_BYTES: f64 = 4096.0;

/// A process killed on drop, and also if the driver dies.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The lines not yet returned by `answer`.
    unclaimed: Vec<String>,
    /// The leash; `None` only while the process is being killed.
    leash: Option<Leash>,
    name: String,
}

impl Program {
    /// Starts the program with the server address as an argument after the first word of `command`,
    /// on `threads` threads, or as many as the machine has.
    pub(crate) fn start(command: &[String], address: &str, threads: usize) -> Result<Self, String> {
        let [path, arguments @ ..] = command else { return Err("no command".to_owned()) };
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match words.iter().position(|word| *word == "ADDRESS") {
            Some(place) => words[place] = address,
            None => words.push(address),
        }
        let threads = (threads > 0).then(|| ("TOKIO_WORKER_THREADS", threads.to_string()));
        let mut child = Command::new(path)
            .args(words)
            .envs(threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{path} does not start: {error}"))?;
        let leash = Some(Leash::new(child.id(), None));
        let input = child.stdin.take().expect("its input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let unclaimed = Vec::new();
        let name = String::new();
        Ok(Self { child, input, lines, unclaimed, leash, name })
    }

    /// Waits until the program is connected.
    pub(crate) fn ready(&mut self) -> Result<(), String> {
        self.name = self.answer("ready", Duration::from_secs(60))?;
        Ok(())
    }

    /// The name reported by the program.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends the program a line.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.input, "{line}").map_err(|error| format!("does not read: {error}"))
    }

    /// Waits for a line that begins with `start`, and returns the rest of the line.
    pub(crate) fn answer(&mut self, start: &str, limit: Duration) -> Result<String, String> {
        let deadline = Instant::now() + limit;
        loop {
            let rest = |line: &String| Some(line.strip_prefix(start)?.trim_start().to_owned());
            if let Some(place) = self.unclaimed.iter().position(|line| rest(line).is_some()) {
                return Ok(rest(&self.unclaimed.remove(place)).expect("just found"));
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.unclaimed.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("did not print '{start}' within {limit:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("ended without printing '{start}'"));
                }
            }
        }
    }

    /// Waits until the program has the lock of this name; returns the times of the request and of
    /// the grant.
    pub(crate) fn taken(&mut self, name: &str, limit: Duration) -> Result<[u64; 2], String> {
        times(&self.answer(&format!("taken {name} "), limit)?)
    }

    /// Waits until the lock of this name is released; returns when the release began and ended.
    pub(crate) fn given(&mut self, name: &str) -> Result<[u64; 2], String> {
        times(&self.answer(&format!("given {name} "), Duration::from_secs(60))?)
    }

    /// The processor time so far, µs.
    pub(crate) fn cpu_us(&self) -> f64 {
        cpu_us(self.child.id())
    }

    /// The occupied memory, bytes.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let text =
            fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
        pages.unwrap_or(0.0) * PAGE_BYTES
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // a zombie until waited for: its id is not recycled before
        self.leash = None;
        let _ = self.child.wait();
    }
}

fn times(rest: &str) -> Result<[u64; 2], String> {
    let mut numbers = rest.split(' ').map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(format!("printed no two times: {rest}")),
    }
}

/// The processor time of a process so far, µs; 0 if it is gone.
pub(crate) fn cpu_us(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; the 3rd and later fields of proc(5) follow.
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() * TICK_US
}

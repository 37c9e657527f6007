//! `ServerClock`: the wall clock of a server, which a test sets while the server runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::preload::Preload;
use crate::{RedisOptions, RedisServer};

/// The source of the library that is preloaded between the server and the machine's clock.
const SOURCE: &str = include_str!("server_clock/clock.c");

/// A server's clock. The server's timers stay on the monotonic clock.
#[derive(Debug)]
pub struct ServerClock {
    _preload: Preload,
    /// The file from which the server reads how many seconds its clock is ahead.
    ahead: File,
}

impl ServerClock {
    /// Starts a server with its own clock, at first the same as the machine's.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::start`], and if the C compiler that links Rust's programs is missing.
    #[must_use]
    pub fn start(options: RedisOptions) -> (RedisServer, Self) {
        let preload = Preload::compile("lock-clock", SOURCE);
        let file = preload.path("ahead");
        let ahead = File::create_new(&file).expect("a temporary file");
        let options = preload.add_to(options).env("LOCK_TESTS_CLOCK", file);
        let clock = Self { _preload: preload, ahead };
        clock.set(0);
        (options.start(), clock)
    }

    /// Sets the clock `ahead` seconds ahead of the machine's.
    ///
    /// # Panics
    ///
    /// If the temporary directory cannot be written.
    pub fn set(&self, ahead: i64) {
        self.ahead.write_all_at(&ahead.to_ne_bytes(), 0).expect("a temporary file");
    }
}

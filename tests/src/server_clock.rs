//! `ServerClock`: the wall clock of a server, which a test sets while the server runs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use crate::{RedisOptions, RedisServer};

/// The source of the library that is preloaded between the server and the machine's clock.
const SOURCE: &str = include_str!("server_clock/clock.c");

/// A server's clock. The server's timers stay on the monotonic clock.
#[derive(Debug)]
pub struct ServerClock {
    directory: PathBuf,
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
        static CLOCKS: AtomicU32 = AtomicU32::new(0);
        let number = CLOCKS.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("lock-clock-{}-{number}", process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let [source, library, file] = ["clock.c", "clock.so", "ahead"].map(|it| directory.join(it));
        fs::write(&source, SOURCE).expect("a temporary file");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let built = cc.status().expect("cc, which links programs");
        assert!(built.success(), "cc builds the clock: {built}");
        let clock = Self { directory, ahead: File::create(&file).expect("a temporary file") };
        clock.set(0);
        let options = options.env("LD_PRELOAD", library).env("LOCK_TESTS_CLOCK", file);
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

impl Drop for ServerClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

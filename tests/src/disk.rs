//! `Disk`: the disk of a server with an append-only file; it can be slow or full, and loses
//! unsynced data when the power fails.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::preload::Preload;
use crate::{LIMIT, RedisOptions, RedisServer};

/// A scratch directory for the data of one server. A library preloaded into the server records how
/// much of the append-only file is on the disk, at each fdatasync that has returned.
#[derive(Debug)]
pub struct Disk {
    preload: Preload,
    /// The file through which the test and the library share values.
    shared: File,
}

const DELAY_US: u64 = 0;
const IS_FULL: u64 = 8;
const SYNCED: u64 = 16;
const HANGS: u64 = 24;
const IS_HANGING: u64 = 32;
const NUMBERS: u64 = 40;

impl Disk {
    /// Creates an empty disk, and compiles the library with `cc`.
    ///
    /// # Panics
    ///
    /// If the directory cannot be created, or the library cannot be compiled.
    #[must_use]
    pub fn new() -> Self {
        let preload = Preload::compile("lock-disk", include_str!("disk.c"));
        let mut options = OpenOptions::new();
        let shared = options.read(true).write(true).create_new(true);
        let shared = shared.open(preload.path("shared")).expect("a file can be made");
        shared.set_len(NUMBERS).expect("a file has a length");
        Self { preload, shared }
    }

    /// Returns the options of a server with an append-only file on this disk.
    #[must_use]
    pub fn options(&self, appendfsync: &str) -> RedisOptions {
        let directory = self.preload.directory().to_str().expect("a path is text");
        let options = RedisOptions::default()
            .arg("dir", directory)
            .arg("appendonly", "yes")
            .arg("appendfsync", appendfsync)
            .arg("auto-aof-rewrite-percentage", "0")
            .env("LOCK_DISK", self.preload.path("shared"));
        self.preload.add_to(options)
    }

    /// Sets the duration of each fdatasync from now on.
    pub fn takes(&self, delay: Duration) {
        self.set(DELAY_US, delay.as_micros() as u64);
    }

    /// Sets whether the append-only file can grow.
    pub fn is_full(&self, is_full: bool) {
        self.set(IS_FULL, is_full.into());
    }

    /// Whether this text is in the synced part of the append-only file.
    #[must_use]
    pub fn has(&self, text: &str) -> bool {
        let mut log = fs::read(self.log()).expect("the server keeps a file");
        log.truncate(self.synced() as usize);
        log.windows(text.len()).any(|part| part == text.as_bytes())
    }

    /// Simulates a power failure: kills the server, truncates its file to the synced part, and
    /// restarts the server. Returns the number of lost bytes.
    ///
    /// # Panics
    ///
    /// As [`RedisServer::restart`].
    pub fn lose_power(&self, server: &mut RedisServer) -> u64 {
        // Written pages outlive the process: only a power failure loses them.
        server.kill();
        let log = OpenOptions::new().write(true).open(self.log()).expect("a file to cut");
        let length = log.metadata().expect("it has a length").len();
        let kept = length.min(self.synced());
        log.set_len(kept).expect("it can be cut");
        self.set(SYNCED, kept);
        self.set(HANGS, 0);
        self.set(IS_HANGING, 0);
        server.restart();
        length - kept
    }

    /// Simulates a power failure during an fdatasync, after the bytes were written. Returns the
    /// number of lost bytes, as [`Disk::lose_power`] does.
    ///
    /// # Panics
    ///
    /// If the server writes nothing within [`LIMIT`], and as [`RedisServer::restart`].
    pub fn lose_power_in_sync(&self, server: &mut RedisServer) -> u64 {
        let end = Instant::now() + LIMIT;
        self.set(HANGS, 1);
        while self.get(IS_HANGING) == 0 {
            assert!(Instant::now() < end, "no fdatasync within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lose_power(server)
    }

    fn log(&self) -> PathBuf {
        self.preload.path("appendonlydir/appendonly.aof.1.incr.aof")
    }

    fn synced(&self) -> u64 {
        self.get(SYNCED)
    }

    fn get(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.shared.read_exact_at(&mut bytes, at).expect("it was made so long");
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, at: u64, number: u64) {
        self.shared.write_all_at(&number.to_ne_bytes(), at).expect("it can be written");
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

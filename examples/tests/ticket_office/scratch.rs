//! A directory for one test's database.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use deadpool_sqlite::rusqlite::Connection;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory, removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ticket-office-{}-{number}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        Self(directory)
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of the offices' database.
    pub(crate) fn database(&self) -> String {
        self.path("seats.sqlite").to_str().expect("its name is UTF-8").to_owned()
    }

    /// Opens a separate connection for the test.
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(self.database()).expect("it can be opened");
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("it can be set");
        connection
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! `Preload`: a library that is preloaded into a server, in a directory of its own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::RedisOptions;

/// A compiled library, in a directory that was new and that only this user can enter: nobody else
/// can put a library there first. The directory is removed on drop.
#[derive(Debug)]
pub(crate) struct Preload {
    directory: PathBuf,
}

impl Preload {
    /// Compiles the library from this C source.
    ///
    /// # Panics
    ///
    /// If the directory cannot be created, or the library cannot be compiled.
    pub(crate) fn compile(name: &str, source: &str) -> Self {
        let preload = Self { directory: create(&std::env::temp_dir(), name) };
        let path = preload.path("source.c");
        fs::write(&path, source).expect("a file can be made");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(preload.path("library.so"));
        let compiled = cc.arg(&path).arg("-ldl").output();
        let compiled = compiled.expect("cc, which building Rust takes, starts");
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{name} does not compile: {said}");
        preload
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns these options, with the library preloaded into the server.
    pub(crate) fn add_to(&self, options: RedisOptions) -> RedisOptions {
        options.env("LD_PRELOAD", self.path("library.so"))
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Creates a directory in `parent`. Another user may know its name in advance, but an existing
/// directory is never used.
fn create(parent: &Path, name: &str) -> PathBuf {
    for number in 0.. {
        let directory = parent.join(format!("{name}-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return directory,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{} cannot be created: {error}", directory.display()),
        }
    }
    unreachable!("there are enough numbers")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_library_lies_in_a_new_directory_of_its_user_and_is_removed() {
        let outer = Preload::compile("lock-preload", "int one;");
        let taken = create(outer.directory(), "x");
        let own = create(outer.directory(), "x");
        assert_ne!(own, taken, "a directory that exists is not used");
        let mode = fs::metadata(&own).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);

        let directory = outer.directory().to_owned();
        assert!(outer.path("library.so").exists());
        drop(outer);
        assert!(!directory.exists());
    }
}

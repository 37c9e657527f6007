//! The compiler's messages when an implementation is missing: each says what to write.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// For each program that must not compile: its name, its source, and the sentences expected in the
/// compiler's message.
const FIXTURES: [(&str, &str, &[&str]); 9] = [
    (
        "number",
        include_str!("messages/number.rs"),
        &["`u64` does not define a lock key", "struct Order(u64)", "lock_by(|Path(id)"],
    ),
    (
        "forgotten",
        include_str!("messages/forgotten.rs"),
        &["`Order` does not define a lock key", "impl Lockable for Order"],
    ),
    (
        "unread",
        include_str!("messages/unread.rs"),
        &["`Cart: serde::Deserialize<'de>` is not satisfied", "#[derive(serde::Deserialize)]"],
    ),
    (
        "closure",
        include_str!("messages/closure.rs"),
        &["`lock_by` needs a closure of one to four extractors that returns a key"],
    ),
    (
        "key",
        include_str!("messages/key.rs"),
        &["cannot extract a lock key from a request", "such a closure returns a `String`"],
    ),
    (
        "limit",
        include_str!("messages/limit.rs"),
        &["`Tenant` does not define a permit limit", "impl Limited for Tenant"],
    ),
    (
        "name",
        include_str!("messages/name.rs"),
        &["`&str` cannot extract a lock key from a request", "a closure that returns the name"],
    ),
    (
        "permit",
        include_str!("messages/permit.rs"),
        &["cannot extract a lock key from a request", "a limit of permits is a `u32`"],
    ),
    (
        "service",
        include_str!("messages/service.rs"),
        &[
            "the service inside the lock does not accept the lock's requests",
            "implement `Service<Request<RequestBody<B>>>`",
            ".map_request(|request: Request<RequestBody<Body>>|",
        ],
    ),
];

/// Creates a package with the programs, inside the build folder, where the compiler finds our
/// dependencies.
fn package(folder: &Path) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = |name: &str| crates.join(name).display().to_string();
    let manifest = format!(
        "[package]\nname = \"messages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         axum = {{ version = \"0.8.9\", default-features = false }}\n\
         tower = {{ version = \"0.5\", default-features = false }}\n\
         lock-axum = {{ path = {:?}, default-features = false, features = [\"json\"] }}\n",
        path("lock-axum"),
    );
    std::fs::create_dir_all(folder.join("src/bin")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(crates.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    for (name, text, _) in FIXTURES {
        std::fs::write(folder.join(format!("src/bin/{name}.rs")), text).unwrap();
    }
}

#[test]
fn the_compiler_says_what_to_write_where_a_trait_is_forgotten() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("messages");
    package(&folder);
    for (name, _, sentences) in FIXTURES {
        let check = Command::new(env!("CARGO"))
            .args(["check", "--offline", "--quiet", "--bin", name])
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&check.stderr);
        assert!(!check.status.success(), "{name} compiles");
        for sentence in sentences {
            assert!(said.contains(sentence), "{name} lacks {sentence:?}:\n{said}");
        }
    }
}

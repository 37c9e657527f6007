//! The JVM's program: compiled, with its jars, once a version of Redisson.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/redisson");

/// Returns the class path for `java -cp`.
///
/// # Panics
///
/// If Maven is not there, or its registry does not answer the first time.
pub(crate) fn class_path() -> &'static str {
    static BUILT: OnceLock<Result<String, String>> = OnceLock::new();
    let built = BUILT.get_or_init(find_or_build);
    built.as_deref().unwrap_or_else(|reason| panic!("{reason}"))
}

/// The first test to look at when all fail.
#[test]
#[ignore = "needs Java and Maven: scripts/test --interop"]
fn java_starts_and_maven_builds_the_program() {
    let java = Command::new("java").args(["-cp", class_path(), "-version"]).output();
    assert!(java.expect("Java (java) starts").status.success());
}

fn find_or_build() -> Result<String, String> {
    let version = std::env::var("REDISSON_VERSION").unwrap_or_default();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = if version.is_empty() { "newest" } else { &version };
    let directory = cache.join(format!("redisson-{name}"));
    let sources = sources();
    if fs::read(directory.join("built-from")).is_ok_and(|from| from == sources) {
        return Ok(join(&directory));
    }
    // The build is in a directory of its own: another process may do the same, and a build that
    // fails leaves nothing.
    let aside = cache.join(format!("redisson-{name}-{}", std::process::id()));
    build(&version, &aside)?;
    fs::write(aside.join("built-from"), sources).map_err(|error| error.to_string())?;
    let _ = fs::remove_dir_all(&directory);
    let _ = fs::rename(&aside, &directory);
    Ok(join(&directory))
}

fn sources() -> Vec<u8> {
    let files = ["pom.xml", "src/main/java/Peer.java"];
    let read = |file: &str| fs::read(Path::new(SOURCE).join(file)).expect("a file of this package");
    files.into_iter().flat_map(read).collect()
}

fn build(version: &str, directory: &PathBuf) -> Result<(), String> {
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-ntp", "-f"]).arg(Path::new(SOURCE).join("pom.xml"));
    maven.arg(format!("-Dpeer.directory={}", directory.display()));
    if !version.is_empty() {
        maven.arg(format!("-Dredisson.version={version}"));
    }
    let output = maven.arg("compile").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("Maven (mvn) does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let error = said.lines().find(|line| line.contains("ERROR")).unwrap_or("it does not say why");
    let _ = fs::remove_dir_all(directory);
    Err(format!("Maven could not build tests/redisson: {error}"))
}

fn join(directory: &Path) -> String {
    let directory = directory.display();
    format!("{directory}/classes:{directory}/jars/*")
}

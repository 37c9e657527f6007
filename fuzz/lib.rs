//! The checks of the test binary `inputs`, for the fuzz targets.

#[path = "../tests/tests/inputs/checks/mod.rs"]
#[expect(dead_code, reason = "the tests use a little more of it")]
mod checks;

/// Runs the check of this name.
///
/// # Panics
/// If there is none, or if it fails.
pub fn check(name: &str, bytes: &[u8]) {
    let (_, check) = checks::ALL.iter().find(|(known, _)| *known == name).expect("a known check");
    check(bytes);
}

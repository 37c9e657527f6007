//! The clients' clocks: no client uses a clock that can be set.

use std::path::{Path, PathBuf};

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The stand-in for a server, which has a clock like a server.
const SERVER: &str = "store/memory";

#[test]
fn no_client_reads_a_wall_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lockcore/src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    assert!(found.len() > 30, "these are the sources: {found:?}");
    for path in found {
        let inside = path.strip_prefix(&root).expect("below it");
        let text = std::fs::read_to_string(&path).expect("a source is text");
        let is_server = inside.to_string_lossy().starts_with(SERVER);
        assert!(
            is_server || !text.contains("SystemTime"),
            "{} reads the wall clock",
            inside.display()
        );
    }
}

//! The seeded bugs of `tests/mutants`: that each can still be put in.

use std::fs;
use std::path::Path;

/// The file that a seeded bug changes, and the text in it.
fn place(bug: &str) -> Option<(&str, &str)> {
    let (head, rest) = bug.split_once("--- this\n")?;
    let (text, _) = rest.split_once("--- becomes\n")?;
    let file = head.lines().find_map(|line| line.strip_prefix("file: "))?;
    Some((file, text.strip_suffix('\n')?))
}

#[test]
fn the_text_of_each_seeded_bug_is_in_its_file_exactly_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let bugs = fs::read_dir(root.join("tests/mutants")).expect("the folder is there");
    let mut wrong = Vec::new();
    let mut count = 0;
    for bug in bugs {
        let path = bug.expect("it is readable").path();
        let bug = fs::read_to_string(&path).expect("it is text");
        let found = place(&bug).map(|(file, text)| {
            let source = fs::read_to_string(root.join(file)).unwrap_or_default();
            source.matches(text).count()
        });
        if found != Some(1) {
            wrong.push(format!("{}: {found:?}", path.display()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 500, "only {count}");
}

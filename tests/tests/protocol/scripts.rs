//! The script texts: as read by a server, and as in their files.

use std::fs;
use std::path::{Path, PathBuf};

use lock_tests::{Raw, RedisServer};
use proto::Topology;
use proto::wire::scripts;
use redis::cmd;

#[tokio::test]
async fn a_server_parses_each_script_and_knows_it_by_its_digest() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let sets = [Topology::Single, Topology::Cluster, Topology::Quorum].map(scripts::of_queue);
    let of_queue = sets.iter().flat_map(|set| set.all());
    for script in of_queue.chain(redisson::scripts::all().all()) {
        let digest: String = redis.ask(cmd("SCRIPT").arg("LOAD").arg(&*script.source)).await;
        assert_eq!(digest, script.digest, "{}", script.name);
    }
}

#[test]
fn the_row_that_pays_for_a_short_way_is_in_its_page() {
    let scripts = scripts::of_queue(Topology::Single).all();
    let paid = scripts.flat_map(|script| script.source.lines());
    let paid: Vec<&str> = paid.filter_map(|line| line.strip_prefix("-- Pays: \"")).collect();
    assert!(paid.len() > 1);
    for line in paid {
        let (row, page) = line.trim_end_matches('.').split_once("\" in ").expect("a page");
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../").to_owned() + page;
        let text = fs::read_to_string(&page).expect("a page");
        assert!(text.contains(row), "{page} has no row {row:?}");
    }
}

/// All files in a folder and in its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let each = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| each(entry.path())).collect()
}

/// Excluded are numbers of one digit, and 1 000, which converts µs to ms: they have other meanings
/// as well.
#[test]
fn no_number_that_has_a_name_is_written_out_in_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, numbers) in [
        ("lockcore/proto/src/wire/lua", scripts::NUMBERS.as_slice()),
        ("lockcore/redisson/src/lua", redisson::scripts::NUMBERS.as_slice()),
    ] {
        let files = files(&root.join(folder));
        assert!(files.len() > 1);
        for file in files {
            let text = fs::read_to_string(&file).expect("a script");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
            let is_end = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
            for number in
                code.flat_map(|line| line.split(is_end)).filter_map(|word| word.parse().ok())
            {
                let mut named = numbers.iter().chain(&scripts::SHARED_NUMBERS);
                let name = named.find(|(_, other)| *other == number).map(|(name, _)| name);
                let is_free = number < 10 || number == 1_000;
                assert!(is_free || name.is_none(), "{}: {number} is {name:?}", file.display());
            }
        }
    }
}

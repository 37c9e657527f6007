//! The texts of the scripts, as a server reads them.

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
        let text = std::fs::read_to_string(&page).expect("a page");
        assert!(text.contains(row), "{page} has no row {row:?}");
    }
}

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

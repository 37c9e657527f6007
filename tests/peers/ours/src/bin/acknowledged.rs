//! Our locks where replicas must acknowledge a grant. Usage: `acknowledged ADDRESS REPLICAS`.

use std::time::Duration;

use lock_peer_kit::run;
use lock_peer_ours::Ours;
use lockcore::Locks;

fn main() {
    let replicas = std::env::args().nth(2).expect("usage: acknowledged ADDRESS REPLICAS");
    let replicas = replicas.parse().expect("REPLICAS is a number");
    run("lockcore", async |url| {
        let builder = Locks::builder().require_replicas(replicas, Duration::from_millis(500));
        Ours(builder.connect(url).await.expect("connected"))
    });
}

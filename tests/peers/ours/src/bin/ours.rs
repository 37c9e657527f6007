//! Our locks. Limits are raised to what the longest queue needs.

use lock_peer_kit::run;
use lock_peer_ours::Ours;
use lockcore::{LockOptions, Locks};

fn main() {
    run("lockcore", async |url| {
        let options = LockOptions::new().queue_limit(200_000);
        let builder = Locks::builder().defaults(options).max_waiting(200_000);
        Ours(builder.connect(url).await.expect("connected"))
    });
}

//! Our locks where a grant must be on the disk. Usage: `synced ADDRESS`.

use lock_peer_kit::run;
use lock_peer_ours::Ours;
use lockcore::Locks;

fn main() {
    run("lockcore", async |url| {
        Ours(Locks::builder().require_fsync(true).connect(url).await.expect("connected"))
    });
}

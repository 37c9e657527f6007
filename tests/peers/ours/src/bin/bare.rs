//! The baseline. Usage: `bare ADDRESS [mutex]`.

use lock_peer_kit::run;
use lock_peer_ours::Bare;

fn main() {
    let has_mutex = std::env::args().nth(2).as_deref() == Some("mutex");
    run("two EVALSHA", async |url| Bare::connect(&url, has_mutex).await);
}

//! `NextVersion`: a node behind the proxy becomes a node of the next version of the protocol.

use std::collections::HashMap;
use std::sync::Mutex;

use super::fault::Request;
use super::shared::lock;

/// The digest of no script.
const NO_SCRIPT: &[u8; 40] = &[b'0'; 40];

/// Exchanges the versions of members in both directions: `~2` and `~3`, `~1` and `~4`. The node's
/// members and scripts are then of the next version, and it sees other nodes' members as foreign.
#[derive(Default)]
pub(super) struct NextVersion {
    /// The digest of each script that the node sent, and of the script that the server received.
    digests: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl NextVersion {
    /// The request in the next version.
    pub(super) fn request(&self, request: &Request, frame: Vec<u8>) -> Vec<u8> {
        let frame = exchanged(frame);
        let args = request.args();
        if request.is("EVALSHA") {
            // The server knows the scripts of this version, too, which other nodes have loaded.
            let known = lock(&self.digests).get(&args[1]).cloned();
            return replaced(frame, &args[1], &known.unwrap_or_else(|| NO_SCRIPT.to_vec()));
        }
        if let Some(script) = script(request) {
            lock(&self.digests).insert(digest(script), digest(&exchanged(script.to_vec())));
        }
        frame
    }

    /// The reply in this version.
    pub(super) fn reply(frame: Vec<u8>) -> Vec<u8> {
        exchanged(frame)
    }
}

fn script(request: &Request) -> Option<&[u8]> {
    let at = if request.is("EVAL") {
        1
    } else if request.is("SCRIPT") && request.args().get(1)?.eq_ignore_ascii_case(b"LOAD") {
        2
    } else {
        return None;
    };
    request.args().get(at).map(Vec::as_slice)
}

fn digest(script: &[u8]) -> Vec<u8> {
    let script = std::str::from_utf8(script).expect("a script is text");
    redis::Script::new(script).get_hash().as_bytes().to_vec()
}

/// Exchanges the versions, without a change of the length.
fn exchanged(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in 1..bytes.len() {
        if bytes[at - 1] == b'~' && matches!(bytes[at], b'1'..=b'4') {
            bytes[at] = b'5' - (bytes[at] - b'0');
        }
    }
    bytes
}

fn replaced(mut bytes: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = bytes.windows(old.len()).position(|part| part == old).expect("the request has it");
    bytes.splice(at..at + old.len(), new.iter().copied());
    bytes
}

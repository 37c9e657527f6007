//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

use crate::member::{MARKER, NODE_BYTES, ROUND_BITS};
use crate::queue::{
    Bounds, EMPTY_FRONT, FRESH_MS, IN_FRONT, LOST_COUNTER, MARGIN_MS, PASSED_MS, ROUND_MS,
    SWEPT_MS, TOKEN_LIMIT, WAITING_TTL_MS,
};
use crate::{
    ALL, CLAIMS_PER_LEASE, MAX_CLAIM_MS, MIN_CLAIM_MS, PATIENCE_MS, TOMBSTONE_MS, Topology,
};

/// The lease of a lock that is not sent.
pub(crate) const USUAL_LEASE_MS: u64 = 30_000;
/// The queue limit of a lock that is not sent.
pub(crate) const USUAL_LIMIT: u32 = 1_000;
/// The prefix of channels that is not sent.
pub(crate) const USUAL_PREFIX: &str = "lockcore";
/// A position in a short answer is below this.
pub(crate) const POSITIONS: i64 = 1 << 20;
/// A lease of which less is left is told with a position behind it, in one number.
const EXACT_LEFT_MS: u64 = 1 << 32;
const _: () = assert!(EXACT_LEFT_MS * POSITIONS as u64 <= TOKEN_LIMIT, "exact in Lua");
/// The places in a member's text of the last byte of its node, of the colon behind that, and of its
/// number. Lua counts from one.
const NODE_END: usize = MARKER.len() + NODE_BYTES;
const NODE_COLON: usize = NODE_END + 1;
const NUMBER_AT: usize = NODE_COLON + 1;
/// The most elements of a list that are arguments of one command: a script has no room for more
/// than some thousands.
const MOST_UNPACKED: u64 = 1_000;
/// The most waiting members that are read at a time.
const MOST_READ: u64 = 64;
/// The life of a key on which a right is tried, if it is not deleted.
const TRIED_MS: u64 = 60_000;

/// The numbers of the queue's scripts, by the name that stands for each in their files:
/// `$margin_ms` is [`MARGIN_MS`].
pub const NUMBERS: [(&str, u64); 28] = [
    ("all", ALL as u64),
    ("empty_front", EMPTY_FRONT),
    ("exact_left_ms", EXACT_LEFT_MS),
    ("fresh_ms", FRESH_MS),
    ("in_front", IN_FRONT),
    // From here on a lease has the longest claim.
    ("long_lease_ms", CLAIMS_PER_LEASE * MAX_CLAIM_MS),
    ("lost_counter", LOST_COUNTER),
    ("margin_ms", MARGIN_MS),
    // The expiry of a marked door behind which the longest claim has begun.
    ("max_handed_ms", MAX_CLAIM_MS + MARGIN_MS),
    ("most_digits", TOKEN_LIMIT.ilog10() as u64 + 1),
    ("most_gone", Bounds::USUAL.gone as u64),
    ("most_granted", Bounds::USUAL.granted as u64),
    ("most_looked_at", Bounds::USUAL.looked_at as u64),
    ("most_read", MOST_READ),
    ("most_reclaimed", Bounds::USUAL.reclaimed as u64),
    ("node_colon", NODE_COLON as u64),
    ("node_end", NODE_END as u64),
    ("number_at", NUMBER_AT as u64),
    ("passed_ms", PASSED_MS),
    ("positions", POSITIONS as u64),
    // So many last digits of a number tell whether its last bits are zero.
    ("round_bits", ROUND_BITS as u64),
    ("round_ms", ROUND_MS),
    ("rounds", 1 << ROUND_BITS),
    ("swept_ms", SWEPT_MS),
    ("token_limit", TOKEN_LIMIT),
    ("usual_lease_ms", USUAL_LEASE_MS),
    ("usual_limit", USUAL_LIMIT as u64),
    ("waiting_ttl_ms", WAITING_TTL_MS),
];

/// The numbers of all layouts.
pub const SHARED_NUMBERS: [(&str, u64); 9] = [
    ("claims_per_lease", CLAIMS_PER_LEASE),
    ("greatest_token", TOKEN_LIMIT - 1),
    ("max_claim_ms", MAX_CLAIM_MS),
    ("min_claim_ms", MIN_CLAIM_MS),
    ("most_unpacked", MOST_UNPACKED),
    ("node_bytes", NODE_BYTES as u64),
    ("patience_ms", PATIENCE_MS),
    ("tombstone_ms", TOMBSTONE_MS),
    ("tried_ms", TRIED_MS),
];

/// The parts that scripts of the queue have in common, by the line that stands for each; and by
/// its name, whether they run on a primary of a quorum.
const fn parts(is_primary: &'static str) -> [(&'static str, &'static str); 16] {
    [
        ("--#include queue/waits\n", include_str!("lua/queue/waits.lua")),
        ("--#include queue/others\n", include_str!("lua/queue/others.lua")),
        ("--#include queue/full\n", include_str!("lua/queue/full.lua")),
        ("--#include queue/enqueue\n", include_str!("lua/queue/enqueue.lua")),
        ("--#include queue/keep_waiting\n", include_str!("lua/queue/keep_waiting.lua")),
        ("--#include queue/queued\n", include_str!("lua/queue/queued.lua")),
        ("--#include queue/renew_hold\n", include_str!("lua/queue/renew_hold.lua")),
        ("--#include queue/put_back\n", include_str!("lua/queue/put_back.lua")),
        ("--#include queue/behind_lock\n", include_str!("lua/queue/behind_lock.lua")),
        ("--#include queue/take\n", include_str!("lua/queue/take.lua")),
        ("--#include queue/drop\n", include_str!("lua/queue/drop.lua")),
        ("--#include queue/state\n", include_str!("lua/queue/state.lua")),
        ("--#include queue/settle\n", include_str!("lua/queue/settle.lua")),
        ("--#include queue/common\n", include_str!("lua/queue/common.lua")),
        ("$is_primary", is_primary),
        ("$usual_prefix", USUAL_PREFIX),
    ]
}

/// The parts that scripts of all layouts have in common, which those of a layout may include.
const SHARED: [(&str, &str); 5] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
    ("--#include claim\n", include_str!("lua/claim.lua")),
    ("--#include foreign_key\n", include_str!("lua/foreign_key.lua")),
    ("--#include preflight/try\n", include_str!("lua/preflight/try.lua")),
    ("--#include preflight/extras\n", include_str!("lua/preflight/extras.lua")),
];

/// SHA-1 of a script's text, by which a server knows it.
pub fn digest_of(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}

/// One script.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    /// The whole text, with all that it includes.
    pub source: String,
    /// SHA-1 of the text, by which a server knows it.
    pub digest: String,
}

impl Script {
    /// Assembles a script of the text of its file, the parts of its layout, each after all that
    /// include it, and the numbers of its layout.
    pub fn new(
        name: &'static str,
        source: &str,
        parts: &[(&str, &str)],
        numbers: &[(&str, u64)],
    ) -> Self {
        let mut source = source.to_owned();
        for (line, part) in parts.iter().chain(&SHARED) {
            source = source.replace(line, part);
        }
        let source = with_numbers(&source, numbers);
        let digest = digest_of(&source);
        Self { name, source, digest }
    }

    /// The first line in which something is left to include or to name: for tests.
    pub fn first_gap(&self) -> Option<&str> {
        let is_name = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
        let mut lines = self.source.lines();
        lines.find(|line| line.contains("--#") || line.split('$').skip(1).any(is_name))
    }
}

/// The text with digits in the place of each name of a number. What has no number is left.
fn with_numbers(source: &str, numbers: &[(&str, u64)]) -> String {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    let mut digits = itoa::Buffer::new();
    while let Some((before, after)) = rest.split_once('$') {
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let (name, behind) = after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()));
        let number = numbers.iter().chain(&SHARED_NUMBERS).find(|(known, _)| *known == name);
        text.push_str(before);
        text.push_str(number.map_or("$", |(_, number)| digits.format(*number)));
        rest = if number.is_some() { behind } else { after };
    }
    text + rest
}

/// Declares a type with a script of each name, of the file `NAME.lua` in a folder beside this file,
/// assembled with these parts and numbers of a layout.
#[macro_export]
macro_rules! scripts {
    ($(#[$about:meta])* $set:ident in $folder:literal: $($name:ident)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $set {
            $(#[allow(missing_docs, reason = "named after its file")] pub $name: $crate::wire::Script,)*
        }

        $(#[$about])*
        impl $set {
            fn new(parts: &[(&str, &str)], numbers: &[(&str, u64)]) -> Self {
                Self {
                    $($name: $crate::wire::Script::new(
                        stringify!($name),
                        include_str!(concat!($folder, stringify!($name), ".lua")),
                        parts,
                        numbers,
                    ),)*
                }
            }

            /// All of them.
            pub fn all(&self) -> impl Iterator<Item = &$crate::wire::Script> {
                [$(&self.$name),*].into_iter()
            }

            /// The script of this name.
            pub fn get(&self, name: &str) -> Option<&$crate::wire::Script> {
                self.all().find(|script| script.name == name)
            }

            /// The text of the script of this name.
            pub fn source(&self, name: &str) -> Option<&str> {
                self.get(name).map(|script| &*script.source)
            }
        }
    };
}

scripts!(
    /// The scripts of the queue.
    QueueScripts in "lua/queue/":
    lock unlock extend acquire acquire_all acquire_newest release renew confirm reduce touch leave force_release inspect
    preflight mark
);

/// The scripts of the queue. A server learns only those of its topology.
pub fn of_queue(topology: Topology) -> &'static QueueScripts {
    static USUAL: LazyLock<QueueScripts> =
        LazyLock::new(|| QueueScripts::new(&parts("false"), &NUMBERS));
    static OF_PRIMARY: LazyLock<QueueScripts> =
        LazyLock::new(|| QueueScripts::new(&parts("true"), &NUMBERS));
    match topology {
        Topology::Single | Topology::Cluster => &USUAL,
        Topology::Quorum => &OF_PRIMARY,
    }
}

/// The usual scripts of the queue.
pub(crate) fn usual(topology: Topology) -> Vec<&'static Script> {
    let QueueScripts {
        lock,
        unlock,
        extend,
        acquire,
        acquire_all,
        release,
        renew,
        confirm,
        touch,
        leave,
        ..
    } = of_queue(topology);
    vec![lock, unlock, extend, acquire, acquire_all, release, renew, confirm, touch, leave]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        for topology in [Topology::Single, Topology::Quorum] {
            for script in of_queue(topology).all() {
                assert_eq!(script.first_gap(), None, "{}", script.name);
            }
        }
    }

    #[test]
    fn scripts_that_can_draw_a_token_are_others_on_a_primary() {
        let names = |is_other: bool| -> Vec<&str> {
            let pairs = of_queue(Topology::Single).all().zip(of_queue(Topology::Quorum).all());
            let of = pairs.filter(|(one, other)| (one.digest != other.digest) == is_other);
            of.map(|(script, _)| script.name).collect()
        };
        assert_eq!(names(false), ["extend", "preflight", "mark"]);
    }
}

//! The Lua scripts of the queue layout, and how scripts are assembled from files, shared parts and
//! numbers.

use std::sync::LazyLock;

use crate::member::{MARKER, NODE_BYTES, ROUND_BITS};
use crate::queue::{
    ASIDE_MS, Bounds, EMPTY_FRONT, FRESH_MS, IN_FRONT, LOST_COUNTER, MARGIN_MS, ROUND_MS, SWEPT_MS,
    TOKEN_LIMIT, WAITING_TTL_MS,
};
use crate::{
    ALL, CLAIMS_PER_LEASE, MAX_CLAIM_MS, MIN_CLAIM_MS, PATIENCE_MS, TOMBSTONE_MS, Topology,
};

/// The default lease, in ms. It is not sent, because the scripts assume it.
pub(crate) const USUAL_LEASE_MS: u64 = 30_000;
/// The default queue limit. It is not sent, because the scripts assume it.
pub(crate) const USUAL_LIMIT: u32 = 1_000;
/// The default channel prefix. It is not sent, because the scripts assume it.
pub(crate) const USUAL_PREFIX: &str = "lockcore";
/// A short reply contains two numbers in one: the remaining lease in ms, times this factor, plus
/// the position. So positions must be below the factor.
pub(crate) const POSITIONS: i64 = 1 << 20;
/// A short reply contains the remaining lease only if it is below this number of ms. The reply is
/// then an exact number in Lua.
const EXACT_LEFT_MS: u64 = 1 << 32;
const _: () = assert!(EXACT_LEFT_MS * POSITIONS as u64 <= TOKEN_LIMIT, "exact in Lua");
/// The index of the node id's last byte in a member's text, counted from 1 as in Lua.
const NODE_END: usize = MARKER.len() + NODE_BYTES;
/// The index of the colon behind the node id. The member id's first digit follows.
const NODE_COLON: usize = NODE_END + 1;
const NUMBER_AT: usize = NODE_COLON + 1;
/// Maximum number of list elements that a script passes to a command as arguments, because Lua has
/// room for only some thousands.
const MOST_UNPACKED: u64 = 1_000;
/// Maximum number of waiting members that a script reads at a time.
const MOST_READ: u64 = 64;
/// The TTL, in ms, of keys on which the preflight script tries rights, if they are not deleted.
const TRIED_MS: u64 = 60_000;

/// The numbers in the queue scripts, each with the name by which the Lua files refer to it. For
/// example, `$margin_ms` stands for [`MARGIN_MS`].
pub const NUMBERS: [(&str, u64); 28] = [
    ("all", ALL as u64),
    ("empty_front", EMPTY_FRONT),
    ("exact_left_ms", EXACT_LEFT_MS),
    ("fresh_ms", FRESH_MS),
    ("in_front", IN_FRONT),
    // Leases of at least this length have the longest claim.
    ("long_lease_ms", CLAIMS_PER_LEASE * MAX_CLAIM_MS),
    ("lost_counter", LOST_COUNTER),
    ("margin_ms", MARGIN_MS),
    // The TTL of a lock key with a flag, when a hold with the longest claim begins.
    ("max_handed_ms", MAX_CLAIM_MS + MARGIN_MS),
    ("most_digits", TOKEN_LIMIT.ilog10() as u64 + 1),
    ("most_tombstones", Bounds::USUAL.tombstones as u64),
    ("most_granted", Bounds::USUAL.granted as u64),
    ("most_looked_at", Bounds::USUAL.looked_at as u64),
    ("most_read", MOST_READ),
    ("most_reclaimed", Bounds::USUAL.reclaimed as u64),
    ("node_colon", NODE_COLON as u64),
    ("node_end", NODE_END as u64),
    ("number_at", NUMBER_AT as u64),
    ("aside_ms", ASIDE_MS),
    ("positions", POSITIONS as u64),
    // The lowest `ROUND_BITS` bits of a member id are zero if its last `ROUND_BITS` decimal digits
    // are divisible by 2^`ROUND_BITS`. Lua cannot test the whole id, because it is too large for an
    // exact double.
    ("round_bits", ROUND_BITS as u64),
    ("round_ms", ROUND_MS),
    ("rounds", 1 << ROUND_BITS),
    ("swept_ms", SWEPT_MS),
    ("token_limit", TOKEN_LIMIT),
    ("usual_lease_ms", USUAL_LEASE_MS),
    ("usual_limit", USUAL_LIMIT as u64),
    ("waiting_ttl_ms", WAITING_TTL_MS),
];

/// Numbers like [`NUMBERS`] that the scripts of all layouts share.
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

/// The shared parts of the queue scripts: for each, the line that includes it and the text in place
/// of the line. `$is_primary` stands for `is_primary`: whether the scripts run on a quorum primary.
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

/// The shared parts of the scripts of all layouts: for each, the line that includes it and the text
/// in place of the line.
const SHARED: [(&str, &str); 5] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
    ("--#include claim\n", include_str!("lua/claim.lua")),
    ("--#include foreign_key\n", include_str!("lua/foreign_key.lua")),
    ("--#include preflight/try\n", include_str!("lua/preflight/try.lua")),
    ("--#include preflight/extras\n", include_str!("lua/preflight/extras.lua")),
];

/// Returns the SHA-1 digest of a script's text, by which servers identify the script.
pub fn digest_of(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}

/// A Lua script, with all parts included.
#[derive(Debug)]
pub struct Script {
    /// The script's file name, without `.lua`.
    pub name: &'static str,
    /// The whole text of the script.
    pub source: String,
    /// The SHA-1 digest of the text, by which servers identify the script.
    pub digest: String,
}

impl Script {
    /// Assembles a script from the text of its file: replaces the lines that include `parts`, then
    /// the names of `numbers`. In `parts`, a part must come after all parts that include it.
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

    /// Returns the first line with a part or a name that was not replaced; `None` if there is none.
    /// For tests.
    pub fn first_gap(&self) -> Option<&str> {
        let is_name = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
        let mut lines = self.source.lines();
        lines.find(|line| line.contains("--#") || line.split('$').skip(1).any(is_name))
    }
}

/// Returns the text with each `$name` replaced by this name's number. Unknown names stay.
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

/// Declares a type with a field for each script of a layout. The script is read from the file
/// `NAME.lua` in a folder next to the calling file, and assembled with the layout's parts and
/// numbers.
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

            /// Returns all scripts of the layout.
            pub fn all(&self) -> impl Iterator<Item = &$crate::wire::Script> {
                [$(&self.$name),*].into_iter()
            }

            /// Returns the script with this file name; `None` if there is none.
            pub fn get(&self, name: &str) -> Option<&$crate::wire::Script> {
                self.all().find(|script| script.name == name)
            }

            /// Returns the text of the script with this file name; `None` if there is none.
            pub fn source(&self, name: &str) -> Option<&str> {
                self.get(name).map(|script| &*script.source)
            }
        }
    };
}

scripts!(
    /// The scripts of the queue layout, named after their files.
    QueueScripts in "lua/queue/":
    lock unlock extend acquire acquire_all acquire_newest release renew confirm reduce touch leave force_release inspect
    preflight mark
);

/// Returns the scripts of the queue layout for a topology. Quorum primaries have different scripts.
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

/// Returns the scripts of the queue layout that are loaded on each server from the start.
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

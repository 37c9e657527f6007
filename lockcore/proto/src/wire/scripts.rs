//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

use crate::Topology;

/// The parts that scripts of the queue have in common, by the line that stands for each; and by
/// its name, whether they run on a primary of a quorum.
const fn parts(is_primary: &'static str) -> [(&'static str, &'static str); 7] {
    [
        ("--#include queue/put_back\n", include_str!("lua/queue/put_back.lua")),
        ("--#include queue/behind_lock\n", include_str!("lua/queue/behind_lock.lua")),
        ("--#include queue/take\n", include_str!("lua/queue/take.lua")),
        ("--#include queue/drop\n", include_str!("lua/queue/drop.lua")),
        // After both that include them.
        ("--#include queue/state\n", include_str!("lua/queue/state.lua")),
        ("--#include queue/common\n", include_str!("lua/queue/common.lua")),
        ("$is_primary", is_primary),
    ]
}

/// The parts that scripts of all layouts have in common, which those of a layout may include.
const SHARED: [(&str, &str); 4] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
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
    /// Assembles a script of the text of its file and the parts of its layout, each after all that
    /// include it.
    pub fn new(name: &'static str, source: &str, parts: &[(&str, &str)]) -> Self {
        let mut source = source.to_owned();
        for (line, part) in parts.iter().chain(&SHARED) {
            source = source.replace(line, part);
        }
        let digest = digest_of(&source);
        Self { name, source, digest }
    }
}

/// Declares a type with a script of each name, of the file `NAME.lua` in a folder beside this file,
/// assembled with these parts of a layout.
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
            fn new(parts: &[(&str, &str)]) -> Self {
                Self {
                    $($name: $crate::wire::Script::new(
                        stringify!($name),
                        include_str!(concat!($folder, stringify!($name), ".lua")),
                        parts,
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
    static USUAL: LazyLock<QueueScripts> = LazyLock::new(|| QueueScripts::new(&parts("false")));
    static OF_PRIMARY: LazyLock<QueueScripts> = LazyLock::new(|| QueueScripts::new(&parts("true")));
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
                assert!(!script.source.contains("--#") && !script.source.contains("$is"));
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

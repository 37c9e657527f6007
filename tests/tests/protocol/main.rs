//! Each rule of the protocol as a fact, on every side that keeps it: the function and the scripts,
//! in our layout and in Redisson's layout. A fact states the keys left by a command, its reply and
//! its messages. Finding numbers refer to the review of the protocol's first draft.

mod asking;
mod batches;
mod bench;
mod function;
mod node;
mod notified;
mod parts;
mod skipped;
mod state;
mod thread;

mod claim;
mod cost;
mod damage;
mod forced;
mod handing_on;
mod holding;
mod joined;
mod jvms;
mod memory_full;
mod message;
mod moving;
mod newest;
mod next_version;
mod numbers;
mod primary;
mod queue;
mod refused_write;
mod repetition;
mod reply;
mod scores;
mod scripts;
mod several;
mod shifted;
mod short_ways;
mod strange;
mod taking;
mod thrown_out;
mod token;
mod tombstone;
mod waiting;

/// Runs facts, by the sides that keep them: `both` layouts, the `queue`, or `redisson`, each on the
/// function and on the scripts; and where only a server can show it, on the scripts alone.
macro_rules! facts {
    (
        $(both: [$($both:ident),+ $(,)?],)?
        $(queue: [$($queue:ident),+ $(,)?],)?
        $(redisson: [$($redisson:ident),+ $(,)?],)?
        $(scripts: [$($scripts:ident),+ $(,)?],)?
        $(queue_scripts: [$($queue_scripts:ident),+ $(,)?],)?
        $(redisson_scripts: [$($redisson_scripts:ident),+ $(,)?],)?
    ) => {
        $crate::on_side! { queue_function QueueFunction: $($($both,)+)? $($($queue,)+)? }
        $crate::on_side! {
            queue_scripts QueueScripts:
            $($($both,)+)? $($($queue,)+)? $($($scripts,)+)? $($($queue_scripts,)+)?
        }
        $crate::on_side! { redisson_function RedissonFunction: $($($both,)+)? $($($redisson,)+)? }
        $crate::on_side! {
            redisson_scripts RedissonScripts:
            $($($both,)+)? $($($redisson,)+)? $($($scripts,)+)? $($($redisson_scripts,)+)?
        }
    };
}

macro_rules! on_side {
    ($module:ident $side:ident: $($fact:ident,)*) => {
        mod $module {
            $(#[tokio::test]
            async fn $fact() {
                super::$fact($crate::bench::Bench::start($crate::bench::Side::$side).await).await;
            })*
        }
    };
}

use {facts, on_side};

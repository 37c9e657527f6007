//! The faults of a quorum's primaries, and the verdict on its guards.

use std::process::ExitCode;
use std::time::Duration;

use lock_tests::chaos::{PrimaryFault, QuorumOutcome, quorum_faults};

use crate::say;

pub(crate) async fn quorum(seed: u64, guards: u64, faults: &[&str]) -> ExitCode {
    let faults: Vec<PrimaryFault> = match faults {
        [] => PrimaryFault::ALL.to_vec(),
        faults => faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
    };
    let outcome = quorum_faults(seed, guards, &faults).await;
    for fault in &faults {
        for primary in 0..3 {
            let pauses = outcome.faults.iter();
            let pauses = pauses.filter(|one| (one.fault, one.primary) == (*fault, primary));
            let mut pauses: Vec<Duration> = pauses.map(|one| one.pause).collect();
            pauses.sort_unstable();
            let Some(longest) = pauses.last() else { continue };
            let median = pauses[pauses.len() / 2];
            say(&format!(
                "{fault:<12} of primary {primary}: {} times, nothing granted for {} ms in \
                 the median, {} ms at the longest",
                pauses.len(),
                median.as_millis(),
                longest.as_millis()
            ));
        }
    }
    let QuorumOutcome { guards, doubled, fallen, lost, refused, .. } = outcome;
    say(&format!(
        "{guards} guards: {doubled} while another was valid, {fallen} with a token that fell, \
         {lost} lost; {refused} requests were refused"
    ));
    if (doubled, fallen) == (0, 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

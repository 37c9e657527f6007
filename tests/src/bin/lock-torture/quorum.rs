//! Faults of quorum primaries and of buyers, and the verdict on the guards.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lock_tests::chaos::{PrimaryFault, QuorumFault, QuorumOutcome, quorum_faults};

use crate::{say, this_program};

pub(crate) async fn quorum(seed: u64, guards: u64, faults: &[&str]) -> ExitCode {
    let faults: Vec<PrimaryFault> = match faults {
        [] => PrimaryFault::ALL.to_vec(),
        faults => faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
    };
    let share = guards.div_ceil(faults.len() as u64);
    let (of_clocks, others): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|fault| fault.is_of_clocks());
    let mut code = ExitCode::SUCCESS;
    // Where clocks jump, a guard needs a spare primary.
    for (faults, spare) in [(others, 0), (of_clocks, 1)] {
        if faults.is_empty() {
            continue;
        }
        let began = Instant::now();
        let guards = share * faults.len() as u64;
        let outcome = quorum_faults(&this_program(), seed, guards, &faults, spare).await;
        say_pauses(&faults, &outcome.faults);
        let QuorumOutcome { guards, doubled, fallen, lost, refused, killed, .. } = outcome;
        let rate = guards as f64 / began.elapsed().as_secs_f64();
        say(&format!(
            "{guards} guards, {rate:.0} in a second, with {spare} primaries to spare: {doubled} \
             while another was valid, {fallen} with a token that fell, {lost} lost; {refused} \
             requests were refused, {killed} processes killed"
        ));
        if (doubled, fallen) != (0, 0) {
            say(&format!("  again: lock-torture quorum {seed} {guards}"));
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn say_pauses(faults: &[PrimaryFault], all: &[QuorumFault]) {
    for fault in faults {
        for primary in 0.. {
            let pauses = all.iter().filter(|one| (one.fault, one.primary) == (*fault, primary));
            let mut pauses: Vec<Duration> = pauses.map(|one| one.pause).collect();
            pauses.sort_unstable();
            let Some(longest) = pauses.last() else { break };
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
}

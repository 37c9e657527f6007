//! A run: every workload with every lock, in turns.

use std::path::Path;
use std::time::Duration;

use lock_tests::{Monitor, Source};

use crate::fleet::{Fleet, Plan};
use crate::machine;
use crate::peer::{Ability, PEERS, Peer, Server};
use crate::programs::Programs;
use crate::results::{Condition, Measured, Results};
use crate::sample::Sample;
use crate::servers::Servers;
use crate::workload::{Kind, Workload};

pub(crate) struct Run<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) plan: Plan,
    pub(crate) servers: Servers,
    pub(crate) scratch: &'a Path,
    pub(crate) results: Results,
}

impl Run<'_> {
    pub(crate) fn condition(&mut self) -> Condition {
        let load = machine::load();
        let ping_us = self.servers.redis.ping_us();
        Condition { load, busy: machine::is_busy(load), ping_us }
    }

    /// Runs the repetitions of a workload, with these locks.
    pub(crate) fn workload(&mut self, workload: &'static Workload, only: Option<&[String]>) {
        eprintln!("{}: {}", workload.id, workload.title);
        self.servers.redis.follow_by(if workload.needs == Ability::Replicated { 2 } else { 0 });
        self.servers.redis.keep_on_disk(workload.needs == Ability::Synced);
        let asked = |peer: &&Peer| {
            // Holds are measured on a single server, but a quorum has three of its own.
            let is_elsewhere =
                peer.server() == Server::Primaries && workload.needs == Ability::Renew;
            let is_asked = only.is_none_or(|ids| ids.iter().any(|id| id == peer.id));
            peer.can(workload.needs) && !is_elsewhere && is_asked
        };
        let mut measured: Vec<(&'static Peer, Measured)> = Vec::new();
        let mut fleets: Vec<Option<Fleet>> = Vec::new();
        for peer in PEERS.iter().filter(asked) {
            if self.programs.command(peer.id).is_err() {
                continue;
            }
            match self.start(peer, workload) {
                Ok(fleet) => {
                    self.results.names.insert(peer.id.to_owned(), fleet.name().to_owned());
                    fleets.push(Some(fleet));
                    measured.push((peer, Measured::default()));
                }
                Err(why) => {
                    eprintln!("  {}: {why}", peer.id);
                    fleets.push(None);
                    measured.push((peer, Measured { failed: Some(why), ..Default::default() }));
                }
            }
        }
        // The first round warms up caches, connections and a JVM's compiler. It does not count.
        for round in 0..=self.plan.repetitions {
            for place in 0..measured.len() {
                // Each repetition begins with another lock, so that the predecessors vary.
                let index = (place + round) % measured.len();
                let (peer, measured) = &mut measured[index];
                if measured.failed.is_some() || (round == 0 && is_fresh_each_time(workload)) {
                    continue;
                }
                match self.repetition(peer, workload, &mut fleets[index]) {
                    Ok(sample) if round > 0 => measured.samples.push(sample),
                    Ok(_) => {}
                    Err(why) => {
                        eprintln!("  {}: {why}", peer.id);
                        measured.failed = Some(why);
                        fleets[index] = None;
                    }
                }
            }
        }
        for ((_, measured), fleet) in measured.iter_mut().zip(&mut fleets) {
            if let Some(fleet) = fleet {
                self.count_commands(workload, fleet, measured);
            }
        }
        let measured = measured.into_iter().map(|(peer, measured)| (peer.id.to_owned(), measured));
        self.results.workloads.insert(workload.id.to_owned(), measured.collect());
    }

    fn start(&mut self, peer: &'static Peer, workload: &Workload) -> Result<Fleet, String> {
        let address = self.servers.address(peer, workload.each_way_ms)?;
        Fleet::start(peer, workload, self.programs.command(peer.id)?, &address)
    }

    fn repetition(
        &mut self,
        peer: &'static Peer,
        workload: &Workload,
        fleet: &mut Option<Fleet>,
    ) -> Result<Sample, String> {
        if is_fresh_each_time(workload) {
            *fleet = None; // its holds and waits end with it
            self.servers.redis.clear();
            *fleet = Some(self.start(peer, workload)?);
        }
        let Some(running) = fleet else { return Err("is not running".to_owned()) };
        let sample = running.sample(workload, &self.plan, &mut self.servers, self.scratch);
        if is_fresh_each_time(workload) {
            *fleet = None;
        }
        self.servers.redis.clear();
        // The rest of a cancelled wait must not load the next lock.
        std::thread::sleep(Duration::from_millis(50));
        sample
    }

    /// Counts the commands, apart from the measurements: a MONITOR slows the server down.
    fn count_commands(&mut self, workload: &Workload, fleet: &mut Fleet, measured: &mut Measured) {
        if !workload.columns.iter().any(|(value, _, _)| *value == "commands")
            || !fleet.peer.server().is_redis()
            // A baseline sends more commands than the measured ones.
            || fleet.peer.id == "publish"
        {
            return;
        }
        let plan = Plan { window: Duration::from_millis(100), hand_offs: 10, ..self.plan };
        let redis = self.servers.of(fleet.peer).into_iter();
        let monitors: Vec<_> = redis.map(|redis| Monitor::start(redis.address())).collect();
        let sample = fleet.sample(workload, &plan, &mut self.servers, self.scratch);
        let lines: Vec<_> = monitors.into_iter().flat_map(Monitor::stop).collect();
        self.servers.redis.clear();
        // The driver sends INFO meanwhile, and nothing else.
        let sent = lines.iter().filter(|line| line.source != Source::Lua && !line.is("INFO"));
        let sent = sent.count() as f64;
        let total = sample.ok().and_then(|s| s.get("total").copied());
        if let Some(total) = total {
            for sample in &mut measured.samples {
                sample.insert("commands".to_owned(), sent / total);
            }
        }
    }
}

/// Whether each repetition restarts its programs, so that no hold or waiter must end first: true
/// for workloads with many waiters or holds.
fn is_fresh_each_time(workload: &Workload) -> bool {
    matches!(workload.kind, Kind::Depth(_) | Kind::Holds(_) | Kind::Flood(_))
}

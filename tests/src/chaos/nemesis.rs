//! The nemesis: a seed's schedule of faults, and their execution.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::Topology;
use proto::wire::scripts;
use redis::cmd;
use tokio::time::{sleep, timeout};

use super::dice::Dice;
use super::kind::Kind;
use crate::{Connections, Fault, Flow, Proxy, Raw, RedisServer, Request};

/// How long a fault waits for a matching request.
const PATIENCE: Duration = Duration::from_millis(200);

/// A fault. Times are in ms.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Kill,
    Stop(u64),
    CutRequest(usize),
    CutReply(usize),
    LoseRequest,
    LoseReply,
    SwallowReply,
    HoldRequest(u64),
    HoldReply(u64),
    Freeze(Connections, Flow, u64),
    Repeat,
    /// Repeats a request, but never an acquire: no connection delivers a request twice.
    RepeatLater(u64),
    ClientKill(usize),
    ScriptFlush,
    MemoryFull(u64),
    CutSubscription,
    LoseMessages(u64),
    Refuse(u64),
    StopServer(u64),
}

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// The pause before the fault, in ms.
    pub(super) pause: u64,
    /// The index of the child that the fault hits.
    pub(super) victim: usize,
    pub(super) action: Action,
}

/// The endless schedule of a seed: the same for the same seed.
pub(super) struct Schedule {
    kind: Kind,
    dice: Dice,
    victims: usize,
}

impl Schedule {
    pub(super) fn new(kind: Kind, seed: u64, victims: usize) -> Self {
        Self { kind, dice: Dice::part(seed, u64::MAX), victims }
    }

    fn action(&mut self, kind: Kind) -> Option<Action> {
        let dice = &mut self.dice;
        Some(match kind {
            Kind::Calm | Kind::Cancel | Kind::ShortLease => return None,
            Kind::Kill => Action::Kill,
            // Up to three times the longest lease.
            Kind::Stop => Action::Stop(dice.of(20..=900)),
            Kind::CutRequest => Action::CutRequest(dice.below(2_000)),
            Kind::CutReply => Action::CutReply(dice.below(2_000)),
            Kind::Lost if dice.percent(70) => Action::LoseReply,
            Kind::Lost => Action::LoseRequest,
            Kind::Swallow => Action::SwallowReply,
            Kind::Delay if dice.percent(70) => Action::HoldReply(dice.of(1..=600)),
            Kind::Delay => Action::HoldRequest(dice.of(1..=600)),
            Kind::Freeze => {
                let which = [Connections::All, Connections::Commands][dice.below(2)];
                let flow = [Flow::Requests, Flow::Replies, Flow::Both][dice.below(3)];
                Action::Freeze(which, flow, dice.of(1..=600))
            }
            Kind::Replay if dice.percent(50) => Action::Repeat,
            Kind::Replay => Action::RepeatLater(dice.of(1..=600)),
            Kind::ClientKill => Action::ClientKill(dice.below(1_000)),
            Kind::ScriptFlush => Action::ScriptFlush,
            Kind::MemoryFull => Action::MemoryFull(dice.of(1..=60)),
            Kind::Subscription => match dice.below(4) {
                0 => Action::CutSubscription,
                1 => Action::Freeze(Connections::Subscriptions, Flow::Both, dice.of(1..=60)),
                2 => Action::LoseMessages(dice.of(1..=60)),
                _ => Action::Refuse(dice.of(1..=60)),
            },
            Kind::ServerStop => Action::StopServer(dice.of(1..=250)),
            Kind::Mixed => {
                let other = Kind::ALL[self.dice.below(Kind::ALL.len() - 1)];
                return self.action(other);
            }
        })
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let pause = match self.kind {
            Kind::Kill => self.dice.of(100..=500),
            Kind::ScriptFlush => self.dice.of(0..=10),
            // Nothing else happens meanwhile.
            Kind::ServerStop | Kind::Subscription => self.dice.of(50..=250),
            _ => self.dice.of(5..=100),
        };
        let victim = self.dice.below(self.victims);
        // The mixed kind draws again if a kind does nothing.
        let action = loop {
            match self.action(self.kind) {
                Some(action) => break action,
                None if self.kind == Kind::Mixed => {}
                None => return None,
            }
        };
        Some(Step { pause, victim, action })
    }
}

/// Injects faults through proxies and at the server.
pub(super) struct Nemesis {
    pub(super) redis: Raw,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Nemesis {
    pub(super) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Injects a fault that concerns no process, and undoes it. Counts the fault if it has struck.
    pub(super) async fn strike(&mut self, action: &Action, proxy: &Proxy, server: &RedisServer) {
        let (name, fault) = match *action {
            Action::CutRequest(at) => ("cut within a request", proxy.cut_request(at, is_step)),
            Action::CutReply(at) => ("cut within a reply", proxy.cut_reply(at, is_step)),
            Action::LoseRequest => ("request lost", proxy.lose_request(Request::is_script)),
            Action::LoseReply => ("reply lost", proxy.lose_reply(is_step)),
            Action::SwallowReply => ("reply swallowed", proxy.swallow_reply(is_step)),
            Action::HoldRequest(ms) => {
                let fault = proxy.hold_request(is_step);
                return self.hold("request late", fault, ms).await;
            }
            Action::HoldReply(ms) => {
                let fault = proxy.hold_reply(is_step);
                return self.hold("reply late", fault, ms).await;
            }
            Action::Repeat => ("repeated at once", proxy.repeat(Request::is_script)),
            Action::RepeatLater(ms) => {
                let fault =
                    proxy.repeat_later(|request| request.is_script() && !may_queue(request));
                return self.hold("repeated late", fault, ms).await;
            }
            ref other => return self.disturb(other, proxy, server).await,
        };
        if timeout(PATIENCE, fault.struck()).await.is_ok() {
            self.count(name);
        }
        fault.release();
    }

    async fn hold(&mut self, name: &'static str, fault: Fault, ms: u64) {
        if timeout(PATIENCE, fault.struck()).await.is_ok() {
            self.count(name);
            sleep(Duration::from_millis(ms)).await;
        }
        fault.release();
    }

    async fn disturb(&mut self, action: &Action, proxy: &Proxy, server: &RedisServer) {
        match *action {
            Action::Freeze(which, flow, ms) => {
                proxy.freeze(which, flow).await;
                sleep(Duration::from_millis(ms)).await;
                proxy.thaw();
                self.count("frozen");
            }
            Action::CutSubscription => {
                if proxy.cut_subscriptions().await > 0 {
                    self.count("subscription cut");
                }
            }
            // The server sends the messages, but nobody receives them.
            Action::LoseMessages(ms) => {
                proxy.freeze(Connections::Subscriptions, Flow::Replies).await;
                sleep(Duration::from_millis(ms)).await;
                if proxy.cut_subscriptions().await > 0 {
                    self.count("messages lost");
                }
                proxy.thaw();
            }
            Action::Refuse(ms) => {
                proxy.refuse().await;
                if proxy.cut_subscriptions().await > 0 {
                    self.count("subscription cut and refused");
                }
                sleep(Duration::from_millis(ms)).await;
                proxy.accept();
            }
            Action::ClientKill(which) => self.kill_client(which).await,
            Action::ScriptFlush => {
                self.redis.flush_scripts().await;
                self.count("scripts flushed");
            }
            Action::MemoryFull(ms) => {
                self.redis.configure("maxmemory", "1").await;
                sleep(Duration::from_millis(ms)).await;
                self.redis.configure("maxmemory", "0").await;
                self.count("memory full");
            }
            Action::StopServer(ms) => {
                server.freeze();
                sleep(Duration::from_millis(ms)).await;
                server.thaw();
                self.count("server stopped");
            }
            ref other => panic!("{other:?} is not done here"),
        }
    }

    /// Kills any connection except the harness's own.
    async fn kill_client(&mut self, which: usize) {
        let list: String = self.redis.ask(cmd("CLIENT").arg("LIST")).await;
        let own: u64 = self.redis.ask(cmd("CLIENT").arg("ID")).await;
        let field = |line: &str, name: &str| {
            line.split(' ').find_map(|field| field.strip_prefix(name).map(str::to_owned))
        };
        let clients: Vec<String> = list
            .lines()
            .filter(|line| field(line, "flags=").is_some_and(|flags| !flags.contains('O')))
            .filter_map(|line| field(line, "id="))
            .filter(|id| *id != own.to_string())
            .collect();
        if clients.is_empty() {
            return;
        }
        let id = &clients[which % clients.len()];
        let killed: u64 = self.redis.ask(cmd("CLIENT").arg("KILL").arg("ID").arg(id)).await;
        if killed > 0 {
            self.count("client killed");
        }
    }
}

/// Whether the request is a script, or a command of a transaction. Transaction commands are written
/// together: none is lost alone, and none arrives twice.
pub(super) fn is_step(request: &Request) -> bool {
    let commands = ["MULTI", "SET", "INCR", "GET", "EXEC"];
    request.is_script() || commands.into_iter().any(|command| request.is(command))
}

/// Whether the request is an acquire: a copy that runs after the end acquires the lock once more.
fn may_queue(request: &Request) -> bool {
    let scripts = scripts::of_queue(Topology::Single);
    let acquires = [&scripts.lock, &scripts.acquire, &scripts.acquire_all, &scripts.acquire_newest];
    let mut texts = acquires.into_iter().flat_map(|script| [&script.digest, &script.source]);
    let script = request.args().get(1);
    script.is_some_and(|script| texts.any(|text| text.as_bytes() == script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_schedule() {
        let steps = |seed| Schedule::new(Kind::Mixed, seed, 4).take(200).collect::<Vec<_>>();
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }

    #[test]
    fn a_mixed_schedule_has_every_kind_of_fault() {
        let steps: Vec<_> = Schedule::new(Kind::Mixed, 1, 4).take(2_000).collect();
        let mut names: Vec<_> = steps
            .iter()
            .map(|step| format!("{:?}", step.action).split('(').next().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 19, "{names:?}");
    }
}

//! `Fleet`: the running programs of a lock, and the values measured by a repetition.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock::{now, sleep_until};
use crate::keys::KeyFile;
use crate::peer::{Ability, Peer};
use crate::program::Program;
use crate::redis_server::Redis;
use crate::sample::{Sample, middle_mean, percentiles};
use crate::servers::Servers;
use crate::turns::Turns;
use crate::workload::{Kind, Workload};

/// The delay before counting begins, so that all processes are at work by then.
const RAMP: Duration = Duration::from_millis(100);
/// When a task that requested a held lock certainly waits.
const SETTLED: Duration = Duration::from_millis(10);
/// The same with 1 ms latency each way.
const SETTLED_DELAYED: Duration = Duration::from_millis(25);
/// The longest wait for a lock that a storm may have left held.
const FREE: Duration = Duration::from_secs(5);
/// The bound of everything that is done at once.
const ANSWER: Duration = Duration::from_secs(60);
/// The wait limit of a task that comes last in a long queue, and leaves.
const PATIENCE_MS: u64 = 250;
/// The number of hand-offs, enqueues and leaves in a repetition with a long queue.
const DEEP: usize = 20;
/// The number of floods in a repetition.
const FLOODS: usize = 10;
/// How long a repetition measures hand-offs at most.
const LONGEST: Duration = Duration::from_secs(4);

/// The size of a repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) repetitions: usize,
    pub(crate) window: Duration,
    pub(crate) hand_offs: usize,
    /// How long held locks are observed: a lease, in which some locks renew twice and some three
    /// times.
    pub(crate) holding: Duration,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) peer: &'static Peer,
    programs: Vec<Program>,
}

impl Fleet {
    pub(crate) fn start(
        peer: &'static Peer,
        workload: &Workload,
        command: &[String],
        address: &str,
    ) -> Result<Self, String> {
        let count = match workload.kind {
            // Another process measures how soon the lock is free after a storm.
            Kind::Turns { processes, patience_us, .. } => processes + usize::from(patience_us > 0),
            Kind::HandOff => 2,
            Kind::Depth(_) | Kind::Flood(_) => 3,
            Kind::Holds(_) => 1,
            Kind::Http { .. } => 1,
        };
        let programs: Result<Vec<_>, _> =
            (0..count).map(|_| Program::start(command, address, workload.threads)).collect();
        let mut fleet = Self { peer, programs: programs? };
        for program in &mut fleet.programs {
            program.ready()?;
        }
        Ok(fleet)
    }

    /// The name reported by the programs.
    pub(crate) fn name(&self) -> &str {
        self.programs[0].name()
    }

    /// Runs a repetition.
    pub(crate) fn sample(
        &mut self,
        workload: &Workload,
        plan: &Plan,
        servers: &mut Servers,
        scratch: &Path,
    ) -> Result<Sample, String> {
        match workload.kind {
            Kind::Turns { .. } => self.turns(workload.kind, plan, servers, scratch),
            Kind::HandOff => {
                let settled = if workload.each_way_ms > 0 { SETTLED_DELAYED } else { SETTLED };
                self.hand_offs(plan, settled, servers)
            }
            Kind::Depth(waiters) => self.depth(waiters, servers),
            Kind::Flood(waits) => self.flood(waits, servers),
            Kind::Holds(count) => self.holds(count, plan, servers),
            Kind::Http { connections, keys } => {
                crate::http::sample(&self.programs[0], connections, keys, plan.window, servers)
            }
        }
    }

    fn cpu_us(&self) -> f64 {
        self.programs.iter().map(Program::cpu_us).sum()
    }

    fn turns(
        &mut self,
        kind: Kind,
        plan: &Plan,
        servers: &mut Servers,
        scratch: &Path,
    ) -> Result<Sample, String> {
        let Kind::Turns { processes, tasks, keys, hold_us, patience_us } = kind else {
            return Err("no turns".to_owned());
        };
        let prefix = new_key();
        let keys = KeyFile::write(&scratch.join("keys"), &prefix, keys, tasks * processes)?;
        let from = now() + RAMP.as_nanos() as u64;
        let until = from + plan.window.as_nanos() as u64;
        let records = |process: usize| scratch.join(format!("records-{process}"));
        let first = |process: usize| process * tasks * keys.stride;
        for (process, program) in self.programs.iter_mut().take(processes).enumerate() {
            program.send(&format!(
                "loop tasks={tasks} keys={} first={} stride={} step={} hold_us={hold_us} \
                 patience_us={patience_us} until={until} records={}",
                keys.path.display(),
                first(process),
                keys.stride,
                keys.step,
                records(process).display(),
            ))?;
        }
        sleep_until(from);
        let peer = self.peer;
        let before = (self.cpu_us(), servers.cpu_us(peer), servers.script_us(peer));
        sleep_until(until);
        let after = (self.cpu_us(), servers.cpu_us(peer), servers.script_us(peer));
        let resident: f64 = self.programs.iter().map(Program::resident_bytes).sum();
        let mut turns = Turns::new(tasks * processes, patience_us > 0, from, until);
        if self.peer.can(Ability::ReadWrite) || self.peer.can(Ability::Permits) {
            turns = turns.shared();
        }
        for (process, program) in self.programs.iter_mut().take(processes).enumerate() {
            program.answer("looped", Duration::from_secs(120))?;
            let key = |task, turn| keys.lock(first(process), task, turn);
            turns.read(&records(process), process * tasks, key)?;
        }
        let mut sample = Sample::new();
        let count = turns.count() as f64;
        let attempts = count + turns.given_up() as f64;
        let mut value = |name: &str, value: f64| sample.insert(name.to_owned(), value);
        value("total", turns.total() as f64);
        value("turns_s", count / turns.seconds());
        value("attempts_s", attempts / turns.seconds());
        value("given_up", 100.0 * (attempts - count) / attempts);
        value("client_us", (after.0 - before.0) / attempts);
        value("server_us", (after.1 - before.1) / attempts);
        if peer.server().is_redis() {
            value("script_us", (after.2 - before.2) / attempts);
        }
        value("resident_mb", resident / 1e6);
        value("in_order", turns.in_order());
        value("longest_ms", turns.longest_ms());
        value("without", turns.without_turn() as f64);
        if patience_us > 0 {
            value("free_ms", self.free_ms(&format!("{prefix}:0"))?);
        }
        percentiles(&mut sample, "pair", turns.pairs_us());
        percentiles(&mut sample, "wait", turns.waits_us());
        Ok(sample)
    }

    /// When an uninvolved process gets the lock; `FREE` if it has not by then.
    fn free_ms(&mut self, key: &str) -> Result<f64, String> {
        let Some(program) = self.programs.last_mut() else { return Err("no program".to_owned()) };
        program.send(&format!("take name=after key={key} patience_ms={}", FREE.as_millis()))?;
        let Ok([asked, granted]) = program.taken("after", FREE + SETTLED) else {
            program.answer("cancelled after", ANSWER)?;
            return Ok(FREE.as_secs_f64() * 1e3);
        };
        program.send("end name=after")?;
        program.given("after")?;
        Ok((granted - asked) as f64 / 1e6)
    }

    fn hand_offs(
        &mut self,
        plan: &Plan,
        settled: Duration,
        servers: &mut Servers,
    ) -> Result<Sample, String> {
        let peer = self.peer;
        let [one, other] = &mut self.programs[..] else { return Err("not two".to_owned()) };
        let mut from = one;
        let mut to = other;
        let key = new_key();
        from.send(&format!("take name=0 key={key}"))?;
        from.taken("0", ANSWER)?;
        let before = servers.cpu_us(peer);
        let mut times = Vec::new();
        let began = std::time::Instant::now();
        let mut number = 0;
        // A polling lock takes a hundred times as long: fewer hand-offs show enough of it.
        while number < plan.hand_offs && (number < 20 || began.elapsed() < LONGEST) {
            number += 1;
            to.send(&format!("take name={number} key={key}"))?;
            std::thread::sleep(settled);
            from.send(&format!("end name={}", number - 1))?;
            let [giving, _] = from.given(&format!("{}", number - 1))?;
            let [_, granted] = to.taken(&format!("{number}"), ANSWER)?;
            times.push(granted.saturating_sub(giving) as f64 / 1e3);
            (from, to) = (to, from);
        }
        let mut sample = Sample::new();
        let server = (servers.cpu_us(peer) - before) / number as f64;
        sample.insert("server_us".to_owned(), server);
        sample.insert("total".to_owned(), number as f64);
        percentiles(&mut sample, "hand", times);
        from.send(&format!("end name={number}"))?;
        from.given(&format!("{number}"))?;
        Ok(sample)
    }

    fn depth(&mut self, waiters: usize, servers: &mut Servers) -> Result<Sample, String> {
        let [one, other, crowd] = &mut self.programs[..] else {
            return Err("not three".to_owned());
        };
        let redis = &mut servers.redis;
        let key = new_key();
        one.send(&format!("take name=0 key={key}"))?;
        one.taken("0", ANSWER)?;
        // The hand-offs alternate, so that each reaches the other process. Each task certainly
        // waits before the next request.
        let mut asked = redis.scripts();
        for number in 1..=DEEP {
            let to = if number % 2 == 0 { &mut *one } else { &mut *other };
            to.send(&format!("take name={number} key={key}"))?;
            after_script(redis, &mut asked);
        }
        let memory = redis.memory_bytes();
        let resident = crowd.resident_bytes();
        crowd.send(&format!("crowd count={waiters} key={key} own=0"))?;
        crowd.answer("crowded", Duration::from_secs(300))?;
        redis.quiet()?;
        let per_waiter = |before: f64, after: f64| (after - before) / waiters as f64;
        let mut sample = Sample::new();
        let mut value = |name: &str, value: f64| sample.insert(name.to_owned(), value);
        if waiters >= 1_000 {
            value("waiter_server_b", per_waiter(memory, redis.memory_bytes()));
            value("waiter_client_b", per_waiter(resident, crowd.resident_bytes()));
        }
        let mut enqueues = Vec::new();
        let mut leaves = Vec::new();
        let mut hand_overs = Vec::new();
        let mut before = redis.scripts();
        let mut since = |redis: &mut Redis| after_script(redis, &mut before);
        for number in 0..DEEP {
            other.send(&format!("take name=last-{number} key={key} patience_ms={PATIENCE_MS}"))?;
            enqueues.push(since(redis));
            other.answer(&format!("cancelled last-{number}"), ANSWER)?;
            leaves.push(since(redis));
        }
        for number in 0..DEEP {
            let (from, to) =
                if number % 2 == 0 { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
            from.send(&format!("end name={number}"))?;
            from.given(&format!("{number}"))?;
            to.taken(&format!("{}", number + 1), ANSWER)?;
            hand_overs.push(since(redis));
        }
        value("enqueue_us", middle_mean(enqueues));
        value("leave_us", middle_mean(leaves));
        value("hand_over_us", middle_mean(hand_overs));
        Ok(sample)
    }

    /// The hand-offs of a program that cancels its waits for `waits` other locks immediately
    /// before.
    fn flood(&mut self, waits: usize, servers: &mut Servers) -> Result<Sample, String> {
        let peer = self.peer;
        let [one, next, holder] = &mut self.programs[..] else {
            return Err("not three".to_owned());
        };
        let others = new_key();
        holder.send(&format!("crowd count={waits} key={others} own=1"))?;
        holder.answer("crowded", Duration::from_secs(120))?;
        let (mut times, mut server) = (Vec::new(), 0.0);
        for flood in 0..FLOODS {
            let key = new_key();
            one.send(&format!("take name={flood} key={key}"))?;
            one.taken(&format!("{flood}"), ANSWER)?;
            one.send(&format!("wait count={waits} key={others}"))?;
            one.answer("waiting", ANSWER)?;
            next.send(&format!("take name={flood} key={key}"))?;
            servers.redis.quiet()?;
            let before = servers.cpu_us(peer);
            one.send("disperse")?;
            one.send(&format!("end name={flood}"))?;
            let [giving, _] = one.given(&format!("{flood}"))?;
            let [_, granted] = next.taken(&format!("{flood}"), ANSWER)?;
            times.push(granted.saturating_sub(giving) as f64 / 1e3);
            next.send(&format!("end name={flood}"))?;
            next.given(&format!("{flood}"))?;
            servers.redis.quiet()?;
            server += servers.cpu_us(peer) - before;
        }
        let mut sample = Sample::new();
        sample.insert("server_us".to_owned(), server / FLOODS as f64);
        sample.insert("total".to_owned(), FLOODS as f64);
        percentiles(&mut sample, "hand", times);
        Ok(sample)
    }

    fn holds(
        &mut self,
        count: usize,
        plan: &Plan,
        servers: &mut Servers,
    ) -> Result<Sample, String> {
        let redis = &mut servers.redis;
        let holder = &mut self.programs[0];
        let memory = redis.memory_bytes();
        let resident = holder.resident_bytes();
        holder.send(&format!("crowd count={count} key={} own=1", new_key()))?;
        holder.answer("crowded", Duration::from_secs(120))?;
        redis.quiet()?;
        let mut sample = Sample::new();
        let mut value = |name: &str, value: f64| sample.insert(name.to_owned(), value);
        value("hold_server_b", (redis.memory_bytes() - memory) / count as f64);
        value("hold_client_b", (holder.resident_bytes() - resident) / count as f64);
        let before = (redis.scripts().0, redis.cpu_us(), holder.cpu_us());
        std::thread::sleep(plan.holding);
        let after = (redis.scripts().0, redis.cpu_us(), holder.cpu_us());
        let seconds = plan.holding.as_secs_f64();
        value("scripts_s", (after.0 - before.0) / seconds);
        value("server_share", (after.1 - before.1) / seconds / 1e4);
        value("client_share", (after.2 - before.2) / seconds / 1e4);
        Ok(sample)
    }
}

/// Waits for the next script, which is in flight, and a little longer; returns the time spent in
/// scripts since `before`, µs.
fn after_script(redis: &mut Redis, before: &mut (f64, f64)) -> f64 {
    let deadline = Instant::now() + Duration::from_secs(5);
    while redis.scripts().0 == before.0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(SETTLED);
    let earlier = std::mem::replace(before, redis.scripts());
    before.1 - earlier.1
}

/// A key unused by other repetitions: a late request of a cancelled wait must not affect the next
/// lock.
fn new_key() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("bench:{}", MADE.fetch_add(1, Ordering::Relaxed))
}

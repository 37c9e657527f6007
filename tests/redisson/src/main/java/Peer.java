import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RExpirable;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RObject;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;

/**
 * One JVM with one Redisson, for tests that share locks with it. Obeys lines on standard input, each
 * in the thread that it names, and answers with lines on standard output; see tests/redisson/README.md.
 */
public final class Peer {
    /** A thread of its own for each name: Redisson knows holders by their thread. */
    private static final class Worker {
        private Thread thread;
        final ExecutorService queue = Executors.newSingleThreadExecutor(task -> {
            thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
    }

    private static final String SENTINELS = "redis+sentinel://";

    private final RedissonClient redisson;
    private final Map<String, Worker> workers = new HashMap<>();

    private Peer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        if (arguments[0].startsWith(SENTINELS)) {
            useSentinels(config, arguments[0].substring(SENTINELS.length()));
        } else {
            SingleServerConfig server = config.useSingleServer()
                .setAddress(arguments[0])
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(32)
                .setSubscriptionConnectionMinimumIdleSize(1);
            if (arguments.length > 3) {
                server.setSubscriptionConnectionPoolSize(1);
                server.setSubscriptionsPerConnection(Integer.parseInt(arguments[3]));
            }
        }
        config.setFairLockWaitTimeout(Long.parseLong(arguments[1]));
        config.setLockWatchdogTimeout(Long.parseLong(arguments[2]));
        Peer peer = new Peer(Redisson.create(config));
        say("ready " + peer.redisson.getId());
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            peer.hand(words);
        }
        // The parent has gone: no goodbye to the server either, as after a kill.
        Runtime.getRuntime().halt(0);
    }

    /** `host:port,host:port/name`; all else as Redisson has it. */
    private static void useSentinels(Config config, String url) {
        String[] parts = url.split("/");
        SentinelServersConfig sentinels = config.useSentinelServers().setMasterName(parts[1]);
        for (String address : parts[0].split(",")) {
            sentinels.addSentinelAddress("redis://" + address);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** `<what> <thread> <lock> [arguments]` to its thread. */
    private void hand(String[] words) throws InterruptedException {
        String what = words[0];
        String name = words[1];
        Worker worker = workers.computeIfAbsent(name, unused -> new Worker());
        if (what.equals("interrupt")) {
            interrupt(worker.thread);
            return;
        }
        worker.queue.execute(() -> {
            try {
                String answer = obey(what, name, words[2], Arrays.copyOfRange(words, 3, words.length));
                say(what + " " + name + " " + answer);
            } catch (Throwable problem) {
                say(what + " " + name + " failed " + problem.getClass().getSimpleName());
            }
        });
    }

    private String obey(String what, String name, String key, String[] more) throws Exception {
        RLock fair = redisson.getFairLock(key);
        long thread = Thread.currentThread().getId();
        switch (what) {
            case "member":
                return redisson.getId() + ":" + thread;
            case "lock":
                fair.lock(number(more, 0, -1), TimeUnit.MILLISECONDS);
                return "ok";
            case "try":
                return String.valueOf(fair.tryLock());
            case "wait":
                return String.valueOf(
                    fair.tryLock(number(more, 0, 0), number(more, 1, -1), TimeUnit.MILLISECONDS));
            case "async":
                return String.valueOf(
                    fair.tryLockAsync(number(more, 0, 0), -1, TimeUnit.MILLISECONDS, thread).get());
            case "unlock":
                fair.unlock();
                return "ok";
            case "force":
                return String.valueOf(fair.forceUnlock());
            case "count":
                return String.valueOf(fair.getHoldCount());
            case "locked":
                return String.valueOf(fair.isLocked());
            case "delete":
                return String.valueOf(((RObject) fair).delete());
            case "clear-expire":
                return String.valueOf(((RExpirable) fair).clearExpire());
            case "write-try":
                return String.valueOf(redisson.getReadWriteLock(key).writeLock().tryLock());
            case "fenced-delete":
                return String.valueOf(((RObject) redisson.getFencedLock(key)).delete());
            case "plain-lock":
                redisson.getLock(key).lock(number(more, 0, -1), TimeUnit.MILLISECONDS);
                return "ok";
            case "plain-try":
                return String.valueOf(redisson.getLock(key).tryLock());
            case "plain-unlock":
                redisson.getLock(key).unlock();
                return "ok";
            case "fenced-lock":
                return String.valueOf(redisson.getFencedLock(key).lockAndGetToken());
            case "fenced-unlock":
                redisson.getFencedLock(key).unlock();
                return "ok";
            case "token":
                return String.valueOf(fenced(key));
            case "turns":
                return turns(fair, number(more, 0, 1), more[1]);
            case "turns-for":
                return turnsFor(fair, name, number(more, 0, 0));
            default:
                return "failed not understood";
        }
    }

    /** Where it waits to be told to come: interrupted in a call to the server it would end in other ways. */
    private static void interrupt(Thread thread) throws InterruptedException {
        while (Arrays.stream(thread.getStackTrace())
            .noneMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"))) {
            Thread.sleep(5);
        }
        thread.interrupt();
    }

    private Long fenced(String key) {
        RFencedLock lock = redisson.getFencedLock(key);
        return lock.getToken();
    }

    /** As many turns, one after the other; counts how often somebody else was inside. */
    private String turns(RLock lock, long rounds, String inside) {
        RAtomicLong counter = redisson.getAtomicLong(inside);
        long met = 0;
        for (long round = 0; round < rounds; round++) {
            lock.lock();
            try {
                if (counter.incrementAndGet() != 1) {
                    met++;
                }
                counter.decrementAndGet();
            } finally {
                lock.unlock();
            }
        }
        return "met " + met;
    }

    /**
     * Turns for so many milliseconds, whatever fails; says of each when it began and ended, by the
     * monotonic clock that all processes of a machine share.
     */
    private static String turnsFor(RLock lock, String name, long millis) throws InterruptedException {
        long refused = 0;
        long unheard = 0;
        long twice = 0;
        for (long end = System.nanoTime() + millis * 1_000_000; System.nanoTime() < end; ) {
            boolean granted = false;
            try {
                granted = lock.tryLock(10, TimeUnit.SECONDS);
            } catch (RuntimeException problem) {
                Thread.sleep(5);
            }
            if (granted) {
                long begin = System.nanoTime();
                Thread.sleep(2);
                say("turn " + name + " " + begin + " " + System.nanoTime());
            } else {
                refused++;
            }
            try {
                if (granted) {
                    lock.unlock();
                }
                // Redisson repeats an acquire whose answer was lost in a failover. If the first one ran
                // and its write reached the new primary, this thread holds the lock twice, and one
                // unlock for each turn would leave it held for good. An acquire that failed may have run.
                while (lock.isHeldByCurrentThread()) {
                    twice++;
                    lock.unlock();
                }
            } catch (RuntimeException problem) {
                unheard++;
            }
        }
        return "refused " + refused + " unheard " + unheard + " twice " + twice;
    }

    private static long number(String[] words, int index, long otherwise) {
        return index < words.length ? Long.parseLong(words[index]) : otherwise;
    }
}

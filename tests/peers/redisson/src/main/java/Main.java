import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's locks, by the lines of tests/peers/README.md: {@code Main fair|plain|read-write|permits ADDRESS}. */
public final class Main {
    /** Enough for one channel for each that waits. */
    private static final int CHANNELS = 20_000;
    private static final int WRITES = 10;
    private static final int PERMITS = 10;

    private final RedissonClient redisson;
    private final String mode;
    private final AtomicInteger turns = new AtomicInteger();
    private final Map<String, Stay> stays = new HashMap<>();

    private Main(RedissonClient redisson, String mode) {
        this.redisson = redisson;
        this.mode = mode;
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[1]).setSubscriptionsPerConnection(CHANNELS);
        Main main = new Main(Redisson.create(config), arguments[0]);
        say("ready Redisson 4.7.0");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            main.obey(new Line(line));
        }
        // Whatever is still held or waited for ends with the process.
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private RLock lock(String key) {
        return mode.equals("fair") ? redisson.getFairLock(key) : redisson.getLock(key);
    }

    /** What the next turn takes: of those that read and write, one in ten writes. */
    private Lock next(String key) {
        switch (mode) {
            case "read-write":
                RReadWriteLock lock = redisson.getReadWriteLock(key);
                return turns.getAndIncrement() % WRITES == 0 ? lock.writeLock() : lock.readLock();
            case "permits":
                return new Permit(redisson.getPermitExpirableSemaphore(key));
            default:
                return lock(key);
        }
    }

    private void obey(Line line) throws Exception {
        switch (line.what) {
            case "loop":
                loop(line);
                break;
            case "take":
                Stay stay =
                    new Stay(lock(line.text("key")), line.text("name"), line.number("patience_ms", 0));
                stays.put(line.text("name"), stay);
                stay.start();
                break;
            case "end":
                stays.remove(line.text("name")).end();
                break;
            case "crowd":
                crowd(line);
                break;
            default:
                throw new IllegalArgumentException("not understood: " + line.what);
        }
    }

    /** Many that keep what they get, without a thread each: Redisson knows them by the number it is given. */
    private void crowd(Line line) {
        boolean own = line.number("own") == 1;
        List<java.util.concurrent.CompletionStage<Void>> taken = new ArrayList<>();
        for (long number = 0; number < line.number("count"); number++) {
            String key = line.text("key") + (own ? ":" + number : "");
            taken.add(lock(key).lockAsync(1_000_000 + number));
        }
        if (own) {
            taken.forEach(lock -> lock.toCompletableFuture().join());
        }
        say("crowded");
    }

    private void loop(Line line) throws Exception {
        List<String> keys = Files.readAllLines(Path.of(line.text("keys")));
        if (mode.equals("permits")) {
            // No effect if they exist; the driver empties the server between two loops.
            keys.forEach(key -> redisson.getPermitExpirableSemaphore(key).trySetPermits(PERMITS));
        }
        List<Turns> tasks = new ArrayList<>();
        for (long task = 0; task < line.number("tasks"); task++) {
            Turns turns = new Turns(this::next, keys, line, line.number("first") + task * line.number("stride"));
            tasks.add(turns);
            turns.start();
        }
        TimeUnit.NANOSECONDS.sleep(line.number("until") - System.nanoTime());
        tasks.forEach(Turns::over);
        try (PrintWriter records = new PrintWriter(Files.newBufferedWriter(Path.of(line.text("records"))))) {
            for (int task = 0; task < tasks.size(); task++) {
                tasks.get(task).join();
                for (long[] turn : tasks.get(task).done) {
                    records.println(task + " " + turn[0] + " " + turn[1] + " " + turn[2] + " " + turn[3]);
                }
            }
        }
        say("looped");
    }
}

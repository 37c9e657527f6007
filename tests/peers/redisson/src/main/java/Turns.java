import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import org.redisson.client.RedisException;

/** A thread that takes a lock, holds it and gives it back, over and over. */
final class Turns extends Thread {
    /** When it was asked, granted, and given back; 0 for what did not happen. */
    final List<long[]> done = new ArrayList<>();

    private final Function<String, Lock> locks;
    private final List<String> keys;
    private final long first;
    private final long step;
    private final long hold;
    private final long patience;
    private final long until;
    private boolean waits;

    Turns(Function<String, Lock> locks, List<String> keys, Line line, long first) {
        this.locks = locks;
        this.keys = keys;
        this.first = first;
        this.step = line.number("step");
        this.hold = line.number("hold_us");
        this.patience = line.number("patience_us");
        this.until = line.number("until");
        setDaemon(true);
    }

    /** Ends a wait, and nothing else. */
    synchronized void over() {
        if (waits) {
            interrupt();
        }
    }

    private synchronized void waits(boolean now) {
        waits = now;
        if (!now) {
            interrupted(); // it has the lock: what was to end the wait came too late
        }
    }

    @Override
    public void run() {
        try {
            while (System.nanoTime() < until) {
                done.add(turn());
            }
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private long[] turn() throws InterruptedException {
        Lock lock = locks.apply(keys.get((int) ((first + done.size() * step) % keys.size())));
        long asked = System.nanoTime();
        waits(true);
        boolean taken = take(lock);
        long granted = System.nanoTime();
        waits(false);
        if (!taken) {
            return new long[] {asked, 0, 0, 0};
        }
        if (hold > 0) {
            TimeUnit.MICROSECONDS.sleep(hold);
        }
        long giving = System.nanoTime();
        lock.unlock();
        return new long[] {asked, granted, giving, System.nanoTime()};
    }

    private boolean take(Lock lock) {
        try {
            if (patience > 0) {
                // Different for each turn, up to the maximum, and the same in every run.
                long limit = patience * ((first + done.size()) * 7919 % 1000) / 1000;
                return lock.tryLock(limit, TimeUnit.MICROSECONDS);
            }
            lock.lockInterruptibly();
            return true;
        } catch (InterruptedException over) {
            return false;
        } catch (RedisException failed) {
            // Interrupted while a command was in flight.
            if (failed.getCause() instanceof InterruptedException) {
                return false;
            }
            throw failed;
        }
    }
}

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.client.RedisException;

/** One lock, asked for and then held until it is told to end. Times are System.nanoTime, CLOCK_MONOTONIC on Linux. */
final class Stay extends Thread {
    private final RLock lock;
    private final String name;
    /** 0: it waits without a limit. */
    private final long patience;
    private final CountDownLatch ending = new CountDownLatch(1);
    private boolean waits = true;

    Stay(RLock lock, String name, long patience) {
        this.patience = patience;
        this.lock = lock;
        this.name = name;
        setDaemon(true);
    }

    /** Gives the lock back, or waits for it no longer. */
    void end() throws InterruptedException {
        ending.countDown();
        synchronized (this) {
            if (waits) {
                interrupt();
            }
        }
        join();
    }

    private synchronized void waitsNoLonger() {
        waits = false;
        interrupted(); // it has the lock: what was to end the wait came too late
    }

    @Override
    public void run() {
        long asked = System.nanoTime();
        try {
            // Only a tryLock that times out leaves the queue; an interrupted lock stays in it.
            if (patience > 0 && !lock.tryLock(patience, -1, TimeUnit.MILLISECONDS)) {
                Main.say("cancelled " + name);
                return;
            }
            if (patience == 0) {
                lock.lockInterruptibly();
            }
        } catch (InterruptedException over) {
            Main.say("cancelled " + name);
            return;
        } catch (RedisException failed) {
            // Interrupted while a command was in flight.
            if (!(failed.getCause() instanceof InterruptedException)) {
                throw failed;
            }
            Main.say("cancelled " + name);
            return;
        }
        long granted = System.nanoTime();
        waitsNoLonger();
        Main.say("taken " + name + " " + asked + " " + granted);
        try {
            ending.await();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
        long giving = System.nanoTime();
        lock.unlock();
        Main.say("given " + name + " " + giving + " " + System.nanoTime());
    }
}

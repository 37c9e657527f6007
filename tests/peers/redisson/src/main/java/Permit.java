import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.redisson.api.RPermitExpirableSemaphore;

/** One permit of a semaphore, taken and given back as a lock is. */
final class Permit implements Lock {
    private final RPermitExpirableSemaphore semaphore;
    private String id;

    Permit(RPermitExpirableSemaphore semaphore) {
        this.semaphore = semaphore;
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        id = semaphore.acquire();
    }

    @Override
    public void unlock() {
        semaphore.release(id);
    }

    @Override
    public void lock() {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean tryLock() {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException();
    }
}

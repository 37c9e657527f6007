"""redis-fifo-lock with its defaults but for the lease."""

import redis.asyncio
import redis_fifo_lock

import kit


class RedisFifoLock:
    def __init__(self, client):
        self.client = client
        self.locks = {}

    async def take(self, key):
        lock = self.locks.get(key)
        if lock is None:
            lock = redis_fifo_lock.FifoLock(self.client, key, lease_ms=30_000)
            self.locks[key] = lock
        return lock, await lock.acquire()

    async def give(self, hold):
        lock, lease = hold
        await lock.release(lease)


async def connect(url):
    # Each waiter has a connection, more than the default limit of the pool.
    return RedisFifoLock(redis.asyncio.Redis.from_url(url, max_connections=2_000))


kit.run(f"redis-fifo-lock {redis_fifo_lock.__version__}", connect)

"""redis-py's lock with its defaults but for the lease: asks every 100 ms."""

import redis
import redis.asyncio

import kit


class RedisPy:
    def __init__(self, client):
        self.client = client

    async def take(self, key):
        lock = self.client.lock(key, timeout=30)
        await lock.acquire()
        return lock

    async def give(self, lock):
        await lock.release()


async def connect(url):
    # One connection for each task: 100 by default.
    return RedisPy(redis.asyncio.Redis.from_url(url, max_connections=1024))


kit.run(f"redis-py {redis.__version__}", connect)

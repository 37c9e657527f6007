"""The lines of tests/peers/README.md, for programs in Python.

A peer has `take(key)`, a coroutine that waits for the lock and returns what is kept while it is held, and
`give(hold)`.
"""

import asyncio
import os
import sys
import threading
from time import monotonic_ns as now


def say(line):
    print(line, flush=True)


def run(name, connect):
    asyncio.run(obey(name, connect))


async def obey(name, connect):
    peer = await connect(sys.argv[1])
    lines = read_lines()
    stays = {}
    crowd = []
    say(f"ready {name}")
    while True:
        line = await lines.get()
        what, *values = line.split()
        values = dict(value.split("=", 1) for value in values)
        if what == "loop":
            await loop(peer, values)
        elif what == "take":
            patience = int(values["patience_ms"]) / 1e3 if "patience_ms" in values else None
            stays[values["name"]] = Stay(peer, values["key"], values["name"], patience)
        elif what == "end":
            await stays.pop(values["name"]).end()
        elif what == "crowd":
            own, key = values["own"] == "1", values["key"]
            for number in range(int(values["count"])):
                crowd.append(Stay(peer, f"{key}:{number}" if own else key))
                if own:
                    # One after the other: all at once would need a connection each.
                    await crowd[-1].taken.wait()
            say("crowded")
        else:
            raise ValueError(f"not understood: {what}")


def read_lines():
    """Read by a thread: standard input may be anything."""
    lines, loop = asyncio.Queue(), asyncio.get_running_loop()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        os._exit(0)  # whatever is still held or waited for ends with the process

    threading.Thread(target=read, daemon=True).start()
    return lines


class Stay:
    """One lock, asked for and then held until it is told to end."""

    def __init__(self, peer, key, name=None, patience=None):
        self.taken = asyncio.Event()
        self.ending = asyncio.Event()
        self.task = asyncio.create_task(self.stay(peer, key, name, patience))

    async def end(self):
        if self.taken.is_set():
            self.ending.set()
        else:
            self.task.cancel()
        await asyncio.wait([self.task])

    async def stay(self, peer, key, name, patience):
        asked = now()
        try:
            hold = await asyncio.wait_for(peer.take(key), patience)
        except (asyncio.CancelledError, TimeoutError):
            if name:
                say(f"cancelled {name}")
            return
        granted = now()
        self.taken.set()
        if name:
            say(f"taken {name} {asked} {granted}")
        await self.ending.wait()
        giving = now()
        await peer.give(hold)
        if name:
            say(f"given {name} {giving} {now()}")


class Task:
    """Takes turns; `cancel` ends a wait, and nothing else."""

    def __init__(self, peer, keys, first, step, hold, patience, until):
        self.waits = False
        arguments = (peer, keys, first, step, hold, patience, until)
        self.task = asyncio.create_task(self.turns(*arguments))

    def cancel(self):
        if self.waits:
            self.task.cancel()

    async def turns(self, peer, keys, first, step, hold, patience, until):
        turns = []
        while now() < until:
            key = keys[(first + len(turns) * step) % len(keys)]
            asked = now()
            self.waits = True
            try:
                if patience:
                    # Different for each turn, up to the maximum, and the same in every run.
                    limit = patience * ((first + len(turns)) * 7919 % 1000) / 1000
                    taken = await asyncio.wait_for(peer.take(key), limit)
                else:
                    taken = await peer.take(key)
            except (asyncio.CancelledError, TimeoutError):
                turns.append((asked, 0, 0, 0))
                continue
            finally:
                self.waits = False
            granted = now()
            if hold:
                await asyncio.sleep(hold)
            giving = now()
            await peer.give(taken)
            turns.append((asked, granted, giving, now()))
        return turns


async def loop(peer, values):
    with open(values["keys"]) as file:
        keys = file.read().split()
    first, stride = int(values["first"]), int(values["stride"])
    hold, patience = int(values["hold_us"]) / 1e6, int(values["patience_us"]) / 1e6
    until = int(values["until"])
    tasks = [
        Task(peer, keys, first + task * stride, int(values["step"]), hold, patience, until)
        for task in range(int(values["tasks"]))
    ]
    await asyncio.sleep((until - now()) / 1e9)
    pending = {task.task for task in tasks}
    while pending:
        # Once more if a library has swallowed it.
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    with open(values["records"], "w") as file:
        for number, task in enumerate(tasks):
            for turn in await task.task:
                print(number, *turn, file=file)
    say("looped")

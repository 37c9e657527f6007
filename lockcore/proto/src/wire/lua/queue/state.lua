-- The state shared by the functions in `common`. Expects: call, lock_key, counter, node,
-- token_floor, elsewhere, prefix. Must be followed by a function around all these functions:
-- variables of an enclosing function cost nothing, but a function looks up each of its own
-- variables among all others, and for this many that costs more than everything else.

local Q, H, R, G = lock_key .. ':queue', lock_key .. ':holds', lock_key .. ':reduced', lock_key .. ':gone'
local patience, aside_keys = lock_key .. ':patience:', lock_key .. ':passed:'
-- What the request is about: the first member, or only the lock.
local asked = ARGV[5] or lock_key
--#include clock
local now = math.floor(clock / 1000)

-- The lock key as stored, and its flag.
local lock_key_value, mark, lock_key_ends = nil, '', 0
-- The exclusive holder, the ms left of the lease, and whether they must be written.
local whole, whole_left, is_whole_new
-- The ids of the batch on a separate line, as stored behind the holder; empty without a batch.
local batch = ''
-- The shared holds: sum, token, number of holds, and first expiry.
local used, token, hold_count, first_end = 0, nil, 0, nil
-- The number of waiters, and whether there are tombstones or reduced weights.
local size, has_tombstones, has_reduced = 0, false, false
-- There are shared holds next to a lock: the lock key was lost while they were held.
local has_stale_holds = false
-- The counter to write, if any, and the last issued token.
local count, issued
-- Pending writes: sorted sets with scores in front, and members to remove.
local held, taken, reduced, unreduced, out, tombstones = {}, {}, {}, {}, {}, {}
-- Members apart from the queue: those to set aside, and their scores; those that return, each
-- behind the score; those no longer aside. Also the first score in front of the queue, and the
-- member whose exclusive lease has ended, with the batch. A single table, because a function may
-- use at most 60 variables of enclosing functions.
local apart = { aside = {}, scores = {}, returned = {}, no_longer = {} }
local is_raised, is_queue_kept = false, false
-- At most shared holds are renewed: then the flag in their lock key stays.
local is_renewal = false
-- Lookup tables: members out of the queue or back in it, removed holds, members with a grant, and
-- members with a shared hold among these.
local is_out, is_back, is_taken, is_granted, is_held = {}, {}, {}, {}, {}
-- The latest expiry of anything to write.
local latest = 0
-- The reply, and the messages to other nodes: the nodes in order, and the parts for each.
local grants, skipped, more = {}, 0, 0
local told, revoked, superseded = {}, {}, {}
-- The reply if a key under one of our names belongs to another program, or if a primary's epoch is
-- over: nothing is written.
local foreign_key

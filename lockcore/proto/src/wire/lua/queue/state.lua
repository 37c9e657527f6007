-- The variables shared by the functions in `common`. Needs: call, lock_key, counter, node,
-- token_floor, elsewhere, prefix. A function must follow that contains all these functions.
-- Variables of an enclosing function cost nothing, but a function searches each of its own
-- variables among all others, and for this many that costs more than everything else.

local Q, H, R, G = lock_key .. ':queue', lock_key .. ':holds', lock_key .. ':reduced', lock_key .. ':gone'
local patience, aside_keys = lock_key .. ':patience:', lock_key .. ':passed:'
-- What the reply must name, so that the caller recognizes it: the first member, or only the lock.
local asked = ARGV[5] or lock_key
--#include clock
local now = math.floor(clock / 1000)

-- The lock key's stored value, its flag, and its expiry if it has shared holds.
local lock_key_value, mark, lock_key_ends = nil, '', 0
-- The exclusive holder, the ms left of its lease, and whether both must be written.
local whole, whole_left, is_whole_new
-- The ids of the batch members on a separate line, as stored behind the holder; empty without a
-- batch.
local batch = ''
-- The shared holds: the sum of weights, the token, the number of holds, and the first expiry.
local used, token, hold_count, first_end = 0, nil, 0, nil
-- The number of waiters, whether there are tombstones, and whether there are reduced weights.
local size, has_tombstones, has_reduced = 0, false, false
-- True if there are shared holds next to an exclusive hold, because the lock key was lost while
-- they were held.
local has_stale_holds = false
-- The token counter's value to write, if any, and the last issued token.
local count, issued
-- Pending writes: entries for sorted sets, each behind its score, and members to remove.
local held, taken, reduced, unreduced, out, tombstones = {}, {}, {}, {}, {}, {}
-- Members that are not in the queue: those to set aside, and their scores; those that return, each
-- behind its score; those no longer set aside. Also where the scores in front of the queue end, and
-- the member whose exclusive lease has ended, with its batch. A single table, because a function
-- may use at most 60 variables of enclosing functions.
local apart = { aside = {}, scores = {}, returned = {}, no_longer = {} }
local is_raised, is_queue_kept = false, false
-- True if the command at most renews shared holds, so that the flag in the lock key stays.
local is_renewal = false
-- Lookup tables: members taken out of the queue, members that are back in it, removed holds,
-- members with a grant, and those among them with a shared hold.
local is_out, is_back, is_taken, is_granted, is_held = {}, {}, {}, {}, {}
-- The latest expiry of anything to be written, in ms since the epoch.
local latest = 0
-- The reply's grants, number of skipped waiters, and whether work is left (1 or 0). Then the
-- messages to other nodes: the nodes in order, and the parts of each message.
local grants, skipped, more = {}, 0, 0
local grant_messages, revoked, superseded = {}, {}, {}
-- The error reply if a key with one of our names belongs to another program, or if a quorum
-- primary's epoch is over. Then nothing is written.
local foreign_key

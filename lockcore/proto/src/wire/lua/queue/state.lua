-- The state that the functions of `common` share. Before it: call, door, counter, node, floor,
-- elsewhere, prefix. After it a function around all of these functions: a function takes the
-- variables of the function around its own at no cost, and looks for each variable of its own among
-- all others, which for this many costs more than everything else.

local Q, H, R, G = door .. ':queue', door .. ':holds', door .. ':reduced', door .. ':gone'
local patience, passed = door .. ':patience:', door .. ':passed:'
-- For whom it is asked: the first member, or the lock alone.
local asked = ARGV[5] or door
--#include clock
local now = math.floor(clock / 1000)

-- The door as it stands there, and its mark.
local door_text, mark, door_ends = nil, '', 0
-- The member that holds everything, the ms left of its lease, and whether these are to be written.
local whole, whole_left, is_whole_new
-- The numbers of its run in a line of their own, as they stand behind it; empty if there is none.
local run = ''
-- The parts that are held: the sum, the token of these holds, how many holds, the first to end.
local used, token, hold_count, first_end = 0, nil, 0, nil
-- How many wait, and whether there are tombstones or reduced weights.
local size, has_gone, has_reduced = 0, false, false
-- There are parts beside a lock: the door was lost while they were held.
local is_stray = false
-- The counter as it is to be written, if it is, and the token that was issued last.
local count, issued
-- The writes to come: sorted sets with their scores in front, members to take out.
local held, taken, reduced, unreduced, out, gone = {}, {}, {}, {}, {}, {}
-- Members that stand apart from the queue: those that go aside, and the places of these; those that
-- come back, each behind its place; those that are aside no more. Also the first place in front of
-- the queue, and the member whose lease of everything has ended, with its run. One table, as a
-- function takes at most 60 variables of the functions around it.
local apart = { aside = {}, places = {}, returned = {}, unpassed = {} }
local is_raised, is_queue_kept = false, false
-- Parts are renewed at most: then the mark of their door stays as it is.
local is_renewal = false
-- The same to look up: members that are out of the queue or back in it, holds that are taken out,
-- members that were granted something, and those of them that hold parts.
local is_out, is_back, is_taken, is_granted, is_held = {}, {}, {}, {}, {}
-- The last end of anything that is to be written.
local latest = 0
-- The reply, and the messages to other nodes: their nodes in order, and the parts of each.
local grants, passed_over, more = {}, 0, 0
local told, revoked, superseded = {}, {}, {}
-- The answer if a key at one of our names is another program's, or if the epoch of a primary is
-- over: nothing is written.
local foreign_key

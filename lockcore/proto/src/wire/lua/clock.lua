-- The server's time, read once. Text is cheaper to hand to Redis than a number.
local time = call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local now_us = tonumber(clock)
local now = math.floor(now_us / 1000)

-- The server's time in µs. Text is cheaper to pass to Redis than a number.
local time = call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)

-- A gateway says that it lives, and learns who else does and which limits had a key pardoned.
-- KEYS: the gateways; the pardons by limit (both in one slot).
-- ARGV: this gateway; how long its word holds, in ms; a limit of which a key was pardoned, or ''.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[3] ~= '' then
  redis.call('HINCRBY', KEYS[2], ARGV[3], 1)
  redis.call('PEXPIRE', KEYS[2], 86400000)
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {redis.call('ZCARD', KEYS[1]), redis.call('HGETALL', KEYS[2])}

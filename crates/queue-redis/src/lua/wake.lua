-- ARGV: the most consumers. Consumers that are paused have a turn again. Answers how many there were.
local woken = redis.call('SPOP', Q .. 'paused', ARGV[1])
for _, consumer in ipairs(woken) do
    redis.call('ZREM', Q .. 'asleep', consumer)
    redis.call('ZADD', Q .. 'ready', redis.call('HGET', Q .. 'turns', consumer) or 0, consumer)
end
return #woken

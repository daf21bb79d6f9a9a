-- ARGV: the most messages, how long they can be seen. Ends those whose time is over, and removes those that ended long ago. Answers
-- how many there were.
local max, keep, time, done = ARGV[1], tonumber(ARGV[2]), now(), 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'expiry', '-inf', time, 'LIMIT', 0, max)) do
    local message = find(id)
    redis.call('ZREM', Q .. 'expiry', id)
    if message and message.state < CLAIMED then finish(message, EXPIRED, time, keep) end
    done = done + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'ended', '-inf', time, 'LIMIT', 0, max)) do
    local message = find(id)
    redis.call('ZREM', Q .. 'ended', id)
    if message then remove(message) end
    done = done + 1
end
return done

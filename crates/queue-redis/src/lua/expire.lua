-- ARGV: the most messages, how long a message can be read after its end, how long a claim holds. Ends the messages whose time is
-- over, and removes those that can no longer be read. Answers {how many expired, how many were removed}.
local max, keep, expired, removed = ARGV[1], tonumber(ARGV[2]), 0, 0
local time = observed_time(tonumber(ARGV[3]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'expiry', '-inf', time, 'LIMIT', 0, max)) do
    local message = find(id)
    redis.call('ZREM', Q .. 'expiry', id)
    if message and message.state < CLAIMED then finish(message, EXPIRED, time, keep) end
    expired = expired + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'ended', '-inf', time, 'LIMIT', 0, max)) do
    local message = find(id)
    redis.call('ZREM', Q .. 'ended', id)
    if message then remove(message) end
    removed = removed + 1
end
return {expired, removed}

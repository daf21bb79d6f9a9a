-- ARGV: the most messages, how long a claim holds, how long a message can be read after its end, the longest time until a message
-- or consumer is looked at again. Answers {the time until the next message may be due, or -1; how many expired; for each message:
-- id, key, consumer, claim, attempt, time since it was accepted, request}.
local max, lease, keep, longest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local MAX_IN_VAIN = 1000
local time = observed_time(lease)

-- The gateways of claims that were not renewed are gone.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'claimed', '-inf', time, 'LIMIT', 0, MAX_IN_VAIN)) do
    local message = find(id)
    if message then
        wait_again(message, nil, message.attempts, nil)
    else
        redis.call('ZREM', Q .. 'claimed', id)
    end
end
local woken = math.max(MAX_IN_VAIN, max)
for _, between in ipairs({{'-inf', time}, {'(' .. time + longest, '+inf'}}) do
    for _, consumer in ipairs(redis.call('ZRANGEBYSCORE', Q .. 'asleep', between[1], between[2], 'LIMIT', 0, woken)) do
        redis.call('ZREM', Q .. 'asleep', consumer)
        redis.call('SREM', Q .. 'paused', consumer)
        redis.call('ZADD', Q .. 'ready', redis.call('HGET', Q .. 'turns', consumer) or 0, consumer)
    end
end

local claimed, taken, in_vain = {0, 0}, 0, 0
while taken < max and in_vain < MAX_IN_VAIN do
    local next = redis.call('ZRANGE', Q .. 'ready', 0, 0, 'WITHSCORES')
    if not next[1] then break end
    local consumer, turn = next[1], tonumber(next[2])
    local first = redis.call('ZRANGE', Q .. 'waiting:' .. consumer, 0, 0, 'WITHSCORES')
    local at = tonumber(first[2] or time)
    local due = (at <= time or at > time + longest) and first[1]
    local message = due and find(string.sub(due, 17))
    if message and message.expires > time then
        local claim, attempt = message.claims + 1, message.attempts + 1
        redis.call('HSET', key_of(message.id), 'state', CLAIMED, 'claims', claim, 'attempts', attempt)
        leave(message)
        if redis.call('HEXISTS', Q .. 'turns', consumer) == 1 then
            redis.call('HSET', Q .. 'turns', consumer, turn + 1)
            redis.call('ZADD', Q .. 'ready', turn + 1, consumer)
        end
        if turn > figure('turn') then redis.call('HSET', Q .. 'figures', 'turn', turn) end
        redis.call('ZREM', Q .. 'expiry', message.id)
        redis.call('ZADD', Q .. 'claimed', time + lease, message.id)
        local request = redis.call('GET', Q .. 'request:' .. message.id)
        taken = taken + 1
        for _, value in ipairs({message.id, message.key, consumer, claim, attempt, time - (message.accepted or time), request or ''}) do
            claimed[#claimed + 1] = value
        end
    elseif message then
        finish(message, EXPIRED, time, keep)
        claimed[2] = claimed[2] + 1
        in_vain = in_vain + 1
    elseif due then
        redis.call('ZREM', Q .. 'waiting:' .. consumer, due) -- a message that somebody has removed by hand
        in_vain = in_vain + 1
    else
        redis.call('ZREM', Q .. 'ready', consumer)
        if first[1] then
            redis.call('ZADD', Q .. 'asleep', first[2], consumer)
        else
            redis.call('HDEL', Q .. 'turns', consumer)
        end
        in_vain = in_vain + 1
    end
end

if redis.call('EXISTS', Q .. 'ready') == 0 then
    local first = -1
    for _, name in ipairs({'asleep', 'claimed'}) do
        local next = redis.call('ZRANGE', Q .. name, 0, 0, 'WITHSCORES')
        if next[1] then
            local left = math.max(tonumber(next[2]) - time, 0)
            if first < 0 or left < first then first = left end
        end
    end
    claimed[1] = first
end
return claimed

-- What all scripts share. KEYS[1] is the beginning of the names of all keys of a queue; lib.rs says what they hold.
local Q = KEYS[1]
local WAITING, BLOCKED, CLAIMED, DELIVERED, FAILED, EXPIRED, CANCELLED = 0, 1, 2, 3, 4, 5, 6

local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Lets the script write although the memory of the server is full. Redis then refuses a script at its first write if that write
-- needs memory, and checks only the first one; ZREM needs none.
local function even_if_full()
    redis.call('ZREM', Q .. 'claimed', '')
end

-- The time, for scripts that gateways call at least once a second. If the clock was set back or forward since the last call, claims
-- would end too late or too early. Each claim then gets a whole lease, within which its gateway renews it.
local function observed_time(lease)
    local STEP = 5000
    local time, seen = now(), tonumber(redis.call('HGET', Q .. 'figures', 'clock') or 0)
    even_if_full()
    if math.abs(time - seen) >= 1000 then redis.call('HSET', Q .. 'figures', 'clock', time) end
    if seen > 0 and (time < seen or time > seen + STEP) then
        for _, id in ipairs(redis.call('ZRANGE', Q .. 'claimed', 0, -1)) do
            redis.call('ZADD', Q .. 'claimed', time + lease, id)
        end
    end
    return time
end

local function key_of(id)
    return Q .. 'm:' .. id
end

-- The place of a message among those of its consumer that are due at the same time.
local function member_of(number, id)
    return string.format('%016x', number) .. id
end

local function count(name, by)
    redis.call('HINCRBY', Q .. 'figures', name, by)
end

local function figure(name)
    return tonumber(redis.call('HGET', Q .. 'figures', name) or 0)
end

-- The message of this name, without its request; nil if there is none.
local function find(id)
    local found = redis.call('HMGET', key_of(id), 'number', 'key', 'consumer', 'owner', 'ordered', 'state', 'due',
        'attempts', 'size', 'expires', 'claims', 'accepted')
    if not found[1] then return nil end
    return {
        id = id, number = tonumber(found[1]), key = found[2], consumer = found[3], owner = found[4],
        ordered = found[5] == '1', state = tonumber(found[6]), due = tonumber(found[7]), attempts = tonumber(found[8]),
        size = tonumber(found[9]), expires = tonumber(found[10]), claims = tonumber(found[11]),
        accepted = tonumber(found[12]),
    }
end

-- The message waits for its turn. The flow of its consumer is ready, unless it is paused.
local function join(message)
    local consumer = message.consumer
    redis.call('ZADD', Q .. 'waiting:' .. consumer, message.due, member_of(message.number, message.id))
    if redis.call('SISMEMBER', Q .. 'paused', consumer) == 1 then return end
    local turn = redis.call('HGET', Q .. 'turns', consumer)
    if not turn then
        turn = figure('turn')
        redis.call('HSET', Q .. 'turns', consumer, turn)
    end
    redis.call('ZREM', Q .. 'asleep', consumer)
    redis.call('ZADD', Q .. 'ready', turn, consumer)
end

-- The message does not wait any more. A flow in which none waits is removed.
local function leave(message)
    local consumer = message.consumer
    redis.call('ZREM', Q .. 'waiting:' .. consumer, member_of(message.number, message.id))
    if redis.call('EXISTS', Q .. 'waiting:' .. consumer) == 0 then
        redis.call('ZREM', Q .. 'ready', consumer)
        redis.call('ZREM', Q .. 'asleep', consumer)
        redis.call('SREM', Q .. 'paused', consumer)
        redis.call('HDEL', Q .. 'turns', consumer)
    end
end

-- Puts a message without attempts into the queue. It waits for its turn; with `order: key` it waits until the earlier ones of its
-- key have ended. Answers its state.
local function enter(message)
    local id, key, number = message.id, message.key, message.number
    local is_blocked = message.ordered and redis.call('EXISTS', Q .. 'ordered:' .. key) == 1
    local state = is_blocked and BLOCKED or WAITING
    redis.call('HSET', key_of(id), 'state', state, 'due', message.due, 'expires', message.expires,
        'attempts', 0)
    redis.call('ZADD', Q .. 'key:' .. key, number, id)
    redis.call('ZADD', Q .. 'open', number, id)
    redis.call('ZADD', Q .. 'expiry', message.expires, id)
    if message.ordered then redis.call('ZADD', Q .. 'ordered:' .. key, number, id) end
    count('length', 1)
    if not is_blocked then join(message) end
    return state
end

-- Unblocks the oldest message of a key with `order: key`: it waits for its turn from now on.
local function promote(key)
    local message = find(redis.call('ZRANGE', Q .. 'ordered:' .. key, 0, 0)[1] or '')
    if message and message.state == BLOCKED then
        redis.call('HSET', key_of(message.id), 'state', WAITING)
        join(message)
    end
end

-- Ends a message that has not ended, and lets the next one of its key wait.
local function finish(message, state, time, keep, reason, answer)
    if message.state == WAITING then leave(message) end
    redis.call('ZREM', Q .. 'claimed', message.id)
    redis.call('ZREM', Q .. 'expiry', message.id)
    redis.call('ZREM', Q .. 'open', message.id)
    redis.call('ZREM', Q .. 'key:' .. message.key, message.id)
    redis.call('ZREM', Q .. 'ordered:' .. message.key, message.id)
    redis.call('HSET', key_of(message.id), 'state', state, 'ended', time)
    if reason then redis.call('HSET', key_of(message.id), 'reason', reason) end
    if answer then redis.call('SET', Q .. 'answer:' .. message.id, answer) end
    if state == FAILED then
        redis.call('ZADD', Q .. 'failed', message.number, message.id)
        count('failed', 1)
    else
        redis.call('DEL', Q .. 'request:' .. message.id)
        redis.call('ZADD', Q .. 'ended', time + keep, message.id)
        count('bytes', -message.size)
    end
    count('length', -1)
    count('ended', 1)
    if message.ordered and message.state ~= BLOCKED then promote(message.key) end
end

-- The message waits again, not before `due` if that is given.
local function wait_again(message, due, attempts, reason)
    redis.call('ZREM', Q .. 'claimed', message.id)
    message.due = due or message.due
    redis.call('HSET', key_of(message.id), 'state', WAITING, 'due', message.due, 'attempts', attempts)
    if reason then redis.call('HSET', key_of(message.id), 'reason', reason) end
    redis.call('ZADD', Q .. 'expiry', message.expires, message.id)
    join(message)
end

-- Removes a message that has ended.
local function remove(message)
    local idempotency = redis.call('HGET', key_of(message.id), 'idempotency')
    if idempotency then redis.call('HDEL', Q .. 'idempotency', idempotency) end
    redis.call('ZREM', Q .. 'ended', message.id)
    if redis.call('ZREM', Q .. 'failed', message.id) == 1 then
        count('failed', -1)
        count('bytes', -message.size)
    end
    redis.call('DEL', key_of(message.id), Q .. 'request:' .. message.id, Q .. 'answer:' .. message.id)
end

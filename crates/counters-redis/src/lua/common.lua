-- The common part of all scripts. The algorithms and one operation follow.
--
-- Numbers are doubles: whole microseconds are exact below 2^53, until the year 2255, and no product may exceed that. The
-- time is that of the server. It is read once, because on some servers it advances while a script runs.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The holder of places of concurrency limits, and the length of a lease in microseconds.
local holder, lease = '', 0

-- The expiry in milliseconds of a key that owes something for so many microseconds: a little longer, never shorter.
local function life(micros)
    return math.ceil(micros / 1000) + 1
end

-- Reads one value with a command. A value of another type counts as none and is overwritten. Any other error is an error
-- of the script: a key that may not be read does not owe nothing.
local function read_value(...)
    local value = redis.pcall(...)
    if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
        return redis.call(...)
    end
    return type(value) == 'string' and value or ''
end

-- The value of a key.
local function get(key)
    return read_value('GET', key)
end

-- Stores a value, or deletes the key if the value is empty. `old` is the stored value.
local function set(key, old, value, micros)
    if value ~= '' then
        redis.call('SET', key, value, 'PX', life(micros))
    elseif old ~= '' then
        redis.call('DEL', key)
    end
end

-- floor(a * b / c) and the remainder, for a <= c < 2^45 and b < 2^42, although a * b may exceed 2^53.
local function muldiv(a, b, c)
    local product = a * b
    if product < 9007199254740992 then
        local rest = product % c
        return (product - rest) / c, rest
    end
    local quotient, rest, limb = 0, 0, 34359738368
    while limb >= 1 do
        local digit = math.floor(b / limb) % 128
        local sum = rest * 128 + a * digit
        rest = sum % c
        quotient = quotient * 128 + (sum - rest) / c
        limb = limb / 128
    end
    return quotient, rest
end

-- Whether a stored period is valid: a millisecond to 366 days.
local function is_period(micros)
    return micros >= 1000 and micros <= 31622400000000
end

-- An algorithm is created when the first key needs it. It is a table of
--   load(key, at)   reads the rest of the argument, from byte `at`, and the state; sets `behind` to the number of bytes that
--                   it reads from the end of the argument
--   fits(key)       whether the cost is admitted
--   charge(key)     charges it
--   refuse(key, banned)  optional: records a refusal, and returns whether that changed anything; never if it is by a ban
--   spend(key)      charges the cost even if it does not fit
--   refund(key)     refunds the cost; the receipt follows the argument
--   loaded_state(key)  the state as it was loaded, for the reply; `state` as it is now
--   save(key)       stores the state
local algorithms = {}

-- Loads a key. An argument is 1 byte for the algorithm, 1 of flags, and the numbers of the algorithm.
local function load(name, argument)
    local tag, flags = struct.unpack('>BB', argument)
    local key = {name = name, argument = argument, kind = tag, changed = false, behind = 0}
    key.enforces = flags % 2 == 1
    key.never = flags % 4 >= 2
    key.bans = flags >= 4
    if type(algorithms[tag]) == 'function' then
        algorithms[tag] = algorithms[tag]()
    end
    key.algorithm = algorithms[tag]
    key.algorithm.load(key, 3)
    return key
end

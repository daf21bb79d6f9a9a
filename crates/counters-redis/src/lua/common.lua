-- What all operations share. A script is this, the algorithms, and one operation.
--
-- Numbers are doubles: whole microseconds stay exact below 2^53, until the year 2255, and no product may pass
-- that. Times are the server's, read once: on some servers it goes on while a script runs.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Who holds places of concurrency limits, and for how many microseconds they are theirs.
local holder, lease = '', 0

-- How long a key lives that owes something for so many microseconds: a little longer, never shorter.
local function life(micros)
    return math.ceil(micros / 1000) + 1
end

-- What a command that reads one value says of a key. A value of another type is as good as none: it is overwritten. Any
-- other error is the script's own: a key that must not be read is not one that owes nothing.
local function read_value(...)
    local value = redis.pcall(...)
    if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
        return redis.call(...)
    end
    return type(value) == 'string' and value or ''
end

-- What is kept under a key.
local function get(key)
    return read_value('GET', key)
end

-- Keeps a value, or forgets the key if the value is empty. `old` is what is kept already.
local function set(key, old, value, micros)
    if value ~= '' then
        redis.call('SET', key, value, 'PX', life(micros))
    elseif old ~= '' then
        redis.call('DEL', key)
    end
end

-- floor(a * b / c) and what is left, for a <= c < 2^45 and b < 2^35, though a * b may pass 2^53.
local function muldiv(a, b, c)
    local product = a * b
    if product < 9007199254740992 then
        local rest = product % c
        return (product - rest) / c, rest
    end
    local quotient, rest, limb = 0, 0, 268435456
    while limb >= 1 do
        local digit = math.floor(b / limb) % 128
        local sum = rest * 128 + a * digit
        rest = sum % c
        quotient = quotient * 128 + (sum - rest) / c
        limb = limb / 128
    end
    return quotient, rest
end

-- Whether a period that was read can be one: a millisecond to 366 days.
local function is_period(micros)
    return micros >= 1000 and micros <= 31622400000000
end

-- An algorithm is made when a key asks for it. It is a table of
--   load(key, at)   reads the rest of the argument, from byte `at`, and the state; sets `behind` to the bytes that it
--                   takes from the end of the argument
--   fits(key)       whether the cost is admitted as things are
--   charge(key)     takes it
--   refuse(key, banned)  notes a refusal, and says whether that changed anything: never if it is by a ban
--   spend(key)      takes the cost whether it fits or not
--   refund(key)     takes the cost back; the receipt follows the argument
--   told(key)       the state as it was loaded, for the reply; `retold` as it is now
--   save(key)       keeps what has changed
local algorithms = {}

-- An argument is 1 byte of the algorithm, 1 of flags, and what the algorithm needs.
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

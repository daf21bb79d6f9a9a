-- ARGV: deadline in microseconds of this server's clock (0: none), requests (0: only check), holder, lease in
-- microseconds, and an argument for each limit. KEYS: the key of each limit, then the bans of the limits that ban. Reply:
-- now, the number of admitted requests (-1: too late, nothing was changed), and the state of each key before the call. The
-- state of a ban is the rest of its time and the number of refusals that count towards the next.
--
-- A ban is stored as its end, 7 bytes, or 0 and the instants of refusals, 7 bytes each, oldest first. It is the last part
-- of the argument of its limit: refusals 2, the time within which they count 7, its length 7.

-- Loads the keys of all limits. Their arguments follow the first `skipped` ones; their bans follow the keys.
local function load_all(skipped)
    local keys, limits = {}, #KEYS
    while #keys < limits do
        local i = #keys + 1
        keys[i] = load(KEYS[i], ARGV[skipped + i])
        if keys[i].bans then
            limits = limits - 1
        end
    end
    return keys
end

local deadline = tonumber(ARGV[1])
if deadline > 0 and now > deadline then
    return {now, -1}
end
local requests = tonumber(ARGV[2])
holder, lease = ARGV[3], tonumber(ARGV[4])
local keys = load_all(4)
local admitted = 0

local bans = {}
for i = 1, #keys do
    local key = keys[i]
    if key.bans then
        local ban = {name = KEYS[#keys + #bans + 1], changed = false}
        ban.after, ban.within, ban.span = struct.unpack('>I2I7I7', key.argument, #key.argument - 15 - key.behind)
        ban.value, ban.till, ban.log = get(ban.name), 0, ''
        if #ban.value >= 7 and #ban.value % 7 == 0 then
            ban.till = struct.unpack('>I7', ban.value)
            local at = 8
            while at < #ban.value and struct.unpack('>I7', ban.value, at) + ban.within <= now do
                at = at + 7
            end
            ban.log = string.sub(ban.value, at)
        end
        -- The clock was set back, or bans are shorter now: no ban lasts longer than its length.
        if ban.till > now + ban.span then
            ban.till = now + ban.span
        end
        ban.loaded_state = {math.max(0, ban.till - now), #ban.log / 7}
        bans[#bans + 1], key.ban = ban, ban
    end
end

-- Counts a refusal towards a ban, if the limit bans. Returns whether that changed anything.
local function strike(ban)
    if not ban then
        return false
    end
    if #ban.log / 7 + 1 >= ban.after then
        ban.till, ban.log = now + ban.span, ''
    else
        ban.log = ban.log .. struct.pack('>I7', now)
    end
    ban.changed = true
    return true
end

-- Lets the algorithm of a key record a refusal, if it does that; whether that changed anything.
local function refuse(key, banned)
    return key.algorithm.refuse and key.algorithm.refuse(key, banned)
end

-- Without requests the keys are only checked, so that the state of a log shows when the cost would fit.
if requests == 0 then
    for i = 1, #keys do
        if not keys[i].algorithm.fits(keys[i]) then
            refuse(keys[i])
        end
    end
end
for _ = 1, requests do
    local all, banned_any, moved = true, false, false
    for i = 1, #keys do
        local key = keys[i]
        key.own = key.algorithm.fits(key)
        key.yes, key.banned = key.own, key.ban and key.ban.till > now
        if key.banned then
            key.yes = false
            banned_any = banned_any or key.enforces
        end
        if key.enforces and not key.yes then
            all = false
        end
    end
    for i = 1, #keys do
        local key = keys[i]
        if not key.yes then
            local banned = banned_any or key.banned
            if not key.own then
                moved = refuse(key, banned) or moved
            end
            if not banned then
                moved = strike(key.ban) or moved
            end
        elseif all then
            key.algorithm.charge(key)
        end
    end
    if all then
        admitted = admitted + 1
    elseif not moved then
        break -- the other requests get the same answer
    end
end

local reply = {now, admitted}
for i = 1, #keys do
    local key = keys[i]
    reply[i + 2] = key.algorithm.loaded_state(key)
    if requests > 0 and key.changed then
        key.algorithm.save(key)
    end
end
for i = 1, #bans do
    local ban = bans[i]
    reply[#keys + 2 + i] = ban.loaded_state
    if ban.changed then
        local life = ban.till > now and ban.till - now or ban.within
        set(ban.name, ban.value, struct.pack('>I7', math.max(0, ban.till)) .. ban.log, life)
    end
end
return reply

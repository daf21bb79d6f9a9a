-- Lends the rates of limits to regions. Runs in the home store, for one gateway and all its limits.
--
-- KEYS: a hash for each limit. Its fields are 'last' (the time of the last call), 'learn' (until when nothing changes), 'g' and
-- a region (what the region was granted), and 'e', a region, a zero byte and a gateway (what is known of a gateway).
-- ARGV: the time in milliseconds, or 0 for that of the server; for how long a gateway's word counts; the number of the question;
-- the gateway's region; its name; the number of regions; the name and the floor of each; then for each key what the gateway enforces,
-- what its requests asked for in the last second, and how much of that was refused.
-- Returns for each key what the gateway may enforce, or -1 if a later question was answered before.
--
-- All parts are in millionths of a rate.
local WHOLE, SMALL = 1000000, 10000
-- A region wants more for so long after a refusal. After so long without a call, or if the clock was set back, what is known may be
-- outdated: then nothing changes until every gateway has asked again.
local WANTS, GAP, KEPT = 30000, 5000, 120000

local now, life, question, region, gateway = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local floors, pool, at = {}, WHOLE, 7
for _ = 1, tonumber(ARGV[6]) do
    floors[ARGV[at]] = tonumber(ARGV[at + 1])
    pool = pool - floors[ARGV[at]]
    at = at + 2
end

local function lend(key, applied, demand, refused)
    local fields, granted, gateways = redis.call('HGETALL', key), {}, {}
    local last, learn, own = 0, 0, nil
    local name = 'e' .. region .. '\0' .. gateway
    for i = 1, #fields, 2 do
        local field, value = fields[i], fields[i + 1]
        local kind = string.sub(field, 1, 1)
        if field == 'last' then
            last = tonumber(value)
        elseif field == 'learn' then
            learn = tonumber(value)
        elseif kind == 'g' then
            granted[string.sub(field, 2)] = tonumber(value)
        else
            local one = {region = string.match(field, '^e([^%z]*)')}
            one.ends, one.question, one.applied, one.told, one.demand, one.wanted =
                struct.unpack('>I7I7I4I4I7I7', value)
            if field == name then
                own = one
            elseif one.ends < now then
                redis.call('HDEL', key, field)
            else
                gateways[#gateways + 1] = one
            end
        end
    end
    if own and own.question >= question then
        return -1
    end
    if last == 0 or now < last or now - last > GAP then
        learn = now + life
    end
    local me = {region = region, applied = applied, told = 0, demand = demand, wanted = own and own.wanted or 0}
    if refused > 0 then
        me.wanted = now
    end
    gateways[#gateways + 1] = me

    -- What each region may be enforcing, what it asks for, and whether it needs more than its floor.
    local booked, asked, wants, weight = {}, {}, {}, 0
    for name, floor in pairs(floors) do
        booked[name], asked[name] = floor, 0
    end
    for _, one in ipairs(gateways) do
        booked[one.region] = math.max(booked[one.region] or 0, one.applied, one.told)
        asked[one.region] = (asked[one.region] or 0) + one.demand
        if one.wanted > 0 and now - one.wanted < WANTS then
            wants[one.region] = true
        end
    end
    local others = 0
    for name, part in pairs(booked) do
        if name ~= region then
            others = others + part
        end
        if wants[name] then
            weight = weight + math.max(asked[name], 1)
        end
    end

    local floor = floors[region] or 0
    if now < learn then
        me.told = math.max(applied, floor)
    else
        -- While the region was silent, others may have been lent what it had.
        local current = math.max(floor, math.min(granted[region] or booked[region], WHOLE - others))
        local target = current
        if weight > 0 then
            target = floor
            if wants[region] then
                target = floor + math.floor(pool * math.max(asked[region], 1) / weight)
            end
        end
        if target < current and (current - target >= SMALL or target == floor) then
            current = math.max(target, floor)
        elseif target > current then
            local most = math.min(target, WHOLE - others)
            if most - current >= SMALL then
                current = most
            end
        end
        me.told = current
        redis.call('HSET', key, 'g' .. region, current)
    end
    redis.call('HSET', key, 'last', now, 'learn', learn,
        name, struct.pack('>I7I7I4I4I7I7', now + life, question, applied, me.told, demand, me.wanted))
    redis.call('PEXPIRE', key, KEPT)
    return me.told
end

local told = {}
for i, key in ipairs(KEYS) do
    told[i] = lend(key, tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
    at = at + 3
end
return told

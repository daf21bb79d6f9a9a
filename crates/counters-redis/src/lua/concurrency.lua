-- concurrency: leases of places. Value: for each holder its name 8 bytes, places 4, end of the lease 7. The leases of a dead
-- gateway expire.
local function leases(value, mine)
    local held = {others = '', taken = 0, own = 0, own_until = 0, last = 0}
    if #value % 19 ~= 0 then
        return held
    end
    for at = 1, #value, 19 do
        local who, places, till = struct.unpack('>c8I4I7', value, at)
        if till > now and places > 0 then
            if who == mine then
                held.own, held.own_until = held.own + places, math.max(held.own_until, till)
            else
                held.others = held.others .. string.sub(value, at, at + 18)
                held.taken = held.taken + places
                held.last = math.max(held.last, till)
            end
        end
    end
    held.taken = held.taken + held.own
    return held
end

local function save_leases(name, value, held, mine)
    local kept, last = held.others, held.last
    if held.own > 0 then
        kept = kept .. struct.pack('>c8I4I7', mine, held.own, held.own_until)
        last = math.max(last, held.own_until)
    end
    set(name, value, kept, last - now)
end

algorithms[5] = function()
    local kind = {}

    function kind.load(key, at)
        key.max, key.cost, key.tail = struct.unpack('>I4I4', key.argument, at)
        key.value = get(key.name)
        key.held = leases(key.value, holder)
        key.was, key.was_own = key.held.taken, key.held.own
    end

    function kind.fits(key)
        return not key.never and key.held.taken + key.cost <= key.max
    end

    function kind.charge(key)
        key.held.taken, key.held.own = key.held.taken + key.cost, key.held.own + key.cost
        key.held.own_until = math.max(key.held.own_until, now + lease)
        key.changed = true
    end

    -- Places have no late costs: holders renew them.
    function kind.spend() end

    function kind.refund(key)
        local given = math.min(key.held.own, key.cost)
        key.held.taken, key.held.own = key.held.taken - given, key.held.own - given
        key.changed = given > 0
    end

    function kind.loaded_state(key)
        return {key.was, key.was_own}
    end

    function kind.state(key)
        return {key.held.taken, key.held.own}
    end

    function kind.save(key)
        save_leases(key.name, key.value, key.held, holder)
    end

    return kind
end

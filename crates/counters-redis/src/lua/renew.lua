-- ARGV: holder, its former name (or nothing), lease in microseconds, and for each key the number of places that it holds.
-- Reply: now, and for each key the number of taken places, and of its own.
--
-- The leases of a known holder are only extended: requests that begin and end meanwhile send calls of their own, and those that began
-- may be more than the holder knows of. If there are fewer than it holds, they were lost, because the key was deleted or has
-- expired, and the number is set; so it is for a holder with a new name.
local before = ARGV[2]
holder, lease = ARGV[1], tonumber(ARGV[3])
local reply = {now}
for i = 1, #KEYS do
    local value = get(KEYS[i])
    local held = leases(value, holder)
    if before ~= '' then
        held = leases(leases(value, before).others, holder)
    end
    local holds = tonumber(ARGV[3 + i])
    if before ~= '' or held.own < holds then
        held.taken = held.taken - held.own + holds
        held.own = holds
    end
    held.own_until = now + lease
    save_leases(KEYS[i], value, held, holder)
    reply[i + 1] = {held.taken, held.own}
end
return reply

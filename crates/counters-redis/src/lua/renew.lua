-- ARGV: holder, the holder that it was before (or nothing), lease in microseconds, and for each key the places that
-- it holds. Reply: now, and for each key the places that are taken, and its own.
--
-- A holder that is known is only given more time: requests that begin and end meanwhile count by themselves. One
-- that is not, or comes back under another name, holds what it says.
local before = ARGV[2]
holder, lease = ARGV[1], tonumber(ARGV[3])
local reply = {now}
for i = 1, #KEYS do
    local value = get(KEYS[i])
    local held = leases(value, holder)
    if before ~= '' then
        held = leases(leases(value, before).others, holder)
    end
    if before ~= '' or held.own == 0 then
        held.taken = held.taken - held.own + tonumber(ARGV[3 + i])
        held.own = tonumber(ARGV[3 + i])
    end
    held.own_until = now + lease
    save_leases(KEYS[i], value, held, holder)
    reply[i + 1] = {held.taken, held.own}
end
return reply

-- ARGV: deadline in microseconds of this server's clock (0: none), riders (0: only look), holder, lease in
-- microseconds, and an argument for each key. Reply: now, how many were admitted (-1: too late, and nothing was
-- done), and the state of each key before the call.
local deadline = tonumber(ARGV[1])
if deadline > 0 and now > deadline then
    return {now, -1}
end
local riders = tonumber(ARGV[2])
holder, lease = ARGV[3], tonumber(ARGV[4])
local keys = load_all(4)
local admitted = 0

-- A look only asks, so that a log tells when the cost would fit.
if riders == 0 then
    for i = 1, #keys do
        if not keys[i].algorithm.fits(keys[i]) then
            keys[i].algorithm.refuse(keys[i])
        end
    end
end
for _ = 1, riders do
    local all, moved = true, false
    for i = 1, #keys do
        local key = keys[i]
        key.yes = key.algorithm.fits(key)
        if key.enforces and not key.yes then
            all = false
        end
    end
    for i = 1, #keys do
        local key = keys[i]
        if not key.yes then
            moved = key.algorithm.refuse(key) or moved
        elseif all then
            key.algorithm.charge(key)
        end
    end
    if all then
        admitted = admitted + 1
    elseif not moved then
        break -- the rest are told the same
    end
end

local reply = {now, admitted}
for i = 1, #keys do
    local key = keys[i]
    reply[i + 2] = key.algorithm.told(key)
    if riders > 0 and key.changed then
        key.algorithm.save(key)
    end
end
return reply

-- ARGV: an argument for each key, whose cost is what was spent while this server was out of reach. As much of it is
-- charged as still fits; nobody is refused for what has been. Reply: now, and the state of each key afterwards.
local keys = load_all(0)
local reply = {now}
for i = 1, #keys do
    local key = keys[i]
    key.algorithm.spend(key)
    reply[i + 1] = key.algorithm.retold(key)
    if key.changed then
        key.algorithm.save(key)
    end
end
return reply

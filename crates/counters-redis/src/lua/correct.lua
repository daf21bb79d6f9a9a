-- Changes the keys one after the other, and stores each before the next is read, because two limits may share a key. Reply: now, and the state of each key afterwards.
local function correct(count, skipped, change)
    local reply = {now}
    for i = 1, count do
        local key = load(KEYS[i], ARGV[skipped + i])
        change(key, i)
        reply[i + 1] = key.algorithm.state(key)
        if key.changed then
            key.algorithm.save(key)
        end
    end
    return reply
end

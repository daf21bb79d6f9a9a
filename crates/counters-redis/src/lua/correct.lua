-- Changes one key after the other, and keeps what has changed. Two limits may share a key: each is read after the one
-- before it was written. Reply: now, and the state of each key afterwards.
local function correct(count, skipped, change)
    local reply = {now}
    for i = 1, count do
        local key = load(KEYS[i], ARGV[skipped + i])
        change(key, i)
        reply[i + 1] = key.algorithm.retold(key)
        if key.changed then
            key.algorithm.save(key)
        end
    end
    return reply
end

-- KEYS: that of each limit, then as many that stand for the reports. ARGV: an argument for each limit, whose cost was admitted
-- while this server did not answer. It is charged whether it fits or not, but each report only once, however often it arrives.
-- Reply: now, and the state of each key afterwards.
local reply = {now}
for i = 1, #ARGV do
    -- Two limits may share a key: each is read after the one before it was written.
    local key = load(KEYS[i], ARGV[i])
    if redis.call('SET', KEYS[#ARGV + i], 1, 'NX', 'PX', 3600000) then
        key.algorithm.spend(key)
    end
    reply[i + 1] = key.algorithm.retold(key)
    if key.changed then
        key.algorithm.save(key)
    end
end
return reply

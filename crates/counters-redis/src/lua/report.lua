-- KEYS: that of each limit, then as many that stand for the reports. ARGV: an argument for each limit, whose cost was
-- admitted while this server did not answer. It is charged whether it fits or not, but each report only once, however
-- often it arrives.
return correct(#ARGV, 0, function(key, i)
    if redis.call('SET', KEYS[#ARGV + i], 1, 'NX', 'PX', 3600000) then
        key.algorithm.spend(key)
    end
end)

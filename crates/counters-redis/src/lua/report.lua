-- KEYS: the key of each limit, then one key for each report. ARGV: for each limit an argument with the cost that was admitted
-- while this server did not answer. The cost is charged even if it does not fit, but only once for each report.
return correct(#ARGV, 0, function(key, i)
    if redis.call('SET', KEYS[#ARGV + i], 1, 'NX', 'PX', 3600000) then
        key.algorithm.spend(key)
    end
end)

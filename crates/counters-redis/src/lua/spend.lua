-- ARGV: an argument with a late cost for each key. The cost is charged even if it does not fit.
return correct(#KEYS, 0, function(key)
    key.algorithm.spend(key)
end)

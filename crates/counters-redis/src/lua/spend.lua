-- ARGV: an argument for each key, whose cost became known after the request was admitted. It is charged whether it fits
-- or not.
return correct(#KEYS, 0, function(key)
    key.algorithm.spend(key)
end)

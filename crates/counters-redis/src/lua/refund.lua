-- ARGV: holder, and for each key an argument, followed by the receipt of the charge that is refunded.
holder = ARGV[1]
return correct(#KEYS, 1, function(key)
    key.algorithm.refund(key)
end)

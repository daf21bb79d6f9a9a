-- ARGV: holder, and for each key an argument with the receipt of the charge behind it, which is given back.
holder = ARGV[1]
return correct(#KEYS, 1, function(key)
    key.algorithm.refund(key)
end)

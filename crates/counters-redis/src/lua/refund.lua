-- ARGV: holder, and for each key an argument with the receipt of the charge behind it. Reply: now, and the state of
-- each key afterwards.
holder = ARGV[1]
local keys = load_all(1)
local reply = {now}
for i = 1, #keys do
    local key = keys[i]
    key.algorithm.refund(key)
    reply[i + 1] = key.algorithm.retold(key)
    if key.changed then
        key.algorithm.save(key)
    end
end
return reply

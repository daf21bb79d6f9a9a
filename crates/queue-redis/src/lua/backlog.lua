-- ARGV: key, whether the order counts (0 or 1). Answers 1 if messages of the key have to be delivered before a new one.
local ids = redis.call('ZRANGE', Q .. 'key:' .. ARGV[1], 0, 99)
if ARGV[2] == '1' then return #ids > 0 and 1 or 0 end
local time = now()
for _, id in ipairs(ids) do
    local message = find(id)
    if message and message.state == WAITING and message.due <= time then return 1 end
end
return 0

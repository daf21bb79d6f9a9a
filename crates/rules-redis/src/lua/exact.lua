-- The rules of a limit for exactly these keys: id and entry of each, in the order of the keys, then of ids.
--
-- KEYS: rules, keys. ARGV: the limit, the keys.
local found = {}
for index = 2, #ARGV do
  local start = ARGV[1] .. '\0' .. ARGV[index]
  for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], '[' .. start .. '\0', '(' .. start .. '\1')) do
    local id = string.sub(member, #start + 2)
    local entry = redis.call('HGET', KEYS[1], id)
    if entry and not string.match(entry, '^%d+p') then
      found[#found + 1], found[#found + 2] = id, entry
    end
  end
end
return found

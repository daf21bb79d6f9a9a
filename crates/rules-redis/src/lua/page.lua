-- The next ids of each limit. They are merged elsewhere, because Lua compares texts by the language of the server.
--
-- KEYS: ids or keys. ARGV: how many ids, the id after which they begin, then '' or a key (behind its '='), then the limits.
-- The reply has for each limit whether it may have more, and its ids.
local limits = #ARGV - 3
local most = math.min(tonumber(ARGV[1]), math.max(64, math.ceil(2 * tonumber(ARGV[1]) / limits)))
local key = ARGV[3] ~= '' and '\0' .. string.sub(ARGV[3], 2) or ''
local found = {}
for index = 4, #ARGV do
  local start = ARGV[index] .. key
  local members =
    redis.call('ZRANGEBYLEX', KEYS[1], '(' .. start .. '\0' .. ARGV[2], '(' .. start .. '\1', 'LIMIT', 0, most)
  local ids = {}
  for place, member in ipairs(members) do ids[place] = string.sub(member, #start + 2) end
  found[#found + 1] = {#members == most and 1 or 0, ids}
end
return found

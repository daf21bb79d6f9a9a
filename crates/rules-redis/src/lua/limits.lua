-- The limits that have rules: one look into the index for each, however many rules it has.
--
-- KEYS: ids.
local limits, from = {}, '-'
while true do
  local member = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  if not member then return limits end
  local limit = string.match(member, '^[^%z]*')
  limits[#limits + 1] = limit
  from = '(' .. limit .. '\1'
end

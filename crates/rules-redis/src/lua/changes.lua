-- The changes after a version, by whole versions: about as many as asked for.
--
-- KEYS: meta, log. ARGV: the version, how many, and 1 if a version with more of them counts as not known. The reply: epoch, version and mark of the store, whether the changes are
-- still known, and the changes.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'mark')
local epoch, version, mark = meta[1] or '', meta[2] or '0', meta[3] or ''
local since, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if since >= tonumber(version) then
  return {epoch, version, mark, since == tonumber(version) and 1 or 0, {}}
end
local function of(entry) return string.match(entry[1], '^%d+') end
local first = string.format('%.0f-0', since + 1)
local entries = redis.call('XRANGE', KEYS[2], first, '+', 'COUNT', most + 1)
if not entries[1] or entries[1][1] ~= first then return {epoch, version, mark, 0, {}} end
if #entries > most then
  local cut = of(entries[#entries])
  if cut == of(entries[1]) then
    if ARGV[3] == '1' then return {epoch, version, mark, 0, {}} end
    entries = redis.call('XRANGE', KEYS[2], first, cut)
  else
    while of(entries[#entries]) == cut do entries[#entries] = nil end
  end
end
return {epoch, version, mark, 1, entries}

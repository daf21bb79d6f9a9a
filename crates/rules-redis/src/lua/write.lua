-- Makes a batch, all of it or nothing.
--
-- KEYS: meta, rules, ids, keys, patterns, log, and the list with the changes if they are staged.
-- ARGV: 'write' or 'dry', the epoch if there is none yet, the mark of this batch, when, who, the channel, how many changes;
-- then for each change its id, its precondition, its limit, its key and what follows the version in its entry (nothing: it
-- is deleted).
--
-- Nothing is written before all is judged, and commands that may be refused come before those that change rules.
local FAILURES, NAMES, KEPT = 100, 50, 100000
local count = tonumber(ARGV[7])

local taken = 7
local function take()
  taken = taken + 1
  return ARGV[taken]
end
if KEYS[7] then
  if redis.call('LLEN', KEYS[7]) ~= count * 5 then return {'lost'} end
  local chunk, length, place, from = nil, 0, 0, 0
  take = function()
    place = place + 1
    if place > length then
      chunk = redis.call('LRANGE', KEYS[7], from, from + 1999)
      length, place, from = #chunk, 1, from + 2000
    end
    return chunk[place]
  end
end

-- The limit and the key of an entry, if it can be read. Most have the form that gateways write, without escapes.
local function names(entry)
  local limit, key = string.match(entry, '^%d+[-p]{"id":"[^"\\]*","limit":"([^"\\]*)","key":"([^"\\]*)"')
  if limit then return limit, key end
  local decoded, rule = pcall(cjson.decode, string.match(entry, '^%d+[-p](.*)$') or '')
  if decoded and type(rule) == 'table' and type(rule.limit) == 'string' and type(rule.key) == 'string' then
    return rule.limit, rule.key
  end
end

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'mark')
local version, mark_before = tonumber(meta[2] or '0'), meta[3] or ''
local next_version = string.format('%.0f', version + 1)

local was, now = {}, {} -- entries by id; false: none
local put = {} -- limit and key of those that are put, by id
local touched, log, results, failures = {}, {}, {}, {}
for index = 1, count do
  local id, condition, limit, key, tail = take(), take(), take(), take(), take()
  local current = now[id]
  if current == nil then
    current = redis.call('HGET', KEYS[2], id)
    was[id], now[id] = current, current
  end
  local own = current and string.match(current, '^%d+') or ''
  local holds
  if condition == '' then
    holds = true
  elseif condition == 'absent' then
    holds = not current
  elseif condition == 'exists' then
    holds = current
  else
    holds = current and string.find(condition, ',' .. own .. ',', 1, true)
  end
  if not holds then
    failures[#failures + 1] = {index, 'precondition', current}
  elseif tail == '' and not current then
    failures[#failures + 1] = {index, 'absent'}
  elseif current and tail == string.sub(current, #own + 1) then
    results[#results + 1] = 'u' .. current
  else
    results[#results + 1] = (tail == '' and 'd' or current and 'r' or 'c') .. (current or '')
    log[#log + 1] = {current and string.sub(current, #own + 1) or '', tail}
    if put[id] == nil then touched[#touched + 1] = id end
    put[id] = {limit, key}
    now[id] = tail ~= '' and next_version .. tail
  end
  if #failures == FAILURES then break end
end

local function unstage()
  if KEYS[7] then redis.call('UNLINK', KEYS[7]) end
end
if #failures > 0 then
  unstage()
  return {'failed', failures}
end
local made = #log > 0
local answer = {'written', made and next_version or string.format('%.0f', version), results}
if ARGV[1] == 'dry' or not made then
  unstage()
  return answer
end

local remove_ids, remove_keys, add_ids, add_keys = {}, {}, {}, {}
local set_rules, delete_rules, set_patterns, delete_patterns = {}, {}, {}, {}
local named, seen, with_patterns = {}, {}, false
local function name(entry, limit, key)
  if string.match(entry, '^%d+p') then
    with_patterns = true
  elseif not seen[limit .. '\0' .. key] then
    seen[limit .. '\0' .. key] = true
    named[#named + 1], named[#named + 2] = limit, key
  end
end
for _, id in ipairs(touched) do
  local before, after, limit, key = was[id], now[id], nil, nil
  if after then
    limit, key = put[id][1], put[id][2]
    name(after, limit, key)
    add_ids[#add_ids + 1], add_ids[#add_ids + 2] = 0, limit .. '\0' .. id
    add_keys[#add_keys + 1], add_keys[#add_keys + 2] = 0, limit .. '\0' .. key .. '\0' .. id
    set_rules[#set_rules + 1], set_rules[#set_rules + 2] = id, after
  elseif before then
    delete_rules[#delete_rules + 1] = id
  end
  if after and string.match(after, '^%d+p') then
    set_patterns[#set_patterns + 1], set_patterns[#set_patterns + 2] = id, after
  elseif before then
    delete_patterns[#delete_patterns + 1] = id
  end
  local old_limit, old_key
  if before then old_limit, old_key = names(before) end
  if old_limit then
    name(before, old_limit, old_key)
    if old_limit ~= limit then remove_ids[#remove_ids + 1] = old_limit .. '\0' .. id end
    if old_limit ~= limit or old_key ~= key then
      remove_keys[#remove_keys + 1] = old_limit .. '\0' .. old_key .. '\0' .. id
    end
  elseif before then
    with_patterns = true -- it is not known whose it was
  end
end

-- These fail here if something else is kept under a name.
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('HLEN', KEYS[5])
local last = redis.call('XREVRANGE', KEYS[6], '+', '-', 'COUNT', 1)[1]
local is_foreign = not meta[1] or (last and tonumber(string.match(last[1], '^%d+')) > version)
local epoch = meta[1] or ARGV[2]

local news = {epoch, next_version, ARGV[3], mark_before, with_patterns and 'patterns' or ''}
if #named > NAMES * 2 then
  news[5] = 'log'
else
  for _, text in ipairs(named) do news[#news + 1] = text end
end
redis.call('PUBLISH', ARGV[6], cjson.encode(news))

if is_foreign then redis.call('DEL', KEYS[6]) end
for seq, change in ipairs(log) do
  local id = next_version .. '-' .. string.format('%.0f', seq - 1)
  if seq == 1 then
    redis.call('XADD', KEYS[6], id, 'b', change[1], 'a', change[2], 't', ARGV[4], 'w', ARGV[5], 'p', mark_before)
  else
    redis.call('XADD', KEYS[6], id, 'b', change[1], 'a', change[2], 't', ARGV[4], 'w', ARGV[5])
  end
end
redis.call('XTRIM', KEYS[6], 'MAXLEN', '~', KEPT, 'LIMIT', 0)

local function bulk(command, key, items)
  for from = 1, #items, 2000 do
    redis.call(command, key, unpack(items, from, math.min(from + 1999, #items)))
  end
end
bulk('ZADD', KEYS[3], add_ids)
bulk('ZADD', KEYS[4], add_keys)
bulk('HSET', KEYS[2], set_rules)
bulk('HSET', KEYS[5], set_patterns)
bulk('ZREM', KEYS[3], remove_ids)
bulk('ZREM', KEYS[4], remove_keys)
bulk('HDEL', KEYS[2], delete_rules)
bulk('HDEL', KEYS[5], delete_patterns)
redis.call('HSET', KEYS[1], 'epoch', epoch, 'version', next_version, 'mark', ARGV[3])
unstage()
return answer

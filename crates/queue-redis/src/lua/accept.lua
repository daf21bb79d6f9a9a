-- ARGV: id, key, consumer, owner, idempotency or '', content, ordered (0 or 1), time to live, request, largest length, most
-- bytes, how far the messages of the key are counted. Answers {id, ahead, of the key, whether it is a duplicate}, or
-- {'full', length}, or {'conflict'}.
local id, key, consumer, owner, idempotency, content, ordered, ttl, request, max_length, max_bytes, max_of_key =
    unpack(ARGV)
local function of_key(of)
    return math.min(redis.call('ZCARD', Q .. 'key:' .. of), tonumber(max_of_key))
end

local known = find(id)
if known then
    if known.owner ~= owner then return {'conflict'} end
elseif idempotency ~= '' then
    local earlier = redis.call('HGET', Q .. 'idempotency', idempotency)
    known = earlier and find(earlier)
    if known and redis.call('HGET', key_of(known.id), 'content') ~= content then return {'conflict'} end
end
if known then
    local ahead = known.state > CLAIMED and 0 or math.max(known.number - 1 - figure('ended'), 0)
    return {known.id, ahead, of_key(known.key), 1}
end

local length, bytes = figure('length'), figure('bytes')
if length + figure('failed') >= tonumber(max_length) or bytes + #request > tonumber(max_bytes) then
    return {'full', length}
end
local time, before = now(), of_key(key)
local ahead = math.max(figure('accepted') - figure('ended'), 0)
local number = figure('accepted') + 1
local is_blocked = false
if ordered == '1' then
    for _, other in ipairs(redis.call('ZRANGE', Q .. 'key:' .. key, 0, 99)) do
        if redis.call('HGET', key_of(other), 'ordered') == '1' then
            is_blocked = true
            break
        end
    end
end
local expires = time + ttl
redis.call('HSET', key_of(id), 'number', number, 'key', key, 'consumer', consumer, 'owner', owner, 'ordered', ordered,
    'state', is_blocked and BLOCKED or WAITING, 'due', time, 'accepted', time, 'expires', expires, 'attempts', 0,
    'size', #request)
redis.call('SET', Q .. 'request:' .. id, request)
if idempotency ~= '' then
    redis.call('HSET', key_of(id), 'idempotency', idempotency, 'content', content)
    redis.call('HSET', Q .. 'idempotency', idempotency, id)
end
redis.call('ZADD', Q .. 'key:' .. key, number, id)
redis.call('ZADD', Q .. 'open', number, id)
redis.call('ZADD', Q .. 'expiry', expires, id)
count('accepted', 1)
count('length', 1)
count('bytes', #request)
if not is_blocked then join({id = id, number = number, consumer = consumer, due = time}) end
return {id, ahead, before, 0}

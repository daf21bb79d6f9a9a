-- ARGV: id, key, consumer, owner, idempotency or '', content, ordered (0 or 1), time to live, request, largest length, most
-- bytes, how far the messages of the key are counted. Answers {id, state, ahead, of the key, whether it is a duplicate}, or
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
    if known and (known.state == EXPIRED or known.state == CANCELLED) then -- the client may send it again
        redis.call('HDEL', Q .. 'idempotency', idempotency)
        redis.call('HDEL', key_of(known.id), 'idempotency', 'content')
        known = nil
    end
    if known and redis.call('HGET', key_of(known.id), 'content') ~= content then return {'conflict'} end
end
if known then
    -- WAIT and WAITAOF confirm only what their connection has written.
    redis.call('HSET', key_of(known.id), 'number', known.number)
    local ahead = known.state > CLAIMED and 0 or math.max(known.number - 1 - figure('ended'), 0)
    return {known.id, known.state, ahead, of_key(known.key), 1}
end

local length, bytes = figure('length'), figure('bytes')
if length + figure('failed') >= tonumber(max_length) or bytes + #request > tonumber(max_bytes) then
    return {'full', length}
end
local time, before = now(), of_key(key)
local ahead = math.max(figure('accepted') - figure('ended'), 0)
count('accepted', 1)
count('bytes', #request)
local number = figure('accepted')
redis.call('HSET', key_of(id), 'number', number, 'key', key, 'consumer', consumer, 'owner', owner, 'ordered', ordered,
    'accepted', time, 'claims', 0, 'size', #request)
redis.call('SET', Q .. 'request:' .. id, request)
if idempotency ~= '' then
    redis.call('HSET', key_of(id), 'idempotency', idempotency, 'content', content)
    redis.call('HSET', Q .. 'idempotency', idempotency, id)
end
local state = enter({id = id, number = number, key = key, consumer = consumer, ordered = ordered == '1', due = time, expires = time + ttl})
return {id, state, ahead, before, 0}

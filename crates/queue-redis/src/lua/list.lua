-- ARGV: 'open', 'failed' or 'one', then an id, or the number after which and how many. Answers {time, messages that have ended, the
-- fields of each message}.
local what = ARGV[1]
local ids = {ARGV[2]}
if what ~= 'one' then
    ids = redis.call('ZRANGEBYSCORE', Q .. what, '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])
end
local found = {now(), figure('ended')}
for _, id in ipairs(ids) do
    local fields = redis.call('HMGET', key_of(id), 'number', 'consumer', 'owner', 'state', 'attempts', 'accepted', 'expires', 'due',
        'ended', 'reason', 'size')
    if fields[1] then
        found[#found + 1] = id
        for at = 1, 10 do found[#found + 1] = fields[at] or '' end
        found[#found + 1] = redis.call('GET', Q .. 'answer:' .. id) or ''
        found[#found + 1] = fields[11]
    end
end
return found

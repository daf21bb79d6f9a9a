-- Dead letters. ARGV: 'retry' or 'drop', id or '' for all, the most of them, time to live. Answers how many there were.
local what, one, max, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ids = {one}
if one == '' then ids = redis.call('ZRANGE', Q .. 'failed', 0, max - 1) end
local time, done = now(), 0
for _, id in ipairs(ids) do
    local message = find(id)
    if message and message.state == FAILED then
        done = done + 1
        if what == 'drop' then
            remove(message)
        else
            redis.call('ZREM', Q .. 'failed', id)
            redis.call('HDEL', key_of(id), 'ended')
            count('failed', -1)
            count('ended', -1)
            message.due, message.expires = time, time + ttl
            enter(message)
        end
    end
end
return done

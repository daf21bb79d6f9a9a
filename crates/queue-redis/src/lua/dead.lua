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
            local is_blocked = false
            if message.ordered then
                for _, other in ipairs(redis.call('ZRANGE', Q .. 'key:' .. message.key, 0, 99)) do
                    if redis.call('HGET', key_of(other), 'ordered') == '1' then
                        is_blocked = true
                        break
                    end
                end
            end
            redis.call('ZREM', Q .. 'failed', id)
            redis.call('HSET', key_of(id), 'state', is_blocked and BLOCKED or WAITING, 'due', time, 'expires', time + ttl,
                'attempts', 0)
            redis.call('HDEL', key_of(id), 'ended')
            redis.call('ZADD', Q .. 'key:' .. message.key, message.number, id)
            redis.call('ZADD', Q .. 'open', message.number, id)
            redis.call('ZADD', Q .. 'expiry', time + ttl, id)
            count('failed', -1)
            count('length', 1)
            count('ended', -1)
            message.due = time
            if not is_blocked then join(message) end
        end
    end
end
return done

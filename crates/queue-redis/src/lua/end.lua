-- ARGV: id, claim, what ('delivered', 'failed', 'again', 'released'), a text (answer or reason), a time (until it is tried again,
-- or its consumer has a turn; -1 for none), how long what ends can be seen. Answers 1 if the attempt was still in progress.
local id, claim, what, text, pause, keep = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local message = find(id)
if not message or message.state ~= CLAIMED or message.claims ~= claim then return 0 end
local time = now()
if what == 'delivered' then
    finish(message, DELIVERED, time, keep, nil, text)
elseif what == 'failed' then
    finish(message, FAILED, time, keep, text)
elseif what == 'again' then
    wait_again(message, time + pause, message.attempts, text)
else
    wait_again(message, nil, math.max(message.attempts - 1, 0), nil)
    if pause >= 0 then
        redis.call('ZREM', Q .. 'ready', message.consumer)
        redis.call('ZADD', Q .. 'asleep', time + pause, message.consumer)
        redis.call('SADD', Q .. 'paused', message.consumer)
    end
end
return 1

-- Answers {length, bytes, dead letters, time since the oldest message was accepted or -1}.
local oldest = redis.call('ZRANGE', Q .. 'open', 0, 0)[1]
local age = -1
if oldest then
    local accepted = redis.call('HGET', key_of(oldest), 'accepted')
    if accepted then age = math.max(now() - accepted, 0) end
end
return {figure('length'), figure('bytes'), figure('failed'), age}

-- ARGV: how long a claim holds, then id and claim of each. Answers 1 for each that is still in progress.
local lease, held = tonumber(ARGV[1]), {}
local time = observed_time(lease)
for at = 2, #ARGV, 2 do
    local message = find(ARGV[at])
    local is_held = message and message.state == CLAIMED and message.claims == tonumber(ARGV[at + 1])
    if is_held then redis.call('ZADD', Q .. 'claimed', time + lease, ARGV[at]) end
    held[#held + 1] = is_held and 1 or 0
end
return held

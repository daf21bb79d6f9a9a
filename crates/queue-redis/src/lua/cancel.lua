-- ARGV: id, owner, how long it can be seen. Answers 'done', 'none', or the state.
local message = find(ARGV[1])
if not message or message.owner ~= ARGV[2] then return 'none' end
if message.state > BLOCKED then return tostring(message.state) end
finish(message, CANCELLED, now(), tonumber(ARGV[3]))
return 'done'

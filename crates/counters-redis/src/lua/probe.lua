-- KEYS: an unused key. Calls all commands of the other scripts with it, so that a missing command or permission is detected
-- before any request. Reply: now, 'abcd', 4, and 7 as four bytes.
local name = KEYS[1]
local failed

-- Calls a command. The error contains the name of the first one that fails, which the server does not return.
local function try(command, ...)
    if failed then
        return ''
    end
    local reply = redis.pcall(command, ...)
    if type(reply) == 'table' and reply.err then
        local code, reason = string.match(reply.err, '^(%S+) (.*)$')
        failed = (code or 'ERR') .. ' ' .. command .. ' in a script: ' .. (reason or reply.err)
        return ''
    end
    return reply
end

try('SET', name, 'abc', 'PX', 1000)
try('SETRANGE', name, 3, 'd')
try('PEXPIRE', name, 1000)
local value = try('GET', name)
local length = try('STRLEN', name)
local part = try('GETRANGE', name, 1, 2)
try('DEL', name)
local set_once = try('SET', name, 1, 'NX', 'PX', 1000)
try('DEL', name)
if failed then
    return redis.error_reply(failed)
end
if not set_once or part ~= string.sub(value, 2, 3) then
    value = ''
end
return {now, value, length, struct.pack('>I4', 7)}

-- token_bucket and leaky_bucket: a debt that drains at a constant rate, stored as the instant at which it is paid.
--
-- Value: unit 5 bytes, instant in microseconds 7 bytes, and 4 bytes of parts if a microsecond has parts. The unit is the
-- first 5 bytes of the scale, a double: the microseconds of a whole token bucket, or of one request of a leaky bucket. A
-- debt that was stored under another scale is the same share of the new one.
--
-- If late costs have led to a debt of more than a whole bucket, the parts are always there and are followed by the first
-- 5 bytes of the scale of one request and the instant of writing, 7 bytes. The debt below empty is as many requests of a
-- new scale.
algorithms[1] = function()
    local kind = {}

    local function valid(scale)
        return scale >= 1e-7 and scale <= 1e16
    end

    local function after(a, a_part, b, b_part)
        return a > b or (a == b and a_part > b_part)
    end

    -- Converts a debt from the scales of a value to those of the key. Units are truncated, so the result is a little too
    -- large; the factor covers the rounding.
    local function rescaled(key, value, owed)
        local scale = struct.unpack('>d', string.sub(value, 1, 5) .. '\0\0\0')
        local request = #value == 28 and struct.unpack('>d', string.sub(value, 17, 21) .. '\0\0\0') or scale
        if not valid(scale) or not valid(request) then
            return 0
        end
        local within = #value == 28 and math.min(owed, scale) or owed
        local debt = within * (key.scale / scale) + (owed - within) * (key.request / request)
        return math.ceil(debt * (1 + 1e-9))
    end

    function kind.load(key, at)
        key.unit = string.sub(key.argument, at, at + 4)
        key.scale, key.parts, key.cost, key.cost_part, key.room, key.room_part, key.whole, key.whole_part, key.most,
            key.most_part, key.request, key.tail = struct.unpack('>dI4I7I4I7I4I7I4I7I4d', key.argument, at)
        local value = get(key.name)
        key.value = value
        local owed, part = 0, 0
        if #value == 12 or #value == 16 or #value == 28 then
            local paid = struct.unpack('>I7', value, 6)
            owed, part = paid - now, #value >= 16 and struct.unpack('>I4', value, 13) or 0
            if owed < 0 then
                owed, part = 0, 0
            end
            -- The clock may have been set back: the debt is at most a whole bucket, or the debt at the time of writing.
            local most, most_part = key.whole, key.whole_part
            if #value == 28 then
                most, most_part = key.most, key.most_part
                if owed > paid - struct.unpack('>I7', value, 22) then
                    owed = paid - struct.unpack('>I7', value, 22)
                    key.changed = true
                end
            end
            -- Buckets with the same time to fill may hold other numbers of requests.
            local is_other = string.sub(value, 1, 5) ~= key.unit
            if #value == 28 and string.sub(value, 17, 21) ~= string.sub(struct.pack('>d', key.request), 1, 5) then
                is_other = true
            end
            if is_other then
                owed, part = rescaled(key, value, owed + (part > 0 and 1 or 0)), 0
                key.changed = owed > 0
            elseif part >= key.parts then
                owed, part = owed + 1, 0
            end
            if after(owed, part, most, most_part) then
                owed, part = most, most_part
                key.changed = true
            end
        end
        key.owed, key.part = owed, part
        key.was, key.was_part = owed, part
    end

    function kind.fits(key)
        return not key.never and not after(key.owed, key.part, key.room, key.room_part)
    end

    function kind.charge(key)
        key.owed, key.part = key.owed + key.cost, key.part + key.cost_part
        if key.part >= key.parts then
            key.owed, key.part = key.owed + 1, key.part - key.parts
        end
        key.changed = true
    end

    function kind.spend(key)
        kind.charge(key)
        if after(key.owed, key.part, key.most, key.most_part) then
            key.owed, key.part = key.most, key.most_part
        end
    end

    -- A charge drains after the debts before it: the part of it that is left is the time until the receipt, and never more
    -- than the cost.
    function kind.refund(key)
        local left, left_part = struct.unpack('>I7I4', key.argument, key.tail)
        left = left - now
        if left < 0 then
            return
        end
        if after(left, left_part, key.cost, key.cost_part) then
            left, left_part = key.cost, key.cost_part
        end
        if not after(key.owed, key.part, left, left_part) then
            key.owed, key.part = 0, 0
        else
            key.owed, key.part = key.owed - left, key.part - left_part
            if key.part < 0 then
                key.owed, key.part = key.owed - 1, key.part + key.parts
            end
        end
        key.changed = true
    end

    function kind.loaded_state(key)
        return {key.was, key.was_part}
    end

    function kind.state(key)
        return {key.owed, key.part}
    end

    function kind.save(key)
        local value = ''
        if key.owed > 0 or key.part > 0 then
            value = key.unit .. struct.pack('>I7', now + key.owed)
            if after(key.owed, key.part, key.whole, key.whole_part) then
                local request = string.sub(struct.pack('>d', key.request), 1, 5)
                value = value .. struct.pack('>I4', key.part) .. request .. struct.pack('>I7', now)
            elseif key.parts > 1 then
                value = value .. struct.pack('>I4', key.part)
            end
        end
        set(key.name, key.value, value, key.owed + (key.part > 0 and 1 or 0))
    end

    return kind
end

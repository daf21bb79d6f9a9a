-- token_bucket and leaky_bucket: a debt that drains at a constant rate, kept as the instant at which it is paid.
--
-- unit 5 bytes, instant in microseconds 7 bytes, and where a microsecond has parts, 4 bytes of them.
-- The unit is the front of the scale, a double: microseconds of a whole token bucket, or of one request of a leaky
-- one. A debt that was written under another scale is worth as much of the new one.
--
-- Where late costs left more owed than a whole bucket, the parts are always there, and behind them the front of the
-- scale of one request, 5 bytes, and the instant at which all this was written, 7 bytes. What is owed below empty is
-- worth as many requests of a new scale.
algorithms[1] = function()
    local kind = {}

    local function valid(scale)
        return scale >= 1e-7 and scale <= 1e16
    end

    local function after(a, a_part, b, b_part)
        return a > b or (a == b and a_part > b_part)
    end

    -- What was owed under the scales of a value in those of the key. Units are cut off, so the debt comes out a little
    -- too large; the factor covers the rounding.
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
            -- The clock may have been set back: no more is owed than a whole bucket, or what was below empty when it was
            -- written.
            local most, most_part = key.whole, key.whole_part
            if #value == 28 then
                most, most_part = key.most, key.most_part
                if owed > paid - struct.unpack('>I7', value, 22) then
                    owed = paid - struct.unpack('>I7', value, 22)
                    key.changed = true
                end
            end
            -- Buckets that last as long may hold other numbers of requests.
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

    function kind.refuse()
        return false
    end

    function kind.spend(key)
        kind.charge(key)
        if after(key.owed, key.part, key.most, key.most_part) then
            key.owed, key.part = key.most, key.most_part
        end
    end

    -- What is given back drains after all that was owed before it: what is left of it is what is left until the
    -- receipt, and never more than the whole cost.
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

    function kind.told(key)
        return {key.was, key.was_part}
    end

    function kind.retold(key)
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

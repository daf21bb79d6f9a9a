-- token_bucket and leaky_bucket: a debt that drains at a constant rate, kept as the instant at which it is paid.
--
-- unit 5 bytes, instant in microseconds 7 bytes, and where a microsecond has parts, 4 bytes of them.
-- The unit is the front of the scale, a double: microseconds of a whole token bucket, or of one request of a leaky
-- one. A debt that was written under another scale is worth as much of the new one.
algorithms[1] = function()
    local kind = {}

    local function valid(scale)
        return scale >= 1e-7 and scale <= 1e16
    end

    local function after(a, a_part, b, b_part)
        return a > b or (a == b and a_part > b_part)
    end

    function kind.load(key, at)
        key.unit = string.sub(key.argument, at, at + 4)
        key.scale, key.parts, key.cost, key.cost_part, key.room, key.room_part, key.whole, key.whole_part, key.tail =
            struct.unpack('>dI4I7I4I7I4I7I4', key.argument, at)
        local value = get(key.name)
        key.value = value
        local owed, part = 0, 0
        if #value == 12 or #value == 16 then
            owed = struct.unpack('>I7', value, 6) - now
            part = #value == 16 and struct.unpack('>I4', value, 13) or 0
            if owed < 0 then
                owed, part = 0, 0
            end
            local unit = string.sub(value, 1, 5)
            if unit ~= key.unit then
                local scale = struct.unpack('>d', unit .. '\0\0\0')
                if valid(scale) then
                    -- The unit was cut off, so the debt comes out a little too large; this covers the rounding.
                    owed = math.ceil((owed + (part > 0 and 1 or 0)) * (key.scale / scale) * (1 + 1e-9))
                else
                    owed = 0
                end
                part = 0
                key.changed = owed > 0
            elseif part >= key.parts then
                owed, part = owed + 1, 0
            end
            -- The clock was set back by more than a whole bucket drains in: that much is owed and no more.
            if after(owed, part, key.whole, key.whole_part) then
                owed, part = key.whole, key.whole_part
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
        if after(key.owed, key.part, key.whole, key.whole_part) then
            key.owed, key.part = key.whole, key.whole_part
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
            if key.parts > 1 then
                value = value .. struct.pack('>I4', key.part)
            end
        end
        set(key.name, key.value, value, key.owed + (key.part > 0 and 1 or 0))
    end

    return kind
end

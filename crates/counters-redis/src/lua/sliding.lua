-- sliding_window. Value: period 6 bytes, number of sub-windows 2 (plus 32768 if the limit is strict), index of the newest one since the epoch 7, and 4 bytes for
-- each count, newest first, without the zeros of the oldest ones.
algorithms[3] = function()
    local kind = {}

    -- The index of the sub-window of `now`, and the position in it, in microseconds times `slices`.
    local function position(period, slices)
        local inside = now % period
        local more, rest = muldiv(inside, slices, period)
        return (now - inside) / period * slices + more, rest
    end

    -- The sum of the counts of all sub-windows but the oldest, and the count of the oldest.
    local function parts(counts, slices)
        local n = #counts / 4
        local numbers = {struct.unpack('>' .. string.rep('I4', n), counts)}
        local sum = 0
        for i = 1, math.min(n, slices) do
            sum = sum + numbers[i]
        end
        return sum, n > slices and numbers[slices + 1] or 0
    end

    -- Shifts the counts so that sub-window `index` is the newest, unless they are ahead of it.
    local function advance(counts, from, index, slices)
        local steps = math.min(index - from, slices + 1)
        return string.sub(string.rep('\0\0\0\0', steps) .. counts, 1, 4 * (slices + 1))
    end

    -- A strict limit counts the oldest sub-window in full.
    local function estimate(counts, period, slices, inside, strict)
        local sum, oldest = parts(counts, slices)
        return sum + (strict and oldest or (muldiv(period - inside, oldest, period)))
    end

    -- The number of sub-windows, and whether the limit is strict.
    local function unpack_slices(number)
        if number >= 32768 then
            return number - 32768, true
        end
        return number, false
    end

    function kind.load(key, at)
        local period, number
        period, number, key.count, key.cost, key.tail = struct.unpack('>I6I2I4I4', key.argument, at)
        local slices, strict = unpack_slices(number)
        key.period, key.slices, key.number = period, slices, number
        local value = get(key.name)
        local index, inside = position(period, slices)
        local current, counts = index, ''
        if #value >= 19 and #value % 4 == 3 then
            local old, old_number, newest = struct.unpack('>I6I2I7', value)
            local old_slices, old_strict = unpack_slices(old_number)
            if is_period(old) and old_slices >= 1 and old_slices <= 1000 and #value <= 15 + 4 * (old_slices + 1) then
                local old_index, old_inside = position(old, old_slices)
                counts = string.sub(value, 16)
                if newest > old_index then
                    old_index, old_inside = newest, 0 -- the clock was set back
                else
                    counts = advance(counts, newest, old_index, old_slices)
                end
                local same = old == period and old_slices == slices
                -- The sub-windows have changed, or the clock was set back by more than a period: the estimate counts in
                -- the current sub-window.
                if not same or newest > current + slices then
                    local used = estimate(counts, old, old_slices, old_inside, old_strict)
                    counts = used > 0 and struct.pack('>I4', math.min(used, 4294967295)) or ''
                    key.changed = used > 0
                else
                    index, inside = old_index, old_inside
                end
            end
        end
        key.ahead = index - current
        key.value, key.index, key.inside, key.was = value, index, inside, counts
        key.newest = #counts >= 4 and struct.unpack('>I4', counts) or 0
        key.used = estimate(counts, period, slices, inside, strict)
    end

    function kind.fits(key)
        return not key.never and key.used + key.cost <= key.count
    end

    function kind.charge(key)
        key.used, key.newest = key.used + key.cost, key.newest + key.cost
        key.changed = true
    end

    kind.spend = kind.charge

    local function counts(key)
        return struct.pack('>I4', math.min(key.newest, 4294967295)) .. string.sub(key.was, 5)
    end

    function kind.refund(key)
        local age = key.index - struct.unpack('>I7', key.argument, key.tail)
        local at = 4 * age + 1
        if age == 0 then
            key.newest = math.max(0, key.newest - key.cost)
            key.changed = true
        elseif age > 0 and at < #key.was then
            local left = math.max(0, struct.unpack('>I4', key.was, at) - key.cost)
            key.was = string.sub(key.was, 1, at - 1) .. struct.pack('>I4', left) .. string.sub(key.was, at + 4)
            key.changed = true
        end
    end

    function kind.loaded_state(key)
        return {key.index, key.was}
    end

    function kind.state(key)
        return {key.index, counts(key)}
    end

    function kind.save(key)
        local kept = counts(key)
        local stop = #kept
        while stop > 0 and string.sub(kept, stop - 3, stop) == '\0\0\0\0' do
            stop = stop - 4
        end
        if stop == 0 then
            set(key.name, key.value, '', 0)
            return
        end
        local value = struct.pack('>I6I2I7', key.period, key.number, key.index) .. string.sub(kept, 1, stop)
        -- The newest sub-window expires one period after its end.
        local to_end = ((key.ahead + 1) * key.period - key.inside) / key.slices
        set(key.name, key.value, value, math.ceil(to_end) + key.period)
    end

    return kind
end

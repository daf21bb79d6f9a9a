-- fixed_window. Value: period 6 bytes, index of the window since the epoch 6, used 4. With a calendar: 0 in 6 bytes, the
-- second in which the window begins 6, used 4, the second in which it ends 4.
algorithms[2] = function()
    local kind = {}

    -- The window of an instant: its index, start and end. An argument has only some windows of a calendar: earlier instants
    -- belong to the first, later ones to the last.
    local function window(key, at)
        local starts = key.starts
        if not starts then
            local index = (at - at % key.period) / key.period
            return index, index * key.period, (index + 1) * key.period
        end
        local i = 1
        while i < #starts - 1 and starts[i + 1] * 1000000 <= at do
            i = i + 1
        end
        return starts[i], starts[i] * 1000000, starts[i + 1] * 1000000
    end

    -- The start of a window of a calendar, in microseconds.
    local function starts_at(key, i)
        return key.starts[i] * 1000000
    end

    -- The stored window: its start and end, and the used part.
    local function stored(value)
        if #value == 16 then
            local period, index, used = struct.unpack('>I6I6I4', value)
            if is_period(period) then
                return index * period, (index + 1) * period, used
            end
        elseif #value == 20 then
            local _, from, used, to = struct.unpack('>I6I6I4I4', value)
            return from * 1000000, to * 1000000, used
        end
        return 0, 0, 0
    end

    function kind.load(key, at)
        key.period, key.count, key.cost, key.tail = struct.unpack('>I6I4I4', key.argument, at)
        if key.period == 0 then
            key.behind = 20
            key.starts = {struct.unpack('>I4I4I4I4I4', key.argument, #key.argument - 19)}
            key.starts[6] = nil -- the position that struct.unpack returns
        end
        local value = get(key.name)
        local index, from, to = window(key, now)
        local used = 0
        local begun, over, then_used = stored(value)
        local is_covered = not key.starts or (starts_at(key, 1) <= now and now < starts_at(key, #key.starts))
        if over > now and not is_covered then
            -- The clock of the caller differs, and the argument has no window around now: the stored one is kept.
            index, from, to, used = begun / 1000000, begun, over, then_used
        elseif over > now then
            -- The stored window is not over: it counts in the same window or, if the windows have changed, in the current one,
            -- or after the clock was set back in the one in which the stored one began.
            local _, _, next_over = window(key, to)
            index, from, to = window(key, math.max(now, begun))
            used = then_used
            key.changed = from ~= begun or to ~= over
            if from >= next_over then
                index, from, to = window(key, now) -- the clock was set back by more than a whole window
                key.changed = true
            end
        end
        key.value, key.index, key.over, key.used, key.was = value, index, to, used, used
    end

    function kind.fits(key)
        return not key.never and key.used + key.cost <= key.count
    end

    function kind.charge(key)
        key.used = key.used + key.cost
        key.changed = true
    end

    function kind.spend(key)
        key.used = math.min(key.used + key.cost, 4294967295)
        key.changed = true
    end

    function kind.refund(key)
        if struct.unpack('>I6', key.argument, key.tail) == key.index and key.used > 0 then
            key.used = math.max(0, key.used - key.cost)
            key.changed = true
        end
    end

    function kind.loaded_state(key)
        return {key.index, key.was}
    end

    function kind.state(key)
        return {key.index, key.used}
    end

    function kind.save(key)
        local value = ''
        if key.used > 0 and key.starts then
            value = struct.pack('>I6I6I4I4', 0, key.index, key.used, key.over / 1000000)
        elseif key.used > 0 then
            value = struct.pack('>I6I6I4', key.period, key.index, key.used)
        end
        set(key.name, key.value, value, math.max(0, key.over - now))
    end

    return kind
end

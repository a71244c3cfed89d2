-- Numbers as text. Lua's own conversion keeps 14 digits and falls into exponents; Redis then stores
-- that. Every number that becomes an argument, a field or a reply goes through here.
local function text(number)
  return string.format('%.0f', number)
end

-- What a script may use on every supported server and in memory: plain Lua 5.1 without the modules
-- that differ (cjson, cmsgpack, struct, bit), without the outside world, without code from text.
std = {
  read_globals = {
    "redis", "KEYS", "ARGV",
    "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring", "type", "unpack",
    "math", "string", "table",
  },
}
max_line_length = 120

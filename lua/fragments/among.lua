-- Whether a state is among those that a call is meant for: a text of words, empty for all. A verb that is
-- done to the jobs of a list names them, since a job may have changed after the list was read.
local function is_among(states, state)
  return states == '' or string.find(' ' .. states .. ' ', ' ' .. state .. ' ', 1, true) ~= nil
end
